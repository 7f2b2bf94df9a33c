"""Regret over rounds, against hand-made rounds and the environment's own reward."""

import numpy as np
import pytest
from small import named, write_suite

from multispin_env import benchmark
from multispin_env.benchmark import Plan, Results
from multispin_env.benchmark.margins import cumulative_regret, margins

NAMES = {"draft": ("deadline", "greedy"), "modes": ("optimal_modes", "all_uplink")}


@pytest.fixture(scope="module")
def suite_path(tmp_path_factory):
    return write_suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="module")
def suite(suite_path):
    return benchmark.load(suite_path)


def played(suite_path, task, name, episodes=10):
    evaluation = benchmark.evaluate(named(name), task, episodes, expected=False)
    plan = Plan(str(suite_path), "baselines:make", {"name": name}, tasks=(task.name,))
    return Results.of_evaluations(plan, [evaluation])


def by_hand(suite_path, emitted, latency_s):
    """Results of one task whose rounds are given, [episodes] of [rounds]."""
    actions = {
        "draft/rounds": np.array([len(e) for e in emitted]),
        "draft/emitted": np.concatenate(emitted),
        "draft/latency_s": np.concatenate(latency_s),
    }
    return Results(Plan(str(suite_path), "baselines:make"), [], actions, {})


def test_a_regret_by_hand(suite, suite_path):
    """Price 50 tokens/s, horizon 3 s; the last round of both episodes is cut."""
    task = suite.task("draft")
    best = by_hand(suite_path, [[60, 90, 70], [100, 99]], [[1.0, 1.0, 2.0], [2.0, 7.0]])
    other = by_hand(suite_path, [[60, 80], [0, 70, 5]], [[1.0, 2.0], [1.0, 1.5, 9.0]])
    assert [m.tolist() for m in margins(best, task)] == [[10, 40, -50], [0, -50]]
    assert [m.tolist() for m in margins(other, task)] == [[10, -20], [-50, -5, -25]]
    rounds, regret = cumulative_regret([other], [best], task)
    assert rounds.tolist() == [0, 1, 2, 3]
    # Of the two episodes: 0 and 50, then 60 and 5, then 10 and 30.
    assert [estimate.value for estimate in regret] == [0, 25, 32.5, 20]
    assert [estimate.standard_error for estimate in regret] == [0, 25, 27.5, 10]
    # Two runs of the other policy: their mean.
    _, mean = cumulative_regret([other, best], [best], task)
    assert [estimate.value for estimate in mean] == [0, 12.5, 16.25, 10]
    # What both have played.
    first = by_hand(suite_path, [[60, 90, 70]] * 2, [[1.0, 1.0, 2.0]] * 2)
    longer = by_hand(suite_path, [[60, 90, 70]] * 3, [[1.0, 1.0, 2.0]] * 3)
    assert cumulative_regret([first], [longer], task)[1][-1].value == 0


@pytest.mark.parametrize("name", ["draft", "modes", "joint", "bandwidth"])
def test_margins_are_the_environments_rewards(suite, suite_path, name):
    task = suite.task(name)
    policy = {"modes": "all_uplink", "bandwidth": "uniform_bandwidth"}.get(name, "uniform")
    results = played(suite_path, task, policy, episodes=3)
    for seed, episode, margin in zip(
        task.seeds("dev", 3), results.episode_actions(name), margins(results, task)
    ):
        env = task.make()
        env.reset(seed=seed)
        del episode["emitted"], episode["latency_s"]
        rewards = []
        for i in range(len(margin)):
            action = {key: array[i] for key, array in episode.items()}
            rewards.append(env.step(action.get("action", action))[1])
        assert env.unwrapped.price == 50.0
        np.testing.assert_allclose(margin, rewards, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_regret_ends_at_the_difference_of_goodputs(suite, suite_path, name):
    task = suite.task(name)
    best, other = (played(suite_path, task, policy) for policy in NAMES[name])
    rounds, regret = cumulative_regret([other], [best], task)
    difference = benchmark.statistics.paired_difference(
        best.column(name, "goodput"), other.column(name, "goodput")
    )
    assert regret[0].interval == (0.0, 0.0)
    assert regret[-1].value == pytest.approx(3.0 * difference.value)
    assert regret[-1].half_width == pytest.approx(3.0 * difference.half_width)
    some, few = cumulative_regret([other], [best], task, points=4)
    assert some.tolist() == [rounds[round(i * rounds[-1] / 3)] for i in range(4)]
    assert few == [regret[r] for r in some]
    _, itself = cumulative_regret([best], [best], task)
    assert all(estimate.interval == (0.0, 0.0) for estimate in itself)
