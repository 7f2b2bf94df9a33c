"""Results on disk: the same bytes however the work was spread, and nothing done twice."""

import json

import numpy as np
import pytest
from small import write_suite

from multispin_env import benchmark
from multispin_env.benchmark import Plan, PolicyError, Results, results, run

FILES = ("results.json", "episodes.csv", "actions.npz")


@pytest.fixture(scope="module")
def suite_path(tmp_path_factory):
    return str(write_suite(tmp_path_factory.mktemp("suite")))


def plan_of(suite_path, **changes):
    arguments = {
        "suite": suite_path,
        "policy": "baselines:portfolio",
        "options": {"name": "papers"},
        "decision_time_ms": 2.0,
    }
    return Plan(**arguments | changes)


def contents(folder):
    return [(folder / name).read_bytes() for name in FILES]


@pytest.fixture(scope="module")
def finished(suite_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    steps = list(run(plan_of(suite_path), folder))
    assert steps == [(i, 8) for i in range(9)] + [(8, 8)]  # 4 tasks, blocks of 8 and 2 episodes
    return folder


def test_two_workers_write_the_same_bytes(suite_path, finished, tmp_path):
    list(run(plan_of(suite_path), tmp_path, workers=2))
    assert contents(tmp_path) == contents(finished)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES, "timings.csv"])


def test_an_interrupted_run_goes_on(suite_path, finished, tmp_path, monkeypatch):
    played = []
    original = results.play

    def counted(factory, task, seeds, *rest):
        played.append((task.name, tuple(seeds)))
        return original(factory, task, seeds, *rest)

    monkeypatch.setattr(results, "play", counted)
    first = run(plan_of(suite_path), tmp_path)
    for _ in range(4):
        next(first)
    first.close()  # as by Ctrl-C
    (tmp_path / "blocks" / "half.tmp").write_bytes(b"half a block")
    before = len(played)
    assert next(run(plan_of(suite_path), tmp_path))[0] >= 3
    list(run(plan_of(suite_path), tmp_path))
    assert len(set(played)) == len(played) == 8 > before
    assert contents(tmp_path) == contents(finished)
    list(run(plan_of(suite_path), tmp_path))  # finished: nothing is played
    assert len(played) == 8


def test_the_files_say_what_was_played(suite_path, finished):
    loaded = Results.load(finished)
    suite = benchmark.load(suite_path)
    for task in suite.tasks:
        found = benchmark.evaluate(
            benchmark.load_factory("baselines:portfolio", {"name": "papers"}), task
        )
        assert loaded.column(task.name, "goodput").tolist() == found.goodputs.tolist()
        assert loaded.column(task.name, "seed").tolist() == task.seeds()
        charged = [e.charged_goodput(2e-3, task.scenario.episode.horizon_s) for e in found.episodes]
        assert loaded.column(task.name, "charged_goodput").tolist() == charged
        stored = loaded.episode_actions(task.name)
        for episode, arrays in zip(found.episodes, stored, strict=True):
            assert np.array_equal(arrays["emitted"], episode.emitted)
            assert np.array_equal(arrays["latency_s"], episode.latency_s)
            for key, value in episode.actions.items():
                assert np.array_equal(arrays[key], value)
        assert loaded.decision_ms[task.name] > 0


def test_a_part_of_the_tasks_and_episodes(suite_path, tmp_path):
    plan = plan_of(suite_path, tasks=("modes",), episodes=3)
    list(run(plan, tmp_path))
    loaded = Results.load(tmp_path)
    assert [(row["task"], row["episode"]) for row in loaded.rows] == [
        ("modes", str(i)) for i in range(3)
    ]
    assert loaded.plan == plan


def test_a_folder_of_something_else_is_refused(suite_path, finished):
    before = contents(finished)
    for changes in ({"track": "feedback"}, {"options": {"name": "strongest"}}):
        (key,) = changes
        with pytest.raises(ValueError, match=f"something else, which differs in {key}: choose"):
            list(run(plan_of(suite_path, **changes), finished))
    assert contents(finished) == before


def test_a_changed_policy_is_another_one(suite_path, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import baselines\ndef make(env):\n    return baselines.portfolio('papers', env)\n"
    )
    plan = plan_of(suite_path, policy=f"{path}:make", options={}, tasks=("modes",))
    list(run(plan, tmp_path / "results"))
    path.write_text(path.read_text().replace("papers", "strongest"))
    with pytest.raises(ValueError, match="differs in policy_sha256"):
        list(run(plan, tmp_path / "results"))


def test_a_policy_that_fails_midway_keeps_what_is_finished(suite_path, tmp_path):
    (tmp_path / "helper.py").write_text("import baselines\n")
    path = tmp_path / "fails.py"
    path.write_text("import helper\ndef make(env):\n    if env.unwrapped.control.mode:\n"
                    "        raise OSError('no network')\n"
                    "    return helper.baselines.portfolio('papers', env)\n")  # fmt: skip
    plan = plan_of(suite_path, policy=f"{path}:make", options={})
    with pytest.raises(PolicyError, match="modes: making the policy: OSError: no network"):
        list(run(plan, tmp_path / "results"))
    assert len(list((tmp_path / "results" / "blocks").glob("draft*.npz"))) == 2
    path.write_text("1 / 0\n")
    with pytest.raises(PolicyError, match="ZeroDivisionError"):
        list(run(plan, tmp_path / "others"))


def test_policies_from_files(suite_path, tmp_path):
    path = tmp_path / "random.py"  # does not hide the module of that name
    path.write_text("import baselines\ndef make(env, n):\n"
                    "    return baselines.make('fixed', env, draft_length=n)\n")  # fmt: skip
    factory = benchmark.load_factory("random.py:make", {"n": 2}, tmp_path)
    task = benchmark.load(suite_path).task("draft")
    episode = benchmark.evaluate(factory, task, 1).episodes[0]
    assert set(episode.actions["action"].ravel()) == {2}
    import random

    assert random.random() < 1.0


@pytest.mark.parametrize(
    "policy", ["deadline", "nothing.py:make", "no_such_module:make", "baselines:nobody", "a:b:"]
)
def test_policies_that_are_not_there(suite_path, tmp_path, policy):
    with pytest.raises(ValueError, match="policy = "):
        list(run(plan_of(suite_path, policy=policy), tmp_path / "x"))
    assert not (tmp_path / "x" / "results.json").exists()


def test_unfinished_and_foreign_results_are_not_loaded(finished, tmp_path):
    with pytest.raises(ValueError, match="no finished results"):
        Results.load(tmp_path)
    for name in FILES:
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    head = json.loads((tmp_path / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps(head | {"suite_sha256": "0"}))
    with pytest.raises(ValueError, match="another suite"):
        Results.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"track": "blind"}, "track = 'blind'"),
        ({"decision_time_ms": -1.0}, r"decision_time_ms = -1\.0"),
        ({"decision_time_ms": float("nan")}, "decision_time_ms = nan"),
    ],
)
def test_errors(suite_path, changes, message):
    with pytest.raises(ValueError, match=message):
        plan_of(suite_path, **changes)


def test_a_wrong_plan_leaves_no_folder(suite_path, tmp_path):
    for plan, workers in ((plan_of(suite_path, tasks=("nope",)), 1), (plan_of(suite_path), 0)):
        with pytest.raises(ValueError, match=r"task = 'nope'|workers = 0"):
            list(run(plan, tmp_path / "x", workers))
    assert not (tmp_path / "x").exists()
