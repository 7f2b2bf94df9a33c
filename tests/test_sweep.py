"""Sweeps: the same arguments propose the same trials, and the best is a preset."""

import math
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

optuna = pytest.importorskip("optuna", reason="needs the extra [train]: optuna")
pytest.importorskip("stable_baselines3", reason="needs the extra [train]: stable-baselines3")

from agents import training, tuning
from agents.training import Preset

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "sweep.py"
TINY = """
network = "draft"
agent = "tiny"
tasks = ["draft-qwen2.5-20dbm-r4"]
[domain]
scenarios = ["qwen2.5"]
num_devices = { 20 = 1.0 }
[gradient]
updates = 4
groups = 2
decisions = 2
"""
SWEEP = """
learning_rate = 1e-3
entropy = 0.02
[sweep]
"gradient.learning_rate" = { low = 1e-4, high = 1e-2, log = true }
"gradient.groups" = { low = 2, high = 4 }
"gradient.entropy" = { choices = [0.0, 0.02] }
"""


@pytest.fixture(autouse=True)
def _quiet():
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(level)


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY + SWEEP)
    return path


@pytest.fixture
def easy(monkeypatch):
    """A score that needs no training; the presets that it was asked about."""
    asked = []

    def score(preset, seed):
        asked.append(preset)
        rate, entropy = preset.gradient.learning_rate, preset.gradient.entropy
        return entropy - (math.log10(rate) + 3.0) ** 2

    monkeypatch.setattr(tuning, "score", score)
    return asked


def proposals(study):
    return [trial.params for trial in study.trials]


def swept(preset, path, **options):
    *_, study = tuning.sweep(preset, path, **{"trials": 16, "workers": 1} | options)
    return study


def test_the_same_arguments_propose_the_same_trials(preset, easy, tmp_path):
    first = swept(preset, tmp_path / "a")
    assert len(first.trials) == len(easy) == 16
    assert len({str(params) for params in proposals(first)}) == 16
    for params, asked in zip(proposals(first), easy):
        assert asked.gradient.learning_rate == params["gradient.learning_rate"]
        assert asked.gradient.groups == params["gradient.groups"] in (2, 3, 4)
        assert 1e-4 <= asked.gradient.learning_rate <= 1e-2
    assert proposals(swept(preset, tmp_path / "b")) == proposals(first)
    assert proposals(swept(preset, tmp_path / "c", seed=1)) != proposals(first)
    other = proposals(swept(preset, tmp_path / "d", batch=16))
    assert other[0] == proposals(first)[0]
    assert other[12:] != proposals(first)[12:]  # nothing was known when these were proposed
    ranked = tuning.best(first)
    assert ranked[0].values[0] == max(trial.values[0] for trial in first.trials)
    assert ranked[0].values[0] > ranked[-1].values[0]


@pytest.mark.parametrize("after", [1, 5, 11, 14])
def test_an_interrupted_sweep_goes_on(after, preset, easy, tmp_path):
    whole = swept(preset, tmp_path / "whole")
    easy.clear()
    running = tuning.sweep(preset, tmp_path / "parts", trials=16, workers=1)
    for _ in range(1 + after):
        next(running)
    running.close()
    rest = swept(preset, tmp_path / "parts")
    assert proposals(rest) == proposals(whole)
    assert [trial.values for trial in rest.trials] == [trial.values for trial in whole.trials]
    assert len(easy) == 16  # none was scored twice
    more = swept(preset, tmp_path / "parts", trials=20)
    assert proposals(more)[:16] == proposals(whole)
    assert len(more.trials) == 20


def test_interrupted_while_proposing(preset, easy, tmp_path):
    whole = swept(preset, tmp_path / "whole", trials=8)
    half = next(tuning.sweep(preset, tmp_path / "half", trials=8, workers=1))
    tuning._proposed(half, tuning.space(training.read(preset)), 2, 4, 0)
    assert len(half.trials) == 2
    assert proposals(swept(preset, tmp_path / "half", trials=8)) == proposals(whole)


def test_another_sweep_is_refused(preset, easy, tmp_path):
    swept(preset, tmp_path / "a", trials=2)
    with pytest.raises(ValueError, match="of another sweep, which differs in seed: choose another"):
        swept(preset, tmp_path / "a", seed=1)
    preset.write_text((TINY + SWEEP).replace("updates = 4", "updates = 5"))
    with pytest.raises(ValueError, match="which differs in preset"):
        swept(preset, tmp_path / "a")


def test_a_budget_shortens_the_stages(preset):
    content = training.read(preset) | {"imitation": {"states": 1000, "steps": 77, "batch_size": 8}}
    short = tuning.varied(content, {"gradient.learning_rate": 0.5}, 0.3)
    assert short["imitation"] == {"states": 300, "steps": 24, "batch_size": 8}
    assert short["gradient"]["updates"] == 2
    assert short["gradient"]["learning_rate"] == 0.5
    assert content["gradient"]["updates"] == 4
    assert {key: short[key] for key in ("domain", "sweep")} == {
        key: content[key] for key in ("domain", "sweep")
    }


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", r"no search space: must have a table like this:\n\n\[sweep\]"),
        ('"gradient.speed" = { low = 1, high = 2 }', "'gradient.speed': must be a number of a st"),
        ('"imitation.steps" = { low = 1, high = 2 }', "'imitation.steps': must be a number"),
        ('"gradient.updates" = { low = 1 }', "needs low and high, or choices: must be in a table"),
        ('"gradient.updates" = { low = 1, high = 2, choices = [1] }', "needs low and high, or"),
        ('"gradient.updates" = { low = 9, high = 2 }', "'gradient.updates' = .*must be in a table"),
        ('"gradient.updates" = { low = 0.0, high = 2, log = true }', "must be in a table like"),
        ('"gradient.updates" = { from = 1, to = 2 }', "unexpected keyword argument 'from'"),
        ('"gradient.updates" = 3', "'gradient.updates' = 3"),
        ('"gradient.updates" = { choices = [] }', "must be in a table like"),
    ],
)
def test_search_spaces_that_do_not_fit(table, message, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(f"{TINY}\n[sweep]\n{table}")
    with pytest.raises(ValueError, match=message):
        list(tuning.sweep(path, tmp_path / "study", trials=1))
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials = 0"),
        ({"batch": 0}, "batch = 0"),
        ({"budget": 0.0}, r"budget = 0\.0: must be in \(0, 1\]"),
        ({"workers": 0}, "workers = 0"),
    ],
)
def test_bad_arguments(options, message, preset, tmp_path):
    with pytest.raises(ValueError, match=message):
        swept(preset, tmp_path / "study", **options)


def test_shipped_search_spaces_fit_their_presets():
    shipped = [path.stem for path in training.PRESETS.glob("*.toml") if Preset.load(path).sweep]
    assert {"modes", "scratch"} <= set(shipped)
    for name in shipped:
        for field in tuning.space(training.read(name)):
            stage, _, number = field.partition(".")
            assert number in vars(getattr(Preset.load(name), stage))


def test_a_training_that_diverges_scores_nothing(preset):
    content = tuning.varied(training.read(preset), {"gradient.learning_rate": 1e30})
    assert tuning.score(Preset.parse(preset, content), 0) == 0.0


def test_the_script_writes_a_preset(preset, tmp_path):
    options = ["--trials", "3", "--batch", "2", "--budget", "0.5", "--workers", "1", "--output"]
    command = [sys.executable, SCRIPT, preset, *options, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "tiny-0"
    found = Preset.load(folder / "best.toml")
    assert f"python scripts/train.py {folder / 'best.toml'}" in done.stdout
    original = Preset.load(preset)
    assert found.gradient.updates == original.gradient.updates  # not those of the budget
    assert (found.tasks, found.domain) == (original.tasks, original.domain)
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert len(rows) == 3
    ratios = [float(row[1]) for row in rows]
    assert ratios == sorted(ratios, reverse=True)
    assert 0.0 < ratios[0] < 2.0
    assert tomllib.loads((folder / "best.toml").read_text())["sweep"]
    assert f"{found.gradient.learning_rate!s:.10}" == rows[0][2]
