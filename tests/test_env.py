"""The contract of the scalar environments."""

import copy
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import multispin_env
from multispin_env.envs.wrappers import FlattenBandwidth
from multispin_env.model.acceptance import expected_tokens
from multispin_env.world.round import play_round

TRAIN = "needs the extra [train]: stable-baselines3"
IDS = [f"multispin/{n}-v0" for n in ("DraftLength", "ModeSelection", "Joint", "DraftBandwidth")]
VARIANTS = [
    (IDS[0], {}),
    (IDS[0], {"scenario": "llama2"}),
    (IDS[0], {"correction": "random", "observe_acceptance": False}),
    (IDS[0], {"correction": "uplink", "overrides": {"channel.fading": "none"}}),
    (IDS[1], {"draft_policy": 4}),
    (IDS[1], {"observe_acceptance": False, "scenario": "deepseek-r1"}),
    (IDS[2], {}),
    (IDS[2], {"observe_acceptance": False, "reward": "goodput"}),
    (IDS[3], {}),
    (IDS[3], {"scenario": "llama2", "observe_acceptance": False, "reward": "tokens"}),
]
SMALL = {"num_devices": 4, "reference_draft_length": 3, "reference_goodput": 80.0}


def same(a, b):
    """Bit-equal nested data, types included."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def rollout(env, steps, seed, action_seed=0):
    """Everything that `steps` steps return, resetting after episodes."""
    env.action_space.seed(action_seed)
    trace = [env.reset(seed=seed)]
    for _ in range(steps):
        trace.append(env.step(env.action_space.sample()))
        if trace[-1][3]:
            trace.append(env.reset())
    return trace


def play(env, seed, lengths):
    """One episode of DraftLength under constant lengths: list of (reward, info)."""
    env.reset(seed=seed)
    action = np.broadcast_to(lengths, env.action_space.shape).astype(np.int64)
    steps = []
    while not steps or "episode_goodput" not in steps[-1][1]:
        _, reward, _, _, info = env.step(action)
        steps.append((reward, info))
    return steps


# ---- the interface ----------------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "kwargs"), VARIANTS)
def test_gymnasium_check_env(env_id, kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id, **kwargs).unwrapped)


@pytest.mark.parametrize(("env_id", "kwargs"), VARIANTS)
def test_stable_baselines3_check_env(env_id, kwargs):
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason=TRAIN)
    env = gym.make(env_id, **kwargs)
    if env_id == IDS[3]:
        env = FlattenBandwidth(env)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(env, warn=True)


@pytest.mark.parametrize("env_id", IDS)
def test_ppo_learns_on_every_id(env_id):
    sb3 = pytest.importorskip("stable_baselines3", reason=TRAIN)
    env = gym.make(env_id, overrides={"episode.horizon_s": 5.0})
    if env_id == IDS[3]:
        env = FlattenBandwidth(env)
    model = sb3.PPO("MultiInputPolicy", env, n_steps=128, batch_size=64, device="cpu", seed=0)
    model.learn(256)
    assert model.num_timesteps == 256


def test_registration_is_idempotent():
    before = dict(gym.registry)
    multispin_env.register_environments()
    assert dict(gym.registry) == before


@pytest.mark.parametrize("env_id", IDS)
def test_docstring_names_every_info_key_and_observation(env_id):
    env = gym.make(env_id, overrides=SMALL | {"episode.rounds": 1}).unwrapped
    env.reset(seed=0)
    _, _, _, truncated, info = env.step(env.action_space.sample())
    assert truncated
    hidden = gym.make(env_id, observe_acceptance=False)
    keys = {*info, *env.observation_space.spaces, *hidden.observation_space.spaces}
    assert not [key for key in keys if f"`{key}`" not in type(env).__doc__]


def test_spaces_have_finite_bounds():
    for env_id, kwargs in VARIANTS:
        for box in gym.make(env_id, **kwargs).observation_space.spaces.values():
            assert np.all(np.isfinite(box.low))
            assert np.all(np.isfinite(box.high))


# ---- determinism ------------------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "kwargs"), VARIANTS)
def test_same_seed_gives_the_same_200_steps(env_id, kwargs):
    first = rollout(gym.make(env_id, **kwargs), 200, seed=7)
    again = rollout(gym.make(env_id, **kwargs), 200, seed=7)
    other = rollout(gym.make(env_id, **kwargs), 200, seed=8)
    assert same(first, again)
    assert not same(first, other)


FRESH = """
import hashlib, pickle, sys
sys.path.insert(0, {tests!r})
import gymnasium as gym
from test_env import rollout
trace = rollout(gym.make("multispin_env:{env_id}"), 200, seed=7)
print(hashlib.sha256(pickle.dumps(digestible(trace))).hexdigest())
"""
DIGEST = """
def digestible(x):
    if isinstance(x, dict):
        return sorted((k, digestible(v)) for k, v in x.items())
    if isinstance(x, (list, tuple)):
        return [digestible(v) for v in x]
    return x.tobytes() if hasattr(x, "tobytes") else repr(x)
"""


def test_a_fresh_process_plays_the_same(request):
    tests = str(request.path.parent)
    hashes = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", DIGEST + FRESH.format(tests=tests, env_id=IDS[2])],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
        )
        hashes.add(done.stdout.strip())
    scope: dict = {}
    exec(DIGEST, scope)
    trace = rollout(gym.make(IDS[2]), 200, seed=7)
    digest = __import__("hashlib").sha256(pickle.dumps(scope["digestible"](trace))).hexdigest()
    assert hashes == {digest}


REWARDS = """
import json, sys
sys.path.insert(0, {tests!r})
import gymnasium as gym
from test_env import IDS, rollout
traces = [rollout(gym.make("multispin_env:" + env_id), 100, seed=7) for env_id in IDS]
print(json.dumps([[item[1] for item in trace if len(item) == 5] for trace in traces]))
"""


def test_interpreted_kernels_give_the_same_rewards(request):
    script = REWARDS.format(tests=str(request.path.parent))
    compiled, interpreted = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", script],
                capture_output=True,
                text=True,
                check=True,
                env=os.environ | {"NUMBA_DISABLE_JIT": disabled},
            ).stdout
        )
        for disabled in ("0", "1")
    )
    assert [len(rewards) for rewards in interpreted] == [100] * 4
    for one, other in zip(compiled, interpreted, strict=True):
        assert one == pytest.approx(other, rel=1e-12)  # logarithms may differ in the last place


def test_reset_with_a_seed_twice_is_equal_and_unseeded_resets_continue():
    env = gym.make(IDS[0])
    first = [env.reset(seed=7)[0], env.reset()[0], env.reset()[0]]
    again = [env.reset(seed=7)[0], env.reset()[0], env.reset()[0]]
    assert same(first, again)
    assert not same(first[0], first[1])
    assert not same(first[1], first[2])


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize(("env_id", "kwargs"), VARIANTS)
def test_copies_in_mid_episode_continue_alike_and_leave_the_original_alone(clone, env_id, kwargs):
    env = gym.make(env_id, **kwargs)
    rollout(env, 23, seed=3)
    actions = [env.action_space.sample() for _ in range(60)]
    reference = clone(env)
    other = clone(env)

    def continue_(env):
        trace = []
        for action in actions:
            trace.append(env.step(action))
            if trace[-1][3]:
                trace.append(env.reset())
        return trace

    expected = continue_(reference)
    assert same(continue_(other), expected)
    assert same(continue_(env), expected)


def tape_of(env, lengths, rounds):
    env.reset(seed=11)
    for _ in range(rounds):
        env.step(np.broadcast_to(lengths, env.action_space.shape).astype(np.int64))
    return env.unwrapped.tape


@pytest.mark.parametrize("scenario", ["qwen2.5", "llama2"])
def test_actions_never_change_the_draws(scenario):
    env = gym.make(IDS[0], scenario=scenario, overrides={"episode.rounds": 200})
    short, long = tape_of(env, 0, 40), tape_of(env, 17, 120)
    rows = short.num_rounds
    assert 40 < rows < long.num_rounds
    assert np.array_equal(short.channel_gain, long.channel_gain[:rows])
    assert np.array_equal(short.run_length, long.run_length[:rows])
    for name in ("acceptance_rate", "token_latency_s", "mean_gain"):
        assert np.array_equal(getattr(short.devices, name), getattr(long.devices, name))


def test_all_ids_of_a_protocol_share_their_draws():
    tapes = []
    for env_id in IDS[:3]:
        env = gym.make(env_id)
        rollout(env, 5, seed=5)
        env.reset(seed=5)
        tapes.append(env.unwrapped.tape)
    for tape in tapes[1:]:
        assert np.array_equal(tape.channel_gain, tapes[0].channel_gain)
        assert np.array_equal(tape.run_length, tapes[0].run_length)


def test_the_next_episode_does_not_depend_on_the_last_ones_actions():
    env = gym.make(IDS[0])
    nexts = []
    for lengths, steps in ((0, 3), (9, 60)):
        env.reset(seed=2)
        for _ in range(steps):
            env.step(np.full(20, lengths))
        nexts.append(env.reset()[0])
    assert same(*nexts)


def test_random_coins_leave_the_base_draws_unchanged():
    tapes = [
        tape_of(gym.make(IDS[0], correction=rule, overrides={"episode.rounds": 50}), 5, 40)
        for rule in ("optimal", "random")
    ]
    assert np.array_equal(tapes[0].channel_gain, tapes[1].channel_gain)
    assert np.array_equal(tapes[0].run_length, tapes[1].run_length)


# ---- hygiene ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "kwargs"), VARIANTS)
def test_returned_data_never_changes_and_actions_are_not_modified(env_id, kwargs):
    env = gym.make(env_id, **kwargs)
    env.action_space.seed(0)
    kept, copies = [], []
    item = env.reset(seed=0)
    for _ in range(60):
        kept.append(item)
        copies.append(copy.deepcopy(item))
        action = env.action_space.sample()
        before = copy.deepcopy(action)
        item = env.step(action)
        assert same(action, before)
        if item[3]:
            item = env.reset()
    assert same(kept, copies)


def test_writing_into_returned_arrays_does_no_harm():
    clean, vandal = gym.make(IDS[2]), gym.make(IDS[2])
    clean.action_space.seed(1)
    item, spoilt = clean.reset(seed=1), vandal.reset(seed=1)
    for _ in range(40):
        assert same(item, spoilt)
        for data in (spoilt[0], spoilt[-1]):
            for value in data.values():
                if isinstance(value, np.ndarray):
                    value.fill(1)
        action = clean.action_space.sample()
        item, spoilt = clean.step(action), vandal.step(action)


def test_spaces_keep_identity_and_generator_over_resets():
    env = gym.make(IDS[0]).unwrapped
    env.action_space.seed(5)
    space, generator = env.action_space, env.action_space.np_random
    observed = env.observation_space
    env.reset(seed=1)
    env.reset()
    assert env.action_space is space
    assert env.action_space.np_random is generator
    assert env.observation_space is observed


def test_class_metadata_is_never_mutated():
    cls = type(gym.make(IDS[0]).unwrapped)
    before = copy.deepcopy(cls.metadata)
    rollout(gym.make(IDS[0]), 5, seed=0)
    assert cls.metadata == before


def test_overrides_do_not_leak_into_other_environments():
    overrides = {"num_devices": 3, "tasks": {"mine": 0.5}}
    kept = copy.deepcopy(overrides)
    gym.make(IDS[0], overrides=overrides).reset(seed=0)
    assert overrides == kept
    assert gym.make(IDS[0]).reset(seed=0)[0]["snr_db"].shape == (20,)


def test_unknown_reset_options_raise():
    with pytest.raises(ValueError, match="options"):
        gym.make(IDS[0]).reset(options={"power": 3})


# ---- the round --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "rule"),
    [
        *[(name, "optimal") for name in ("qwen2.5", "deepseek-r1", "llama2", "qwen3.5")],
        ("qwen2.5", "uplink"),
        ("qwen2.5", "downlink"),
    ],
)
def test_environment_plays_the_documented_round(scenario, rule):
    env = gym.make(IDS[0], scenario=scenario, correction=rule, overrides={"episode.rounds": 60})
    env.action_space.seed(0)
    env.reset(seed=9)
    for index in range(40):
        action = env.action_space.sample() // 3
        info = env.step(action)[4]
        expected = play_round(env.unwrapped.tape, index, action, rule=rule)
        assert info["round"] == index
        for name in ("drafted", "accepted", "rejected", "mode"):
            assert np.array_equal(info[name], getattr(expected, name))
        for name in ("power_w", "bandwidth_hz"):
            np.testing.assert_allclose(info[name], getattr(expected, name), rtol=1e-12)
        for name in ("drafting_s", "verification_s", "communication_s", "latency_s"):
            assert info[name] == pytest.approx(getattr(expected, name), rel=1e-11)
        assert info["emitted"] == expected.emitted


def test_mode_selection_plays_the_chosen_modes():
    env = gym.make(IDS[1], draft_policy=6, overrides={"episode.rounds": 60})
    env.action_space.seed(0)
    observation, _ = env.reset(seed=9)
    for index in range(40):
        action = env.action_space.sample()
        shown = observation
        observation, _, _, _, info = env.step(action)
        expected = play_round(env.unwrapped.tape, index, np.full(20, 6), downlink=action)
        assert np.array_equal(shown["rejected"], info["rejected"])
        assert np.array_equal(info["mode"], np.where(info["rejected"] == 1, action, -1))
        assert info["latency_s"] == pytest.approx(expected.latency_s, rel=1e-11)
        np.testing.assert_allclose(info["power_w"], expected.power_w, rtol=1e-12)


def test_bandwidth_shares_are_normalised_over_the_drafting_devices():
    env = gym.make(IDS[3], overrides={"episode.rounds": 10, "num_devices": 3})
    env.reset(seed=1)
    share = np.array([0.2, 0.6, 0.9], np.float32)
    info = env.step({"draft_length": np.array([2, 3, 0]), "bandwidth": share})[4]
    np.testing.assert_allclose(info["bandwidth_hz"], [2.5e6, 7.5e6, 0.0], rtol=1e-6)
    info = env.step({"draft_length": np.array([2, 3, 1]), "bandwidth": np.zeros(3)})[4]
    np.testing.assert_allclose(info["bandwidth_hz"], 1e7 / 3)


def test_a_zero_share_with_a_draft_never_ends():
    action = {"draft_length": np.array([1, 1]), "bandwidth": np.array([0.0, 1.0])}
    cut = gym.make(IDS[3], overrides={"num_devices": 2})
    cut.reset(seed=0)
    _, _, _, truncated, info = cut.step(action)
    assert truncated
    assert (info["tokens"], info["latency_s"], info["episode_goodput"]) == (0, 30.0, 0.0)
    capped = gym.make(IDS[3], overrides={"num_devices": 2, "episode.rounds": 5})
    capped.reset(seed=0)
    assert capped.step(action)[4]["latency_s"] == pytest.approx(1e6, rel=1e-12)


def test_joint_drafts_the_next_round_and_closes_the_pending_one():
    env = gym.make(IDS[2], overrides={"episode.rounds": 30})
    observation, _ = env.reset(seed=3)
    assert np.all(observation["draft_length"] == env.unwrapped.scenario.reference_draft_length)
    env.action_space.seed(3)
    for _ in range(20):
        shown, action = observation, env.action_space.sample()
        observation, _, _, _, info = env.step(action)
        assert np.array_equal(info["drafted"], shown["draft_length"])
        assert np.array_equal(observation["draft_length"], action[:20])
        assert np.array_equal(observation["snr_db"], shown["next_snr_db"])
        assert np.array_equal(info["mode"] == 1, (action[20:] == 1) & (shown["rejected"] == 1))


@pytest.mark.parametrize("policy", [5, [1, 2, 3, 4], "deadline"])
def test_draft_policies_by_value_and_name(policy):
    env = gym.make(IDS[1], overrides=SMALL, draft_policy=policy)
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        if policy != "deadline":
            assert np.array_equal(observation["draft_length"], np.broadcast_to(policy, 4))
        observation, *_ = env.step(np.zeros(4, np.int8))


def test_a_callable_draft_policy_sees_the_round_it_drafts():
    seen = []

    def policy(observation):
        seen.append(observation)
        return np.argsort(np.argsort(observation["snr_db"]))

    env = gym.make(IDS[1], overrides=SMALL, draft_policy=policy)
    observation, _ = env.reset(seed=0)
    plain = gym.make(IDS[0], overrides=SMALL)
    expected, _ = plain.reset(seed=0)
    for step in range(6):
        assert same(seen[step], expected)
        assert np.array_equal(observation["snr_db"], seen[step]["snr_db"])
        assert np.array_equal(
            observation["draft_length"], np.argsort(np.argsort(observation["snr_db"]))
        )
        observation, *_ = env.step(np.ones(4, np.int8))
        expected, *_ = plain.step(np.ones(4, np.int64))


# ---- accounts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("price", [0.0, 55.0, 1e4])
def test_margin_return_is_goodput_less_price_times_horizon(price):
    env = gym.make(IDS[0], price=price, overrides={"radio.uplink_power_dbm": 10})
    for seed in range(20):
        steps = play(env, seed, 4)
        goodput = steps[-1][1]["episode_goodput"]
        total = sum(reward for reward, _ in steps)
        assert total == pytest.approx((goodput - price) * 30.0, rel=1e-9, abs=1e-9 * price * 30)


def test_margin_identity_with_a_fixed_number_of_rounds():
    env = gym.make(IDS[0], price=70.0, overrides={"episode.rounds": 25})
    steps = play(env, 0, 4)
    seconds = sum(info["latency_s"] for _, info in steps)
    tokens = sum(info["tokens"] for _, info in steps)
    assert len(steps) == 25
    assert steps[-1][1]["episode_goodput"] == pytest.approx(tokens / seconds, rel=1e-12)
    assert sum(r for r, _ in steps) == pytest.approx(tokens - 70.0 * seconds, rel=1e-9)


@pytest.mark.parametrize(("env_id", "kwargs"), VARIANTS)
def test_tokens_and_seconds_reconcile(env_id, kwargs):
    env = gym.make(env_id, **kwargs)
    env.action_space.seed(0)
    for seed in range(4):
        env.reset(seed=seed)
        tokens, time_s, truncated = 0, 0.0, False
        while not truncated:
            _, _, terminated, truncated, info = env.step(env.action_space.sample())
            k = len(info["drafted"])
            assert terminated is False
            assert np.all(info["accepted"] <= info["drafted"])
            assert np.array_equal(info["rejected"] == 1, info["accepted"] < info["drafted"])
            assert info["correction_tokens"] == info["rejected"].sum()
            assert info["bonus_tokens"] == k - info["rejected"].sum()
            generated = info["accepted"].sum() + info["bonus_tokens"] + info["correction_tokens"]
            assert info["emitted"] == generated
            assert info["tokens"] in (0, info["emitted"])
            time_s += info["latency_s"]
            tokens += info["tokens"]
            assert info["time_s"] == pytest.approx(time_s, rel=1e-12)
            parts = info["drafting_s"] + info["verification_s"] + info["communication_s"]
            if info["tokens"]:
                assert info["latency_s"] == pytest.approx(parts, rel=1e-12)
                assert info["goodput"] == pytest.approx(info["tokens"] / parts, rel=1e-12)
            else:
                assert truncated
                assert parts > info["latency_s"]
        assert info["time_s"] == 30.0
        assert info["episode_goodput"] == pytest.approx(tokens / 30.0, rel=1e-12)


def test_a_round_that_ends_exactly_at_the_horizon_counts():
    overrides = SMALL | {"verification.fixed_s": 0.5, "verification.per_device_s": 0.0}
    env = gym.make(IDS[0], overrides=overrides | {"episode.horizon_s": 1.5})
    steps = play(env, 0, 0)
    assert [info["tokens"] for _, info in steps] == [4, 4, 4]
    assert steps[-1][1]["episode_goodput"] == 8.0
    env = gym.make(IDS[0], overrides=overrides | {"episode.horizon_s": 1.4})
    steps = play(env, 0, 0)
    assert [info["tokens"] for _, info in steps] == [4, 4, 0]
    assert steps[-1][1]["latency_s"] == pytest.approx(0.4)


def test_feedback_counts_delivered_rounds_only():
    env = gym.make(IDS[0], observe_acceptance=False)
    observation, _ = env.reset(seed=4)
    accepted, rejections = np.zeros(20, int), np.zeros(20, int)
    last = np.zeros((2, 20), int)
    truncated = False
    while not truncated:
        assert np.array_equal(observation["accepted_count"], accepted)
        assert np.array_equal(observation["rejection_count"], rejections)
        assert np.array_equal([observation["accepted"], observation["rejected"]], last)
        observation, _, _, truncated, info = env.step(np.full(20, 5))
        if info["tokens"]:
            accepted += info["accepted"]
            rejections += info["rejected"]
            last = np.array([info["accepted"], info["rejected"]])
    assert info["tokens"] == 0
    assert np.array_equal(observation["accepted_count"], accepted)
    assert np.array_equal([observation["accepted"], observation["rejected"]], last)
    observation, _ = env.reset()
    assert not observation["accepted_count"].any()


def test_monte_carlo_means_agree_with_closed_forms():
    env = gym.make(IDS[0], overrides={"episode.rounds": 4000, "num_devices": 4}, price=0.0)
    observation, _ = env.reset(seed=0)
    lengths = np.array([0, 2, 5, 20])
    emitted = np.array([env.step(lengths)[4]["accepted"] + 1 for _ in range(4000)])
    mean = expected_tokens(observation["acceptance_rate"].astype(float), lengths)
    error = emitted.std(axis=0) / np.sqrt(4000)
    assert np.all(np.abs(emitted.mean(axis=0) - mean) <= 4 * error + 1e-6)


def test_reward_terms_sum_to_the_reward_and_goodput_is_a_ratio():
    for reward, names in (
        ("margin", {"tokens", "latency"}),
        ("goodput", {"goodput"}),
        ("tokens", {"tokens"}),
        (lambda info: -info["latency_s"], {"custom"}),
    ):
        env = gym.make(IDS[0], reward=reward)
        env.reset(seed=0)
        _, value, _, _, info = env.step(np.full(20, 4))
        assert type(value) is float
        assert set(info["reward_terms"]) == names
        assert value == sum(info["reward_terms"].values())
    assert value == -info["latency_s"]


def test_a_callable_reward_that_is_not_finite_raises():
    env = gym.make(IDS[0], reward=lambda info: float("nan"))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"reward returned .*nan.*finite number"):
        env.step(np.zeros(20, int))


# ---- extremes ---------------------------------------------------------------------------------

FIXED = {"channel.kind": "uniform"}
EXTREMES = {
    "dead channel": FIXED | {"channel.mean_gain": 0.0},
    "tiny gain": FIXED | {"channel.mean_gain": 1e-300},
    "huge gain": FIXED | {"channel.mean_gain": 1e20},
    "one dead device": FIXED | {"channel.mean_gain": [0.0] + [1e-12] * 19},
    "one millimetre": {"channel.distance_m": 1e-3},
    "all rejected": {"tasks": {"hopeless": 0.0}},
    "all accepted": {"tasks": {"perfect": 1.0}},
    "one device": {"num_devices": 1},
    "no uplink power": {"radio.uplink_power_dbm": float("-inf")},
    "no downlink power": {"radio.downlink_power_ratio": 0.0},
    "slow": {"drafting.token_latency_s": 5.0},
}


@pytest.mark.parametrize("episode", [{"episode.horizon_s": 30.0}, {"episode.rounds": 30}])
@pytest.mark.parametrize(
    ("env_id", "name"),
    [
        (env_id, name)
        for env_id in IDS
        for name in EXTREMES
        if env_id != IDS[3] or name not in ("one millimetre", "no downlink power")  # no such fields
    ],
)
def test_extremes_stay_finite_and_inside_the_space(env_id, name, episode):
    overrides = EXTREMES[name] | episode
    with np.errstate(all="raise"):
        env = gym.make(env_id, overrides=overrides, price=100.0)
        env.action_space.seed(0)
        observation, _ = env.reset(seed=0)
        for _ in range(40):
            assert observation in env.observation_space
            observation, reward, _, truncated, info = env.step(env.action_space.sample())
            assert np.isfinite(reward)
            for value in info.values():
                if not isinstance(value, dict):
                    assert np.all(np.isfinite(value))
            if truncated:
                observation, _ = env.reset()
        assert observation in env.observation_space


def test_acceptance_one_gives_the_whole_draft_and_a_bonus():
    env = gym.make(IDS[0], overrides={"tasks": {"perfect": 1.0}}, price=1.0)
    env.reset(seed=0)
    for length in (0, 1, 20):
        info = env.step(np.full(20, length))[4]
        assert info["tokens"] == 20 * (length + 1)
        assert info["communication_s"] == 0.0
        assert np.all(info["mode"] == -1)


def test_no_drafts_is_plain_decoding():
    for scenario in ("qwen2.5", "qwen3.5"):
        env = gym.make(IDS[0], scenario=scenario)
        env.reset(seed=0)
        info = env.step(np.zeros(20, int))[4]
        assert (info["tokens"], info["drafting_s"], info["communication_s"]) == (20, 0.0, 0.0)
        assert info["latency_s"] == env.unwrapped.scenario.verification_s


def test_a_round_that_never_ends_is_cut_by_the_horizon():
    env = gym.make(IDS[0], overrides=EXTREMES["dead channel"] | {"tasks": {"x": 0.5}}, price=2.0)
    steps = play(env, 0, 20)
    assert len(steps) == 1
    assert steps[0][1]["tokens"] == 0
    assert steps[0][0] == -60.0


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "kwargs"), [VARIANTS[0], VARIANTS[7], VARIANTS[9]])
def test_observations_stay_inside_the_space_for_100000_steps(env_id, kwargs):
    env = gym.make(env_id, **kwargs)
    env.action_space.seed(0)
    space = env.observation_space
    low = {key: box.low for key, box in space.spaces.items()}
    high = {key: box.high for key, box in space.spaces.items()}
    observation, _ = env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(1000)]
    for step in range(100_000):
        for key, value in observation.items():
            assert value.min() >= low[key][0]  # NaN fails both comparisons
            assert value.max() <= high[key][0]
        observation, reward, _, truncated, _ = env.step(actions[step % 1000])
        assert np.isfinite(reward)
        if truncated:
            observation, _ = env.reset()


# ---- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_step_needs_a_running_episode(env_id):
    env = gym.make(env_id, overrides=SMALL | {"episode.rounds": 1}).unwrapped
    with pytest.raises(ResetNeeded):
        env.step(env.action_space.sample())
    with pytest.raises(ResetNeeded):
        _ = env.tape
    env.reset(seed=0)
    env.step(env.action_space.sample())
    with pytest.raises(ResetNeeded):
        env.step(env.action_space.sample())


BAD_ACTIONS = [
    (IDS[0], [1, 2, 3], r"shape \(3,\).*\(4,\)"),
    (IDS[0], [[1, 2, 3, 4]], "shape"),
    (IDS[0], 3, "shape"),
    (IDS[0], None, "dtype"),
    (IDS[0], [1.0, 2.0, 3.0, 4.0], "float64.*integer"),
    (IDS[0], [np.nan, 2.0, 3.0, 4.0], "integer"),
    (IDS[0], ["a", "b", "c", "d"], "integer"),
    (IDS[0], [0, 0, 0, -1], r"draft length -1 of device 3.*\[0, 20\]"),
    (IDS[0], [0, 21, 0, 0], r"draft length 21 of device 1.*\[0, 20\]"),
    (IDS[1], [0, 1, 2, 0], "mode 2 of device 2.*0 .uplink. or 1"),
    (IDS[1], [0, -1, 0, 0], "mode -1 of device 1"),
    (IDS[1], [0, 1], "shape"),
    (IDS[1], [0.0, 0.5, 1.0, 0.0], "integer"),
    (IDS[1], [0.0, np.nan, 1.0, 0.0], "integer"),
    (IDS[2], [1, 1, 1, 99, 0, 0, 0, 0], "draft length 99 of device 3"),
    (IDS[2], [1, 1, 1, 1, 0, 0, 0, 2], "mode 2 of device 3"),
    (IDS[2], [1, 1, 1, 1], "shape"),
    (IDS[3], [1, 1, 1, 1], "dict of draft_length and bandwidth"),
    (IDS[3], {"draft_length": [1, 1, 1, 1]}, "dict of draft_length and bandwidth"),
    (IDS[3], {"draft_length": [1] * 4, "bandwidth": [0.5] * 3}, r"bandwidth.*\(3,\)"),
    (IDS[3], {"draft_length": [1] * 4, "bandwidth": [0.5, 0.5, 0.5, np.nan]}, "share nan of dev"),
    (IDS[3], {"draft_length": [1] * 4, "bandwidth": [0.5, 0.5, 1.5, 0]}, "share 1.5 of device 2"),
    (IDS[3], {"draft_length": [1] * 4, "bandwidth": [0.5, -0.5, 0, 0]}, "share -0.5 of device 1"),
    (IDS[3], {"draft_length": [1, 1, 1, 26], "bandwidth": [0.5] * 4}, "draft length 26"),
]


@pytest.mark.parametrize(("env_id", "action", "message"), BAD_ACTIONS)
def test_bad_actions_raise_and_change_nothing(env_id, action, message):
    env, twin = (gym.make(env_id, overrides=SMALL) for _ in range(2))
    for either in (env, twin):
        either.reset(seed=0)
        either.action_space.seed(0)
    with pytest.raises(ValueError, match=message):
        env.step(action)
    for _ in range(20):
        assert same(env.step(env.action_space.sample()), twin.step(twin.action_space.sample()))


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        (IDS[0], {"scenario": "qwen9"}, "qwen9.*qwen2.5"),
        (IDS[0], {"overrides": {"radio.uplink_power": 3}}, "radio.uplink_power_dbm"),
        (IDS[0], {"overrides": {"num_devices": 0}}, "num_devices = 0"),
        (IDS[0], {"overrides": 3}, "overrides = 3"),
        (IDS[1], {"scenario": "llama2"}, "llama2.*upload.*correction"),
        (IDS[2], {"scenario": "qwen3.5"}, "upload.*correction"),
        (IDS[3], {"scenario": "qwen2.5"}, "correction.*upload"),
        (IDS[0], {"correction": "best"}, "correction = 'best'.*'optimal'"),
        (IDS[0], {"scenario": "llama2", "correction": "uplink"}, "upload protocol"),
        (IDS[0], {"reward": "money"}, "reward = 'money'.*'margin'"),
        (IDS[0], {"reward": "tokens", "price": 3.0}, "price = 3.0.*margin"),
        (IDS[0], {"price": -1.0}, "price = -1.0"),
        (IDS[0], {"price": float("nan")}, "price = nan"),
        (IDS[0], {"observe_acceptance": "no"}, "observe_acceptance = 'no'"),
        (IDS[1], {"draft_policy": 21}, "draft_policy = 21"),
        (IDS[1], {"draft_policy": [1, 2]}, "draft_policy"),
        (IDS[1], {"draft_policy": 1.5}, "draft_policy = 1.5"),
        (IDS[1], {"draft_policy": "oracle"}, "draft_policy = 'oracle'.*'deadline'"),
    ],
)
def test_bad_arguments_raise(env_id, kwargs, message):
    with pytest.raises(ValueError, match=message):
        gym.make(env_id, **kwargs)


def test_a_draft_policy_that_answers_nonsense_is_named():
    env = gym.make(IDS[1], overrides=SMALL, draft_policy=lambda observation: [99] * 4)
    with pytest.raises(ValueError, match="draft_policy: draft length 99 of device 0"):
        env.reset(seed=0)


# ---- serialisation and processes --------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        {"scenario": "deepseek-r1", "overrides": {"num_devices": 5, "radio.uplink_power_dbm": 10}},
        {"scenario": multispin_env.Scenario.load("qwen2.5", {"num_devices": 6}), "price": 5.0},
        {"scenario": multispin_env.Scenario.load("llama2").to_dict(), "reward": "goodput"},
    ],
)
def test_spec_survives_json(kwargs):
    env = gym.make(IDS[0], **kwargs)
    text = env.spec.to_json()
    json.loads(text)
    again = gym.make(EnvSpec.from_json(text))
    assert same(rollout(env, 100, seed=1), rollout(again, 100, seed=1))


def worker(queue):
    env = gym.make("multispin_env:multispin/Joint-v0")
    trace = rollout(env, 50, seed=1)
    queue.put(pickle.dumps(trace))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_environments_work_in_other_processes(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=worker, args=(queue,))
    process.start()
    trace = pickle.loads(queue.get(timeout=120))
    process.join()
    assert same(trace, rollout(gym.make(IDS[2]), 50, seed=1))


def test_async_vector_env_runs_them():
    env = gym.make_vec(IDS[0], num_envs=2, vectorization_mode="async")
    env.reset(seed=3)
    env.step(env.action_space.sample())
    env.close()


# ---- what once went wrong -----------------------------------------------------------------------


def test_read_only_actions_are_taken():
    traces = []
    for writeable in (True, False):
        env = gym.make(IDS[0], overrides=SMALL)
        env.reset(seed=0)
        action = np.full(4, 2)
        action.setflags(write=writeable)
        traces.append(env.step(action))
    assert same(*traces)


def test_a_draft_policy_that_raises_takes_the_round_back():
    """At the borders of blocks of 16 rounds, and at the end of the episode."""
    kwargs = {"overrides": SMALL | {"episode.rounds": 50}, "observe_acceptance": False}
    failing = {14, 15, 16, 30, 31, 49, 50}
    calls = [0]

    def lengths(observation):
        return observation["accepted_count"] % 5

    def moody(observation):
        calls[0] += 1
        if calls[0] - 1 in failing:
            failing.remove(calls[0] - 1)
            calls[0] -= 1
            raise OSError("the model does not answer")
        return lengths(observation)

    steady = rollout(gym.make(IDS[1], draft_policy=lengths, **kwargs), 50, seed=3)
    env = gym.make(IDS[1], draft_policy=moody, **kwargs)
    env.action_space.seed(0)
    trace = [env.reset(seed=3)]
    for _ in range(50):
        action = env.action_space.sample()
        try:
            trace.append(env.step(action))
        except OSError:
            trace.append(env.step(action))
    assert not failing
    assert trace[-1][3]
    assert same(trace, steady[:51])
    assert same(env.unwrapped.tape.channel_gain.shape, (64, 4))


def test_a_draft_policy_sees_the_feedback_of_all_rounds_so_far():
    seen = []

    def policy(observation):
        seen.append(observation)
        return np.full(4, 3)

    kwargs = {"overrides": SMALL | {"episode.rounds": 8}, "observe_acceptance": False}
    env = gym.make(IDS[1], draft_policy=policy, **kwargs)
    plain = gym.make(IDS[0], **kwargs)
    env.reset(seed=0)
    expected, _ = plain.reset(seed=0)
    for step in range(6):
        assert same(seen[step], expected)
        env.step(np.ones(4, np.int8))
        expected, *_ = plain.step(np.full(4, 3))
    assert expected["accepted_count"].any()


def test_a_failed_reset_leaves_no_episode_to_step_in():
    answers = [[2] * 4, [2] * 4, [99] * 4]
    env = gym.make(IDS[1], overrides=SMALL, draft_policy=lambda observation: answers.pop(0))
    env.reset(seed=0)
    env.step(np.zeros(4, np.int8))
    with pytest.raises(ValueError, match="draft length 99"):
        env.reset()
    with pytest.raises(ResetNeeded):
        env.unwrapped.step(np.zeros(4, np.int8))


def test_a_round_that_never_ends_is_cut_by_the_longest_horizon_too():
    env = gym.make(IDS[3], overrides={"num_devices": 2, "episode.horizon_s": 5e5}, price=0.0)
    env.reset(seed=0)
    action = {"draft_length": np.array([3, 3]), "bandwidth": np.array([0.0, 1.0])}
    assert env.step(action)[4]["tokens"] == 0
    with pytest.raises(ValueError, match=r"episode\.horizon_s = 1000000"):
        gym.make(IDS[3], overrides={"episode.horizon_s": 1e6})


@pytest.mark.parametrize("mode", ["rgb_array", "human"])
def test_rendered_environments_are_copied_closed_and_used_again(mode, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gym.make(IDS[0], overrides=SMALL, render_mode=mode)
    env.reset(seed=0)
    env.render()
    twins = [pickle.loads(pickle.dumps(env.unwrapped)), copy.deepcopy(env.unwrapped)]
    reward = env.step(np.full(4, 2))[1]
    assert [twin.step(np.full(4, 2))[1] for twin in twins] == [reward] * 2
    env.close()
    env.reset(seed=1)
    env.render()
    for each in (env, *twins):
        each.close()
