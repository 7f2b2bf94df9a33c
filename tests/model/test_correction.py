"""Corrections, against enumeration of all modes and the optimality conditions of Lemma 1."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from multispin_env.model.correction import (
    Correction,
    correct,
    correct_given_bandwidth,
    downlink_equal_bandwidth,
    downlink_given_bandwidth,
    uplink_latency,
)

INSTANCES = json.loads((Path(__file__).parents[1] / "data" / "correction.json").read_text("utf8"))[
    "instances"
]
RADIO = (
    "channel_gain",
    "uplink_power_w",
    "downlink_power_w",
    "payload_bits",
    "bandwidth_hz",
    "noise_server_w_hz",
    "noise_device_w_hz",
)
RULES = {"optimal": "latency_s", "uplink": "all_uplink_s", "downlink": "all_downlink_s"}
KINDS = ["plain", "fade", "ties", "dead", "no downlink", "no uplink", "powers"]


# ---- independent arithmetic ------------------------------------------------------------------


def shannon_delay(bits, band, power, gain, noise):
    """Delay of one link; log1p keeps the digits of a faded one."""
    rate = band * np.log1p(power * gain / (noise * band)) / np.log(2.0) if band > 0 else 0.0
    return bits / rate if rate > 0 else np.inf


def budget_delay(sets, gain, budget, bits, band, noise):
    """Delay of each downlink set: bisection of the power that it needs against the budget.

    Args:
        sets: bool [M, K]; the rest numbers or [K].
    """
    sets = np.atleast_2d(sets)
    alive = (gain > 0) & (band > 0) & (budget > 0)
    unit = np.where(alive, noise * band / np.where(gain > 0, gain, 1.0), 0.0)
    width = np.where(band > 0, band, 1.0)
    low, high = np.full(len(sets), -60.0), np.full(len(sets), 80.0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for _ in range(110):
            middle = (low + high) / 2
            power = unit * np.expm1(bits * np.log(2.0) / (width * np.exp(middle)[:, None]))
            short = np.sum(np.where(sets, power, 0.0), axis=1) > budget
            low, high = np.where(short, middle, low), np.where(short, high, middle)
    delay = np.where(np.any(sets & ~alive, axis=1), np.inf, np.exp((low + high) / 2))
    return np.where(np.any(sets, axis=1), delay, 0.0)


def enumerate_modes(gain, uplink, budget, bits, band, noise_server, noise_device):
    """All 2^K assignments (bool, true is downlink) and the delay of each."""
    count = len(gain)
    sets = np.array(list(itertools.product([False, True], repeat=count)))
    up = np.array(
        [shannon_delay(bits, band[k], uplink[k], gain[k], noise_server) for k in range(count)]
    )
    slowest = np.max(np.where(sets, 0.0, up), axis=1)
    return sets, np.maximum(slowest, budget_delay(sets, gain, budget, bits, band, noise_device))


def achieved(result, rejected, bits, band, inputs):
    """Latency of the returned modes and powers, device by device; also checks the budgets."""
    gain, uplink = inputs["channel_gain"], np.broadcast_to(inputs["uplink_power_w"], len(rejected))
    noise = np.broadcast_to(inputs["noise_device_w_hz"], len(rejected))
    latency, spent = 0.0, 0.0
    for k in np.flatnonzero(rejected):
        power = result.power_w[k]
        if result.mode[k] == 1:
            spent += power
            receiver = noise[k]
        else:
            assert result.mode[k] == 0
            assert 0 <= power <= uplink[k]
            receiver = inputs["noise_server_w_hz"]
        latency = max(latency, shannon_delay(bits, band[k], power, gain[k], receiver))
    assert spent <= inputs["downlink_power_w"] * (1 + 1e-12)
    return latency


def draw(rng, count, kind="plain"):
    """Radio constants of one random cell."""
    uplink = 10.0 ** rng.uniform(-3, 0)
    inputs = {
        "channel_gain": 10.0 ** rng.uniform(-13, -9, count) * rng.standard_exponential(count),
        "uplink_power_w": np.full(count, uplink),
        "downlink_power_w": uplink * 10.0 ** rng.uniform(-0.5, 1.5),
        "payload_bits": float(rng.integers(1000, 100_000)),
        "bandwidth_hz": 10.0 ** rng.uniform(5.5, 7.5),
        "noise_server_w_hz": 10.0 ** rng.uniform(-20.5, -19.5),
        "noise_device_w_hz": 10.0 ** rng.uniform(-20.5, -19.5, count),
    }
    if kind == "fade":
        inputs["channel_gain"] *= 10.0 ** rng.uniform(-9, 0, count)
    if kind == "ties":
        inputs["channel_gain"] = rng.choice(inputs["channel_gain"][:2], count)
        inputs["noise_device_w_hz"] = np.full(count, inputs["noise_device_w_hz"][0])
    if kind == "dead":
        inputs["channel_gain"][rng.random(count) < 0.3] = 0.0
    if kind == "no downlink":
        inputs["downlink_power_w"] = 0.0
    if kind == "no uplink":
        inputs["uplink_power_w"][rng.random(count) < 0.4] = 0.0
    if kind == "powers":
        inputs["uplink_power_w"] = uplink * 10.0 ** rng.uniform(-2, 2, count)
    return inputs


def given_arguments(inputs, band):
    return {**inputs, "bandwidth_hz": band}


def enumerate_cell(inputs, members):
    """Enumeration for the rejected `members` of a cell, with the band split equally."""
    band = np.full(len(members), inputs["bandwidth_hz"] / len(members))
    return enumerate_modes(
        inputs["channel_gain"][members],
        inputs["uplink_power_w"][members],
        inputs["downlink_power_w"],
        inputs["payload_bits"],
        band,
        inputs["noise_server_w_hz"],
        inputs["noise_device_w_hz"][members],
    )


def direct_latency(inputs, count):
    """Sort by the uplink and try every split: T of max_m min(a_{m+1}, P / S_m)."""
    a = inputs["uplink_power_w"] * inputs["channel_gain"] / inputs["noise_server_w_hz"]
    c = inputs["noise_device_w_hz"] / inputs["channel_gain"]
    order = np.argsort(a)
    uplink = np.append(a[order], np.inf)
    with np.errstate(divide="ignore"):
        downlink = inputs["downlink_power_w"] / np.append(0.0, np.cumsum(c[order]))
    band = inputs["bandwidth_hz"] / count
    level = np.max(np.minimum(uplink, downlink))
    return inputs["payload_bits"] / (band * np.log1p(level / band) / np.log(2.0))


# ---- stored vectors --------------------------------------------------------------------------


def vector_inputs(instance):
    return {name: np.asarray(instance["inputs"][name], dtype=float) for name in RADIO}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("instance", INSTANCES, ids=range(len(INSTANCES)))
def test_latencies_of_the_vectors(instance, rule):
    for entry in instance["correction"]:
        rejected = np.isin(np.arange(len(instance["inputs"]["channel_gain"])), entry["rejected"])
        result = correct(rejected, rule=rule, **vector_inputs(instance))
        assert float(result.latency_s) == pytest.approx(entry[RULES[rule]], rel=1e-9)


@pytest.mark.parametrize("instance", INSTANCES, ids=range(len(INSTANCES)))
def test_equal_bandwidth_of_the_vectors(instance):
    inputs, expected = instance["inputs"], instance["downlink_equal_bandwidth"]
    latency, power = downlink_equal_bandwidth(
        inputs["channel_gain"],
        inputs["downlink_power_w"],
        inputs["payload_bits"],
        inputs["bandwidth_hz"] / len(inputs["channel_gain"]),
        inputs["noise_device_w_hz"],
    )
    assert latency == pytest.approx(expected["latency_s"], rel=1e-9)
    assert power == pytest.approx(expected["power_w"], rel=1e-9)


@pytest.mark.parametrize("instance", INSTANCES, ids=range(len(INSTANCES)))
def test_given_bandwidth_of_the_vectors(instance):
    inputs, expected = instance["inputs"], instance["downlink_given_bandwidth"]
    latency, power = downlink_given_bandwidth(
        inputs["channel_gain"],
        inputs["downlink_power_w"],
        inputs["payload_bits"],
        expected["bandwidth_hz"],
        inputs["noise_device_w_hz"],
    )
    assert latency == pytest.approx(expected["latency_s"], rel=1e-9)
    assert power == pytest.approx(expected["power_w"], rel=1e-9)


# ---- Lemma 1 ---------------------------------------------------------------------------------


def check_lemma_1(latency, power, gain, budget, bits, band, noise):
    """Equal delays, the whole budget, positive powers: necessary and sufficient for a minimum."""
    delays = [shannon_delay(bits, *link) for link in zip(band, power, gain, noise)]
    assert np.all(power > 0)
    assert delays == pytest.approx([latency] * len(delays), rel=1e-9)
    assert np.sum(power) == pytest.approx(budget, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_lemma_1_with_given_bandwidth_is_optimal(seed):
    rng = np.random.default_rng(seed)
    for _ in range(120):
        count = int(rng.integers(1, 13))
        inputs = draw(rng, count, "fade" if seed % 2 else "plain")
        gain, budget, bits = (inputs[name] for name in ("channel_gain", RADIO[2], RADIO[3]))
        noise = inputs["noise_device_w_hz"]
        band = rng.dirichlet(np.full(count, 0.7)) * inputs["bandwidth_hz"] + 1e3
        latency, power = downlink_given_bandwidth(gain, budget, bits, band, noise)
        check_lemma_1(latency, power, gain, budget, bits, band, noise)


@pytest.mark.parametrize("seed", range(4))
def test_lemma_1_with_equal_bandwidth_is_optimal(seed):
    rng = np.random.default_rng(100 + seed)
    for _ in range(100):
        count = int(rng.integers(1, 13))
        inputs = draw(rng, count, "fade" if seed % 2 else "plain")
        gain, budget, bits = (inputs[name] for name in ("channel_gain", RADIO[2], RADIO[3]))
        noise, band = inputs["noise_device_w_hz"], inputs["bandwidth_hz"] / count
        latency, power = downlink_equal_bandwidth(gain, budget, bits, band, noise)
        check_lemma_1(latency, power, gain, budget, bits, np.full(count, band), noise)


def test_lemma_1_agrees_when_the_given_bands_are_equal():
    inputs = draw(np.random.default_rng(5), 6)
    arguments = [inputs[name] for name in ("channel_gain", "downlink_power_w", "payload_bits")]
    noise = inputs["noise_device_w_hz"]
    equal = downlink_equal_bandwidth(*arguments, 1e6, noise)
    given = downlink_given_bandwidth(*arguments, np.full(6, 1e6), noise)
    assert equal[0] == pytest.approx(given[0], rel=1e-10)
    assert equal[1] == pytest.approx(given[1], rel=1e-10)


@pytest.mark.parametrize("lemma", [downlink_equal_bandwidth, downlink_given_bandwidth])
@pytest.mark.parametrize(("gains", "budget"), [([1e-10, 0.0], 0.4), ([1e-10, 1e-11], 0.0)])
def test_lemma_1_cannot_reach_a_dead_link(lemma, gains, budget):
    latency, power = lemma(gains, budget, 3e4, 1e6, 1e-20)
    assert latency == np.inf
    assert np.all(np.isfinite(power))
    assert np.sum(power) <= budget


# ---- Lemma 2 with the band split equally -----------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_optimal_modes_equal_enumeration(kind):
    rng = np.random.default_rng(1000 + KINDS.index(kind))
    for _ in range(60):
        num_devices = int(rng.integers(1, 9))
        inputs = draw(rng, num_devices, kind)
        rejected = rng.random(num_devices) < 0.8
        rejected[rng.integers(num_devices)] = True
        members = np.flatnonzero(rejected)
        _, delays = enumerate_cell(inputs, members)
        result = correct(rejected, **inputs)
        assert float(result.latency_s) == pytest.approx(np.min(delays), rel=1e-9)


@pytest.mark.parametrize("rule", ["optimal", "uplink", "downlink"])
@pytest.mark.parametrize("kind", KINDS)
def test_returned_modes_and_powers_achieve_the_latency(kind, rule):
    rng = np.random.default_rng(2000 + KINDS.index(kind))
    for _ in range(60):
        num_devices = int(rng.integers(1, 13))
        inputs = draw(rng, num_devices, kind)
        rejected = rng.random(num_devices) < 0.7
        result = correct(rejected, rule=rule, **inputs)
        band = np.full(num_devices, inputs["bandwidth_hz"] / max(1, rejected.sum()))
        recomputed = achieved(result, rejected, inputs["payload_bits"], band, inputs)
        assert float(result.latency_s) == pytest.approx(recomputed, rel=1e-9)
        assert np.all(result.mode[~rejected] == -1)
        assert np.all(result.power_w[~rejected] == 0.0)
        assert np.array_equal(result.downlink, result.mode == 1)


@pytest.mark.parametrize(("rule", "mode"), [("uplink", 0), ("downlink", 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_fixed_rules_equal_the_enumerated_assignment(kind, rule, mode):
    rng = np.random.default_rng(3000 + KINDS.index(kind))
    for _ in range(20):
        num_devices = int(rng.integers(1, 9))
        inputs = draw(rng, num_devices, kind)
        rejected = np.ones(num_devices, dtype=bool)
        _, delays = enumerate_cell(inputs, np.arange(num_devices))
        result = correct(rejected, rule=rule, **inputs)
        assert np.all(result.mode == mode)
        assert float(result.latency_s) == pytest.approx(delays[-1 if mode else 0], rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_given_coins_equal_the_enumerated_assignment(kind):
    rng = np.random.default_rng(4000 + KINDS.index(kind))
    inputs = draw(rng, 6, kind)
    members = np.array([0, 2, 3, 5])
    rejected = np.isin(np.arange(6), members)
    for modes, delay in zip(*enumerate_cell(inputs, members)):
        coins = rng.random(6) < 0.5  # those of accepted devices are ignored
        coins[members] = modes
        result = correct(rejected, rule="random", downlink=coins, **inputs)
        assert np.array_equal(result.downlink[members], modes)
        assert np.all(result.mode[[1, 4]] == -1)
        assert float(result.latency_s) == pytest.approx(delay, rel=1e-9)


def test_exact_tie_between_the_uplink_and_the_downlink():
    # The budget carries the m worst exactly to the level of the next device, to the last bits,
    # so a device that one comparison sends up must not be sent down by another.
    rng = np.random.default_rng(6)
    for _ in range(20_000):
        count = int(rng.integers(3, 9))
        a, c = np.sort(np.exp(rng.normal(size=count))), np.exp(rng.normal(size=count))
        m = int(rng.integers(2, count))
        budget = a[m] * np.sum(rng.permutation(c[:m])) * (1 + rng.integers(-3, 4) * 1.1e-16)
        inputs = {
            "channel_gain": 1.0 / c,
            "uplink_power_w": a * c,
            "downlink_power_w": budget,
            "payload_bits": 1e6,
            "bandwidth_hz": 1e6,
            "noise_server_w_hz": 1e-6,
            "noise_device_w_hz": np.full(count, 1e-6),
        }
        shuffled = rng.permutation(count)
        for name in ("channel_gain", "uplink_power_w"):
            inputs[name] = inputs[name][shuffled]
        latency = float(correct(np.ones(count, dtype=bool), **inputs).latency_s)
        assert latency == pytest.approx(direct_latency(inputs, count), rel=1e-9)


@pytest.mark.parametrize("kind", ["plain", "fade", "ties", "powers"])
def test_a_thousand_devices_equal_the_sorted_evaluation(kind):
    rng = np.random.default_rng(5000 + KINDS.index(kind))
    for _ in range(10):
        inputs = draw(rng, 1000, kind)
        result = correct(np.ones(1000, dtype=bool), **inputs)
        assert float(result.latency_s) == pytest.approx(direct_latency(inputs, 1000), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_one_device_takes_the_faster_way(kind):
    rng = np.random.default_rng(6000 + KINDS.index(kind))
    for _ in range(20):
        inputs = draw(rng, 1, kind)
        bits, band, gain = (
            inputs["payload_bits"],
            inputs["bandwidth_hz"],
            inputs["channel_gain"][0],
        )
        up = shannon_delay(
            bits, band, inputs["uplink_power_w"][0], gain, inputs["noise_server_w_hz"]
        )
        down = shannon_delay(
            bits, band, inputs["downlink_power_w"], gain, inputs["noise_device_w_hz"][0]
        )
        latency = float(correct([True], **inputs).latency_s)
        assert latency == pytest.approx(min(up, down), rel=1e-9)


@pytest.mark.parametrize("rule", ["optimal", "uplink", "downlink"])
def test_nothing_rejected_takes_no_time(rule):
    result = correct(np.zeros(4, dtype=bool), rule=rule, **draw(np.random.default_rng(7), 4))
    assert result.latency_s == 0.0
    assert result.mode.tolist() == [-1] * 4
    assert result.power_w.tolist() == [0.0] * 4


@pytest.mark.parametrize("rule", ["optimal", "uplink", "downlink"])
def test_a_dead_channel_takes_forever(rule):
    inputs = {**draw(np.random.default_rng(8), 3), "channel_gain": np.array([1e-10, 0.0, 1e-11])}
    result = correct(np.ones(3, dtype=bool), rule=rule, **inputs)
    assert result.latency_s == np.inf
    assert not np.any(np.isnan(result.power_w))
    # The dead device does not disturb a round in which it was accepted.
    assert np.isfinite(correct([True, False, True], rule=rule, **inputs).latency_s)


@pytest.mark.parametrize("rule", ["optimal", "uplink", "downlink", "random"])
def test_batches_equal_a_loop(rule):
    rng = np.random.default_rng(9)
    shape = (3, 4, 5)
    cells = [[draw(rng, 5, rng.choice(KINDS)) for _ in range(4)] for _ in range(3)]
    batch = {name: np.array([[cell[name] for cell in row] for row in cells]) for name in RADIO}
    rejected = rng.random(shape) < 0.6
    coins = rng.random(shape) < 0.5
    chosen = {"downlink": coins} if rule == "random" else {}
    result = correct(rejected, rule=rule, **batch, **chosen)
    assert result.mode.shape == result.power_w.shape == shape
    assert result.latency_s.shape == shape[:-1]
    for i, j in np.ndindex(*shape[:-1]):
        chosen = {"downlink": coins[i, j]} if rule == "random" else {}
        single = correct(rejected[i, j], rule=rule, **cells[i][j], **chosen)
        assert np.array_equal(result.mode[i, j], single.mode)
        assert np.array_equal(result.power_w[i, j], single.power_w)
        assert result.latency_s[i, j] == single.latency_s


def test_arguments_broadcast_over_samples():
    rng = np.random.default_rng(10)
    inputs, rejected = draw(rng, 5, "powers"), rng.random((7, 5)) < 0.5
    result = correct(rejected, **inputs)
    singles = [float(correct(row, **inputs).latency_s) for row in rejected]
    assert result.latency_s.tolist() == singles


def test_arguments_are_left_alone():
    rng = np.random.default_rng(11)
    inputs, rejected = draw(rng, 5), rng.random(5) < 0.5
    before = {name: np.copy(value) for name, value in inputs.items()}
    correct(rejected, **inputs)
    assert all(np.array_equal(before[name], inputs[name]) for name in RADIO)


def test_unknown_rules_are_refused():
    with pytest.raises(ValueError, match=r"fastest.*optimal"):
        correct([True], rule="fastest", **draw(np.random.default_rng(0), 1))


def test_random_needs_coins():
    with pytest.raises(ValueError, match="downlink"):
        correct([True], rule="random", **draw(np.random.default_rng(0), 1))


@pytest.mark.parametrize("rule", ["optimal", "uplink", "downlink"])
def test_other_rules_take_no_coins(rule):
    with pytest.raises(ValueError, match="downlink"):
        correct([True], rule=rule, downlink=[True], **draw(np.random.default_rng(0), 1))


# ---- Lemma 2 with given bands ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_given_bandwidth_equals_enumeration(kind):
    rng = np.random.default_rng(7000 + KINDS.index(kind))
    for _ in range(30):
        count = int(rng.integers(1, 8))
        inputs = draw(rng, count, kind)
        band = rng.dirichlet(np.ones(count)) * inputs["bandwidth_hz"] + 1e3
        arguments = given_arguments(inputs, band)
        _, delays = enumerate_modes(*arguments.values())
        result = correct_given_bandwidth(**arguments)
        assert result.latency_s == pytest.approx(np.min(delays), rel=1e-9)
        recomputed = achieved(result, np.ones(count), inputs["payload_bits"], band, inputs)
        assert result.latency_s == pytest.approx(recomputed, rel=1e-9)


def test_given_equal_bands_agree_with_the_closed_form():
    rng = np.random.default_rng(12)
    for _ in range(50):
        count = int(rng.integers(1, 10))
        inputs = draw(rng, count, "powers")
        equal = correct(np.ones(count, dtype=bool), **inputs)
        band = np.full(count, inputs["bandwidth_hz"] / count)
        given = correct_given_bandwidth(**given_arguments(inputs, band))
        assert isinstance(given, Correction)
        assert given.latency_s == pytest.approx(float(equal.latency_s), rel=1e-9)


def test_a_device_without_band_takes_forever():
    inputs = draw(np.random.default_rng(13), 2)
    result = correct_given_bandwidth(**given_arguments(inputs, np.array([0.0, 1e6])))
    assert result.latency_s == np.inf
    assert not np.any(np.isnan(result.power_w))


def test_uplink_latency_of_known_links():
    # Power over noise of 1 W / (1e-6 W/Hz * 1e6 Hz): ratios 1, 3 and 0.
    seconds = uplink_latency([1.0, 3.0, 0.0], 1.0, 1e6, 1e6, 1e-6)
    assert seconds == pytest.approx([1.0, 0.5, np.inf], rel=1e-14)
    assert uplink_latency(1.0, 0.0, 1e6, 1e6, 1e-6) == np.inf


def test_a_wider_uplink_band_has_more_noise():
    # The ratio falls from 3 to 1 as the band triples: 3 * 1 bit instead of 1 * 2 bits a second.
    assert float(uplink_latency(3.0, 1.0, 6.0, 3.0, 1.0)) == pytest.approx(2.0, rel=1e-14)
    assert float(uplink_latency(3.0, 1.0, 6.0, 1.0, 1.0)) == pytest.approx(3.0, rel=1e-14)


def test_delays_are_monotone_in_the_split():
    """The further the split, the slower the downlink and the faster the uplink (Lemma 2)."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(2, 10))
        inputs = draw(rng, count, "fade")
        worst_first = np.argsort(inputs["uplink_power_w"] * inputs["channel_gain"])
        band = np.full(count, inputs["bandwidth_hz"] / count)
        gain, noise = inputs["channel_gain"][worst_first], inputs["noise_device_w_hz"][worst_first]
        budget, bits = inputs[RADIO[2]], inputs[RADIO[3]]
        down = [
            downlink_given_bandwidth(gain[:m], budget, bits, band[:m], noise[:m])[0]
            for m in range(1, count + 1)
        ]
        # A split's uplink delay is that of its first uplink device.
        power, noise_server = inputs["uplink_power_w"][worst_first], inputs["noise_server_w_hz"]
        up = uplink_latency(gain, power, bits, band, noise_server)
        assert np.all(np.diff(down) >= 0)
        assert np.all(np.diff(up) <= 0)
