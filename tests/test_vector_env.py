"""The native vector environments against the scalar ones, lane by lane and bit for bit."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from test_env import IDS, SMALL, VARIANTS, same

MODES = list(AutoresetMode)
SHORT = {"episode.horizon_s": 6.0}  # about ten rounds, so that there are many autoresets


def short(kwargs):
    return kwargs | {"overrides": kwargs.get("overrides", {}) | SHORT}


def make_sync(env_id, kwargs, num_envs, mode, vector=SyncVectorEnv):
    return vector([lambda: gym.make(env_id, **kwargs)] * num_envs, autoreset_mode=mode)


def plain(data):
    """Nested data with object arrays as lists, so that `same` compares them by value."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple) or (isinstance(data, np.ndarray) and data.dtype == object):
        return [plain(value) for value in data]
    return data


def rollout(envs, steps, seed, mode):
    """All that `steps` steps return; under DISABLED, finished lanes are reset by mask."""
    envs.action_space.seed(0)
    trace = [envs.reset(seed=seed)]
    for _ in range(steps):
        item = envs.step(envs.action_space.sample())
        trace.append(item)
        done = item[2] | item[3]
        if mode is AutoresetMode.DISABLED and done.any():
            trace.append(envs.reset(options={"reset_mask": done}))
    return trace


# ---- equality ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "kwargs"), VARIANTS)
def test_equals_sync_vector_env_bit_for_bit(env_id, kwargs, mode):
    native = gym.make_vec(env_id, num_envs=4, autoreset_mode=mode, **short(kwargs))
    sync = make_sync(env_id, short(kwargs), 4, mode)
    ours, theirs = rollout(native, 350, 5, mode), rollout(sync, 350, 5, mode)
    assert sum(item[3].sum() for item in ours if len(item) == 5) > 40
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert same(plain(a), plain(b)), f"step {step}"


@pytest.mark.parametrize("mode", MODES)
def test_equals_async_vector_env(mode):
    native = gym.make_vec(IDS[2], num_envs=2, autoreset_mode=mode, overrides=SHORT)
    other = make_sync(IDS[2], {"overrides": SHORT}, 2, mode, AsyncVectorEnv)
    try:
        expected = rollout(other, 350, 5, mode)
    finally:
        other.close()
    assert same(plain(rollout(native, 350, 5, mode)), plain(expected))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "kwargs"), VARIANTS)
def test_lane_equals_the_scalar_environment(env_id, kwargs, mode):
    lanes, lane = 3, 1
    envs = gym.make_vec(env_id, num_envs=lanes, autoreset_mode=mode, **short(kwargs))
    env = gym.make(env_id, **short(kwargs))
    envs.action_space.seed(0)

    def of_lane(data):
        return {key: value[lane] for key, value in data.items() if not key.startswith("_")}

    observations, _ = envs.reset(seed=7)
    observation, _ = env.reset(seed=7 + lane)
    pending_reset = False
    for _ in range(350):
        assert same(of_lane(observations), observation)
        actions = envs.action_space.sample()
        action = (
            {k: v[lane] for k, v in actions.items()} if isinstance(actions, dict) else actions[lane]
        )
        observations, rewards, _, truncations, infos = envs.step(actions)
        if pending_reset:
            observation, _ = env.reset()
            assert rewards[lane] == 0.0
            assert not truncations[lane]
            pending_reset = False
            continue
        observation, reward, _, truncated, info = env.step(action)
        assert rewards[lane] == reward
        assert truncations[lane] == truncated
        shown = infos
        if truncated and mode is AutoresetMode.SAME_STEP:
            assert same(infos["final_obs"][lane], observation)
            shown = infos["final_info"]
            observation, _ = env.reset()
        for key, value in info.items():
            if key != "reward_terms":
                assert shown[f"_{key}"][lane]
                assert np.array_equal(shown[key][lane], value)
        for key, value in info["reward_terms"].items():
            assert shown["reward_terms"][key][lane] == value
        if mode is AutoresetMode.DISABLED and truncations.any():
            observations, _ = envs.reset(options={"reset_mask": truncations})
            if truncated:
                observation, _ = env.reset()
        pending_reset = truncated and mode is AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("mode", MODES)
def test_seeded_reset_is_repeatable_through_autoresets(mode):
    envs = gym.make_vec(IDS[0], num_envs=3, autoreset_mode=mode, overrides=SHORT)
    first = rollout(envs, 60, 5, mode)
    assert min(sum(item[3][n] for item in first if len(item) == 5) for n in range(3)) >= 3
    assert same(plain(rollout(envs, 60, 5, mode)), plain(first))


def test_list_seeds():
    envs = gym.make_vec(IDS[0], num_envs=3)
    by_list, _ = envs.reset(seed=[9, 4, 9])
    scalar = [gym.make(IDS[0]).reset(seed=s)[0] for s in (9, 4, 9)]
    for lane, expected in enumerate(scalar):
        assert same({k: v[lane] for k, v in by_list.items()}, expected)


def test_unseeded_resets_continue_the_streams():
    envs = gym.make_vec(IDS[0], num_envs=2)
    envs.reset(seed=3)
    second, _ = envs.reset()
    env = gym.make(IDS[0])
    env.reset(seed=4)
    assert same({k: v[1] for k, v in second.items()}, env.reset()[0])
    fresh = [gym.make_vec(IDS[0], num_envs=2).reset()[0]["snr_db"] for _ in range(2)]
    assert not np.array_equal(*fresh)


def test_per_lane_overrides_equal_separate_environments():
    overrides = [
        SMALL | SHORT | {"radio.uplink_power_dbm": power, "tasks": {"t": rate}}
        for power, rate in ((10, 0.5), (20, 0.9), (20, 0.9))
    ]
    envs = gym.make_vec(IDS[2], num_envs=3, overrides=overrides, price=50.0)
    sync = SyncVectorEnv(
        [lambda o=o: gym.make(IDS[2], overrides=o, price=50.0) for o in overrides],
    )
    assert envs.unwrapped.scenarios[0].radio.uplink_power_dbm == 10
    ours = rollout(envs, 350, 1, AutoresetMode.NEXT_STEP)
    assert same(plain(ours), plain(rollout(sync, 350, 1, AutoresetMode.NEXT_STEP)))


def test_each_lane_has_the_price_of_its_scenario():
    envs = gym.make_vec(IDS[0], num_envs=2, overrides=[{}, {"radio.uplink_power_dbm": 10}])
    expected = [
        gym.make(IDS[0], overrides=o).unwrapped.price for o in ({}, {"radio.uplink_power_dbm": 10})
    ]
    assert np.array_equal(envs.unwrapped.prices, expected)
    assert expected[0] != expected[1]


def test_lanes_may_have_scenarios_and_overrides_of_their_own():
    overrides = [{"num_devices": 3}, {"num_devices": 3, "radio.uplink_power_dbm": 10}]
    envs = gym.make_vec(
        IDS[0], num_envs=2, scenario=["qwen2.5", "deepseek-r1"], overrides=overrides, price=50.0
    )
    sync = gym.vector.SyncVectorEnv(
        [
            lambda s=s, o=o: gym.make(IDS[0], scenario=s, overrides=o, price=50.0)
            for s, o in zip(("qwen2.5", "deepseek-r1"), overrides)
        ]
    )
    ours = rollout(envs, 100, 1, AutoresetMode.NEXT_STEP)
    assert same(plain(ours), plain(rollout(sync, 100, 1, AutoresetMode.NEXT_STEP)))


def test_callable_reward_and_draft_policy_are_batched():
    calls = []

    def reward(info):
        return info["tokens"] - info["rejected"].sum(axis=-1)

    def policy(observation):
        calls.append(observation["snr_db"].shape)
        return np.argsort(observation["snr_db"], axis=-1)

    kwargs = {"overrides": SMALL | SHORT, "reward": reward, "draft_policy": policy}
    ours = rollout(gym.make_vec(IDS[1], num_envs=3, **kwargs), 100, 0, AutoresetMode.NEXT_STEP)
    assert set(calls) == {(3, 4)}
    sync = make_sync(IDS[1], kwargs, 3, AutoresetMode.NEXT_STEP)
    assert same(plain(ours), plain(rollout(sync, 100, 0, AutoresetMode.NEXT_STEP)))


# ---- Gymnasium's conventions ------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_autoreset_mode_is_taken_as_member_name_and_value(mode):
    for given in (mode, mode.name, mode.value):
        envs = gym.make_vec(IDS[0], num_envs=1, autoreset_mode=given)
        assert envs.metadata["autoreset_mode"] is mode
    assert type(envs.unwrapped).metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_observations_lie_in_the_batched_space():
    for env_id, kwargs in VARIANTS:
        envs = gym.make_vec(env_id, num_envs=3, **kwargs)
        observations, _ = envs.reset(seed=0)
        assert observations in envs.observation_space
        for _ in range(5):
            observations, *_ = envs.step(envs.action_space.sample())
            assert observations in envs.observation_space


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", [IDS[0], IDS[2]])
def test_returned_data_never_changes(env_id, mode):
    envs = gym.make_vec(env_id, num_envs=3, autoreset_mode=mode, overrides=SHORT)
    envs.action_space.seed(0)
    kept, copies = [], []
    item = envs.reset(seed=0)
    for _ in range(50):
        kept.append(item)
        copies.append(copy.deepcopy(item))
        actions = envs.action_space.sample()
        before = actions.copy()
        item = envs.step(actions)
        assert np.array_equal(actions, before)
        if mode is AutoresetMode.DISABLED and item[3].any():
            kept.append(item)
            copies.append(copy.deepcopy(item))
            item = envs.reset(options={"reset_mask": item[3]})
    assert same(plain(kept), plain(copies))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_record_episode_statistics_gives_lengths_and_returns(mode):
    envs = RecordEpisodeStatistics(
        gym.make_vec(IDS[0], num_envs=3, autoreset_mode=mode, overrides=SHORT, price=100.0)
    )
    envs.action_space.seed(0)
    envs.reset(seed=0)
    checked = 0
    for _ in range(80):
        *_, truncations, infos = envs.step(envs.action_space.sample())
        final = infos.get("final_info", infos)
        for lane in np.flatnonzero(truncations):
            goodput = final["episode_goodput"][lane]
            assert infos["episode"]["r"][lane] == pytest.approx((goodput - 100.0) * 6.0)
            assert infos["episode"]["l"][lane] == final["round"][lane] + 1
            checked += 1
    assert checked > 10


def test_record_episode_statistics_with_disabled_autoreset():
    envs = RecordEpisodeStatistics(
        gym.make_vec(IDS[0], num_envs=3, autoreset_mode="DISABLED", overrides=SHORT, price=100.0)
    )
    envs.action_space.seed(0)
    envs.reset(seed=0)
    checked = 0
    for _ in range(60):
        *_, truncations, infos = envs.step(envs.action_space.sample())
        for lane in np.flatnonzero(truncations):
            goodput = infos["episode_goodput"][lane]
            assert infos["episode"]["r"][lane] == pytest.approx((goodput - 100.0) * 6.0)
            assert infos["episode"]["l"][lane] == infos["round"][lane] + 1
            checked += 1
        if truncations.any():
            options = {"reset_mask": truncations}
            envs.reset(options=options)
    assert checked > 5


def test_a_full_horizon_follows_a_reset_in_the_middle():
    envs = gym.make_vec(IDS[0], num_envs=2, autoreset_mode="NEXT_STEP")
    envs.reset(seed=0)
    action = np.full((2, 20), 3)
    for _ in range(30):
        envs.step(action)
    envs.reset()
    time_s = np.zeros(2)
    truncated = np.zeros(2, bool)
    while not truncated.all():
        *_, truncations, infos = envs.step(action)
        time_s += np.where(truncated, 0.0, infos["latency_s"])
        truncated |= truncations
    np.testing.assert_allclose(time_s, 30.0)


def test_partial_reset_leaves_the_other_lanes_alone():
    envs, twin = (gym.make_vec(IDS[0], num_envs=3) for _ in range(2))
    for either in (envs, twin):
        either.reset(seed=0)
        either.step(np.full((3, 20), 2))
    options = {"reset_mask": np.array([False, True, False])}
    observations, infos = envs.reset(seed=[None, 99, None], options=options)
    assert options == {"reset_mask": options["reset_mask"]}
    assert infos["_time_s"].tolist() == [False, True, False]
    expected = gym.make(IDS[0]).reset(seed=99)[0]
    assert same({k: v[1] for k, v in observations.items()}, expected)
    ours, theirs = envs.step(np.full((3, 20), 4)), twin.step(np.full((3, 20), 4))
    for lane in (0, 2):
        assert np.array_equal(ours[0]["snr_db"][lane], theirs[0]["snr_db"][lane])
        assert ours[1][lane] == theirs[1][lane]
    assert ours[4]["round"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_continue_alike(clone):
    envs = gym.make_vec(IDS[2], num_envs=3, overrides=SHORT)
    rollout(envs, 30, 0, AutoresetMode.NEXT_STEP)
    twin = clone(envs)
    actions = [envs.action_space.sample() for _ in range(40)]
    ours = [envs.step(action) for action in actions]
    assert same(plain(ours), plain([twin.step(action) for action in actions]))


def test_tapes_are_those_of_the_scalar_environments():
    envs = gym.make_vec(IDS[0], num_envs=3)
    envs.reset(seed=5)
    env = gym.make(IDS[0])
    env.reset(seed=7)
    assert np.array_equal(envs.unwrapped.tapes[2].channel_gain, env.unwrapped.tape.channel_gain)


# ---- errors -----------------------------------------------------------------------------------


def test_bad_actions_raise_and_change_nothing():
    envs, twin = (gym.make_vec(IDS[0], num_envs=3, overrides=SHORT) for _ in range(2))
    for either in (envs, twin):
        either.reset(seed=0)
        either.action_space.seed(0)
    for _ in range(60):
        actions = envs.action_space.sample()
        played = ~envs.unwrapped._over
        lane = int(np.flatnonzero(played)[-1])
        bad = actions.copy()
        bad[lane, 7] = 21
        with pytest.raises(ValueError, match=f"draft length 21 of environment {lane}, device 7"):
            envs.step(bad)
        with pytest.raises(ValueError, match=r"shape \(3, 19\)"):
            envs.step(actions[:, :19])
        assert same(plain(envs.step(actions)), plain(twin.step(actions)))


def test_stepping_needs_running_episodes():
    envs = gym.make_vec(IDS[0], num_envs=2, autoreset_mode="DISABLED", overrides=SHORT)
    with pytest.raises(ResetNeeded):
        envs.step(envs.action_space.sample())
    with pytest.raises(ResetNeeded):
        _ = envs.unwrapped.tapes
    with pytest.raises(ResetNeeded, match="reset_mask"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset(seed=0)
    truncations = np.zeros(2, bool)
    while not truncations.any():
        *_, truncations, _ = envs.step(envs.action_space.sample())
    with pytest.raises(ResetNeeded, match=r"lanes \["):
        envs.step(envs.action_space.sample())


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_envs": 0}, "num_envs = 0"),
        ({"autoreset_mode": "never"}, "autoreset_mode = 'never'.*NEXT_STEP"),
        ({"overrides": [{}]}, "overrides lists 1 entries"),
        ({"overrides": [{}, {"num_devices": 3}]}, "environment 1: num_devices = 3"),
        ({"scenario": ["qwen2.5"]}, "scenario lists 1 entries"),
        ({"scenario": ["qwen2.5", "llama2"]}, "environment 1: protocol = 'upload'"),
        ({"render_mode": "rgb_array"}, "render_mode"),
        ({"reward": "money"}, "reward = 'money'"),
        ({"price": -1.0}, "price = -1.0"),
        ({"scenario": "qwen9"}, "qwen9"),
    ],
)
def test_bad_arguments_raise(kwargs, message):
    with pytest.raises(ValueError, match=message):
        gym.make_vec(IDS[0], **{"num_envs": 2, **kwargs})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"seed": [1]}, r"seed = \[1\]: must be an integer, or a list of one for each of 2"),
        ({"seed": 1.5}, "seed = 1.5"),
        ({"seed": [1, -2]}, "seed lists -2"),
        ({"options": {"power": 1}}, "reset_mask"),
        ({"options": {"reset_mask": [True, False]}}, "reset_mask"),
        ({"options": {"reset_mask": np.zeros(2, bool)}}, "at least one"),
        ({"options": {"reset_mask": np.ones(3, bool)}}, "shape"),
    ],
)
def test_bad_resets_raise(kwargs, message):
    envs = gym.make_vec(IDS[0], num_envs=2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        envs.reset(**kwargs)


def test_a_callable_reward_of_the_wrong_shape_raises():
    envs = gym.make_vec(IDS[0], num_envs=2, reward=lambda info: 3.0)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="must be 2 finite numbers"):
        envs.step(envs.action_space.sample())


def test_a_reward_that_raises_leaves_finished_lanes_finished():
    failing = [True]

    def reward(info):
        if failing[0]:
            raise RuntimeError("no reward")
        return info["tokens"] * 1.0

    envs = gym.make_vec(IDS[0], num_envs=1, reward=reward, overrides={"episode.horizon_s": 0.2})
    envs.reset(seed=0)
    with pytest.raises(RuntimeError, match="no reward"):
        envs.step(np.full((1, 20), 3))
    failing[0] = False
    _, rewards, _, truncations, infos = envs.step(np.full((1, 20), 3))
    assert rewards.tolist() == [0.0]  # the lane restarts
    assert not truncations.any()
    assert infos["time_s"].tolist() == [0.0]


def test_max_episode_steps_is_refused_with_a_hint():
    with pytest.raises(ValueError, match=r"max_episode_steps = 7.*episode\.rounds"):
        gym.make_vec(IDS[0], num_envs=2, max_episode_steps=7)


def test_numpy_integers_are_seeds():
    envs = gym.make_vec(IDS[0], num_envs=np.int64(2))
    by_numpy, _ = envs.reset(seed=np.int64(3))
    assert envs.np_random_seed == 3
    by_array, _ = envs.reset(seed=np.array([3, 4]))
    plain, _ = envs.reset(seed=3)
    assert same(by_numpy, plain)
    assert same(by_array, plain)


def test_a_draft_policy_that_raises_leaves_restarting_lanes_to_restart():
    answers = []

    def policy(observation):
        if answers and not answers.pop(0):
            raise OSError("the model does not answer")
        return np.full(observation["snr_db"].shape, 3)

    envs = gym.make_vec(
        IDS[1],
        num_envs=3,
        draft_policy=policy,
        observe_acceptance=False,
        overrides=[SMALL | {"episode.rounds": rounds} for rounds in (3, 9, 9)],
    )
    envs.reset(seed=0)
    for _ in range(3):
        *_, truncated, _ = envs.step(envs.action_space.sample())
    assert truncated.tolist() == [True, False, False]
    answers[:] = [True, False]  # as the lane restarts, and as the others play
    with pytest.raises(OSError, match="does not answer"):
        envs.step(envs.action_space.sample())
    assert not answers
    observation, reward, _, truncated, info = envs.step(envs.action_space.sample())
    assert reward[0] == 0.0
    assert info["time_s"][0] == 0.0
    assert info["round"].tolist()[1:] == [3, 3]
    assert observation["accepted_count"][0].sum() == 0
    assert not truncated.any()
