"""Another future for the same past: `env.unwrapped.fork`."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from test_env import IDS

from multispin_env.world.round import play_round

SMALL = {"num_devices": 4, "episode.rounds": 60}


def play(env, rounds, start=0):
    """Observations and infos under actions that depend on the round only."""
    steps = []
    for r in range(start, start + rounds):
        env.action_space.seed(r)
        observation, _, _, _, info = env.step(env.action_space.sample())
        steps.append((observation, info))
    return steps


def same(a, b):
    return all(np.array_equal(a[key], b[key]) for key in a if key != "reward_terms")


@pytest.mark.parametrize("at", [0, 5, 14, 15, 16, 33])
@pytest.mark.parametrize(
    ("env_id", "kwargs"), [(IDS[0], {"correction": "random"}), *((i, {}) for i in IDS[1:])]
)
def test_the_past_stays_and_the_future_changes(env_id, kwargs, at):
    env = gym.make(env_id, overrides=SMALL, **kwargs)
    env.reset(seed=3)
    play(env, at)
    twin = copy.deepcopy(env)
    before = copy.deepcopy(env.unwrapped.tape)
    before.channel_gain  # noqa: B018 - drawn before the fork
    env.unwrapped.fork(11)
    after = env.unwrapped.tape
    shown = at + 1 + (env_id in IDS[1:3])
    assert np.array_equal(before.channel_gain[:shown], after.channel_gain[:shown])
    assert not np.any(before.channel_gain[shown:] == after.channel_gain[shown:])
    assert np.array_equal(before.run_length[: shown - 1], after.run_length[: shown - 1])
    assert not np.array_equal(before.run_length[shown - 1 :], after.run_length[shown - 1 :])
    ours, theirs = play(env, 20, at), play(twin, 20, at)
    if env_id in IDS[1:3]:  # the pending round was known
        assert same(ours[0][1], theirs[0][1])
    assert not same(ours[3][1], theirs[3][1])
    # What is played is what the tape says.
    tape = env.unwrapped.tape
    for _, info in ours:
        if env_id == IDS[3]:
            given = {"share": info["bandwidth_hz"]}
        else:
            given = {"downlink": info["mode"] == 1}
        again = play_round(tape, info["round"], info["drafted"], **given)
        assert again.communication_s == pytest.approx(info["communication_s"], rel=1e-9)
        assert np.array_equal(again.accepted, info["accepted"])


def test_forks_repeat_and_nest():
    env = gym.make(IDS[0], overrides=SMALL)
    for seeds in ((1,), (1, 2)):
        runs = []
        for _ in range(2):
            env.reset(seed=0)
            for i, seed in enumerate(seeds):
                play(env, 9, 9 * i)
                env.unwrapped.fork(seed)
            steps = play(env, 20, 9 * len(seeds))
            tape = env.unwrapped.tape
            for _, info in steps:
                drafted = np.minimum(tape.run_length[info["round"]], info["drafted"])
                assert np.array_equal(drafted, info["accepted"])
            runs.append([info["accepted"] for _, info in steps])
        assert np.array_equal(*runs)
    env.reset(seed=0)
    assert env.unwrapped.tape.forks == ()


def test_errors():
    env = gym.make(IDS[0], overrides=SMALL)
    with pytest.raises(ResetNeeded):
        env.unwrapped.fork(0)
    env.reset(seed=0)
    for seed in (-1, 1.5, None):
        with pytest.raises(ValueError, match="seed = "):
            env.unwrapped.fork(seed)
