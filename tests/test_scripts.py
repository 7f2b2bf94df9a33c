"""The scripts run from end to end, at their smallest."""

import subprocess
import sys
from pathlib import Path

import imageio.v3 as iio
import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, SCRIPTS / name, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_demo_prints_tables_and_draws_the_curves(tmp_path):
    out = run("demo.py", "--episodes", 2, "--output", tmp_path)
    assert out.count("95 % interval") == 2
    rows = [line for line in out.splitlines() if line[:6].strip().isdigit()]
    assert len(rows) == 26
    assert all(row.count("±") == 4 for row in rows)
    # Plain decoding: 154 whole rounds of 0.1948 s fit into 30 s, 20 tokens each, in any episode.
    assert rows[0].split()[1] == f"{int(30 / 0.1948) * 20 / 30:.1f}"
    picture = iio.imread(tmp_path / "demo.png")
    assert picture.shape[1] == 1500
    assert str(tmp_path / "demo.png") in out


def test_demo_refuses_a_single_episode():
    done = subprocess.run(
        [sys.executable, SCRIPTS / "demo.py", "--episodes", "1"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "at least 2" in done.stderr


def test_make_gif(tmp_path):
    run("make_gif.py", "--output", tmp_path / "a.gif", "--rounds", 3)
    assert iio.imread(tmp_path / "a.gif").shape == (3, 500, 800, 3)


@pytest.mark.slow
def test_throughput_reports_every_part():
    out = run("throughput.py", "--quick")
    for part in ("scalar, K=20", "vector, N=64, K=20", "random numbers", "physics", "deadline, "):
        assert part in out
    assert "peak memory" in out
