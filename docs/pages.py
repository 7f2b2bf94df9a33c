"""What the site's pages take from the code: docstrings in Markdown, tables, citations, formulas."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from multispin_env import Scenario, list_scenarios, scenario
from multispin_env.scenario.sections import Section

LOGGER = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent
SECTIONS = {"models", "drafting", "verification", "payload", "radio", "channel", "episode"}


# ---- tables of scenarios ---------------------------------------------------------------------


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted fields; ranges and tasks stay together."""
    flat = {}
    for key, value in data.items():
        if isinstance(value, dict) and key != "tasks" and set(value) != {"min", "max"}:
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        if set(value) == {"min", "max"}:
            return f"{value['min']:g} to {value['max']:g}"
        return ", ".join(f"{name} {rate:g}" for name, rate in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def scenario_comparison() -> str:
    """The shipped scenarios side by side, as a Markdown table with a row a field."""
    names = list_scenarios()
    columns = [_flat(Scenario.load(name).to_dict()) for name in names]
    keys = [key for column in columns for key in column]
    keys = [key for key in dict.fromkeys(keys) if key not in ("name", "reference_physics")]
    sections = list(dict.fromkeys(key.split(".")[0] for key in keys))
    keys.sort(key=lambda key: sections.index(key.split(".")[0]))
    rows = [[f"`{key}`", *(_shown(column.get(key)) for column in columns)] for key in keys]
    return _table(["field", *(f"`{name}`" for name in names)], rows)


def scenario_fields() -> dict[str, str]:
    """Tables of all fields by class: override key, meaning and unit, what is allowed, default."""
    tables = {}
    for name, section in vars(scenario).items():
        if not (inspect.isclass(section) and issubclass(section, Section)):
            continue
        meanings = ModuleAnalyzer.for_module(section.__module__).find_attr_docs()
        rows = []
        for item in fields(section):
            key = section.PREFIX + item.name
            meaning = " ".join(meanings[name, item.name]).strip()
            rows.append([f"`{key}`", meaning, _allowed(item), _default(item)])
        tables[name] = _table(["override key", "meaning", "allowed", "default"], rows)
    return tables


def _default(item: Any) -> str:
    if item.default is MISSING:
        return "required"
    if isinstance(item.default, scenario.Range):
        return _shown(asdict(item.default))
    return "none" if item.default is None else f"`{item.default}`"


def _allowed(item: Any) -> str:
    """What a field takes, in the words of the error that a wrong value raises."""
    if item.name in SECTIONS:
        return "a table, see below"
    try:
        item.metadata["check"](item.name, object())
    except ValueError as error:
        return str(error).split(": must be ", 1)[1].replace("'", "`")
    raise AssertionError(f"{item.name} takes anything")


# ---- citations -------------------------------------------------------------------------------


def bibtex() -> str:
    """BibTeX entries of the software and of the papers, from CITATION.cff."""
    data = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
    software = {
        "title": f"{{{data['title']}}}",
        "author": f"{{{data['authors'][0]['name']}}}",
        "version": data["version"],
        "year": data["references"][0]["year"],
    }
    entries = [_entry("software", "multispin_gym", software)]
    for reference in data["references"]:
        authors = [f"{a['family-names']}, {a['given-names']}" for a in reference["authors"]]
        number = reference["identifiers"][0]["value"].removeprefix("arXiv:")
        entry = {
            "title": f"{{{reference['title']}}}",
            "author": " and ".join(authors),
            "year": reference["year"],
            "eprint": number,
            "archiveprefix": "arXiv",
        }
        first = reference["authors"][0]["family-names"].lower()
        entries.append(_entry("article", f"{first}{reference['year']}", entry))
    return "```bibtex\n" + "\n\n".join(entries) + "\n```"


def _entry(kind: str, key: str, values: dict[str, Any]) -> str:
    lines = [f"  {name:<13} = {{{value}}}," for name, value in values.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


# ---- docstrings of the environments, which are Markdown, as Gymnasium's ------------------------


class DocstringDirective(SphinxDirective):
    """The Markdown docstring of a Python object, its headings as sections of the page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the docstring in place."""
        module, name = self.arguments[0].rsplit(".", 1)
        text = inspect.getdoc(getattr(importlib.import_module(module), name))
        assert text is not None
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def _leave_out_markdown(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Clear them: autodoc reads reStructuredText: of an environment it shows the signature only."""
    if any(line.startswith("## ") for line in lines):
        lines[:] = []


def _shorten(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """Write aliases by their names, and defaults that are made anew for each object as `...`."""
    if signature is None:
        return None
    alias = r"~?[\w.]*TypeAliasForwardRef\('(\w+)'\)"
    returns = returns and re.sub(alias, r"\1", returns)
    return re.sub(alias, r"\1", signature).replace("<factory>", "..."), returns


# ---- formulas ----------------------------------------------------------------------------------


def _formula(translator: Any, node: nodes.Node) -> None:
    """LaTeX as MathML, by docutils."""
    block = isinstance(node, nodes.math_block)
    try:
        mathml = tex2mathml(node.astext(), as_block=block)
    except MathError as error:
        LOGGER.warning("formula %r: %s", node.astext(), error, location=node)
        raise nodes.SkipNode from error
    translator.body.append(f'<div class="math">{mathml}</div>' if block else mathml)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of this with Sphinx."""
    app.add_directive("docstring", DocstringDirective)
    app.connect("autodoc-process-docstring", _leave_out_markdown)
    app.connect("autodoc-process-signature", _shorten)
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
