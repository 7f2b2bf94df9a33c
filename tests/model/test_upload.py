"""Bandwidth allocation of uploads, against brentq, random perturbations and stored vectors."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from multispin_env.model.upload import allocate, spectral_efficiency

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "upload.json").read_text("utf8"))
INSTANCES = {instance["name"]: instance for instance in VECTORS["instances"]}
KINDS = ["plain", "weak", "unequal", "dominated", "single", "many", "twins"]


def draw(rng, kind="plain"):
    """A random round of uploads: (lengths, keyword arguments of `allocate`)."""
    count = {"single": 1, "many": 200}.get(kind, int(rng.integers(1, 13)))
    lengths = rng.integers(0, 26, count)
    lengths[rng.integers(count)] = rng.integers(1, 26)
    rate = rng.uniform(1.0, 9.0, count)
    latency = rng.uniform(0.004, 0.01, count)
    if kind == "weak":
        rate = 10.0 ** rng.uniform(-12, 1, count)
    if kind in ("unequal", "single"):
        latency = 10.0 ** rng.uniform(-6, 1, count)
    if kind == "dominated":  # one device drafts for ages and then has next to nothing to upload
        lengths[0], latency[0], rate[0] = 25, 10.0, 1e6
        rate[1:] = 10.0 ** rng.uniform(-6, 1, count - 1)
    if kind == "twins":
        lengths, latency, rate = (np.full(count, x[0]) for x in (lengths, latency, rate))
        lengths = np.maximum(lengths, 1)
    arguments = {
        "token_latency_s": latency,
        "spectral_efficiency": rate,
        "token_bits": float(rng.integers(1000, 100_000)),
        "bandwidth_hz": 10.0 ** rng.uniform(5, 8),
    }
    return lengths, arguments


def finish_times(lengths, bandwidth_hz, arguments):
    """When each device that drafts has uploaded, from its latency (A-26)."""
    drafts = lengths > 0
    upload_s = arguments["token_bits"] / (
        bandwidth_hz[drafts] * arguments["spectral_efficiency"][drafts]
    )
    return lengths[drafts] * (arguments["token_latency_s"][drafts] + upload_s)


def root_of_the_definition(lengths, arguments):
    """The latency phi that solves (A-32), by brentq in log(phi - max L T)."""
    drafts = lengths > 0
    drafted = lengths[drafts] * arguments["token_latency_s"][drafts]
    work = (
        lengths[drafts] * arguments["token_bits"] / arguments["spectral_efficiency"][drafts]
    )  # Hz s
    slack, band = np.max(drafted) - drafted, arguments["bandwidth_hz"]

    def excess(log_y):
        return np.log(np.sum(work / (slack + np.exp(log_y)))) - np.log(band)

    low = np.log(np.max(work / band - slack)) - 1e-6
    high = np.log(np.sum(work) / band) + 1e-6
    return np.max(drafted) + np.exp(brentq(excess, low, high, xtol=1e-14, rtol=1e-14))


# ---- stored vectors --------------------------------------------------------------------------


def vector_arguments(instance):
    inputs = instance["inputs"]
    return {
        "token_latency_s": np.array(inputs["T_S"]),
        "spectral_efficiency": np.array(inputs["r"]),
        "token_bits": inputs["Q_tok"],
        "bandwidth_hz": inputs["B"],
    }


@pytest.mark.parametrize("name", INSTANCES)
def test_lemma_1_of_the_vectors(name):
    instance = INSTANCES[name]
    ones = np.ones(instance["inputs"]["K"], dtype=int)
    result = allocate(ones, **vector_arguments(instance))
    assert float(result.latency_s) == pytest.approx(instance["lemma1"]["theta"], rel=1e-9)
    assert result.bandwidth_hz == pytest.approx(instance["lemma1"]["B"], rel=1e-9)


@pytest.mark.parametrize("name", INSTANCES)
def test_lemma_3_of_the_vectors(name):
    instance = INSTANCES[name]
    expected = instance["lemma3"]
    result = allocate(expected["L"], **vector_arguments(instance))
    assert float(result.latency_s) == pytest.approx(expected["phi"], rel=1e-9)
    assert result.bandwidth_hz == pytest.approx(expected["B"], rel=1e-9)


@pytest.mark.parametrize("name", INSTANCES)
def test_the_best_decision_of_the_vectors(name):
    instance = INSTANCES[name]
    expected = instance["hete"]["strong"]
    result = allocate(expected["L"], **vector_arguments(instance))
    assert float(result.latency_s) == pytest.approx(expected["phi"], rel=1e-9)
    assert result.bandwidth_hz == pytest.approx(expected["B"], rel=1e-9)


@pytest.mark.parametrize("entry", VECTORS["spectral"], ids=str)
def test_spectral_efficiency_of_the_vectors(entry):
    result = spectral_efficiency(entry["p"], entry["H"], entry["N0"])
    assert float(result) == pytest.approx(entry["r"], rel=1e-9)


@pytest.mark.parametrize(("ratio", "bits"), [(0, 0), (1, 1), (3, 2), (1023, 10)])
def test_spectral_efficiency_at_known_points(ratio, bits):
    assert float(spectral_efficiency(2.0, ratio, 2.0)) == pytest.approx(bits, rel=1e-14)


@pytest.mark.parametrize("gain", [1e-12, 1e-20, 1e-200])
def test_spectral_efficiency_keeps_the_digits_of_a_tiny_gain(gain):
    result = float(spectral_efficiency(1.0, gain, 1.0))
    assert result / gain == pytest.approx(1.4426950408889634, rel=1e-11)


# ---- Lemma 3 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_latency_equals_the_root_of_the_definition(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(100):
        lengths, arguments = draw(rng, kind)
        result = allocate(lengths, **arguments)
        expected = root_of_the_definition(lengths, arguments)
        assert float(result.latency_s) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_all_devices_finish_together_and_use_the_band(kind):
    rng = np.random.default_rng(100 + KINDS.index(kind))
    for _ in range(100):
        lengths, arguments = draw(rng, kind)
        result = allocate(lengths, **arguments)
        times = finish_times(lengths, result.bandwidth_hz, arguments)
        assert times == pytest.approx(np.full(times.shape, float(result.latency_s)), rel=1e-9)
        assert np.sum(result.bandwidth_hz) == pytest.approx(arguments["bandwidth_hz"], rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_of_zero_get_no_bandwidth(kind):
    rng = np.random.default_rng(200 + KINDS.index(kind))
    for _ in range(20):
        lengths, arguments = draw(rng, kind)
        bandwidth = allocate(lengths, **arguments).bandwidth_hz
        assert np.all(bandwidth[lengths == 0] == 0.0)
        assert np.all(bandwidth[lengths > 0] > 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_split_of_the_band_is_faster(kind):
    rng = np.random.default_rng(300 + KINDS.index(kind))
    for _ in range(20):
        lengths, arguments = draw(rng, kind)
        result = allocate(lengths, **arguments)
        for size in (1e-6, 1e-3, 0.1, 1.0, 5.0):
            bandwidth = result.bandwidth_hz * np.exp(size * rng.normal(size=lengths.shape))
            bandwidth *= arguments["bandwidth_hz"] / np.sum(bandwidth)
            slowest = np.max(finish_times(lengths, bandwidth, arguments))
            assert slowest >= float(result.latency_s) * (1 - 1e-12)


def test_twins_share_equally():
    # theta = T + K Q / (B r), scaled by the common length.
    result = allocate(
        [3, 3, 3, 3],
        token_latency_s=0.01,
        spectral_efficiency=[2.0] * 4,
        token_bits=1e4,
        bandwidth_hz=1e6,
    )
    assert result.bandwidth_hz == pytest.approx([2.5e5] * 4, rel=1e-12)
    assert float(result.latency_s) == pytest.approx(3 * (0.01 + 4e4 / 2e6), rel=1e-12)


def test_a_common_length_scales_the_latency_only():
    rng = np.random.default_rng(14)
    for _ in range(50):
        _, arguments = draw(rng)
        ones = np.ones(arguments["spectral_efficiency"].shape, dtype=int)
        once, seven = (allocate(n * ones, **arguments) for n in (1, 7))
        assert float(seven.latency_s) == pytest.approx(7 * float(once.latency_s), rel=1e-12)
        assert seven.bandwidth_hz == pytest.approx(once.bandwidth_hz, rel=1e-9)


def test_a_device_that_finishes_early_still_counts():
    # Two devices, phi from the quadratic w1 / phi' + w2 / (phi' + 1) = 1 with w1 = w2 = 1:
    # phi'^2 - phi' - 1 = 0, the golden ratio.
    result = allocate(
        [1, 1],
        token_latency_s=[2.0, 1.0],
        spectral_efficiency=[1.0, 1.0],
        token_bits=1.0,
        bandwidth_hz=1.0,
    )
    assert float(result.latency_s) == pytest.approx(2 + (1 + 5**0.5) / 2, rel=1e-14)


def test_nobody_drafts():
    lengths, arguments = draw(np.random.default_rng(15))
    result = allocate(0 * lengths, **arguments)
    assert result.latency_s == 0.0
    assert not np.any(result.bandwidth_hz)


@pytest.mark.parametrize("share", [None, [1.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
def test_a_dead_channel_takes_forever(share):
    arguments = {
        "token_latency_s": [0.01, 0.02, 0.01],
        "spectral_efficiency": [3.0, 0.0, 2.0],
        "token_bits": 1e4,
        "bandwidth_hz": 1e6,
    }
    result = allocate([1, 2, 3], share=share, **arguments)
    assert result.latency_s == np.inf
    assert np.all(np.isfinite(result.bandwidth_hz))
    assert np.sum(result.bandwidth_hz) == pytest.approx(1e6, rel=1e-12)
    assert np.isfinite(allocate([1, 0, 3], share=share, **arguments).latency_s)


def test_a_dead_channel_does_not_raise_under_strict_arithmetic():
    with np.errstate(all="raise"):
        result = allocate(
            [1, 1],
            token_latency_s=0.01,
            spectral_efficiency=[0.0, 1e-308],
            token_bits=1e4,
            bandwidth_hz=1e6,
        )
    assert result.latency_s == np.inf


# ---- given shares ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_given_shares_split_the_band_among_those_who_draft(seed):
    rng = np.random.default_rng(400 + seed)
    for _ in range(20):
        lengths, arguments = draw(rng)
        share = rng.random(lengths.shape)
        result = allocate(lengths, share=share, **arguments)
        weights = np.where(lengths > 0, share, 0.0)
        expected = arguments["bandwidth_hz"] * weights / weights.sum()
        assert result.bandwidth_hz == pytest.approx(expected, rel=1e-12)
        slowest = np.max(finish_times(lengths, expected, arguments))
        assert float(result.latency_s) == pytest.approx(slowest, rel=1e-12)


@pytest.mark.parametrize("share", [[0.0] * 3, [0.0, 0.0, 5.0], [0.4, 0.4, 0.2]])
def test_no_shares_or_equal_shares_split_equally(share):
    result = allocate(
        [2, 1, 0],
        token_latency_s=[0.01, 0.03, 0.01],
        spectral_efficiency=[2.0, 4.0, 1.0],
        token_bits=1e4,
        bandwidth_hz=1e6,
        share=share,
    )
    assert result.bandwidth_hz == pytest.approx([5e5, 5e5, 0.0], rel=1e-12)
    assert float(result.latency_s) == pytest.approx(2 * (0.01 + 1e4 / 1e6), rel=1e-12)


def test_a_share_of_zero_with_a_draft_never_ends():
    result = allocate(
        [2, 1],
        token_latency_s=0.01,
        spectral_efficiency=[2.0, 4.0],
        token_bits=1e4,
        bandwidth_hz=1e6,
        share=[1.0, 0.0],
    )
    assert result.latency_s == np.inf
    assert result.bandwidth_hz == pytest.approx([1e6, 0.0])


@pytest.mark.parametrize("given", [False, True])
def test_batches_equal_a_loop(given):
    rng = np.random.default_rng(16)
    shape = (3, 4, 5)
    lengths = rng.integers(0, 10, shape)
    rate = 10.0 ** rng.uniform(-3, 1, shape)
    rate[rng.random(shape) < 0.1] = 0.0
    latency = rng.uniform(0.001, 0.1, shape)
    bits, band = rng.uniform(1e3, 1e5, shape[:-1]), rng.uniform(1e5, 1e7, shape[:-1])
    share = rng.random(shape)

    def run(index):
        return allocate(
            lengths[index],
            token_latency_s=latency[index],
            spectral_efficiency=rate[index],
            token_bits=bits[index],
            bandwidth_hz=band[index],
            share=share[index] if given else None,
        )

    batch = run(...)
    assert batch.bandwidth_hz.shape == shape
    assert batch.latency_s.shape == shape[:-1]
    for index in np.ndindex(*shape[:-1]):
        single = run(index)
        assert np.array_equal(batch.bandwidth_hz[index], single.bandwidth_hz)
        assert batch.latency_s[index] == single.latency_s
