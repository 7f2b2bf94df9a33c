"""References of scenarios, against fresh computations and enumeration."""

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import brentq

from multispin_env import Scenario, list_scenarios, solvers
from multispin_env.solvers import pricing, reference

PRESETS = ["deepseek-r1", "llama2", "qwen2.5", "qwen3.5"]


def stripped(name):
    """The preset without its stored reference: a physical field is set to what it is."""
    band = Scenario.load(name).radio.bandwidth_hz
    scenario = Scenario.load(name, {"radio.bandwidth_hz": band})
    assert scenario.reference_goodput is None
    assert scenario.reference_draft_length is None
    return scenario


def clear_cache():
    pricing._GOODPUTS.clear()
    pricing._LENGTHS.clear()


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
    for lengths in np.ndindex(13, 13, 13):
        values[lengths] = upload_goodput(rate, latency, efficiency, np.array(lengths), scenario)
    uniform = [
        upload_goodput(rate, latency, efficiency, np.full(3, n), scenario) for n in range(26)
    ]
    result = reference(scenario)
    assert result.goodput == pytest.approx(max(values.values()), rel=1e-9)
    assert result.draft_length == int(np.argmax(uniform))


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
    values = np.zeros((21, 21, 21))
    for lengths in np.ndindex(21, 21, 21):
        drafting = max(np.array(lengths) * latency)
        values[lengths] = (3 + sum(lengths)) / (drafting + 0.0428 + 3 * 0.0076)
    result = reference(scenario)
    assert result.goodput == pytest.approx(values.max(), rel=1e-9)
    assert result.draft_length == int(np.argmax([values[n, n, n] for n in range(21)]))


def test_an_edited_copy_of_a_preset_loses_its_reference(tmp_path):
    text = Scenario.load("qwen2.5").to_toml()
    assert "reference_physics" in text
    (tmp_path / "copy.toml").write_text(text)
    assert Scenario.load(tmp_path / "copy.toml").reference_goodput is not None
    (tmp_path / "edited.toml").write_text(text.replace("num_devices = 20", "num_devices = 4"))
    edited = Scenario.load(tmp_path / "edited.toml")
    assert edited.reference_goodput is None
    assert reference(edited) == reference(Scenario.load("qwen2.5", {"num_devices": 4}))
    assert dataclasses.replace(Scenario.load("qwen2.5"), num_devices=4).reference_goodput is None


def test_only_what_is_needed_is_computed(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("computed needlessly")

    scenario = Scenario.load("qwen2.5", {"num_devices": 7, "reference_goodput": 12.5})
    monkeypatch.setattr(pricing.corrections, "deadline", refuse)
    assert solvers.reference_goodput(scenario) == 12.5
    monkeypatch.setattr(pricing.corrections, "uniform_goodputs", refuse)
    scenario = Scenario.load("qwen2.5", {"num_devices": 7, "reference_draft_length": 3})
    assert solvers.reference_draft_length(scenario) == 3


def ticking(monkeypatch, seconds):
    """A clock that advances by so much whenever it is read."""
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) * seconds)
    monkeypatch.setattr(pricing, "time", clock)
    clear_cache()


@pytest.mark.parametrize("name", ["qwen2.5", "llama2"])
def test_a_slow_default_price_is_announced_once(monkeypatch, name):
    ticking(monkeypatch, 0.2)
    scenario = Scenario.load(name, {"num_devices": 2})
    with pytest.warns(UserWarning, match="default price") as caught:
        slow = solvers.reference_goodput(scenario)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert f"{name!r} with num_devices = 2 takes about 13 s" in message
    assert "price=" in message
    assert "reference_goodput" in message
    clear_cache()
    monkeypatch.undo()
    assert solvers.reference_goodput(scenario) == slow


@pytest.mark.parametrize("name", ["qwen2.5", "llama2"])
def test_a_quick_default_price_is_not_announced(monkeypatch, name):
    ticking(monkeypatch, 0.03)  # warnings are errors here
    solvers.reference_goodput(Scenario.load(name, {"num_devices": 2}))


def test_compiling_is_not_announced(monkeypatch):
    times = itertools.chain([0.0, 30.0], itertools.count(30.01, 0.01))  # the first round compiles
    seconds = iter(times)
    next(seconds)
    monkeypatch.setattr(pricing, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    clear_cache()
    solvers.reference_goodput(Scenario.load("llama2", {"num_devices": 2}))
