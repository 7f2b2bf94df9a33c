"""`observe_time=True`: the time that is left, beside a world that stays what it is."""

import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from test_env import IDS, same

import baselines
from multispin_env.envs.wrappers import FlatObservation, FlattenBandwidth

SHORT = {"num_devices": 4, "episode.horizon_s": 6.0, "reference_goodput": 100.0}
SHORT["reference_draft_length"] = 4
KEY = "time_left_s"
ids = pytest.mark.parametrize("env_id", IDS)


def make(env_id, **options):
    options = {"overrides": SHORT, "observe_time": True} | options
    return gym.make(env_id, **options)


def left(observation):
    value = observation[KEY]
    assert value.dtype == np.float32
    return value


@ids
def test_it_is_the_horizon_less_the_time_of_the_info(env_id):
    env = make(env_id)
    env.action_space.seed(1)
    for seed in range(3):
        observation, info = env.reset(seed=seed)
        assert left(observation).shape == (1,)
        assert observation[KEY][0] == 6.0
        truncated = False
        while not truncated:
            observation, _, _, truncated, info = env.step(env.action_space.sample())
            assert observation in env.observation_space
            assert observation[KEY][0] == pytest.approx(6.0 - info["time_s"], abs=1e-6)
        assert observation[KEY][0] == 0.0


@ids
def test_all_else_is_what_it_is_without(env_id):
    plain, timed = make(env_id, observe_time=False), make(env_id)
    plain.action_space.seed(2)
    expected, found = plain.reset(seed=3), timed.reset(seed=3)
    while True:
        found[0].pop(KEY)
        assert KEY not in expected[0]
        assert same(expected, found)
        if len(expected) == 5 and expected[3]:
            return
        action = plain.action_space.sample()
        expected, found = plain.step(action), timed.step(action)


@ids
@pytest.mark.parametrize("mode", list(AutoresetMode)[:2])
def test_lanes_show_what_scalar_environments_show(env_id, mode):
    # Lanes end at different times; SAME_STEP's last observation has no time left.
    lanes, options = 3, {"overrides": SHORT | {"episode.horizon_s": 3.0}}
    envs = gym.make_vec(env_id, num_envs=lanes, observe_time=True, autoreset_mode=mode, **options)
    alone = [make(env_id, **options) for _ in range(lanes)]
    shown, _ = envs.reset(seed=4)
    expected = [env.reset(seed=4 + n)[0] for n, env in enumerate(alone)]
    over, ended = [False] * lanes, 0
    envs.action_space.seed(5)
    for _ in range(70):
        assert left(shown).shape == (lanes, 1)
        for n in range(lanes):
            np.testing.assert_array_equal(shown[KEY][n], expected[n][KEY])
        actions = envs.action_space.sample()
        shown, _, _, _, infos = envs.step(actions)
        for n, env in enumerate(alone):
            if over[n]:
                expected[n], over[n] = env.reset()[0], False
                continue
            action = (
                {key: value[n] for key, value in actions.items()}
                if isinstance(actions, dict)
                else actions[n]
            )
            expected[n], _, _, over[n], _ = env.step(action)
            if over[n]:
                ended += 1
                if mode is AutoresetMode.SAME_STEP:
                    assert infos["final_obs"][n][KEY] == expected[n][KEY] == 0.0
                    expected[n], over[n] = env.reset()[0], False
    assert ended > lanes


def test_lanes_may_have_horizons_of_their_own():
    overrides = [SHORT | {"episode.horizon_s": seconds} for seconds in (2.0, 9.0)]
    envs = gym.make_vec(IDS[0], num_envs=2, overrides=overrides, observe_time=True)
    shown, _ = envs.reset(seed=0)
    assert shown[KEY].ravel().tolist() == [2.0, 9.0]
    assert shown in envs.observation_space
    assert envs.single_observation_space[KEY].high[0] == 9.0


@ids
def test_gymnasiums_checker_is_content(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(env_id).unwrapped, skip_render_check=True)


@ids
def test_stable_baselines_checker_is_content(env_id):
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="needs [train]")
    env = make(env_id)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(FlattenBandwidth(env) if "Bandwidth" in env_id else env)


def test_a_draft_policy_sees_it():
    seen = []

    def policy(observation):
        seen.append(observation[KEY].copy())
        return np.full(4, 2)

    env = make("multispin/ModeSelection-v0", draft_policy=policy)
    env.reset(seed=0)
    info = env.step(env.action_space.sample())[4]
    assert [value.shape for value in seen] == [(1,), (1,)]
    assert seen[0][0] == 6.0
    assert seen[1][0] == pytest.approx(6.0 - info["time_s"], abs=1e-6)


@ids
def test_policies_flat_observations_and_copies_take_it(env_id):
    env = make(env_id)
    observation, _ = env.reset(seed=1)
    for name in baselines.names(env):
        action, _ = baselines.make(name, env).predict(observation)
        assert action in env.action_space
    flat = FlatObservation(make(env_id))
    vector, _ = flat.reset(seed=1)
    place = list(env.observation_space).index(KEY)
    assert vector in flat.observation_space
    assert vector[4 * place] == 1.0  # a horizon, in horizons; other parts have 4 devices
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        env.action_space.seed(0)
        action = env.action_space.sample()
        assert same(copy.deepcopy(env).step(action), twin.step(action))


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match=r"observe_time = True: .*episode.rounds = 7"):
        make(IDS[0], overrides={"episode.rounds": 7})
    with pytest.raises(ValueError, match="observe_time = 1"):
        make(IDS[0], observe_time=1)
    with pytest.raises(ValueError, match="observe_time = 'yes'"):
        gym.make_vec(IDS[0], num_envs=2, observe_time="yes")
