"""`regret=True`: each round's decision against the best known one."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
from test_env import IDS

import baselines
from multispin_env import solvers
from multispin_env.model import correction
from multispin_env.solvers.problems import pose

SMALL = {"num_devices": 4, "max_draft_length": 4, "radio.uplink_power_dbm": 10}
UPLOADS = {"num_devices": 3, "max_draft_length": 4}


def problems(env):
    """The problem of every round of the running episode, from its tape."""
    tape, scenario = env.unwrapped.tape, env.unwrapped.scenario
    devices = tape.devices
    for gain in tape.channel_gain:
        yield pose(scenario, devices.acceptance_rate, devices.token_latency_s, gain)


def play(env, rounds, seed=0):
    """Infos of rounds with random actions."""
    env.reset(seed=seed)
    env.action_space.seed(seed)
    return [env.step(env.action_space.sample())[-1] for _ in range(rounds)]


@pytest.mark.parametrize("rule", ["optimal", "uplink", "downlink", "random"])
def test_lengths_against_enumeration(rule):
    env = gym.make(IDS[0], overrides=SMALL, correction=rule, regret=True)
    infos = play(env, 12)
    for info, problem in zip(infos, problems(env)):
        best = solvers.exhaustive(problem, rule).goodput
        chosen = problem.goodput(info["drafted"], rule, exact=True)
        assert info["best_goodput"] == pytest.approx(best, rel=2e-2)
        assert info["chosen_goodput"] == pytest.approx(chosen, rel=2e-2)
        assert info["regret"] == info["best_goodput"] - info["chosen_goodput"]
        assert info["regret"] >= 0
    assert max(info["regret"] for info in infos) > 10


@pytest.mark.parametrize("env_id", [IDS[0], IDS[3]])
def test_uploads_against_enumeration(env_id):
    env = gym.make(env_id, scenario="qwen3.5", overrides=UPLOADS, regret=True)
    for info, problem in zip(play(env, 8), problems(env)):
        lengths = np.array(list(itertools.product(range(5), repeat=3)))
        best = max(problem.goodput(row) for row in lengths)
        band = info["bandwidth_hz"] if env_id == IDS[3] else None
        assert info["best_goodput"] == pytest.approx(best, rel=1e-9)
        assert info["chosen_goodput"] == pytest.approx(problem.goodput(info["drafted"], band))
        assert info["regret"] >= 0


@pytest.mark.parametrize("env_id", [IDS[1], IDS[2]])
def test_modes_against_enumeration(env_id):
    env = gym.make(env_id, overrides=SMALL, regret=True)
    infos = play(env, 16)
    for info, problem in zip(infos, problems(env)):
        modes = np.array(list(itertools.product([0, 1], repeat=4)))
        radio = problem._radio()
        rejected = np.broadcast_to(info["rejected"], modes.shape)
        sent = correction.correct(rejected, rule="random", downlink=modes, **radio)
        shortest = sent.latency_s.min()
        excess = info["communication_s"] - shortest
        assert info["excess_latency_s"] == pytest.approx(excess, rel=1e-9, abs=1e-9)
        if env_id == IDS[1]:
            computing = info["drafting_s"] + info["verification_s"]
            chosen = info["emitted"] / (computing + info["communication_s"])
            assert info["chosen_goodput"] == pytest.approx(chosen)
            best = info["emitted"] / (computing + shortest)
            assert info["best_goodput"] == pytest.approx(best)
        else:
            chosen = problem.goodput(info["drafted"], exact=True)
            assert info["chosen_goodput"] == pytest.approx(chosen, rel=2e-2)
    assert max(info["excess_latency_s"] for info in infos) > 1e-3


def test_the_strongest_policy_has_little_regret_and_greedy_more():
    total = {}
    for name in ("deadline", "greedy"):
        env = gym.make(IDS[0], overrides={"radio.uplink_power_dbm": 10}, regret=True)
        policy = baselines.make(name, env)
        observation, _ = env.reset(seed=0)
        total[name] = 0.0
        for _ in range(30):
            observation, _, _, _, info = env.step(policy.predict(observation)[0])
            total[name] += info["regret"] / info["best_goodput"] / 30
    assert total["deadline"] < 1e-4
    assert total["greedy"] > 0.05


@pytest.mark.parametrize("env_id", IDS)
def test_vector_lanes_equal_scalar_environments(env_id):
    overrides = (UPLOADS if env_id == IDS[3] else SMALL) | {"episode.rounds": 5}
    envs = gym.make_vec(
        env_id, num_envs=3, overrides=overrides, regret=True, autoreset_mode="SAME_STEP"
    )
    singles = [gym.make(env_id, overrides=overrides, regret=True) for _ in range(3)]
    envs.reset(seed=7)
    for i, env in enumerate(singles):
        env.reset(seed=7 + i)
    envs.action_space.seed(0)
    keys = ["best_goodput", "chosen_goodput", "regret"]
    keys += ["excess_latency_s"] if env_id in IDS[1:3] else []
    for step in range(7):
        actions = envs.action_space.sample()
        infos = envs.step(actions)[-1]
        for i, env in enumerate(singles):
            action = (
                {key: value[i] for key, value in actions.items()}
                if isinstance(actions, dict)
                else actions[i]
            )
            _, _, _, truncated, info = env.step(action)
            shown = infos["final_info"] if truncated else infos
            assert truncated == (step % 5 == 4)
            for key in keys:
                assert shown[key][i] == info[key]
                assert shown[f"_{key}"][i]
            if truncated:
                env.reset()


def test_it_is_off_by_default_and_changes_nothing_else():
    plain, told = gym.make(IDS[0], overrides=SMALL), gym.make(IDS[0], overrides=SMALL, regret=True)
    for a, b in zip(play(plain, 5), play(told, 5)):
        assert set(b) - set(a) == {"best_goodput", "chosen_goodput", "regret"}
        assert all(np.array_equal(a[key], b[key]) for key in a)


def test_a_reward_can_use_it():
    env = gym.make(
        IDS[0],
        overrides=SMALL,
        regret=True,
        reward=lambda info: -info["regret"],
        disable_env_checker=True,
    )
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.full(4, 2))
    assert reward == -info["regret"]


@pytest.mark.parametrize("make", [gym.make, gym.make_vec])
def test_other_values_are_refused(make):
    with pytest.raises(ValueError, match="regret = 'yes': must be True or False"):
        make(IDS[0], overrides=SMALL, regret="yes")
