"""The board that the repository carries: its entries are whole, its tables are theirs."""

import importlib.util
import sys
from pathlib import Path

import pytest

from multispin_env import benchmark
from multispin_env.benchmark import Verification, report
from multispin_env.benchmark.report import Line

ROOT = Path(__file__).parents[1]
BOARD = ROOT / "leaderboard" / "core-2026"
ENTRIES = sorted(path.parent.name for path in BOARD.glob("*/entry.toml"))


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("stable_baselines3", reason="needs the extra [train]: stable-baselines3")
    spec = importlib.util.spec_from_file_location("board", ROOT / "scripts" / "board.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["board"] = module
    spec.loader.exec_module(module)
    return module


def test_the_board_has_the_entries_of_its_script(script):
    assert sorted(script.SPECS) == ENTRIES


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_was_verified_as_it_is(name):
    found = Verification.load(BOARD / name)  # None if a file has changed since
    assert found is not None
    assert found.status == "verified", found.reason


def test_the_tables_are_those_of_the_stored_results(script):
    for page, table in script.pages(BOARD).items():
        text = page.read_text("utf8")
        assert report.put_between(text, "board", table) == text
    lines = [Line.of_entry(BOARD / name) for name in ENTRIES]
    built = report.build(lines, benchmark.load_references(benchmark.load("core-2026")))
    assert report.table_csv(built) == (BOARD / "leaderboard.csv").read_text("utf8")
    assert report.markdown(built) == (BOARD / "leaderboard.md").read_text("utf8")


def test_learned_agents_are_where_the_docs_say(script):
    """Above greedy with intervals apart; from scratch at least 0.97 of the reference at 20 dBm."""
    references = benchmark.load_references(benchmark.load("core-2026"))
    lines = {name: Line.of_entry(BOARD / name) for name in ENTRIES}
    built = report.build(list(lines.values()), references)
    rows = {(row.task, row.name): row.goodput for row in built.rows}
    for task in script.COMMON:
        greedy = rows[task, lines["papers"].name]
        for name in ("distilled", "finetuned", "scratch"):
            assert rows[task, lines[name].name].interval[0] > greedy.interval[1]
    reference = references[script.COMMON[0]].reference.mean()
    for results in lines["scratch"].results:
        assert results.column(script.COMMON[0], "goodput").mean() > 0.97 * reference
