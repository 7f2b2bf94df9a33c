"""The wrappers of actions and observations."""

import json
import math
import pickle
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded

import multispin_env  # noqa: F401 (registers the environments)
from multispin_env.envs.wrappers import (
    DeadlineAction,
    FlatObservation,
    FlattenBandwidth,
    deadline_lengths,
    flatten_action,
    unflatten_action,
)

K = 4
SMALL = {"num_devices": K, "reference_goodput": 150.0, "reference_draft_length": 5}
IDS = ["DraftLength", "ModeSelection", "Joint", "DraftBandwidth"]
ids = pytest.mark.parametrize("kind", IDS)
observing = pytest.mark.parametrize("observe_acceptance", [True, False])


def make(kind="DraftBandwidth", overrides=None, rounds=30, **options):
    overrides = SMALL | {"episode.rounds": rounds} | (overrides or {})
    return gym.make(f"multispin/{kind}-v0", overrides=overrides, **options)


def flattened(**options):
    return FlattenBandwidth(make(**options))


def flat(length=0.0, share=0.0):
    """A flat action: the first half is `length`, the second half `share`."""
    return np.concatenate([np.broadcast_to(length, K), np.broadcast_to(share, K)])


# --------------------------------------------------------------------------------------------
# FlattenBandwidth.


def test_flat_action_space():
    assert flattened().action_space == spaces.Box(-1.0, 1.0, (2 * K,), np.float32)


@pytest.mark.parametrize(
    ("entry", "length", "share"),
    [
        (-1.0, 0, 0.01),
        (1.0, 25, 1.0),
        (0.6, 20, 0.802),
        (-0.6, 5, 0.208),
        (0.0, 12, 0.505),
    ],
)
def test_ends_and_middle_of_a_flat_action(entry, length, share):
    action = flattened().action(flat(entry, entry))
    assert action["draft_length"].tolist() == [length] * K
    np.testing.assert_allclose(action["bandwidth"], share, rtol=1e-6)


def test_middle_of_an_even_range_is_exact():
    env = flattened(overrides={"max_draft_length": 8})
    assert env.action(flat(0.0))["draft_length"].tolist() == [4] * K


@pytest.mark.parametrize("longest", [1, 8, 25])
@pytest.mark.parametrize("offset", [-0.49, -0.2, 0.0, 0.2, 0.49])
def test_lengths_are_rounded_to_the_nearest(longest, offset):
    env = flattened(overrides={"max_draft_length": longest, "reference_draft_length": 1})
    for length in range(longest + 1):
        entry = 2.0 * (length + offset) / longest - 1.0
        assert env.action(flat(entry))["draft_length"].tolist() == [length] * K


def test_halves_keep_the_order_of_the_devices():
    action = flattened().action(np.array([-1.0, -0.2, 0.2, 1.0, 1.0, 0.5, -0.5, -1.0]))
    assert action["draft_length"].tolist() == [0, 10, 15, 25]
    np.testing.assert_allclose(action["bandwidth"], [1.0, 0.7525, 0.2575, 0.01], rtol=1e-6)


@pytest.mark.parametrize("excess", [1.0000001, 1.5, 100.0, 1e300])
def test_entries_outside_are_clipped(excess):
    env = flattened()
    over, under = env.action(flat(excess, excess)), env.action(flat(-excess, -excess))
    assert over["draft_length"].tolist() == [25] * K
    assert over["bandwidth"].tolist() == [1.0] * K
    assert under["draft_length"].tolist() == [0] * K
    np.testing.assert_allclose(under["bandwidth"], 0.01)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("position", [0, 2 * K - 1])
def test_entries_that_are_not_finite_are_refused(bad, position):
    env = flattened()
    env.reset(seed=0)
    action = flat()
    action[position] = bad
    with pytest.raises(ValueError, match=f"action = .*{2 * K} finite"):
        env.step(action)


@pytest.mark.parametrize("shape", [(), (K,), (2 * K - 1,), (2 * K + 1,), (1, 2 * K), (2, K)])
def test_wrong_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=rf"(?s)action .*\b{2 * K}\b"):
        flattened().action(np.zeros(shape))


@pytest.mark.parametrize("kind", ["DraftLength", "ModeSelection", "Joint"])
def test_other_environments_are_refused(kind):
    with pytest.raises(ValueError, match="DraftBandwidth-v0"):
        FlattenBandwidth(make(kind))


def test_other_dict_actions_are_refused():
    env = gym.make("CartPole-v1")
    env.action_space = spaces.Dict(draft_length=spaces.MultiDiscrete([3, 3]))
    with pytest.raises(ValueError, match="DraftBandwidth-v0"):
        FlattenBandwidth(env)


def test_lists_and_float32_are_taken():
    env = flattened()
    expected = env.action(flat(0.6, -0.5))
    for given in (flat(0.6, -0.5).tolist(), flat(0.6, -0.5).astype(np.float32)):
        action = env.action(given)
        np.testing.assert_array_equal(action["draft_length"], expected["draft_length"])
        np.testing.assert_array_equal(action["bandwidth"], expected["bandwidth"])


def test_every_sample_is_an_action_of_the_inner_environment():
    env = flattened()
    env.action_space.seed(1)
    inner = env.env.action_space
    samples = [env.action(env.action_space.sample()) for _ in range(300)]
    assert all(inner.contains(action) for action in samples)
    lengths = np.array([action["draft_length"] for action in samples])
    assert set(lengths.ravel().tolist()) == set(range(26))


def test_flat_action_is_not_changed():
    action = flat(2.0, -2.0)
    flattened().action(action)
    np.testing.assert_array_equal(action, flat(2.0, -2.0))


def test_flat_step_equals_the_step_with_the_dict():
    wrapped, plain = flattened(), make()
    wrapped.reset(seed=3)
    plain.reset(seed=3)
    entries = np.array([-1.0, -0.2, 0.2, 1.0, 1.0, 0.5, -0.5, 1.0])
    shares = np.array([1.0, 0.7525, 0.2575, 1.0]).astype(np.float32)
    action = {"draft_length": np.array([0, 10, 15, 25]), "bandwidth": shares}
    for _ in range(5):
        one, other = wrapped.step(entries), plain.step(action)
        assert one[1:4] == other[1:4]
        np.testing.assert_array_equal(one[0]["snr_db"], other[0]["snr_db"])
        np.testing.assert_array_equal(one[4]["bandwidth_hz"], other[4]["bandwidth_hz"])


def test_batches_are_unflattened_row_by_row():
    env = flattened()
    env.action_space.seed(12)
    rows = np.array([env.action_space.sample() for _ in range(7)])
    batch = unflatten_action(rows, env.env.action_space)
    for n, row in enumerate(rows):
        single = env.action(row)
        np.testing.assert_array_equal(batch["draft_length"][n], single["draft_length"])
        np.testing.assert_array_equal(batch["bandwidth"][n], single["bandwidth"])


@pytest.mark.parametrize("shape", [(), (3, 2 * K - 1), (1, 1, 2 * K)])
def test_batches_of_wrong_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=rf"(?s)action .*\b{2 * K}\b"):
        unflatten_action(np.zeros(shape), make().action_space)


def test_plays_a_whole_episode():
    env = flattened()
    env.reset(seed=4)
    env.action_space.seed(4)
    truncated, rounds = False, 0
    while not truncated:
        _, reward, _, truncated, _ = env.step(env.action_space.sample())
        assert math.isfinite(reward)
        rounds += 1
    assert rounds == 30


# --------------------------------------------------------------------------------------------
# FlatObservation.


def flat_observations(env, seed=5):
    """Pairs of the Dict observation and the flat one over an episode of random actions."""
    plain = env.env
    observation, _ = plain.reset(seed=seed)
    plain.action_space.seed(seed)
    yield observation, env.observation(observation)
    truncated = False
    while not truncated:
        observation, _, _, truncated, _ = plain.step(plain.action_space.sample())
        yield observation, env.observation(observation)


@ids
@observing
def test_space_is_a_finite_float32_box(kind, observe_acceptance):
    inner = make(kind, observe_acceptance=observe_acceptance)
    space = FlatObservation(inner).observation_space
    assert space.shape == (K * len(inner.observation_space.spaces),)
    assert space.dtype == np.float32
    assert np.all(np.isfinite(space.low))
    assert np.all(np.isfinite(space.high))
    assert np.all(space.low < space.high)


@ids
@observing
def test_observations_lie_in_their_space(kind, observe_acceptance):
    env = FlatObservation(make(kind, observe_acceptance=observe_acceptance))
    seen = list(flat_observations(env))
    assert len(seen) == 31
    for _, vector in seen:
        assert vector.dtype == np.float32
        assert env.observation_space.contains(vector)


EXTREMES = {
    "no power": {"radio.uplink_power_dbm": -math.inf},
    "endless power": {"radio.uplink_power_dbm": 200.0, "channel.reference_gain_db": 200.0},
    "certain": {"tasks": {"only": 1.0}},
    "hopeless": {"tasks": {"only": 0.0}},
    "slow": {"drafting.token_latency_s": 10.0, "drafting.spread": {"min": 1, "max": 1}},
}


@pytest.mark.parametrize("kind", ["DraftLength", "ModeSelection", "Joint"])
@observing
@pytest.mark.parametrize("extreme", EXTREMES.values(), ids=EXTREMES.keys())
def test_extreme_observations_lie_in_their_space(kind, observe_acceptance, extreme):
    env = FlatObservation(make(kind, extreme, observe_acceptance=observe_acceptance))
    for _, vector in flat_observations(env):
        assert env.observation_space.contains(vector)


def scaled(key, value, longest):
    """What a part of the vector must be, in double precision."""
    if key in ("snr_db", "next_snr_db"):
        return value / 30.0
    if key == "token_latency_s":
        return value * 30.0
    if key in ("accepted", "draft_length"):
        return value / longest
    if key in ("accepted_count", "rejection_count"):
        return [math.log(1 + count) / 10 for count in value.tolist()]
    assert key in ("acceptance_rate", "rejected")
    return value


@ids
@observing
def test_parts_stand_in_the_order_of_the_space_and_are_scaled(kind, observe_acceptance):
    env = FlatObservation(make(kind, observe_acceptance=observe_acceptance))
    keys = list(env.env.observation_space)
    longest = 25 if kind == "DraftBandwidth" else 20
    for observation, vector in flat_observations(env):
        assert set(keys) == set(observation)
        for position, key in enumerate(keys):
            part = vector[position * K : (position + 1) * K]
            expected = scaled(key, observation[key], longest)
            np.testing.assert_allclose(part, expected, rtol=1e-6, atol=1e-7)


@ids
def test_typical_values_are_of_the_order_of_one(kind):
    env = FlatObservation(make(kind, observe_acceptance=False))
    vectors = np.array([vector for _, vector in flat_observations(env)])
    assert np.abs(vectors).max() < 5.0
    assert np.abs(vectors).mean() > 0.05


@ids
def test_wrapper_changes_observations_alone(kind):
    plain, wrapped = make(kind), FlatObservation(make(kind))
    plain.reset(seed=6)
    wrapped.reset(seed=6)
    plain.action_space.seed(6)
    for _ in range(10):
        action = plain.action_space.sample()
        one, other = plain.step(action), wrapped.step(action)
        assert one[1:4] == other[1:4]
        assert one[4]["time_s"] == other[4]["time_s"]


@ids
@observing
def test_observations_are_fresh(kind, observe_acceptance):
    env = FlatObservation(make(kind, observe_acceptance=observe_acceptance))
    first, _ = env.reset(seed=7)
    env.action_space.seed(7)
    before = first.copy()
    second = env.step(env.action_space.sample())[0]
    np.testing.assert_array_equal(first, before)
    assert not np.shares_memory(first, second)
    second[:] = 99.0
    assert not np.any(env.step(env.action_space.sample())[0] == 99.0)


@pytest.mark.parametrize("kind", ["DraftLength", "Joint"])
def test_conversion_does_not_change_the_dict(kind):
    env = FlatObservation(make(kind, observe_acceptance=False))
    observation, _ = env.env.reset(seed=8)
    before = {key: value.copy() for key, value in observation.items()}
    env.observation(observation)[:] = 99.0
    for key, value in before.items():
        np.testing.assert_array_equal(observation[key], value)


def test_observations_of_other_environments_are_refused():
    with pytest.raises(ValueError, match="FlatObservation wraps multispin"):
        FlatObservation(gym.make("CartPole-v1"))


def test_flattening_twice_is_refused():
    with pytest.raises(ValueError, match="FlatObservation wraps multispin"):
        FlatObservation(FlatObservation(make()))


# --------------------------------------------------------------------------------------------
# Together, and made again from the spec.

WRAPPINGS = {
    "bandwidth": lambda: FlattenBandwidth(make()),
    "observation": lambda: FlatObservation(make(observe_acceptance=False)),
    "both": lambda: FlatObservation(FlattenBandwidth(make(rounds=7))),
    "both, reversed": lambda: FlattenBandwidth(FlatObservation(make())),
    "draft lengths": lambda: FlatObservation(make("DraftLength", correction="random")),
}
wrapping = pytest.mark.parametrize("wrapped", WRAPPINGS.values(), ids=WRAPPINGS.keys())


def wrappers_of(env):
    names = []
    while isinstance(env, gym.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return [*names, type(env).__name__]


REMAKES = {
    "spec": lambda env: gym.make(env.spec),
    "json": lambda env: gym.make(EnvSpec.from_json(env.spec.to_json())),
    "json text": lambda env: gym.make(
        EnvSpec.from_json(json.dumps(json.loads(env.spec.to_json())))
    ),
    "pickle": lambda env: gym.make(pickle.loads(pickle.dumps(env.spec))),
}


@wrapping
@pytest.mark.parametrize("remake", REMAKES.values(), ids=REMAKES.keys())
def test_spec_makes_the_wrapped_environment_again(wrapped, remake):
    env = wrapped()
    again = remake(env)
    assert wrappers_of(again) == wrappers_of(env)
    assert again.action_space == env.action_space
    assert again.observation_space == env.observation_space
    assert again.unwrapped.scenario == env.unwrapped.scenario
    first, second = env.reset(seed=9)[0], again.reset(seed=9)[0]
    assert env.observation_space.contains(first)
    for one, other in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(one, other)


def leaves(observation):
    if isinstance(observation, dict):
        return [observation[key] for key in sorted(observation)]
    return [observation]


@pytest.mark.parametrize("name", ["both", "both, reversed"])
def test_both_wrappers_make_a_box_to_box_environment(name):
    env = WRAPPINGS[name]()
    assert isinstance(env.action_space, spaces.Box)
    assert isinstance(env.observation_space, spaces.Box)
    env.reset(seed=10)
    env.action_space.seed(10)
    observation = env.step(env.action_space.sample())[0]
    assert env.observation_space.contains(observation)


def test_wrapped_environments_run_in_gymnasiums_vector():
    vector = gym.vector.SyncVectorEnv([WRAPPINGS["both"]] * 2)
    observation, _ = vector.reset(seed=11)
    assert observation.shape == (2, 3 * K)
    vector.action_space.seed(11)
    assert vector.observation_space.contains(vector.step(vector.action_space.sample())[0])
    vector.close()


def test_a_flat_action_never_leaves_a_drafting_device_without_a_band():
    env = flattened(rounds=200)
    env.reset(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(100):
        info = env.step(generator.normal(size=2 * K))[4]
        assert np.all(info["bandwidth_hz"][info["drafted"] > 0] > 0)


def test_flatten_action_is_the_inverse():
    inner = make().action_space
    generator = np.random.default_rng(1)
    lengths = generator.integers(0, 26, (5, K))
    shares = generator.uniform(0.05, 1.0, (5, K)).astype(np.float32)
    shares /= shares.max(axis=1, keepdims=True)
    flat_actions = flatten_action({"draft_length": lengths, "bandwidth": shares}, inner)
    back = unflatten_action(flat_actions, inner)
    np.testing.assert_array_equal(back["draft_length"], lengths)
    np.testing.assert_allclose(back["bandwidth"], shares, rtol=1e-5)
    zero = {"draft_length": lengths[0], "bandwidth": np.zeros(K)}
    np.testing.assert_allclose(unflatten_action(flatten_action(zero, inner), inner)["bandwidth"], 1)


# --------------------------------------------------------------------------------------------
# DeadlineAction.


def deadlined(**options):
    return DeadlineAction(make("DraftLength", **options))


def test_deadline_action_space():
    assert deadlined().action_space == spaces.MultiDiscrete([21, 2, 2, 2, 2])
    for kind in ("ModeSelection", "Joint", "DraftBandwidth"):
        with pytest.raises(ValueError, match="DraftLength-v0"):
            DeadlineAction(make(kind))


def test_a_deadline_is_the_longest_draft_that_fits():
    generator = np.random.default_rng(0)
    for n in range(21):
        token_s = generator.uniform(0.01, 0.03, K).astype(np.float32)
        drafts = generator.integers(0, 2, K)
        lengths = deadline_lengths(np.array([n, *drafts]), token_s, 20)
        exact = [Fraction(float(t)) for t in token_s]
        most = [max(g for g in range(21) if g * t <= n * max(exact)) for t in exact]
        assert lengths.tolist() == [d * m for d, m in zip(drafts, most)]
        assert n * drafts[np.argmax(token_s)] == lengths[np.argmax(token_s)]


def test_deadline_actions_play_the_lengths_that_they_stand_for():
    env, plain = deadlined(), make("DraftLength")
    observation, _ = env.reset(seed=3)
    plain.reset(seed=3)
    env.action_space.seed(0)
    for _ in range(20):
        action = env.action_space.sample()
        lengths = deadline_lengths(action, observation["token_latency_s"], 20)
        observation, reward, *_, info = env.step(action)
        assert info["drafted"].tolist() == lengths.tolist()
        assert reward == plain.step(lengths)[1]


def test_deadline_actions_are_checked():
    env = deadlined()
    with pytest.raises(ResetNeeded):
        env.step(np.zeros(K + 1, np.int64))
    env.reset(seed=0)
    for bad in (np.array([21, 0, 0, 0, 0]), np.array([1, 2, 0, 0, 0]), np.zeros(K, np.int64)):
        with pytest.raises(ValueError, match=r"action = .*must be in MultiDiscrete"):
            env.step(bad)
    again = pickle.loads(pickle.dumps(env))
    action = np.array([3, 1, 1, 0, 1])
    assert again.step(action)[1] == env.step(action)[1]


def test_deadline_actions_pass_the_check_of_stable_baselines3():
    checker = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="needs the extra [train]"
    )
    checker.check_env(deadlined())
