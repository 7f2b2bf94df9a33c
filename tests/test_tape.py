"""The tape: what is random in an episode, its laws, and that no action ever touches it."""

import copy
import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from scipy import stats

import multispin_env  # noqa: F401 (registers the environments)
from multispin_env.model.acceptance import RUN_LENGTH_MAX, run_length
from multispin_env.scenario import Scenario
from multispin_env.world.tape import (
    BASE_STREAM,
    COIN_STREAM,
    DeviceLaw,
    Tape,
    draw_coins,
    draw_uniform,
    episode_seed,
    stream,
)

K = 5
SEED = (2**64 - 59, 123456789, 0, 987654321)
#: References given, so that none is computed.
SMALL = {"num_devices": K, "reference_goodput": 150.0, "reference_draft_length": 5}
KINDS = [
    ("DraftLength", "qwen2.5"),
    ("DraftLength", "llama2"),
    ("ModeSelection", "qwen2.5"),
    ("Joint", "deepseek-r1"),
    ("DraftBandwidth", "qwen3.5"),
]
kinds = pytest.mark.parametrize(("kind", "preset"), KINDS)


def scenario(preset="qwen2.5", **changes):
    """A preset with dotted fields changed; underscores twice stand for dots."""
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    return Scenario.load(preset, SMALL | changes)


def tape(rounds=64, seed=SEED, **changes):
    return Tape(scenario(**changes), seed, rounds)


def make(kind="DraftLength", preset="qwen2.5", rounds=40, overrides=None, **options):
    overrides = SMALL | {"episode.rounds": rounds} | (overrides or {})
    return gym.make(f"multispin/{kind}-v0", scenario=preset, overrides=overrides, **options)


def play(env, actions=None, rounds=None):
    """Play to the end, or some rounds; actions are sampled from the space unless given."""
    steps = []
    while rounds is None or len(steps) < rounds:
        observation, _, _, truncated, info = env.step(
            env.action_space.sample() if actions is None else actions
        )
        steps.append((observation, info))
        if truncated:
            break
    return steps


def assert_same_world(one, other):
    """The rounds that both tapes have are the same, and so are the devices."""
    n = min(one.num_rounds, other.num_rounds)
    for name in ("acceptance_rate", "token_latency_s", "mean_gain"):
        np.testing.assert_array_equal(getattr(one.devices, name), getattr(other.devices, name))
    np.testing.assert_array_equal(one.channel_gain[:n], other.channel_gain[:n])
    np.testing.assert_array_equal(one.run_length[:n], other.run_length[:n])


# --------------------------------------------------------------------------------------------
# How devices are drawn.


def many(draws=8000, **changes):
    """Devices [draws, K] from a fixed seed."""
    law = DeviceLaw(scenario(**changes))
    return law(np.random.default_rng(7).random((draws, 3, K)))


def assert_uniform(values, low, high):
    assert values.min() >= low
    assert values.max() <= high
    assert stats.kstest(values.ravel(), stats.uniform(low, high - low).cdf).pvalue > 1e-3


def test_tasks_are_drawn_uniformly():
    rates = {"a": 0.1, "b": 0.2, "c": 0.3}
    drawn = many(tasks=rates).acceptance_rate
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [0.1, 0.2, 0.3]
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("num_tasks", [1, 2, 3, 4, 5, 7])
def test_every_uniform_number_stands_for_a_task(num_tasks):
    rates = [0.1 * (n + 1) for n in range(num_tasks)]
    law = DeviceLaw(scenario(tasks={f"t{n}": rate for n, rate in enumerate(rates)}))
    ends = np.zeros((2, 3, K))
    ends[1] = 1.0 - 2.0**-53  # the largest number that a generator gives
    low, high = law(ends).acceptance_rate
    assert low.tolist() == [rates[0]] * K
    assert high.tolist() == [rates[-1]] * K


def test_task_rates_may_differ_by_device():
    first, second = [0.1, 0.2, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9, 1.0]
    drawn = many(tasks={"a": first, "b": second}).acceptance_rate
    for k in range(K):
        assert np.unique(drawn[:, k]).tolist() == [first[k], second[k]]


def test_speeds_are_drawn_uniformly_around_the_given_one():
    spread = {"min": 0.8, "max": 1.4}
    drawn = many(drafting__token_latency_s=0.01, drafting__spread=spread).token_latency_s
    assert_uniform(drawn, 0.008, 0.014)


def test_mean_gains_are_drawn_uniformly():
    drawn = many(preset="llama2").mean_gain
    assert_uniform(drawn, 0.2, 0.5)


def test_distances_are_drawn_uniformly():
    gain = many().mean_gain
    distance_m = (gain / 1e-3) ** (-1 / 3.5)  # -30 dB at 1 m, exponent 3.5
    assert_uniform(distance_m, 100.0, 500.0)


@pytest.mark.parametrize(
    ("distance_m", "gain"), [(1.0, 1e-3), (10.0, 10**-6.5), (100.0, 1e-10), (500.0, 3.577709e-13)]
)
def test_mean_gain_falls_as_a_power_of_the_distance(distance_m, gain):
    drawn = many(1, channel__distance_m=distance_m)
    np.testing.assert_allclose(drawn.mean_gain, np.full((1, K), gain), rtol=1e-6)


def test_task_speed_and_position_are_independent():
    drawn = many()
    columns = [drawn.acceptance_rate, drawn.token_latency_s, np.log(drawn.mean_gain)]
    correlation = np.corrcoef([column.ravel() for column in columns])
    assert np.abs(correlation - np.eye(3)).max() < 0.02  # four sigma of 40,000 pairs


def test_devices_are_independent():
    correlation = np.corrcoef(many().token_latency_s.T)
    assert np.abs(correlation - np.eye(K)).max() < 0.05


LISTED = {
    "tasks": ("acceptance_rate", {"only": [0.1, 0.2, 0.3, 0.4, 0.5]}, [0.1, 0.2, 0.3, 0.4, 0.5]),
    "drafting__token_latency_s": ("token_latency_s", [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
    "channel__distance_m": (
        "mean_gain",
        [10, 100, 1000, 1, 10],
        [10**-6.5, 1e-10, 10**-13.5, 1e-3, 10**-6.5],
    ),
}


@pytest.mark.parametrize("field", LISTED)
def test_listed_constants_are_taken_as_they_are(field):
    name, given, expected = LISTED[field]
    drawn = tape(**{field: given}).devices
    np.testing.assert_allclose(getattr(drawn, name), expected, rtol=1e-12)


def test_listed_gains_are_taken_exactly():
    gains = [0.1, 0.2, 0.3, 0.0, 1e-9]
    assert tape(preset="llama2", channel__mean_gain=gains).devices.mean_gain.tolist() == gains


@pytest.mark.parametrize("field", LISTED)
def test_listing_a_constant_changes_no_other_draw(field):
    name, given, _ = LISTED[field]
    drawn, changed = tape(), tape(**{field: given})
    for other in {"acceptance_rate", "token_latency_s", "mean_gain"} - {name}:
        np.testing.assert_array_equal(
            getattr(drawn.devices, other), getattr(changed.devices, other)
        )
    fading = drawn.channel_gain / drawn.devices.mean_gain
    np.testing.assert_allclose(changed.channel_gain / changed.devices.mean_gain, fading, rtol=1e-12)
    if field != "tasks":
        np.testing.assert_array_equal(drawn.run_length, changed.run_length)


def test_listed_latencies_ignore_the_spread():
    wide = {"min": 0.5, "max": 2.0}
    drawn = tape(drafting__token_latency_s=[0.1] * K, drafting__spread=wide).devices
    assert drawn.token_latency_s.tolist() == [0.1] * K


# --------------------------------------------------------------------------------------------
# Fading and run lengths.


def test_fading_is_exponential_with_mean_one():
    drawn = tape(6400)
    fading = drawn.channel_gain / drawn.devices.mean_gain
    assert fading.shape == (6400, K)
    assert fading.mean() == pytest.approx(1.0, abs=4 / math.sqrt(fading.size))
    assert stats.kstest(fading.ravel(), stats.expon.cdf).pvalue > 1e-3


def test_fading_is_independent_over_rounds_and_devices():
    drawn = tape(6400)
    fading = drawn.channel_gain / drawn.devices.mean_gain
    assert np.abs(np.corrcoef(fading.T) - np.eye(K)).max() < 0.06
    for lag in (1, 15, 16, 32):
        assert abs(np.corrcoef(fading[:-lag, 0], fading[lag:, 0])[0, 1]) < 0.06


def test_no_fading_gives_the_mean_gain():
    drawn = tape(48, channel__fading="none")
    np.testing.assert_array_equal(
        drawn.channel_gain, np.broadcast_to(drawn.devices.mean_gain, (48, K))
    )


def test_no_fading_leaves_devices_and_run_lengths():
    fading, still = tape(), tape(channel__fading="none")
    np.testing.assert_array_equal(fading.devices.mean_gain, still.devices.mean_gain)
    np.testing.assert_array_equal(fading.run_length, still.run_length)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.7, 0.95])
def test_run_lengths_survive_each_token_with_the_acceptance_rate(alpha):
    lengths = tape(6400, tasks={"only": alpha}).run_length.ravel()
    for n in range(1, 12):
        expected = alpha**n
        sigma = math.sqrt(expected * (1 - expected) / lengths.size)
        assert np.mean(lengths >= n) == pytest.approx(expected, abs=4.5 * sigma + 1e-12)


@pytest.mark.parametrize(("alpha", "length"), [(0.0, 0), (1.0, RUN_LENGTH_MAX)])
def test_run_lengths_of_certain_devices(alpha, length):
    assert np.unique(tape(tasks={"only": alpha}).run_length).tolist() == [length]


def test_run_lengths_are_independent_of_the_fading_and_over_rounds():
    drawn = tape(6400, tasks={"only": 0.7})
    lengths = drawn.run_length[:, 0]
    fading = drawn.channel_gain[:, 0]
    assert abs(np.corrcoef(lengths, fading)[0, 1]) < 0.06
    assert abs(np.corrcoef(lengths[1:], lengths[:-1])[0, 1]) < 0.06
    assert np.abs(np.corrcoef(drawn.run_length.T) - np.eye(K)).max() < 0.06


def test_a_higher_acceptance_rate_never_shortens_a_run():
    low, high = tape(tasks={"only": 0.5}), tape(tasks={"only": 0.8})
    assert np.all(low.run_length <= high.run_length)
    assert np.any(low.run_length < high.run_length)


@pytest.mark.parametrize("exponential", [0.0, 1e-300, 0.5, 30.0, 1e300])
@pytest.mark.parametrize("alpha", [0.0, 5e-324, 0.5, 1 - 2**-53, 1.0])
def test_run_length_is_finite_at_the_extremes(exponential, alpha):
    length = run_length(exponential, alpha)
    assert length.dtype == np.int64
    assert 0 <= length <= RUN_LENGTH_MAX
    # The draft survives n tokens exactly when alpha^n >= exp(-E).
    if 0 < alpha < 1 and 0 < length < 1000:
        assert length * math.log(alpha) >= -exponential > (length + 1) * math.log(alpha)


# --------------------------------------------------------------------------------------------
# The tape as an object, and its streams.


def test_arrays_have_the_documented_shapes_and_types():
    drawn = tape(48)
    assert drawn.channel_gain.shape == drawn.run_length.shape == (48, K)
    assert drawn.channel_gain.dtype == np.float64
    assert drawn.run_length.dtype == np.int64
    assert np.all(np.isfinite(drawn.channel_gain))
    assert np.all(drawn.channel_gain >= 0)
    for name in ("acceptance_rate", "token_latency_s", "mean_gain"):
        assert getattr(drawn.devices, name).shape == (K,)


@pytest.mark.parametrize("fading", ["rayleigh", "none"])
@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.channel_gain,
        lambda t: t.run_length,
        lambda t: t.devices.acceptance_rate,
        lambda t: t.devices.token_latency_s,
        lambda t: t.devices.mean_gain,
    ],
)
def test_arrays_are_read_only(read, fading):
    array = read(tape(channel__fading=fading))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize("first", ["channel_gain", "run_length"])
def test_devices_are_read_only_whatever_is_read_first(first):
    drawn = tape()
    getattr(drawn, first)
    assert not drawn.devices.mean_gain.flags.writeable


@pytest.mark.parametrize(
    "changes", [{}, {"preset": "llama2"}, {"channel__fading": "none"}], ids=repr
)
def test_a_longer_tape_starts_with_the_shorter_one(changes):
    assert_same_world(tape(16, **changes), tape(80, **changes))


def test_the_same_seed_gives_the_same_tape():
    assert_same_world(tape(), tape())


@pytest.mark.parametrize("seed", [(*SEED[:3], 1), (1, *SEED[1:]), (0, 0, 0, 0)])
def test_another_seed_gives_another_tape(seed):
    one, other = tape(), tape(seed=seed)
    assert not np.any(one.channel_gain == other.channel_gain)
    assert not np.any(one.devices.token_latency_s == other.devices.token_latency_s)


def test_tape_follows_its_written_recipe():
    drawn = tape(32, tasks={"a": 0.5, "b": 0.75})
    generator = base_generator(SEED)
    task, speed, position = generator.random((3, K))
    fading, variate = generator.standard_exponential((32, 2, K)).swapaxes(0, 1)

    rate = np.where(task < 0.5, 0.5, 0.75)
    distance_m = 100.0 + 400.0 * position
    np.testing.assert_array_equal(drawn.devices.acceptance_rate, rate)
    np.testing.assert_allclose(drawn.devices.token_latency_s, 0.0152 * (1 + 0.15 * speed))
    np.testing.assert_allclose(drawn.devices.mean_gain, 1e-3 / distance_m**3.5)
    np.testing.assert_allclose(drawn.channel_gain, fading * 1e-3 / distance_m**3.5)
    survived = [np.exp(-variate) <= rate**n for n in range(1, 100)]
    np.testing.assert_array_equal(drawn.run_length, np.sum(survived, axis=0))


def base_generator(words):
    """PCG64 seeded by O'Neill's srandom: two words of state, two of the increment."""
    state, increment = words[0] << 64 | words[1], (words[2] << 64 | words[3]) << 1 | 1
    multiplier = 0x2360ED051FC65DA44385DF649FCCF645
    state = ((increment + state) * multiplier + increment) % 2**128
    generator = np.random.Generator(np.random.PCG64(0))
    raw = {"state": state, "inc": increment % 2**128}
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": raw,
        "has_uint32": 0,
        "uinteger": 0,
    }
    return generator


@pytest.mark.parametrize("words", [0, 1, 3])
def test_seed_that_is_too_short_is_refused(words):
    with pytest.raises(ValueError, match="seed"):
        stream(SEED[:words], BASE_STREAM)


def test_streams_with_different_indices_differ():
    draws = [stream(SEED, index).random(2000) for index in range(4)]
    assert len({tuple(draw) for draw in draws}) == 4
    assert np.abs(np.corrcoef(draws) - np.eye(4)).max() < 0.1
    np.testing.assert_array_equal(stream(SEED, 1).random(2000), draws[1])


def test_stream_indices_are_fixed():
    assert (BASE_STREAM, COIN_STREAM) == (0, 1)


def test_coins_are_fair_and_binary():
    generator = stream(SEED, COIN_STREAM)
    coins = np.concatenate([draw_coins(generator, K) for _ in range(400)])
    assert coins.shape == (6400, K)
    assert np.unique(coins).tolist() == [0, 1]
    assert coins.mean() == pytest.approx(0.5, abs=0.5 * 4 / math.sqrt(coins.size))


def test_draw_uniform_gives_three_numbers_a_device():
    uniform = draw_uniform(np.random.default_rng(0), K)
    np.testing.assert_array_equal(uniform, np.random.default_rng(0).random((3, K)))


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_episode_seed_takes_four_words_of_the_generator(calls):
    generator, expected = np.random.default_rng(3), np.random.PCG64(3)
    seeds = [episode_seed(generator) for _ in range(calls)]
    assert len(set(seeds)) == calls
    expected.advance(4 * calls)
    assert generator.bit_generator.state == expected.state


def test_episode_seed_is_plain_integers():
    seed = episode_seed(np.random.default_rng(3))
    assert [type(word) for word in seed] == [int] * 4
    assert all(0 <= word < 2**64 for word in seed)


# --------------------------------------------------------------------------------------------
# The tape of an environment.


def noise_w(preset):
    """Noise power over the band at the server [W]: -169 dBm/Hz times 10 MHz, or 1e-10 W."""
    return 1e7 * 10 ** (-169 / 10 - 3) if preset in ("qwen2.5", "deepseek-r1") else 1e-10


def power_w(preset):
    return 0.1 if preset in ("qwen2.5", "deepseek-r1") else 10 ** (-46.38 / 10 - 3)


@kinds
def test_outcomes_are_what_the_tape_says(kind, preset):
    env = make(kind, preset)
    env.reset(seed=5)
    env.action_space.seed(5)
    steps = play(env)
    lengths = env.unwrapped.tape.run_length
    assert len(steps) == 40
    for number, (_, info) in enumerate(steps):
        assert info["round"] == number
        expected = np.minimum(lengths[number], info["drafted"])
        np.testing.assert_array_equal(info["accepted"], expected)
        np.testing.assert_array_equal(info["rejected"], lengths[number] < info["drafted"])
    assert sum(info["accepted"].sum() for _, info in steps) > 0


@kinds
@pytest.mark.parametrize("fading", ["rayleigh", "none"])
def test_observed_snr_is_what_the_tape_says(kind, preset, fading):
    env = make(kind, preset, overrides={"channel.fading": fading})
    first, _ = env.reset(seed=6)
    env.action_space.seed(6)
    observations = [first, *(observation for observation, _ in play(env))]
    gain = env.unwrapped.tape.channel_gain
    expected = 10 * np.log10(power_w(preset) * gain / noise_w(preset))
    for number, observation in enumerate(observations):
        shown = {"snr_db": number, "next_snr_db": number + 1}
        for key in shown.keys() & observation.keys():
            np.testing.assert_allclose(observation[key], expected[shown[key]], rtol=2e-7, atol=1e-5)


@kinds
def test_observed_devices_are_the_tapes(kind, preset):
    env = make(kind, preset)
    observation, _ = env.reset(seed=7)
    for name in ("acceptance_rate", "token_latency_s"):
        drawn = getattr(env.unwrapped.tape.devices, name)
        np.testing.assert_array_equal(observation[name], drawn.astype(np.float32))
        np.testing.assert_array_equal(play(env, rounds=1)[0][0][name], observation[name])


@kinds
def test_tape_is_the_same_whatever_is_played(kind, preset):
    tapes = []
    for action_seed in range(3):
        env = make(kind, preset)
        env.reset(seed=8)
        env.action_space.seed(action_seed)
        play(env)
        tapes.append(env.unwrapped.tape)
    assert len({t.seed for t in tapes}) == 1
    for other in tapes[1:]:
        assert other.num_rounds == tapes[0].num_rounds >= 40
        assert_same_world(tapes[0], other)


@pytest.mark.parametrize("length", [0, 1, 20])
def test_tape_is_the_same_for_idle_and_busy_policies(length):
    env = make(overrides={"episode.rounds": None, "episode.horizon_s": 20.0})
    env.reset(seed=9)
    start = env.unwrapped.tape
    play(env, np.full(K, length))
    assert_same_world(start, env.unwrapped.tape)
    assert_same_world(tape(64, seed=start.seed), env.unwrapped.tape)


@kinds
def test_episode_replays_bit_for_bit(kind, preset):
    def run():
        env = make(kind, preset)
        first, _ = env.reset(seed=10)
        env.action_space.seed(10)
        return [(first, {}), *play(env)]

    for (one, info), (other, info_again) in zip(run(), run(), strict=True):
        for key in one:
            np.testing.assert_array_equal(one[key], other[key])
        for key in info:
            np.testing.assert_array_equal(info[key], info_again[key])


@kinds
def test_tape_grows_in_blocks_and_covers_what_was_shown(kind, preset):
    env = make(kind, preset, rounds=100)
    env.reset(seed=11)
    seen = {"snr_db": 1, "next_snr_db": 2}
    ahead = max(seen[key] for key in env.observation_space if key in seen)
    for played in range(1, 60):
        play(env, rounds=1)
        drawn = env.unwrapped.tape.num_rounds
        assert drawn % 16 == 0
        assert played + ahead <= drawn <= played + ahead + 16  # at most one step early


def test_a_tape_taken_early_keeps_its_length():
    env = make()
    env.reset(seed=12)
    early = env.unwrapped.tape
    play(env)
    assert early.channel_gain.shape == (16, K)
    assert env.unwrapped.tape.channel_gain.shape == (48, K)


def test_tape_needs_an_episode():
    env = make()
    with pytest.raises(ResetNeeded):
        _ = env.unwrapped.tape


def test_writing_to_observations_and_infos_does_not_reach_the_world():
    def run(spoil):
        env = make()
        observation, _ = env.reset(seed=13)
        for _ in range(20):
            if spoil:
                for value in observation.values():
                    value[:] = 1
            observation, _, _, _, info = env.step(np.full(K, 6))
            accepted = info["accepted"].copy()
            if spoil:
                info["accepted"][:] = info["drafted"][:] = 0
        return accepted, info["time_s"], observation["snr_db"]

    for clean, spoilt in zip(run(False), run(True), strict=True):
        np.testing.assert_array_equal(clean, spoilt)


# --------------------------------------------------------------------------------------------
# Options and resets.


@pytest.mark.parametrize("rule", ["uplink", "downlink", "random"])
def test_correction_rule_leaves_the_world(rule):
    worlds = []
    for correction in ("optimal", rule):
        env = make(correction=correction)
        env.reset(seed=14)
        play(env, np.full(K, 6))
        env.reset()  # the second episode must agree as well
        play(env, np.full(K, 3))
        worlds.append(env.unwrapped.tape)
    assert worlds[0].seed == worlds[1].seed
    assert_same_world(*worlds)


def test_random_modes_are_fair_coins():
    env = make(rounds=400, correction="random", overrides={"tasks": {"only": 0.0}})
    env.reset(seed=15)
    modes = np.array([info["mode"] for _, info in play(env, np.ones(K, np.int64))])
    assert np.unique(modes).tolist() == [0, 1]
    assert modes.mean() == pytest.approx(0.5, abs=0.5 * 4 / math.sqrt(modes.size))
    assert np.abs(np.corrcoef(modes.T) - np.eye(K)).max() < 0.25


def test_random_modes_do_not_depend_on_the_lengths():
    def modes(length):
        env = make(correction="random")
        env.reset(seed=16)
        return np.array([info["mode"] for _, info in play(env, np.full(K, length))])

    short, long = modes(2), modes(20)
    both = (short >= 0) & (long >= 0)
    assert both.sum() > 30
    np.testing.assert_array_equal(short[both], long[both])


def test_random_modes_are_the_coin_streams():
    env = make(correction="random")
    env.reset(seed=17)
    modes = np.array([info["mode"] for _, info in play(env, np.full(K, 10))])
    generator = stream(env.unwrapped.tape.seed, COIN_STREAM)
    coins = np.concatenate([generator.random((16, K)) < 0.5 for _ in range(3)])[:40]
    sent = modes >= 0
    assert sent.sum() > 50
    np.testing.assert_array_equal(modes[sent], coins[sent])


@pytest.mark.parametrize("option", [{"observe_acceptance": False}, {"reward": "tokens"}], ids=repr)
def test_observation_and_reward_leave_the_world(option):
    tapes = []
    for options in ({}, option):
        env = make(**options)
        env.reset(seed=18)
        tapes.append(env.unwrapped.tape)
    assert_same_world(*tapes)


@kinds
@pytest.mark.parametrize("rounds", [0, 1, 17, 40])
def test_unseeded_reset_continues_whatever_was_played_before(kind, preset, rounds):
    quiet, busy = make(kind, preset), make(kind, preset)
    quiet.reset(seed=19)
    quiet.reset()
    busy.reset(seed=19)
    play(busy, rounds=rounds)
    busy.reset()
    assert quiet.unwrapped.tape.seed == busy.unwrapped.tape.seed
    assert_same_world(quiet.unwrapped.tape, busy.unwrapped.tape)


def test_unseeded_resets_give_new_worlds():
    env = make()
    env.reset(seed=20)
    seeds = [env.unwrapped.tape.seed]
    for _ in range(5):
        env.reset()
        seeds.append(env.unwrapped.tape.seed)
    assert len(set(seeds)) == 6


def test_seeded_reset_forgets_the_past():
    env = make()
    env.reset(seed=21)
    first = env.unwrapped.tape
    play(env)
    env.reset()
    env.reset(seed=21)
    assert env.unwrapped.tape.seed == first.seed


def test_two_environments_without_a_seed_differ():
    one, other = make(), make()
    one.reset()
    other.reset()
    assert one.unwrapped.tape.seed != other.unwrapped.tape.seed


def test_the_episode_seed_comes_from_the_generator_of_the_environment():
    env = make()
    env.reset(seed=22)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(22)))
    assert env.unwrapped.tape.seed == episode_seed(generator)
    following = copy.deepcopy(env.unwrapped.np_random)
    env.reset()
    assert env.unwrapped.tape.seed == episode_seed(following)


@pytest.mark.parametrize(
    ("preset", "fitting"),
    [
        ("qwen2.5", ["DraftLength", "ModeSelection", "Joint"]),
        ("llama2", ["DraftLength", "DraftBandwidth"]),
    ],
)
def test_all_controls_of_a_scenario_share_their_worlds(preset, fitting):
    tapes = []
    for kind in fitting:
        env = make(kind, preset)
        env.reset(seed=23)
        tapes.append(env.unwrapped.tape)
    for other in tapes[1:]:
        assert_same_world(tapes[0], other)


def test_physics_that_draws_nothing_leaves_the_world():
    changes = {"radio.uplink_power_dbm": 0.0, "verification.fixed_s": 1.0, "max_draft_length": 9}
    one, other = make(), make(overrides=changes)
    one.reset(seed=24)
    other.reset(seed=24)
    assert_same_world(one.unwrapped.tape, other.unwrapped.tape)
