"""Suites: frozen, and their seeds."""

import json
import shutil

import golden
import gymnasium as gym
import numpy as np
import pytest
from small import named

from multispin_env import benchmark
from multispin_env.benchmark import references as reference_files
from multispin_env.benchmark import suite as suites

HASHES = {
    "core-2026": "13e63105b84a37ca30f8e85312d71b0999d95896f3b7c6762a9329a0e9c61899",
    "quick": "820e0d5ddb0e6730610e56045b849551f6a6e3ee666204608eb8f70ff1abeeaf",
}
GOLDEN = json.loads(golden.PATH.read_text())
TASKS = [(name, task.name) for name in HASHES for task in benchmark.load(name).tasks]


def test_the_shipped_suites_are_those_that_were_released():
    assert {name: benchmark.load(name).sha256 for name in benchmark.list_suites()} == HASHES


def test_core_covers_what_it_should():
    tasks = benchmark.load("core-2026").tasks
    kinds = [task.control.name for task in tasks]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "DraftLength": 10,
        "ModeSelection": 2,
        "Joint": 1,
        "DraftBandwidth": 6,
    }
    settings = {
        (t.scenario.name, t.scenario.radio.uplink_power_dbm, t.scenario.radio.downlink_power_ratio)
        for t in tasks
        if t.control.name == "DraftLength" and t.scenario.num_devices == 20
    }
    names = ("qwen2.5", "deepseek-r1")
    assert settings == {(n, p, r) for n in names for p in (10.0, 20.0) for r in (4.0, 16.0)}
    bands = {(t.scenario.name, t.scenario.radio.bandwidth_hz) for t in tasks if t.control.bandwidth}
    assert bands == {(n, b) for n in ("llama2", "qwen3.5") for b in (5e6, 1e7, 2e7)}


@pytest.mark.parametrize(("suite", "name"), TASKS)
def test_golden_traces(suite, name):
    found = golden.trace(benchmark.load(suite).task(name))
    for episode, stored in zip(found, GOLDEN[suite][name], strict=True):
        assert episode["seed"] == stored["seed"]
        for key, value in stored["observation"].items():
            np.testing.assert_allclose(episode["observation"][key], value, rtol=1e-6)
        for step, kept in zip(episode["steps"], stored["steps"], strict=True):
            assert step["integers"] == kept["integers"]
            for key, value in kept["floats"].items():
                np.testing.assert_allclose(step["floats"][key], value, rtol=1e-9)


def test_every_number_that_a_task_plays_is_in_the_hash(tmp_path):
    text = (suites.files() / "quick.toml").read_text()
    hashes = {benchmark.load("quick").sha256}
    changes = (
        ('"episode.horizon_s" = 30.0', '"episode.horizon_s" = 31.0'),
        ("draft_policy = 4", "draft_policy = 5"),
        ("dev_episodes = 32", "dev_episodes = 33"),
        ("reference_goodput = 226.181", "reference_goodput = 226.182"),
        ('name = "quick"', 'name = "quicker"'),
        ("modes-qwen2.5-10dbm-r4", "modes"),
    )
    for i, (old, new) in enumerate(changes):
        assert old in text
        path = tmp_path / f"{i}.toml"
        path.write_text(text.replace(old, new, 1))
        hashes.add(benchmark.load(path).sha256)
    assert len(hashes) == len(changes) + 1
    same = tmp_path / "same.toml"
    same.write_text("# another comment\n" + text)
    assert benchmark.load(same).sha256 == benchmark.load("quick").sha256


def test_a_shipped_suite_that_has_changed_is_refused(monkeypatch, tmp_path):
    folder = tmp_path / "suites"
    shutil.copytree(suites.files(), folder)
    path = folder / "quick.toml"
    path.write_text(path.read_text().replace("draft_policy = 4", "draft_policy = 3"))
    monkeypatch.setattr(suites, "files", lambda: folder)
    suites._load.cache_clear()
    with pytest.raises(ValueError, match=r"quick.*not to the .* released"):
        benchmark.load("quick")
    monkeypatch.undo()
    suites._load.cache_clear()


def test_seeds_are_frozen_and_do_not_meet():
    quick = benchmark.load("quick")
    task = quick.tasks[0]
    assert task.seeds("dev", 2) == [GOLDEN["quick"][task.name][0]["seed"], task.seeds()[1]]
    assert len(task.seeds()) == 32
    everything = [
        seed
        for one in (*quick.tasks, *benchmark.load("core-2026").tasks)
        for seeds in (
            one.seeds("dev"),
            one.seeds("train", 100),
            one.seeds("test", 64, "a"),
            one.seeds("test", 64, "b"),
        )
        for seed in seeds
    ]
    assert len(set(everything)) == len(everything)
    assert all(0 <= seed < 2**48 for seed in everything)
    assert task.seeds("train", 5) == task.seeds("train", 9)[:5]


def test_tasks_make_environments():
    task = benchmark.load("quick").task("modes-qwen2.5-10dbm-r4")
    env, lanes = task.make("feedback"), task.make_vec(3)
    assert "acceptance_rate" not in env.observation_space.spaces
    assert lanes.num_envs == 3
    assert "acceptance_rate" in lanes.single_observation_space.spaces
    _, info = env.reset(seed=0)
    info = env.step(env.action_space.sample())[-1]
    assert set(info["drafted"]) == {4}
    assert task.make(regret=True).unwrapped.scenario is not None
    assert isinstance(env, gym.Env)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: benchmark.load("core"), "suite = 'core': must be one of 'core-2026', 'quick', or"),
        (lambda: benchmark.load("missing.toml"), "suite = 'missing.toml'"),
        (lambda: benchmark.load("quick").task("x"), "task = 'x': must be one of 'draft-"),
        (lambda: benchmark.load("quick").tasks[0].make("blind"), "track = 'blind'"),
        (lambda: benchmark.load("quick").tasks[0].seeds("all"), "split = 'all'"),
        (lambda: benchmark.load("quick").tasks[0].seeds("dev", 33), "episodes = 33: the dev split"),
        (lambda: benchmark.load("quick").tasks[0].seeds("dev", 0), "episodes = 0"),
        (lambda: benchmark.load("quick").tasks[0].seeds("test"), "value = '': must be given"),
        (lambda: benchmark.load("quick").tasks[0].seeds("dev", 1, "v"), "value = 'v'"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 1 =", "malformed"),
        ('name = "a"\ndev_episodes = 2\n', "malformed"),
        ('name = "a"\ndev_episodes = 1\n[[tasks]]\nname="t"\nenv="multispin/Joint-v0"\n'
         'scenario="qwen2.5"\n', "dev_episodes = 1"),
        ('name = "a"\ndev_episodes = 2\n[[tasks]]\nname="t"\nenv="CartPole-v1"\n'
         'scenario="qwen2.5"\n', "env = 'CartPole-v1'"),
        ('name = "a"\ndev_episodes = 2\n[[tasks]]\nname="t"\nenv="multispin/Joint-v0"\n'
         'scenario="qwen2.5"\noverrides={num_device=3}\n', "num_devices"),
    ],
)  # fmt: skip
def test_malformed_files(tmp_path, text, message):
    path = tmp_path / "suite.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        benchmark.load(path)


@pytest.mark.parametrize("name", sorted(HASHES))
def test_stored_references_are_those_of_the_policies_they_name(name):
    suite = benchmark.load(name)
    for track in benchmark.TRACKS:
        found = benchmark.load_references(suite, track)
        assert list(found) == suite.names
        for task in suite.tasks:
            reference = found[task.name]
            assert reference.low.size == reference.reference.size == suite.dev_episodes
            assert reference.low.mean() < reference.reference.mean()
    references = benchmark.load_references(suite)
    for task in suite.tasks:
        reference = references[task.name]
        for policy, stored in (
            (reference.low_policy, reference.low),
            (reference.reference_policy, reference.reference),
        ):
            base, _, length = policy.partition(", draft_length=")
            options = {"draft_length": int(length)} if length else {}
            found = benchmark.evaluate(named(base, **options), task, 2, expected=False)
            np.testing.assert_allclose(found.goodputs, stored[:2], rtol=1e-9)


def test_changed_references_are_refused(monkeypatch, tmp_path):
    folder = tmp_path / "suites"
    shutil.copytree(suites.files(), folder)
    path = folder / "quick.references.json"
    path.write_text(path.read_text().replace("9", "8", 1))
    monkeypatch.setattr(reference_files, "files", lambda: folder)
    with pytest.raises(ValueError, match="references of 'quick' are not the released ones"):
        benchmark.load_references(benchmark.load("quick"))
