"""docs/benchmark.md, as a newcomer follows it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "benchmark.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
COMMANDS, OTHERS, _ = (
    block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
)


def leaderboard(arguments, cwd):
    script = ROOT / "scripts" / "leaderboard.py"
    return subprocess.run(
        [sys.executable, script, *arguments], cwd=cwd, capture_output=True, text=True
    )


@pytest.mark.slow
def test_a_newcomers_policy_is_evaluated_packed_verified_and_ranked(tmp_path):
    assert len(PYTHON[0].splitlines()) <= 31
    assert len(COMMANDS) == 4
    (tmp_path / "my_policy.py").write_text(PYTHON[0])
    printed = []
    for command in COMMANDS:
        start, script, *arguments = shlex.split(command)
        assert (start, script) == ("python", "scripts/leaderboard.py")
        done = leaderboard(arguments, tmp_path)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert "entries/mine: verified" in printed[2]
    assert "| 1 | Threshold | analytical | verified |" in printed[3]
    table = (tmp_path / "entries" / "leaderboard.csv").read_text()
    assert table.count("Threshold,analytical,verified") == 4
    assert "Page: entries/leaderboard.html" in printed[3]
    page = (tmp_path / "entries" / "leaderboard.html").read_text()
    assert page.count("python scripts/leaderboard.py verify entries/mine<") == 1
    # The same with the papers' policies, and both in one table.
    more = [shlex.split(command)[2:] for command in OTHERS]
    more += [["verify", "entries/papers", "--replay-only"], shlex.split(COMMANDS[3])[2:]]
    printed = []
    for arguments in more:
        done = leaderboard(arguments, tmp_path)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[2].count("p = ") == 4
    assert dict(re.findall(r"\| (\d) \| (\w+) \|", printed[-1])) == {
        "1": "Papers",
        "2": "Threshold",
    }
    # An entry that cannot be ranked is named, and the others are.
    broken = tmp_path / "entries" / "broken"
    broken.mkdir()
    (broken / "entry.toml").write_text("name = 3")
    done = leaderboard(["build", "entries", "--suite", "quick"], tmp_path)
    assert done.returncode == 0
    assert "broken is left out: " in done.stdout
    assert "Threshold" in done.stdout


def test_the_python_example_runs(capsys):
    exec(PYTHON[1], {})
    assert "difference" in capsys.readouterr().out


def test_suites_are_listed():
    out = leaderboard(["suites"], ROOT).stdout
    assert "quick: Four tasks" in out
    assert out.count("multispin/") == 23


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evaluate nobody --suite quick --output x", "policy = 'nobody': must be FILE.py"),
        ("evaluate deadline --suite fast --output x", "suite = 'fast'"),
        ("evaluate papers --suite quick --output x --option name", "must be KEY=VALUE"),
        ("evaluate papers --suite quick --output x --task a", "task = 'a'"),
        ("pack missing --entry e --name A --authors B", "no finished results"),
        ("verify missing", "holds no entry.toml"),
        ("build missing --suite quick", "holds none of quick"),
        ("compare missing missing", "no finished results"),
    ],
)
def test_errors_are_told_in_a_line(tmp_path, arguments, message):
    done = leaderboard(arguments.split(), tmp_path)
    assert done.returncode != 0
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
