"""Playing policies: what is counted, and that nobody looks ahead."""

import builtins
import math

import numpy as np
import pytest
from small import Peeking, Remembering, named, write_suite

import baselines
from multispin_env import benchmark
from multispin_env.benchmark import PolicyError, check_causal, evaluate
from multispin_env.benchmark.rollout import policy_seed
from multispin_env.solvers.problems import pose


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return benchmark.load(write_suite(tmp_path_factory.mktemp("suite")))


def same(a, b):
    """Whether two evaluations have the same episodes, times of decisions left out."""
    return len(a.episodes) == len(b.episodes) and all(
        (x.seed, x.goodput, x.tokens, x.expected_goodput)
        == (y.seed, y.goodput, y.tokens, y.expected_goodput)
        and np.array_equal(x.emitted, y.emitted)
        and np.array_equal(x.latency_s, y.latency_s)
        and x.actions.keys() == y.actions.keys()
        and all(np.array_equal(x.actions[key], y.actions[key]) for key in x.actions)
        for x, y in zip(a.episodes, b.episodes)
    )


def test_a_plain_loop_agrees(suite):
    task = suite.task("draft")
    found = evaluate(named("greedy"), task, 3)
    for episode, seed in zip(found.episodes, task.seeds("dev", 3)):
        env = task.make()
        policy = baselines.make("greedy", env)
        observation, info = env.reset(seed=seed)
        tokens, rounds, actions = 0, 0, []
        while "episode_goodput" not in info:
            actions.append(policy.predict(observation)[0])
            observation, _, _, _, info = env.step(actions[-1])
            tokens += info["tokens"]
            rounds += 1
        assert (episode.seed, episode.tokens, episode.rounds) == (seed, tokens, rounds)
        assert episode.goodput == info["episode_goodput"] == tokens / 3.0
        assert np.array_equal(episode.actions["action"], actions)
    assert found.goodput == np.mean([e.goodput for e in found.episodes])
    low, high = found.interval
    assert low < found.goodput < high


@pytest.mark.parametrize("name", ["draft", "modes", "joint", "bandwidth"])
@pytest.mark.parametrize("track", ["full", "feedback"])
def test_lanes_give_the_same_numbers(suite, name, track):
    task = suite.task(name)
    one = evaluate(lambda env: baselines.portfolio("papers", env), task, 5, track=track)
    for lanes in (2, 5):
        many = evaluate(
            lambda env: baselines.portfolio("papers", env), task, 5, track=track, lanes=lanes
        )
        assert same(one, many)


@pytest.mark.parametrize("name", ["draft", "modes", "joint", "bandwidth"])
def test_numbers_do_not_depend_on_how_the_python_sums(suite, name, monkeypatch):
    """As in Pythons 3.11, whose `sum` of floats is plain, and 3.12, whose `sum` is compensated."""
    task = suite.task(name)
    built_in = builtins.sum

    def compensated(values, start=0):
        values = list(values)
        exact = any(type(value) is float for value in values)
        return math.fsum([start, *values]) if exact else built_in(values, start)

    def plain(values, start=0):
        for value in values:
            start = start + value
        return start

    found = []
    for method in (compensated, plain):
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "sum", method)
            found.append(evaluate(named("random"), task, 3))
    assert same(*found)


@pytest.mark.parametrize("lanes", [1, 3])
def test_states_are_handed_on_and_episode_starts_told(suite, lanes):
    found = evaluate(Remembering, suite.task("draft"), 3, lanes=lanes)
    for episode in found.episodes:
        assert np.array_equal(episode.actions["action"][:, 0], np.arange(episode.rounds) % 5)


@pytest.mark.parametrize("name", ["random", "deadline_random"])
def test_policies_that_toss_coins_repeat(suite, name):
    task = suite.task("joint")
    one = evaluate(named(name), task, 4)
    assert same(one, evaluate(named(name), task, 4))
    assert same(one, evaluate(named(name), task, 4, lanes=4))
    late = evaluate(named(name), task, 2, seed=task.seeds()[2])
    assert late.episodes[0].goodput == one.episodes[2].goodput  # whatever was played before
    first, second = (e.actions["action"][0] for e in one.episodes[:2])
    assert not np.array_equal(first, second)


def test_seeds_of_ones_own(suite):
    task = suite.task("draft")
    found = evaluate(named("fixed", draft_length=2), task, 3, seed=40)
    assert [e.seed for e in found.episodes] == [40, 41, 42]
    train = evaluate(named("fixed", draft_length=2), task, 3, split="train")
    assert [e.seed for e in train.episodes] == task.seeds("train", 3)


def test_the_policy_is_not_given_the_environment_that_is_played(suite):
    with pytest.raises(PolicyError, match=r"draft, seed \d+, round 0: predict: ResetNeeded"):
        evaluate(Peeking, suite.task("draft"), 1)


def test_the_seed_that_a_policy_is_given_tells_nothing_of_the_episode(suite):
    """A policy that plays the episode of its seed beforehand gains nothing."""

    class Foreseeing(Peeking):
        def seed(self, seed):
            self.env.reset(seed=seed)

    task = suite.task("draft")
    seeds = task.seeds("dev", 4)
    found = evaluate(Foreseeing, task, 4)
    for seed, episode in zip(seeds, found.episodes):
        env = task.make()
        env.reset(seed=seed)
        run = np.minimum(env.unwrapped.tape.run_length[: episode.rounds], 20)
        assert not np.array_equal(episode.actions["action"], run[: episode.rounds])
    given = [policy_seed(seed) for seed in seeds]
    assert len(set(given)) == 4
    assert not set(given) & set(seeds)


def test_every_episode_has_a_new_policy(suite):
    class Counting(Remembering):
        def __init__(self, env):
            super().__init__(env)
            self.count = 0

        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            self.count += 1
            return np.full(self.devices, self.count % 5), state

    for episode in evaluate(Counting, suite.task("draft"), 3).episodes:
        assert np.array_equal(episode.actions["action"][:, 0], np.arange(1, episode.rounds + 1) % 5)


def test_charged_time_plays_the_same_rounds(suite):
    task = suite.task("draft")
    for episode in evaluate(named("deadline"), task, 4).episodes:
        assert episode.charged_goodput(0.0, 3.0) == episode.goodput
        for wait in (1e-6, 0.05, 0.4, 5.0):
            time_s, tokens = 0.0, 0
            for emitted, latency in zip(episode.emitted, episode.latency_s):
                time_s += wait + latency
                tokens += emitted if time_s <= 3.0 else 0
            assert episode.charged_goodput(wait, 3.0) == pytest.approx(tokens / 3.0, rel=1e-12)
        assert episode.charged_goodput(5.0, 3.0) == 0.0
        total = episode.emitted.sum() / (episode.latency_s + 0.1).sum()
        assert episode.charged_goodput(0.1, None) == pytest.approx(total)


@pytest.mark.parametrize("name", ["draft", "joint", "bandwidth"])
def test_expected_goodputs_against_exact_expectations(suite, name):
    task = suite.task(name)
    (episode,) = evaluate(lambda env: baselines.portfolio("papers", env), task, 1).episodes
    env = task.make()
    env.reset(seed=episode.seed)
    values = []
    for i in range(episode.rounds):
        row = {key: array[i].astype(np.int64 if key != "bandwidth" else np.float32)
               for key, array in episode.actions.items()}  # fmt: skip
        info = env.step(row.get("action", row))[-1]
        tape = env.unwrapped.tape
        problem = pose(
            task.scenario,
            tape.devices.acceptance_rate,
            tape.devices.token_latency_s,
            tape.channel_gain[i],
        )
        if name == "bandwidth":
            values.append(problem.goodput(info["drafted"], info["bandwidth_hz"]))
        else:
            values.append(problem.goodput(info["drafted"], exact=True))
    assert episode.expected_goodput == pytest.approx(np.mean(values), rel=5e-3)


def test_expected_goodput_of_modes_is_that_of_the_outcome(suite):
    (episode,) = evaluate(named("optimal_modes"), suite.task("modes"), 1).episodes
    assert episode.expected_goodput == np.mean(episode.emitted / episode.latency_s)
    (left_out,) = evaluate(named("optimal_modes"), suite.task("modes"), 1, expected=False).episodes
    assert np.isnan(left_out.expected_goodput)


@pytest.mark.parametrize("track", ["full", "feedback"])
@pytest.mark.parametrize("name", ["draft", "modes", "joint", "bandwidth"])
def test_no_shipped_policy_looks_ahead(suite, name, track):
    task = suite.task(name)
    for policy in baselines.names(task.make()):
        assert check_causal(named(policy), task, track=track, rounds=(0, 4, 17), forks=2) == []


def test_a_policy_that_looks_ahead_is_caught(suite):
    task = suite.task("draft")
    rounds = (0, 1, 4)
    assert check_causal(Peeking, task, rounds=rounds) == list(rounds)

    class NextChannel(Peeking):
        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            self.round = 0 if episode_start[0] else self.round + 1
            gain = self.env.unwrapped.tape.channel_gain[self.round + 1]
            return (gain > np.median(gain)).astype(int), state

    assert check_causal(NextChannel, task, rounds=rounds, forks=8) == list(rounds)


def test_rounds_after_the_end_are_left_out(suite):
    assert check_causal(Peeking, suite.task("draft"), rounds=(10_000,)) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lanes": 0}, "lanes = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"track": "blind"}, "track = 'blind'"),
        ({"episodes": 11}, "episodes = 11: the dev split of small has 10"),
    ],
)
def test_errors(suite, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(named("fixed"), suite.task("draft"), **options)


def test_a_bad_action_is_the_environments_error(suite):
    class Bad:
        def __init__(self, env):
            pass

        def predict(self, observation, **_):
            return np.full(4, 99), None

    with pytest.raises(PolicyError, match=r"draft, seed \d+, round 0: .*length 99 of device 0"):
        evaluate(Bad, suite.task("draft"), 1)


def test_policies_that_fail_say_where(suite):
    class Nothing:
        def __init__(self, env):
            pass

        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            return None

    class Late(Remembering):
        def predict(self, observation, state=None, **rest):
            if state is not None and state[0][0] == 2:
                raise KeyError("sensor")
            return super().predict(observation, state, **rest)

    task = suite.task("draft")
    for factory, message in (
        (Nothing, "round 0: predict returned NoneType: must be"),
        (Late, "round 2: predict: KeyError: 'sensor'"),
        (lambda env: None, "draft: the factory returned None, which has no predict"),
        (lambda env: 1 / 0, "draft: making the policy: ZeroDivisionError"),
        (lambda wrong, also: None, "draft: making the policy: TypeError"),
    ):
        with pytest.raises(PolicyError, match=message):
            evaluate(factory, task, 1)
    with pytest.raises(PolicyError) as caught:
        evaluate(Late, task, 1)
    assert isinstance(caught.value.__cause__, KeyError)
