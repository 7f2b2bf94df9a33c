"""The documentation site, without building it: pages, code blocks, tables, public names.

`make docs` builds it, executes its notebooks, and fails on any warning.
"""

import ast
import importlib
import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import multispin_env
from multispin_env import Scenario, list_scenarios, scenario

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in DOCS.rglob("*.md")}
NOTEBOOKS = sorted(name for name in PAGES if name.startswith("tutorials/"))
#: Pages whose blocks other tests run.
TESTED = {"agents", "benchmark", "optimality", "reproduction"}
PACKAGES = (
    "multispin_env",
    "multispin_env.benchmark",
    "multispin_env.solvers",
    "baselines",
    "agents",
)


def blocks(page, kind="python"):
    return re.findall(rf"^```{re.escape(kind)}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_every_page_is_in_a_table_of_contents():
    found = {"index"}
    for name, path in PAGES.items():
        folder = path.parent.relative_to(DOCS)
        for tree in blocks(path.read_text("utf8"), "{toctree}"):
            for entry in re.findall(r"^[^:\s].*$", tree, re.MULTILINE):
                listed = DOCS.glob(f"{folder / entry}.md")
                found |= {p.relative_to(DOCS).with_suffix("").as_posix() for p in listed} - {name}
    assert found == set(PAGES)


WITH_CODE = sorted(
    name for name in set(PAGES) - TESTED - set(NOTEBOOKS) if blocks(PAGES[name].read_text("utf8"))
)


@pytest.mark.parametrize("name", WITH_CODE)
def test_code_blocks_run(name, capsys):
    exec("\n".join(blocks(PAGES[name].read_text("utf8"))), {"__name__": "page"})
    assert capsys.readouterr().out  # each page's code shows something


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_executed_and_parse(name):
    text = PAGES[name].read_text("utf8")
    assert text.startswith("---\nfile_format: mystnb\n")
    cells = blocks(text, "{code-cell} python")
    assert len(cells) >= 5
    for cell in cells:
        ast.parse(cell)
    assert not blocks(text)  # a plain block would not be executed


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_documented(package):
    """Each has a docstring, and the reference has its package, or the constant by name."""
    reference = "".join(path.read_text("utf8") for path in (DOCS / "api").glob("*.md"))
    assert f".. automodule:: {package}\n   :members:\n   :imported-members:" in reference
    if package == "agents":
        pytest.importorskip("stable_baselines3", reason="needs the extra [train]")
    module = importlib.import_module(package)
    for name in module.__all__:
        item = getattr(module, name)
        if inspect.isclass(item) or inspect.isroutine(item):
            assert item.__doc__, name
        elif inspect.ismodule(item):
            assert f".. automodule:: {item.__name__}\n" in reference
        else:
            assert re.search(rf"\.\. autodata:: {package}\.\w+\.{name}\n", reference), name


@pytest.fixture
def pages(monkeypatch):
    pytest.importorskip("sphinx", reason="needs the extra `docs`")
    monkeypatch.syspath_prepend(str(DOCS))
    yield importlib.import_module("pages")
    sys.modules.pop("pages")


def test_tables_have_every_field(pages):
    tables = pages.scenario_fields()
    text = (DOCS / "scenarios.md").read_text("utf8")
    sections = [c for c in vars(scenario).values() if inspect.isclass(c) and hasattr(c, "PREFIX")]
    for section in sections:
        assert f"{{{{ fields_{section.__name__} }}}}" in text
        for item in fields(section):
            assert f"| `{section.PREFIX}{item.name}` |" in tables[section.__name__]
    assert "| `radio.bandwidth_hz` | the whole band [Hz], shared" in tables["UploadRadio"]
    assert "| a number in [1, 1e+15] | required |" in tables["UploadRadio"]
    comparison = pages.scenario_comparison()
    for name in list_scenarios():
        assert f"scenarios/{name}.toml" in text
        assert f"{Scenario.load(name).reference_goodput:g}" in comparison


def test_citations_are_those_of_the_file(pages):
    entries = pages.bibtex()
    assert f"version       = {{{multispin_env.__version__}}}" in entries
    assert re.findall(r"eprint        = \{(.*)\}", entries) == ["2606.04581", "2608.29618"]
    assert entries.count(" and ") == 6  # six authors of one paper, two of the other
