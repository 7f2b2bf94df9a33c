"""References of scenarios, against fresh computations and enumeration."""

import importlib

import numpy as np
import pytest
from scipy.optimize import brentq

from multispin_env import Scenario, list_scenarios, tape
from multispin_env.solvers import CorrectionProblem, UploadProblem, drop_worst, reference
from multispin_env.solvers.problems import pose

PRESETS = ["deepseek-r1", "llama2", "qwen2.5", "qwen3.5"]


def stripped(name):
    """The preset without its stored reference: a physical field is set to what it is."""
    band = Scenario.load(name).radio.bandwidth_hz
    scenario = Scenario.load(name, {"radio.bandwidth_hz": band})
    assert scenario.reference_goodput is None
    assert scenario.reference_draft_length is None
    return scenario


def clear_cache():
    # `multispin_env.solvers.reference` as an attribute is the function of that name.
    importlib.import_module("multispin_env.solvers.reference")._compute.cache_clear()


def draw_preset_problem(rng, name):
    """One random round of a preset with at most 6 devices."""
    scenario = Scenario.load(name, {"num_devices": int(rng.integers(1, 7))})
    devices = tape.DeviceLaw(scenario)(rng.random((3, scenario.num_devices)))
    gain = devices.mean_gain * rng.standard_exponential(scenario.num_devices)
    return pose(scenario, devices.acceptance_rate, devices.token_latency_s, gain)


def draw_weak_problem(rng):
    """A round over links so weak that corrections take as long as drafting."""
    count = int(rng.integers(1, 7))
    return CorrectionProblem(
        acceptance_rate=rng.uniform(0.3, 1.0, count),
        token_latency_s=rng.uniform(0.01, 0.02, count),
        channel_gain=10.0 ** rng.uniform(-15, -9, count),
        uplink_power_w=0.1,
        downlink_power_w=0.4,
        payload_bits=34816,
        bandwidth_hz=1e7,
        noise_server_w_hz=1.26e-20,
        noise_device_w_hz=2e-20,
        verification_s=0.05,
        max_draft_length=20,
    )


def draw_upload_problem(rng):
    count = int(rng.integers(1, 7))
    return UploadProblem(
        acceptance_rate=rng.uniform(0.3, 1.0, count),
        token_latency_s=rng.uniform(0.005, 0.02, count),
        spectral_efficiency=10.0 ** rng.uniform(-4, 1, count),
        bandwidth_hz=1e7,
        token_bits=31744,
        verification_s=0.1,
        max_draft_length=25,
        min_draft_length=0,
    )


def value(problem, lengths):
    """Goodput on the samples that `drop_worst(problem, samples=64, seed=0)` sees."""
    sampled = {"samples": 64, "seed": 0} if isinstance(problem, CorrectionProblem) else {}
    return problem.goodput(lengths, **sampled)


def best_uniform(problem):
    lengths = range(problem.max_draft_length + 1)
    return max(value(problem, np.full(problem.num_devices, n)) for n in lengths)


def check_drop_worst(problem):
    decision = drop_worst(problem, samples=64, seed=0)
    assert decision.goodput == value(problem, decision.draft_length)
    assert decision.goodput >= best_uniform(problem) * (1 - 1e-12)


def upload_goodput(rate, latency, efficiency, lengths, scenario):
    """Goodput of one upload round by brentq on (A-32)."""
    drafts = lengths > 0
    drafted = (lengths * latency)[drafts]
    work = lengths[drafts] * scenario.payload.distribution_bits / efficiency[drafts]
    band, ready_s = scenario.radio.bandwidth_hz, 0.0
    if drafted.size:
        least = drafted.max()
        ready_s = brentq(
            lambda phi: np.sum(work / (phi - drafted)) - band,
            least + 0.999 * work[np.argmax(drafted)] / band,
            least + 1.001 * work.sum() / band,
            xtol=1e-15,
        )
    tokens = sum(sum(a**n for n in range(g + 1)) for a, g in zip(rate, lengths))
    return tokens / (ready_s + scenario.verification_s)


def test_the_presets_are_those_tested_here():
    assert list_scenarios() == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_stored_references_equal_a_fresh_computation(name):
    stored, fresh = Scenario.load(name), reference(stripped(name))
    assert stored.reference_goodput is not None
    assert stored.reference_draft_length is not None
    assert stored.reference_goodput == pytest.approx(fresh.goodput, rel=1e-3)
    assert stored.reference_draft_length == fresh.draft_length


@pytest.mark.parametrize("name", PRESETS)
def test_the_stored_reference_is_returned(name):
    stored, result = Scenario.load(name), reference(Scenario.load(name))
    assert (result.draft_length, result.goodput) == (
        stored.reference_draft_length,
        stored.reference_goodput,
    )


@pytest.mark.parametrize(
    "overrides", [{"episode.horizon_s": 7.0}, {"episode.rounds": 5}, {"name": "copy"}]
)
@pytest.mark.parametrize("name", PRESETS)
def test_the_episode_does_not_matter(name, overrides):
    changed = Scenario.load(name, overrides)
    assert reference(changed) == reference(Scenario.load(name))
    assert changed.reference_goodput is not None


def test_a_computed_reference_does_not_depend_on_the_episode():
    power = {"num_devices": 4, "radio.uplink_power_dbm": 10.0}
    plain = reference(Scenario.load("qwen2.5", power))
    assert reference(Scenario.load("qwen2.5", {**power, "episode.rounds": 3})) == plain


def test_physics_changes_the_reference():
    stored = reference(Scenario.load("qwen2.5"))
    fewer = reference(Scenario.load("qwen2.5", {"num_devices": 5}))
    weaker = reference(Scenario.load("qwen2.5", {"radio.uplink_power_dbm": 0.0}))
    assert fewer.goodput < 0.9 * stored.goodput
    assert weaker.goodput < 0.9 * stored.goodput


def test_a_given_price_is_kept():
    cell = {"num_devices": 3}
    computed = reference(Scenario.load("llama2", cell))
    priced = reference(Scenario.load("llama2", {**cell, "reference_goodput": 12.5}))
    assert priced.goodput == 12.5
    assert priced.draft_length == computed.draft_length


@pytest.mark.parametrize("name", ["qwen2.5", "llama2"])
def test_references_are_deterministic(name):
    scenario = Scenario.load(name, {"num_devices": 4})
    first = reference(scenario)
    clear_cache()
    assert reference(scenario) == first


def test_an_upload_reference_without_randomness_equals_enumeration():
    rate, latency = np.array([0.8, 0.95, 0.7]), np.array([0.005, 0.008, 0.006])
    gain = np.array([0.3, 0.02, 0.1])  # the order of the channels is devices 1, 2, 0
    scenario = Scenario.load(
        "llama2",
        {
            "num_devices": 3,
            "tasks": {"only": rate.tolist()},
            "drafting.token_latency_s": latency.tolist(),
            "channel.mean_gain": gain.tolist(),
            "channel.fading": "none",
            "radio.bandwidth_hz": 5e6,
        },
    )
    efficiency = np.log2(1 + 10 ** ((-46.38 + 70) / 10) * gain)
    values = {}
    for dropped, common in np.ndindex(3, 26):
        lengths = np.full(3, common)
        lengths[[1, 2, 0][:dropped]] = 0
        values[dropped, common] = upload_goodput(rate, latency, efficiency, lengths, scenario)
    result = reference(scenario)
    assert result.goodput == pytest.approx(max(values.values()), rel=1e-9)
    assert result.draft_length == max(range(26), key=lambda common: values[0, common])


def test_a_correction_reference_without_rejections_equals_enumeration():
    latency = np.array([0.015, 0.03, 0.05])
    scenario = Scenario.load(
        "qwen2.5",
        {
            "num_devices": 3,
            "tasks": {"only": 1.0},
            "drafting.token_latency_s": latency.tolist(),
            "channel.distance_m": [100.0, 200.0, 300.0],  # the slower, the worse the channel
            "channel.fading": "none",
        },
    )
    values = np.zeros((3, 21))
    for dropped, common in np.ndindex(3, 21):
        drafting = common * latency[2 - dropped]
        tokens = 3 + (3 - dropped) * common
        values[dropped, common] = tokens / (drafting + 0.0428 + 3 * 0.0076)
    result = reference(scenario)
    assert result.goodput == pytest.approx(values.max(), rel=1e-9)
    assert result.draft_length == int(np.argmax(values[0]))


@pytest.mark.parametrize("name", PRESETS)
def test_dropping_the_worst_beats_every_uniform_length(name):
    rng = np.random.default_rng(PRESETS.index(name))
    for _ in range(50):
        check_drop_worst(draw_preset_problem(rng, name))


def test_dropping_the_worst_beats_every_uniform_length_of_uploads():
    rng = np.random.default_rng(10)
    for _ in range(100):
        check_drop_worst(draw_upload_problem(rng))


def test_dropping_the_worst_beats_every_uniform_length_over_weak_links():
    # The goodput need not rise and then fall with the length: a search may not stop at a dip.
    rng = np.random.default_rng(11)
    for _ in range(500):
        check_drop_worst(draw_weak_problem(rng))


def test_dropping_the_worst_of_uploads_equals_enumeration():
    rng = np.random.default_rng(12)
    for _ in range(40):
        problem = draw_upload_problem(rng)
        order = np.argsort(problem.spectral_efficiency)
        best = problem.goodput(np.zeros(problem.num_devices, dtype=int))
        for dropped, common in np.ndindex(problem.num_devices, 26):
            lengths = np.zeros(problem.num_devices, dtype=int)
            lengths[order[dropped:]] = common
            best = max(best, problem.goodput(lengths))
        assert drop_worst(problem).goodput == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("name", ["qwen2.5", "llama2"])
def test_dropped_devices_are_those_with_the_worst_channel(name):
    rng = np.random.default_rng(13)
    attribute = "channel_gain" if name == "qwen2.5" else "spectral_efficiency"
    dropped_any = False
    for _ in range(30):
        problem = draw_preset_problem(rng, name)
        quality = np.array(getattr(problem, attribute))
        quality[np.argmin(quality)] = 0.0  # nobody should wait for this one
        decision = drop_worst(
            type(problem)(**{**vars(problem), attribute: quality}), samples=64, seed=0
        )
        drafting = decision.draft_length > 0
        assert np.unique(decision.draft_length[drafting]).size <= 1
        if 0 < drafting.sum() < drafting.size:
            dropped_any = True
            assert quality[~drafting].max() < quality[drafting].min()
    assert dropped_any
