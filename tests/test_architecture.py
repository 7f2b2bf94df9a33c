"""What docs/architecture.md and docs/extending.md say of the code: names, imports, sizes."""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

from multispin_env.model import kernels

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "multispin_env"
PAGES = ("docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md")
OURS = ("multispin_env", "baselines", "agents", "scripts")
#: Each may import itself and all before it.
ORDER = ("model", "scenario", "solvers", "world", "envs", "benchmark")
#: Files beside the folders, by the last folder that they may import.
LOOSE = {"__init__": "world", "_moved": None, "parallel": "solvers"}
#: Who may import `multispin_env.parallel`, of the package.
SPREADS = ("benchmark",)
MOST_LINES, MOST_ARGUMENTS = 500, 8


# ---- names in the pages ------------------------------------------------------------------------


def words(page):
    """What stands between backticks, code blocks left out."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text("utf8"), flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", text)


def paths(page):
    """Files that a page names, by what they look like, and relative links."""
    text = (ROOT / page).read_text("utf8")
    links = re.findall(r"\]\(([^)#:]+)", text)
    named = [word.split(" ")[-1] for word in words(page)]
    named = [word for word in named if re.fullmatch(r"[\w.-]+(/[\w.-]+)+", word)]
    return {(ROOT / page).parent / link for link in links} | {
        ROOT / word for word in named if not re.search(r"NAME|^multispin/", word)
    }


def exists(name):
    """Whether a dotted name can be imported, as a module or as something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def defined():
    """Names of all modules, functions, classes, fields and constants in the code and the tests."""
    found = set()
    for top in (*OURS, "tests"):
        for path in (ROOT / top).rglob("*.py"):
            text = path.read_text("utf8")
            found |= {path.stem} | set(re.findall(r"\b(?:def|class) (\w+)", text))
            found |= set(re.findall(r"^ *(\w+)(?:: [^=\n]+)?(?: =|: )", text, re.M))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_files_and_links_of_the_pages_exist(page):
    found = paths(page)
    assert found
    assert [str(path) for path in sorted(found) if not path.exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_dotted_names_of_the_pages_exist(page):
    names = re.findall(r"\b((?:multispin_env|baselines|agents)(?:\.\w+)+)", " ".join(words(page)))
    assert [name for name in names if not name.endswith(".py") and not exists(name)] == []


@pytest.mark.parametrize("page", PAGES[:2])
def test_functions_of_the_pages_exist(page):
    """`name`, `Class.name`, `module.name` and `test_name`, each part somewhere in the code."""
    others = {"predict", "NUMBA_CACHE_DIR", "__pycache__"}  # of other projects
    shape = re.compile(r"\w*[A-Z_]\w*(\.\w+)*|\w+\.\w+")
    named = [word for word in words(page) if shape.fullmatch(word)]
    named = [word for word in named if not re.search(r"\.(py|md|toml)$|SHA256SUMS|NAME|None", word)]
    named = [word for word in named if word.split(".")[0] not in OURS]  # those are imported above
    assert len(named) > 20
    known = defined() | others
    assert [word for word in named if not set(word.split(".")) <= known] == []


def test_a_missing_name_is_noticed():
    assert exists("multispin_env.world.round.play_round")
    assert exists("multispin_env.model.kernels")
    assert not exists("multispin_env.world.round.play_rounds")
    assert not exists("multispin_env.no_such_module")
    assert "play_cell" in defined()
    assert "no_" + "such_function" not in defined()


# ---- imports ------------------------------------------------------------------------------------


def imports(path):
    """Dotted names that a file imports, wherever in it: modules, and what is taken from them."""
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def refused(place, name):
    """Whether a file at `place` (a folder, or a loose file of the package) may not import it."""
    top, _, rest = name.partition(".")
    if top != "multispin_env":
        return top in OURS
    part = rest.split(".")[0]
    if part == "parallel":
        return place not in SPREADS
    if part not in ORDER:
        return not (place == "__init__" and part == "_moved")
    last = LOOSE.get(place, place)
    return last is None or ORDER.index(part) > ORDER.index(last)


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(PACKAGE)) for p in FILES])
def test_imports_go_one_way(path):
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert first in (*ORDER, *LOOSE)  # a new folder needs a place in the order
    assert [name for name in imports(path) if refused(first, name)] == []


@pytest.mark.parametrize(
    ("place", "name", "wrong"),
    [
        ("model", "multispin_env.model.sums.total", False),
        ("model", "multispin_env.scenario", True),
        ("scenario", "multispin_env.solvers.problems.pose", True),
        ("world", "multispin_env.envs.rewards", True),
        ("envs", "multispin_env.world.tape", False),
        ("envs", "multispin_env.parallel", True),
        ("benchmark", "multispin_env.parallel", False),
        ("benchmark", "baselines.make", True),
        ("parallel", "multispin_env.world", True),
        ("envs", "multispin_env.Scenario", True),  # by way of the whole package
        ("model", "numpy", False),
    ],
)
def test_wrong_imports_are_noticed(place, name, wrong):
    assert refused(place, name) is wrong


# ---- sizes --------------------------------------------------------------------------------------


def test_no_file_is_long():
    lengths = {path.name: len(path.read_text("utf8").splitlines()) for path in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_compiled_function_has_many_arguments():
    found = {}
    for module in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        for name, item in vars(importlib.import_module(module.name)).items():
            if hasattr(item, "py_func"):
                found[name] = len(inspect.signature(item.py_func).parameters)
    assert len(found) > 50
    assert {name: count for name, count in found.items() if count > MOST_ARGUMENTS} == {}
