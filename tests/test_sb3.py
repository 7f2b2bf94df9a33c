"""The Stable-Baselines3 adapter."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra [train]: stable-baselines3")

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env as sb3_make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv
from test_env import IDS, SMALL, same

import agents
from multispin_env.envs.wrappers import FlattenBandwidth

SHORT = SMALL | {"episode.horizon_s": 3.0}


def wrapped(env_id):
    return {"wrapper_class": FlattenBandwidth} if env_id == IDS[3] else {}


@pytest.mark.parametrize("env_id", IDS)
def test_plays_the_same_episodes_as_stable_baselines3s_own(env_id):
    ours = agents.make_vec_env(env_id, num_envs=3, seed=5, overrides=SHORT)
    theirs = sb3_make_vec_env(env_id, 3, seed=5, env_kwargs={"overrides": SHORT}, **wrapped(env_id))
    assert ours.action_space == theirs.action_space
    assert ours.observation_space == theirs.observation_space
    assert same(dict(ours.reset()), dict(theirs.reset()))
    theirs.action_space.seed(0)
    ended = 0
    for _ in range(100):
        actions = np.stack([theirs.action_space.sample() for _ in range(3)])
        a, b = ours.step(actions), theirs.step(actions)
        assert same(dict(a[0]), dict(b[0]))
        assert np.array_equal(a[1], b[1])
        assert np.array_equal(a[2], b[2])
        for lane in range(3):
            last, expected = a[3][lane], b[3][lane]
            assert last.get("TimeLimit.truncated", False) == expected["TimeLimit.truncated"]
            assert ("terminal_observation" in last) == a[2][lane]
            if a[2][lane]:
                ended += 1
                assert same(last["terminal_observation"], expected["terminal_observation"])
                assert last["episode_goodput"] == expected["episode_goodput"]
                assert last["episode"]["l"] == expected["episode"]["l"]
                assert last["episode"]["r"] == pytest.approx(
                    expected["episode"]["r"], rel=1e-5, abs=1e-3
                )
    assert ended > 10


def trained(envs):
    torch.manual_seed(0)
    model = PPO("MultiInputPolicy", envs, n_steps=64, batch_size=64, seed=0, device="cpu")
    model.learn(3 * 4 * 64)
    return torch.cat([p.detach().flatten() for p in model.policy.parameters()])


def test_ppo_learns_the_same_through_both():
    ours = agents.make_vec_env(IDS[0], num_envs=4, seed=1, overrides=SHORT)
    theirs = sb3_make_vec_env(IDS[0], 4, seed=1, env_kwargs={"overrides": SHORT})
    torch.testing.assert_close(trained(ours), trained(theirs))


def test_lanes_that_go_on_have_an_empty_info():
    envs = agents.SB3VecEnv(
        gym.make_vec(IDS[0], num_envs=2, autoreset_mode="SAME_STEP", overrides=SMALL)
    )
    envs.seed(0)
    envs.reset()
    infos = envs.step(np.ones((2, 4), int))[3]
    assert infos == [{}, {}]
    assert infos[0] is not infos[1]


def test_seeds_are_used_once_and_then_the_streams_go_on():
    envs = agents.make_vec_env(IDS[0], num_envs=2, seed=3, overrides=SMALL)
    plain = DummyVecEnv([lambda: gym.make(IDS[0], overrides=SMALL)] * 2)
    plain.seed(3)
    for _ in range(3):
        assert same(dict(envs.reset()), dict(plain.reset()))


def test_interface_of_attributes():
    envs = agents.make_vec_env(IDS[0], num_envs=2, overrides=SMALL)
    assert [s.num_devices for s in envs.get_attr("scenario")] == [4, 4]
    assert envs.env_is_wrapped(gym.Wrapper) == [False, False]
    assert list(envs.get_images()) == [None, None]
    with pytest.raises(ValueError, match="scenario"):
        envs.set_attr("scenario", 3)
    with pytest.raises(ValueError, match="render"):
        envs.env_method("render")
    envs.close()


@pytest.mark.parametrize("mode", ["NEXT_STEP", "DISABLED"])
def test_other_autoreset_modes_are_refused(mode):
    with pytest.raises(ValueError, match="SAME_STEP"):
        agents.SB3VecEnv(gym.make_vec(IDS[0], num_envs=2, autoreset_mode=mode))
