"""The scripts run from end to end, at their smallest."""

import csv
import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tyro", reason="needs the extra [train]: tyro, tqdm")
iio = pytest.importorskip("imageio.v3", reason="needs the extra [render]: imageio")
pytest.importorskip("matplotlib", reason="needs the extra [render]: matplotlib")

import baselines
from command_line import one_line_errors
from multispin_env import benchmark, parallel

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
learning = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None,
    reason="needs the extra [train]: torch, stable-baselines3",
)


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, SCRIPTS / name, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@learning
def test_demo_plays_every_analytical_policy_and_draws_them(tmp_path):
    out = run("demo.py", "--episodes", 2, "--output", tmp_path)
    for task in benchmark.load("quick").tasks:
        assert f"{task.name}: " in out
        for name in [*baselines.names(task.make()), "distilled"]:
            assert re.search(rf"^{name} +-?\d", out, re.MULTILINE)
    # The references' own scores are 1 and 0 exactly.
    assert re.search(r"^deadline +1.000 ± 0.000", out, re.MULTILINE)
    assert re.search(r"^all_downlink +0.000 ± 0.000", out, re.MULTILINE)
    picture = iio.imread(tmp_path / "demo.png")
    assert picture.shape[1] == 1650
    assert str(tmp_path / "demo.png") in out
    assert out.endswith(f"Page: {tmp_path / 'leaderboard.html'}\n")
    page = (tmp_path / "leaderboard.html").read_text()
    for name in (*baselines.names(benchmark.load("quick").tasks[0].make()), "distilled"):
        assert f">{name}</a>" in page
    assert (tmp_path / "leaderboard.csv").is_file()


@pytest.mark.slow
def test_solver_quality_writes_tables_into_the_page(tmp_path):
    page = SCRIPTS.parent / "docs" / "optimality.md"
    copy = tmp_path / "optimality.md"
    copy.write_text(page.read_text())
    out = run("solver_quality.py", "--quick", "--output", tmp_path)
    text = copy.read_text()
    for marker in ("correction", "hard", "small", "upload", "times"):
        table = re.search(f"<!-- {marker} -->\n\n(.*?)\n\n<!-- end", text, re.DOTALL)
        assert table is not None
        assert table[1] in out
    assert (tmp_path / "optimality.csv").read_text().count("greedy") > 8
    assert iio.imread(tmp_path / "optimality.png").shape[2] == 4


def test_the_page_on_optimality_shows_the_stored_table():
    docs = SCRIPTS.parent / "docs"
    text = (docs / "optimality.md").read_text()
    with (docs / "optimality.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert f"{row['mean_loss_%']} ({row['worst_loss_%']})" in text
        # What the page and the docstrings say of the two.
        if row["solver"] == "deadline" and row["table"] != "hard":
            assert float(row["mean_loss_%"]) <= 0.1
            assert float(row["worst_loss_%"]) < 1.0
        if row["solver"] == "thorough":
            assert float(row["worst_loss_%"]) <= 0.1


@pytest.mark.slow
def test_references_are_written_and_repeat(tmp_path):
    """Those of one task, from scratch, are those that are stored."""
    text = (SCRIPTS.parent / "multispin_env/benchmark/suites/quick.toml").read_text()
    path = tmp_path / "one.toml"
    path.write_text(text.split("[[tasks]]")[0] + "[[tasks]]" + text.split("[[tasks]]")[3])
    run("references.py", path, "--output", tmp_path / "references.json")
    suite = benchmark.load(path)
    found = benchmark.load_references(suite, path=tmp_path / "references.json")
    assert list(found) == ["modes-qwen2.5-10dbm-r4"]
    (reference,) = found.values()
    assert (reference.low_policy, reference.reference_policy) == ("all_downlink", "optimal_modes")
    played = benchmark.evaluate(
        lambda env: baselines.make("optimal_modes", env), suite.tasks[0], expected=False
    )
    assert reference.reference.tolist() == played.goodputs.tolist()


@learning
def test_demo_refuses_a_single_episode():
    done = subprocess.run(
        [sys.executable, SCRIPTS / "demo.py", "--episodes", "1"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "--episodes = 1: must be in [2, 32]" in done.stderr


def test_make_gif(tmp_path):
    run("make_gif.py", "--output", tmp_path / "a.gif", "--rounds", 3)
    assert iio.imread(tmp_path / "a.gif").shape == (3, 500, 800, 3)


def test_draw_round_makes_the_picture_of_the_docs(tmp_path):
    run("draw_round.py", "--output", tmp_path / "round.svg")
    drawn, shown = (
        p.read_text("utf8") for p in (tmp_path / "round.svg", SCRIPTS.parent / "docs" / "round.svg")
    )
    # The bars and titles; ticks and text metrics belong to the libraries' versions.
    titles = re.compile(r"<!-- ((?:Correction|Upload) protocol: .*) -->")
    assert titles.findall(drawn) == titles.findall(shown) != []


@pytest.mark.slow
def test_throughput_reports_every_part():
    out = run("throughput.py", "--quick")
    for part in ("scalar, K=20", "N=64, K=20, 1 thread", "random numbers", "physics", "deadline, "):
        assert part in out
    assert "peak memory" in out


@learning
def test_train_writes_an_agent_that_loads_and_goes_on(tmp_path):
    import agents

    preset = tmp_path / "tiny.toml"
    preset.write_text(
        'network = "modes"\nagent = "tiny"\ntasks = ["modes-qwen2.5-10dbm-r4"]\n'
        '[domain]\nscenarios = ["qwen2.5"]\nnum_devices = { 20 = 1.0 }\n'
        "[imitation]\nstates = 64\nsteps = 20\nbatch_size = 16\nlearning_rate = 1e-3\n"
    )
    arguments = ("train.py", preset, "--output", tmp_path, "--workers", 1)
    out = run(*arguments)
    assert "modes-qwen2.5-10dbm-r4: " in out
    folder = tmp_path / "tiny-0"
    card = json.loads((folder / "modes.json").read_text())
    assert card["command"] == f"python scripts/train.py {preset} --seed 0"
    assert any((folder / "log").iterdir())
    task = benchmark.load("core-2026").task("modes-qwen2.5-10dbm-r4")
    found = benchmark.evaluate(
        lambda env: agents.load(str(folder), env), task, lanes=64, expected=False
    )
    stated = card["dev"][task.name]["goodput"]
    assert found.goodput == pytest.approx(stated, rel=1e-3)


@learning
def test_train_names_its_presets():
    done = subprocess.run(
        [sys.executable, SCRIPTS / "train.py", "none"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "must be one of 'a2c', 'draft', 'finetuned', 'modes'" in done.stderr


@learning
def test_train_runs_stable_baselines3_and_goes_on(tmp_path):
    import agents

    preset = tmp_path / "tiny.toml"
    preset.write_text(
        'agent = "tiny"\ntasks = ["draft-qwen2.5-20dbm-r4"]\n'
        '[sb3]\nalgorithm = "PPO"\nequivariant = true\nrounds = 128\nlanes = 8\n'
        "deadline = true\nclip_reward = 100.0\n"
    )
    other = "draft-qwen2.5-20dbm-r4-k5"
    arguments = ("train.py", preset, "--output", tmp_path, "--task", other)
    run(*arguments)
    folder = tmp_path / "tiny-0"
    card = json.loads((folder / "sb3.json").read_text())
    assert card["command"] == f"python scripts/train.py {preset} --seed 0 --task {other}"
    assert list(card["dev"]) == [other]
    assert card["training_rounds"] == 128
    task = benchmark.load("core-2026").task(other)
    for name in (str(folder), folder / "sb3.safetensors"):
        found = benchmark.evaluate(
            lambda env, name=name: agents.load(name, env), task, 4, lanes=4, expected=False
        )
        assert found.goodputs.shape == (4,)
    preset.write_text(preset.read_text().replace("rounds = 128", "rounds = 256"))
    done = subprocess.run(
        [sys.executable, SCRIPTS / arguments[0], *map(str, arguments[1:])],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "is of another training" in done.stderr


def test_stored_references_are_checked_to_the_last_bit(monkeypatch):
    task = "modes-qwen2.5-10dbm-r4"
    out = run("references.py", "quick", "--check", "--task", task, "--workers", 1)
    assert out.splitlines() == [
        f"{task}, full: equal",
        f"{task}, feedback: equal",
        "all 2 stored references are equal to the last bit",
    ]
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = importlib.import_module("references")
    stored = benchmark.load_references(benchmark.load("quick"))[task]
    off = replace(stored, reference=np.nextafter(stored.reference, 0.0), low=stored.low.copy())
    off.low[3] += 1.0
    first, second = script.differences(benchmark.load("quick").task(task), "full", off)
    assert first == f"{stored.low_policy}: 1 of 32 episodes, by up to 1"
    assert second.startswith(f"{stored.reference_policy}: 32 of 32 episodes, by up to ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("quick",), "either --output FILE or --check"),
        (("quick", "--check", "--output", "x.json"), "either --output FILE or --check"),
        (("quick", "--task", "a", "--output", "x.json"), "only with --check"),
        (("quick", "--check", "--task", "a"), "'a'"),
        (("quick", "--check", "--value", "v"), "only the dev splits"),
    ],
)
def test_references_say_what_they_need(arguments, message):
    command = [sys.executable, SCRIPTS / "references.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_matrix_says_which_pythons_it_has(monkeypatch, tmp_path):
    """Found by version, a given one first; one that does not run is refused."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    matrix = importlib.import_module("matrix")
    here = ".".join(map(str, sys.version_info[:2]))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert matrix.interpreters([]) == {}
    folder = tmp_path / "versions" / "some" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    assert matrix.interpreters([]) == {here: folder / "python"}
    assert matrix.interpreters([Path(sys.executable)]) == {here: Path(sys.executable)}
    with pytest.raises(ValueError, match=r"--python = .*gone: must be a Python that runs"):
        matrix.interpreters([tmp_path / "gone"])


@pytest.mark.parametrize("error", [ValueError("a = 1: must be 2"), parallel.WorkerDiedError()])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_mistake_is_one_line(error, goes_on):
    with pytest.raises(SystemExit) as caught, one_line_errors(goes_on):
        raise error
    assert caught.value.code == f"error: {error}"


def test_a_bug_keeps_its_traceback():
    with pytest.raises(TypeError), one_line_errors():
        raise TypeError


def test_an_interrupted_command_says_if_it_goes_on(capsys):
    with pytest.raises(SystemExit) as caught, one_line_errors(goes_on=True):
        raise KeyboardInterrupt
    assert caught.value.code == 130
    assert capsys.readouterr().err == "interrupted: the same command goes on\n"
    with pytest.raises(KeyboardInterrupt), one_line_errors():
        raise KeyboardInterrupt
