"""Scenarios: the shipped numbers, loading and saving, overrides, and every refusal."""

import copy
import dataclasses
import json
import math
import pickle
import re
import tomllib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import multispin_env
from multispin_env import Scenario, solvers
from multispin_env.scenario import (
    CorrectionRadio,
    DistanceChannel,
    Episode,
    Range,
    Task,
    UniformChannel,
    UploadRadio,
)

PRESETS = ["deepseek-r1", "llama2", "qwen2.5", "qwen3.5"]
CORRECTION, UPLOAD = "qwen2.5", "llama2"
LONGER_DRAFTS = {"max_draft_length": 30}
MISSING = object()

# --------------------------------------------------------------------------------------------
# The shipped numbers, copied by hand from the papers and the notes on calibration. SI units.

PAPER_B = {
    "protocol": "correction",
    "num_devices": 20,
    "max_draft_length": 20,
    "drafting.spread": Range(1.0, 1.15),
    "payload.vocabulary": 151665,
    "payload.support": 1024,
    "payload.bits": 16,
    "radio.bandwidth_hz": 10e6,
    "radio.uplink_power_dbm": 20.0,
    "radio.downlink_power_ratio": 4.0,
    "radio.noise_server_dbm_hz": -169.0,
    "radio.noise_device_dbm_hz": -167.0,
    "channel.kind": "distance",
    "channel.reference_gain_db": -30.0,
    "channel.exponent": 3.5,
    "channel.distance_m": Range(100.0, 500.0),
    "channel.fading": "rayleigh",
    "episode.horizon_s": 30.0,
    "episode.rounds": None,
}
PAPER_A = {
    "protocol": "upload",
    "num_devices": 20,
    "max_draft_length": 25,
    "drafting.spread": Range(0.85, 1.15),
    "payload.support": 1024,
    "payload.bits": 16,
    "radio.bandwidth_hz": 10e6,
    "radio.uplink_power_dbm": -46.38,
    "radio.noise_total_dbm": -70.0,
    "channel.kind": "uniform",
    "channel.mean_gain": Range(0.2, 0.5),
    "channel.fading": "rayleigh",
    "episode.horizon_s": 30.0,
    "episode.rounds": None,
}
TABLE = {
    "qwen2.5": PAPER_B
    | {
        "models.draft": "Qwen2.5-0.5B",
        "models.target": "Qwen2.5-14B",
        "verification.fixed_s": 0.0428,
        "verification.per_device_s": 0.0076,
        "drafting.token_latency_s": 0.0152,
        "tasks": {"HumanEval": 0.85, "GSM8K": 0.85, "MT-Bench": 0.70, "IFEval": 0.68},
    },
    "deepseek-r1": PAPER_B
    | {
        "models.draft": "DeepSeek-R1-Distill-Qwen-1.5B",
        "models.target": "DeepSeek-R1-Distill-Qwen-32B",
        "verification.fixed_s": 0.0693,
        "verification.per_device_s": 0.0091,
        "drafting.token_latency_s": 0.0196,
        "tasks": {"HumanEval": 0.80, "GSM8K": 0.85, "MT-Bench": 0.75, "IFEval": 0.75},
    },
    "llama2": PAPER_A
    | {
        "models.draft": "TinyLlama-1.1B",
        "models.target": "Llama-2-7B",
        "verification.fixed_s": 0.02268,
        "verification.per_device_s": 0.01272,
        "drafting.token_latency_s": 0.005,
        "payload.vocabulary": 32000,
        "tasks": {"MBPP+": 0.8582, "GSM8K": 0.7390, "MT-Bench": 0.7393, "SQuAD": 0.7126},
    },
    "qwen3.5": PAPER_A
    | {
        "models.draft": "Qwen3.5-0.8B",
        "models.target": "Qwen3.5-27B",
        "verification.fixed_s": 0.07507,
        "verification.per_device_s": 0.01978,
        "drafting.token_latency_s": 0.008,
        "payload.vocabulary": 248320,
        "tasks": {"MBPP+": 0.8100, "GSM8K": 0.9340, "MT-Bench": 0.9318, "SQuAD": 0.9650},
    },
}
#: Where numbers come from, by protocol; what is not listed is [paper].
PROVENANCE = {
    "correction": {
        "tasks": "assumed",
        "radio.uplink_power_dbm": "assumed",
        "radio.downlink_power_ratio": "assumed",
        "episode.horizon_s": "assumed",
        "reference_draft_length": "computed",
        "reference_goodput": "computed",
    },
    "upload": {
        "drafting.token_latency_s": "calibrated",
        "payload.vocabulary": "assumed",
        "radio.uplink_power_dbm": "calibrated",
        "episode.horizon_s": "assumed",
        "reference_draft_length": "computed",
        "reference_goodput": "computed",
    },
}


def value_of(scenario, field):
    """The value of a dotted field; tasks as a dict."""
    if field == "tasks":
        return {task.name: task.acceptance_rate for task in scenario.tasks}
    for part in field.split("."):
        scenario = getattr(scenario, part)
    return scenario


def text_of(preset):
    """The text of a shipped file."""
    return (resources.files("multispin_env") / "scenarios" / f"{preset}.toml").read_text("utf8")


def numbers_of(preset):
    """Of each line of a shipped file that has a number: its dotted name and provenance tags.

    A line without a tag of its own takes the last one of its section's header.
    """
    section, header_tags = "", []
    for line in text_of(preset).splitlines():
        code, _, comment = line.partition("#")
        tags = re.findall(r"\[(paper|calibrated|assumed|computed)\]", comment)
        header = re.fullmatch(r"\[(\w+)\]", code.strip())
        if header:
            section, header_tags = header[1], tags[-1:]
        elif "=" in code:
            name, _, value = code.partition("=")
            if re.search(r"\d", re.sub(r'"[^"]*"', "", value)):
                dotted = f"{section}.{name.strip()}" if section else name.strip()
                yield dotted, tags or header_tags


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_has_the_numbers_of_the_papers(preset):
    scenario = Scenario.load(preset)
    expected = TABLE[preset]
    assert {field: value_of(scenario, field) for field in expected} == expected
    assert scenario.name == preset


@pytest.mark.parametrize("preset", PRESETS)
def test_table_covers_every_field_of_a_preset(preset):
    loaded = tomllib.loads(text_of(preset))
    fields = {"tasks"} if loaded.pop("tasks") else set()
    for key, value in loaded.items():
        fields |= {f"{key}.{inner}" for inner in value} if isinstance(value, dict) else {key}
    assert fields - set(TABLE[preset]) == {
        "name",
        "reference_draft_length",
        "reference_goodput",
        "reference_physics",
    }


def test_exactly_the_four_presets_are_listed():
    assert multispin_env.list_scenarios() == PRESETS


@pytest.mark.parametrize("preset", PRESETS)
def test_every_number_has_the_right_provenance(preset):
    expected = PROVENANCE[TABLE[preset]["protocol"]]
    found = dict(numbers_of(preset))
    assert len(found) >= 20
    for field, tags in found.items():
        key = "tasks" if field.startswith("tasks.") else field
        assert tags == [expected.get(key, "paper")], field


@pytest.mark.parametrize("preset", PRESETS)
def test_models_have_a_provenance(preset):
    lines = [ln for ln in text_of(preset).splitlines() if re.match(r"(draft|target) =", ln)]
    assert len(lines) == 2
    assert all("[paper]" in line for line in lines)


@pytest.mark.parametrize("preset", PRESETS)
def test_stored_reference_is_what_the_solver_computes(preset):
    scenario = Scenario.load(preset)
    bare = dataclasses.replace(scenario, reference_draft_length=None, reference_goodput=None)
    computed = solvers.reference(bare)
    assert scenario.reference_draft_length == computed.draft_length
    assert scenario.reference_goodput == pytest.approx(computed.goodput, abs=6e-4)


def test_uploads_are_sent_with_23_nanowatt_over_a_tenth_of_a_nanowatt_of_noise():
    scenario = Scenario.load(UPLOAD)
    np.testing.assert_allclose(scenario.uplink_power_w, np.full(20, 2.3e-8), rtol=1e-3)
    assert scenario.noise_server_w == pytest.approx(1e-10)


def test_powers_and_noise_of_the_correction_protocol():
    scenario = Scenario.load(CORRECTION)
    np.testing.assert_allclose(scenario.uplink_power_w, np.full(20, 0.1))
    assert scenario.downlink_power_w == pytest.approx(0.4)
    assert scenario.noise_server_w == pytest.approx(10**-19.9 * 1e7)
    np.testing.assert_allclose(scenario.noise_device_w, np.full(20, 10**-19.7 * 1e7))


def test_downlink_budget_follows_the_strongest_device():
    overrides = {"num_devices": 3, "radio.uplink_power_dbm": [-math.inf, 10.0, 0.0]}
    scenario = Scenario.load(CORRECTION, overrides)
    np.testing.assert_allclose(scenario.uplink_power_w, [0.0, 0.01, 0.001])
    assert scenario.downlink_power_w == pytest.approx(0.04)


@pytest.mark.parametrize(("preset", "seconds"), [("qwen2.5", 0.1948), ("llama2", 0.27708)])
def test_verification_latency(preset, seconds):
    assert Scenario.load(preset).verification_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("vocabulary", "index_bits"),
    [(1, 0), (2, 1), (3, 2), (32000, 15), (32768, 15), (32769, 16), (151665, 18), (248320, 18)],
)
def test_payload_indexes_the_vocabulary(vocabulary, index_bits):
    overrides = {"payload.vocabulary": vocabulary, "payload.support": 10, "payload.bits": 3}
    payload = Scenario.load(CORRECTION, overrides).payload
    assert payload.distribution_bits == 10 * (index_bits + 3)


# --------------------------------------------------------------------------------------------
# Loading and saving.

#: Overrides of presets that reach every kind of value.
VARIANTS = {
    "correction": (CORRECTION, {}),
    "upload": (UPLOAD, {}),
    "lists": (
        CORRECTION,
        {
            "num_devices": 3,
            "tasks": {"a": [0.1, 0.2, 0.3], "b c": 1.0, "d.e": 0},
            "drafting.token_latency_s": [0.01, 0.02, 0.03],
            "radio.uplink_power_dbm": [20.0, -math.inf, 10.0],
            "radio.noise_device_dbm_hz": [-160.0, -161.0, -162.0],
            "channel.distance_m": [100.0, 200.0, 300.0],
        },
    ),
    "upload lists": (
        UPLOAD,
        {
            "num_devices": 2,
            "radio.uplink_power_dbm": [-46.0, -45.0],
            "channel.mean_gain": [0.0, 0.3],
        },
    ),
    "no power": (CORRECTION, {"radio.uplink_power_dbm": -math.inf}),
    "no gain": (CORRECTION, {"channel.reference_gain_db": -math.inf}),
    "one distance": (CORRECTION, {"channel.distance_m": 250, "channel.fading": "none"}),
    "uniform channel": (CORRECTION, {"channel.kind": "uniform", "channel.mean_gain": 1e-12}),
    "distance channel": (
        UPLOAD,
        {
            "channel.kind": "distance",
            "channel.reference_gain_db": -30,
            "channel.exponent": 2,
            "channel.distance_m": {"min": 1, "max": 2},
        },
    ),
    "rounds": (CORRECTION, {"episode.rounds": 7}),
    "reference": (CORRECTION, {"reference_goodput": 1.5, "reference_draft_length": 0}),
    "no reference": (CORRECTION, {"num_devices": 4}),
    "awkward text": (CORRECTION, {"name": 'é"\\\n', "models.draft": "[x] # = '''"}),
}

variants = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())


def through_json(scenario):
    return Scenario.load(json.loads(json.dumps(scenario.to_dict())))


def through_json_of_asdict(scenario):
    return Scenario.load(json.loads(json.dumps(dataclasses.asdict(scenario))))


ROUND_TRIPS = {
    "toml": lambda s: Scenario.from_dict(tomllib.loads(s.to_toml())),
    "dict": lambda s: Scenario.from_dict(s.to_dict()),
    "load dict": lambda s: Scenario.load(s.to_dict()),
    "asdict": lambda s: Scenario.load(dataclasses.asdict(s)),
    "json": through_json,
    "json of asdict": through_json_of_asdict,
    "pickle": lambda s: pickle.loads(pickle.dumps(s)),
    "deepcopy": copy.deepcopy,
    "object": Scenario.load,
}


@variants
@pytest.mark.parametrize("trip", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
def test_round_trip_gives_an_equal_scenario(trip, variant):
    scenario = Scenario.load(*variant)
    again = trip(scenario)
    assert again == scenario
    assert hash(again) == hash(scenario)
    assert repr(again) == repr(scenario)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("trip", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
def test_presets_survive_every_round_trip(trip, preset):
    assert trip(Scenario.load(preset)) == Scenario.load(preset)


@pytest.mark.parametrize("as_path", [str, Path])
def test_load_reads_a_file(tmp_path, as_path):
    file = tmp_path / "mine.toml"
    file.write_text(text_of("llama2").replace("num_devices = 20", "num_devices = 6"), "utf8")
    scenario = Scenario.load(as_path(file))
    assert scenario.num_devices == 6
    assert scenario.radio == Scenario.load("llama2").radio


def test_load_reads_what_to_toml_wrote(tmp_path):
    scenario = Scenario.load(*VARIANTS["lists"])
    file = tmp_path / "lists.toml"
    file.write_text(scenario.to_toml(), "utf8")
    assert Scenario.load(file) == scenario


def test_a_file_named_like_a_preset_needs_a_path(tmp_path, monkeypatch):
    (tmp_path / "qwen2.5").write_text(text_of("llama2"), "utf8")
    monkeypatch.chdir(tmp_path)
    assert Scenario.load("qwen2.5").name == "qwen2.5"
    assert Scenario.load(Path("qwen2.5")).name == "llama2"


@variants
def test_to_dict_is_plain_data(variant):
    def plain(value):
        if isinstance(value, dict):
            return all(type(key) is str and plain(item) for key, item in value.items())
        if isinstance(value, list):
            return all(map(plain, value))
        return type(value) in (str, int, float)

    assert plain(Scenario.load(*variant).to_dict())


def test_to_dict_gives_a_fresh_copy():
    scenario = Scenario.load(*VARIANTS["lists"])
    scenario.to_dict()["radio"]["uplink_power_dbm"][0] = 99.0
    assert scenario.to_dict()["radio"]["uplink_power_dbm"][0] == 20.0


def test_optional_fields_may_be_left_out():
    data = Scenario.load(CORRECTION).to_dict()
    del data["drafting"]["spread"], data["channel"]["fading"]
    del data["reference_draft_length"], data["reference_goodput"]
    scenario = Scenario.from_dict(data)
    assert scenario.drafting.spread == Range(1.0, 1.0)
    assert scenario.channel.fading == "rayleigh"
    assert scenario.reference_draft_length is None
    assert scenario.reference_goodput is None


def test_integers_lists_and_numpy_become_canonical():
    given = {
        "num_devices": np.int64(2),
        "radio.bandwidth_hz": 10_000_000,
        "radio.downlink_power_ratio": np.float32(4),
        "drafting.token_latency_s": np.array([0.25, 0.5]),
        "channel.distance_m": (100, 200),
    }
    scenario = Scenario.load(CORRECTION, given)
    assert type(scenario.num_devices) is int
    assert type(scenario.radio.bandwidth_hz) is float
    assert type(scenario.radio.downlink_power_ratio) is float
    assert scenario.drafting.token_latency_s == (0.25, 0.5)
    assert scenario.channel.distance_m == (100.0, 200.0)
    assert all(type(v) is float for v in scenario.channel.distance_m)
    hash(scenario)


def test_tasks_may_be_a_sequence():
    tasks = [Task("a", 0.5), {"name": "b", "acceptance_rate": 1}]
    assert Scenario.load(CORRECTION, {"tasks": tasks}).tasks == (Task("a", 0.5), Task("b", 1.0))


def test_sections_may_be_objects():
    channel = UniformChannel(mean_gain=Range(0.1, 0.2), fading="none")
    assert Scenario.load(CORRECTION, {"channel": channel}).channel == channel
    replaced = dataclasses.replace(Scenario.load(CORRECTION), channel=channel)
    assert replaced.channel is channel


@pytest.mark.parametrize("change", [{"num_devices": 21}, {"name": "x"}, {"tasks.GSM8K": 0.1}])
def test_scenarios_with_different_fields_differ(change):
    assert Scenario.load(CORRECTION, change) != Scenario.load(CORRECTION)


def test_scenarios_serve_as_keys():
    keys = {Scenario.load(name): name for name in PRESETS * 2}
    assert len(keys) == 4
    assert keys[Scenario.load("llama2")] == "llama2"


FROZEN = "name num_devices tasks radio radio.bandwidth_hz drafting.spread.max channel.distance_m"


@pytest.mark.parametrize("path", [*FROZEN.split(), "episode.horizon_s", "payload.bits", "new"])
def test_frozen(path):
    scenario = Scenario.load(CORRECTION)
    owner, _, leaf = path.rpartition(".")
    target = value_of(scenario, owner) if owner else scenario
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(target, leaf, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        scenario.tasks[0].acceptance_rate = 0.1


# --------------------------------------------------------------------------------------------
# Overrides.


@pytest.mark.parametrize("source", [CORRECTION, Scenario.load(CORRECTION)], ids=["name", "object"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_devices", 8),
        ("name", "mine"),
        ("models.target", "other"),
        ("radio.uplink_power_dbm", 10.0),
        ("drafting.spread", Range(0.5, 2.0)),
        ("channel.distance_m", 50.0),
        ("payload.bits", 8),
        ("verification.fixed_s", 0.0),
    ],
)
def test_override_changes_its_field_alone(source, field, value):
    changed, original = Scenario.load(source, {field: value}), Scenario.load(CORRECTION)
    assert value_of(changed, field) == value
    skip = {field, "reference_goodput", "reference_draft_length"}
    for other in set(TABLE[CORRECTION]) - skip:
        assert value_of(changed, other) == value_of(original, other)


def test_override_of_one_task_keeps_the_others():
    scenario = Scenario.load(CORRECTION, {"tasks.GSM8K": 0.5})
    assert scenario.tasks == (
        Task("HumanEval", 0.85),
        Task("GSM8K", 0.5),
        Task("MT-Bench", 0.70),
        Task("IFEval", 0.68),
    )


@pytest.mark.parametrize("name", ["New", "with.dots", "with space"])
def test_override_adds_a_task(name):
    scenario = Scenario.load(CORRECTION, {f"tasks.{name}": 0.25})
    assert scenario.tasks[-1] == Task(name, 0.25)
    assert len(scenario.tasks) == 5


def test_override_of_all_tasks_replaces_them():
    scenario = Scenario.load(CORRECTION, {"tasks": {"only": 0.25}})
    assert scenario.tasks == (Task("only", 0.25),)


def test_override_of_one_task_works_on_asdict_too():
    data = dataclasses.asdict(Scenario.load(CORRECTION))
    expected = Scenario.load(CORRECTION, {"tasks.GSM8K": 0.5})
    assert Scenario.load(data, {"tasks.GSM8K": 0.5}) == expected


def test_override_of_a_whole_section_replaces_it():
    channel = {"kind": "uniform", "mean_gain": {"min": 0.1, "max": 0.2}}
    scenario = Scenario.load(CORRECTION, {"channel": channel})
    assert scenario.channel == UniformChannel(Range(0.1, 0.2))


@pytest.mark.parametrize("fading", ["rayleigh", "none"])
def test_override_of_the_channel_kind_keeps_the_fading(fading):
    before = Scenario.load(CORRECTION, {"channel.fading": fading})
    after = Scenario.load(before, {"channel.kind": "uniform", "channel.mean_gain": 0.5})
    assert after.channel == UniformChannel(0.5, fading)


def test_override_of_the_channel_kind_without_a_fading_in_the_source():
    data = Scenario.load(CORRECTION).to_dict()
    del data["channel"]["fading"]
    scenario = Scenario.load(data, {"channel.kind": "uniform", "channel.mean_gain": 0.5})
    assert scenario.channel == UniformChannel(0.5, "rayleigh")


def test_override_of_the_channel_kind_to_the_same_kind_keeps_all():
    scenario = Scenario.load(CORRECTION, {"channel.kind": "distance"})
    assert scenario.channel == Scenario.load(CORRECTION).channel


def test_override_of_the_channel_kind_needs_the_new_fields():
    with pytest.raises(ValueError, match=r"lacks channel\.mean_gain"):
        Scenario.load(CORRECTION, {"channel.kind": "uniform"})


def test_override_of_protocol_with_its_radio():
    radio = UploadRadio(bandwidth_hz=1e6, uplink_power_dbm=0.0, noise_total_dbm=-70.0)
    scenario = Scenario.load(CORRECTION, {"protocol": "upload", "radio": radio})
    assert scenario.protocol == "upload"
    assert scenario.radio == radio


@pytest.mark.parametrize("source", PRESETS)
def test_rounds_replace_the_horizon_and_back(source):
    rounds = Scenario.load(source, {"episode.rounds": 12})
    assert rounds.episode == Episode(rounds=12)
    assert Scenario.load(rounds, {"episode.horizon_s": 4}).episode == Episode(horizon_s=4.0)


@pytest.mark.parametrize(
    "physics",
    [
        {"num_devices": 8},
        {"protocol": "correction"},
        {"tasks.GSM8K": 0.5},
        {"tasks": {"only": 0.9}},
        {"radio.bandwidth_hz": 5e6},
        {"channel.exponent": 3.0},
        {"drafting.spread": {"min": 1.0, "max": 1.0}},
        {"verification.fixed_s": 0.1},
        {"payload.bits": 8},
        {"payload": {"vocabulary": 10, "support": 2, "bits": 4}},
        {"max_draft_length": 3},
        {"name": "mine", "num_devices": 8},
    ],
    ids=repr,
)
def test_override_of_physics_drops_the_stored_reference(physics):
    scenario = Scenario.load(CORRECTION, physics)
    assert scenario.reference_goodput is None
    assert scenario.reference_draft_length is None


@pytest.mark.parametrize(
    "harmless",
    [
        None,
        {},
        {"name": "mine"},
        {"models.draft": "x"},
        {"episode.horizon_s": 5},
        {"episode.rounds": 5},
        {"episode": {"rounds": 5}},
        {"name": "mine", "episode.rounds": 5},
    ],
    ids=repr,
)
def test_override_of_no_physics_keeps_the_stored_reference(harmless):
    scenario, original = Scenario.load(CORRECTION, harmless), Scenario.load(CORRECTION)
    assert scenario.reference_goodput == original.reference_goodput
    assert scenario.reference_draft_length == original.reference_draft_length


def test_explicit_reference_is_kept_with_physics_in_any_order():
    given = {"reference_goodput": 99.0, "num_devices": 8}
    for overrides in (given, dict(reversed(given.items()))):
        scenario = Scenario.load(CORRECTION, overrides)
        assert scenario.reference_goodput == 99.0
        assert scenario.reference_draft_length is None


def test_explicit_price_alone_keeps_the_stored_length():
    scenario = Scenario.load(CORRECTION, {"reference_goodput": 99.0})
    assert scenario.reference_goodput == 99.0
    assert scenario.reference_draft_length == Scenario.load(CORRECTION).reference_draft_length


def test_overrides_mutate_none_of_their_arguments():
    overrides = {
        "tasks": {"a": [0.5, 0.5]},
        "num_devices": 2,
        "radio.uplink_power_dbm": [1.0, 2.0],
        "channel": {"kind": "uniform", "mean_gain": {"min": 0.1, "max": 0.2}},
        "channel.fading": "none",
        "tasks.b": 0.25,
        "episode.rounds": 3,
    }
    data = Scenario.load(CORRECTION).to_dict()
    before = copy.deepcopy((overrides, data))
    Scenario.load(data, overrides)
    assert (overrides, data) == before


def test_overrides_do_not_leak_into_later_loads():
    original = Scenario.load(CORRECTION)
    reference = repr(original)
    Scenario.load(original, {"tasks.GSM8K": 0.1, "num_devices": 3, "episode.rounds": 2})
    Scenario.load(CORRECTION, {"tasks.GSM8K": 0.1, "num_devices": 3, "episode.rounds": 2})
    assert repr(original) == repr(Scenario.load(CORRECTION)) == reference


def test_later_changes_of_the_source_do_not_reach_the_scenario():
    power = [1.0, 2.0]
    scenario = Scenario.load(CORRECTION, {"num_devices": 2, "radio.uplink_power_dbm": power})
    power[0] = 50.0
    assert scenario.radio.uplink_power_dbm == (1.0, 2.0)


# --------------------------------------------------------------------------------------------
# Refusals. Each is a ValueError that names the field and the value.


def assert_refused(load, field, value):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked below)
        load()
    message = str(caught.value)
    assert field in message
    assert repr(value) in message


NUMBERS = {  # field -> preset, values outside its range
    "drafting.token_latency_s": (CORRECTION, [0, -0.01, 10.5]),
    "verification.fixed_s": (CORRECTION, [-0.1, 1e9]),
    "verification.per_device_s": (CORRECTION, [-0.1, 1e9]),
    "radio.bandwidth_hz": (CORRECTION, [0, -1e6]),
    "radio.uplink_power_dbm": (CORRECTION, [201.0, 1e5]),
    "radio.downlink_power_ratio": (CORRECTION, [-1, -math.inf]),
    "radio.noise_server_dbm_hz": (CORRECTION, [101.0, -401.0, -math.inf]),
    "radio.noise_device_dbm_hz": (CORRECTION, [101.0, -401.0, -math.inf]),
    "radio.noise_total_dbm": (UPLOAD, [101.0, -401.0, -math.inf]),
    "channel.reference_gain_db": (CORRECTION, [201.0]),
    "channel.exponent": (CORRECTION, [-0.5, 21.0]),
    "channel.distance_m": (CORRECTION, [0, -1.0, 1e8]),
    "channel.mean_gain": (UPLOAD, [-0.1, 1e21]),
    "episode.horizon_s": (CORRECTION, [0, -1.0, 1e7]),
    "reference_goodput": (CORRECTION, [-1.0]),
    "tasks.GSM8K": (CORRECTION, [-0.01, 1.01]),
}
INTEGERS = {
    "num_devices": [0, -1, 100_001],
    "max_draft_length": [0, -1, 1001],
    "payload.vocabulary": [0, -5],
    "payload.support": [0, -5],
    "payload.bits": [0, 65],
    "episode.rounds": [0, -1],
    "reference_draft_length": [-1, 1001],
}
TEXTS = ["name", "models.draft", "models.target"]
CHOICES = {"protocol": CORRECTION, "channel.kind": CORRECTION, "channel.fading": CORRECTION}
PER_DEVICE = {
    "drafting.token_latency_s": (CORRECTION, 0.01),
    "radio.uplink_power_dbm": (CORRECTION, 1.0),
    "radio.noise_device_dbm_hz": (CORRECTION, -160.0),
    "channel.distance_m": (CORRECTION, 100.0),
    "channel.mean_gain": (UPLOAD, 0.5),
    "tasks.GSM8K": (CORRECTION, 0.5),
}
RANGES = {
    "drafting.spread": CORRECTION,
    "channel.distance_m": CORRECTION,
    "channel.mean_gain": UPLOAD,
}
SCALARS = sorted(set(NUMBERS) - set(PER_DEVICE))


def test_the_refusals_cover_every_field():
    known = {*NUMBERS, *INTEGERS, *TEXTS, *CHOICES, *PER_DEVICE, *RANGES} - {"tasks.GSM8K"}
    for preset in (CORRECTION, UPLOAD):
        assert set(TABLE[preset]) - {"tasks"} <= known


@pytest.mark.parametrize("value", ["1", "", True, 1j, b"1", Ellipsis, np.bool_(True)], ids=repr)
@pytest.mark.parametrize("field", NUMBERS)
def test_wrong_type_of_a_number(field, value):
    assert_refused(lambda: Scenario.load(NUMBERS[field][0], {field: value}), field, value)


@pytest.mark.parametrize("value", [[1.0], [1.0] * 20, {"min": 1.0, "max": 2.0}], ids=repr)
@pytest.mark.parametrize("field", SCALARS)
def test_scalar_fields_take_no_lists_and_ranges(field, value):
    assert_refused(lambda: Scenario.load(NUMBERS[field][0], {field: value}), field, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, np.float64("nan")], ids=repr)
@pytest.mark.parametrize("field", NUMBERS)
def test_nan_and_infinity(field, value):
    assert_refused(lambda: Scenario.load(NUMBERS[field][0], {field: value}), field, value)


@pytest.mark.parametrize(
    ("field", "value"), [(field, bad) for field, (_, values) in NUMBERS.items() for bad in values]
)
def test_number_out_of_range(field, value):
    assert_refused(lambda: Scenario.load(NUMBERS[field][0], {field: value}), field, value)


@pytest.mark.parametrize("field", ["radio.bandwidth_hz", "tasks.GSM8K"])
def test_integer_too_large_for_a_float(field):
    value = 10**400
    assert_refused(lambda: Scenario.load(NUMBERS[field][0], {field: value}), field, value)


@pytest.mark.parametrize(
    "value", ["3", 3.0, 2.5, True, math.nan, math.inf, [3], {"min": 1}, np.float64(3)], ids=repr
)
@pytest.mark.parametrize("field", INTEGERS)
def test_wrong_type_of_an_integer(field, value):
    assert_refused(lambda: Scenario.load(CORRECTION, {field: value}), field, value)


@pytest.mark.parametrize(
    ("field", "value"), [(field, bad) for field, values in INTEGERS.items() for bad in values]
)
def test_integer_out_of_range(field, value):
    assert_refused(lambda: Scenario.load(CORRECTION, {field: value}), field, value)


@pytest.mark.parametrize("value", ["", 3, True, ["x"], b"x", {"x": 1}], ids=repr)
@pytest.mark.parametrize("field", TEXTS)
def test_text_that_is_none(field, value):
    assert_refused(lambda: Scenario.load(CORRECTION, {field: value}), field, value)


@pytest.mark.parametrize("value", ["", "Rayleigh", 1, True, ["none"], {"none": 1}], ids=repr)
@pytest.mark.parametrize("field", CHOICES)
def test_no_such_choice(field, value):
    assert_refused(lambda: Scenario.load(CORRECTION, {field: value}), field, value)


@pytest.mark.parametrize("length", [0, 1, 19, 21])
@pytest.mark.parametrize("field", PER_DEVICE)
def test_wrong_length_of_a_list(field, length):
    preset, good = PER_DEVICE[field]
    with pytest.raises(ValueError, match=rf"{field} lists {length} values.*20"):
        Scenario.load(preset, {field: [good] * length})


@pytest.mark.parametrize("container", [list, tuple, np.array])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30], ids=repr)
@pytest.mark.parametrize("field", PER_DEVICE)
def test_bad_entry_of_a_list(field, bad, container):
    preset, good = PER_DEVICE[field]
    values = container([good] * 7 + [bad] + [good] * 12)
    assert_refused(lambda: Scenario.load(preset, {field: values}), f"{field}[7]", values[7])


@pytest.mark.parametrize("bad", ["1", None, True, [0.5]], ids=repr)
@pytest.mark.parametrize("field", PER_DEVICE)
def test_wrong_type_in_a_list(field, bad):
    preset, good = PER_DEVICE[field]
    values = [good] * 19 + [bad]
    assert_refused(lambda: Scenario.load(preset, {field: values}), f"{field}[19]", bad)


@pytest.mark.parametrize("field", ["radio.uplink_power_dbm", "channel.mean_gain"])
def test_array_without_dimension_is_a_number_or_refused(field):
    preset, good = PER_DEVICE[field]
    try:
        scenario = Scenario.load(preset, {field: np.array(good)})
    except ValueError:
        return
    assert scenario == Scenario.load(preset, {field: good})


def test_list_of_another_cell_is_refused_when_the_number_of_devices_changes():
    scenario = Scenario.load(*VARIANTS["lists"])
    with pytest.raises(ValueError, match=r"lists 3 values.*num_devices = 4"):
        Scenario.load(scenario, {"num_devices": 4})


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"min": 1.0},
        {"min": 1.0, "max": 2.0, "mean": 1.5},
        {"low": 1.0, "high": 2.0},
        {"min": 2.0, "max": 1.0},
    ],
    ids=repr,
)
@pytest.mark.parametrize("field", RANGES)
def test_malformed_range(field, value):
    assert_refused(lambda: Scenario.load(RANGES[field], {field: value}), field, value)


@pytest.mark.parametrize("end", ["min", "max"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "1", True, [1.0], 1e30], ids=repr)
@pytest.mark.parametrize("field", RANGES)
def test_bad_end_of_a_range(field, bad, end):
    value = {"min": 1.0, "max": 1.0} | {end: bad}
    assert_refused(lambda: Scenario.load(RANGES[field], {field: value}), field, bad)
    as_object = Range(**value)
    assert_refused(lambda: Scenario.load(RANGES[field], {field: as_object}), field, bad)


@pytest.mark.parametrize("value", [1.0, [1.0, 2.0], "1..2"], ids=repr)
def test_spread_is_a_range(value):
    assert_refused(
        lambda: Scenario.load(CORRECTION, {"drafting.spread": value}), "drafting.spread", value
    )


def test_refused_range_field_says_that_ranges_are_allowed():
    with pytest.raises(ValueError, match=r"channel\.distance_m.*\{min, max\}"):
        Scenario.load(CORRECTION, {"channel.distance_m": "far"})


@pytest.mark.parametrize("field", ["num_devices", "max_draft_length"])
def test_documented_bounds_are_inclusive(field):
    high = {"num_devices": 100_000, "max_draft_length": 1000}[field]
    for value in (1, high):
        assert value_of(Scenario.load(CORRECTION, {field: value}), field) == value


@pytest.mark.parametrize("rate", [0, 1, 0.0, 1.0])
def test_acceptance_rates_include_their_bounds(rate):
    assert Scenario.load(CORRECTION, {"tasks.GSM8K": rate}).tasks[1].acceptance_rate == rate


@pytest.mark.parametrize(
    "value",
    [
        5,
        "GSM8K",
        True,
        {},
        [],
        [5],
        ["GSM8K"],
        [{"name": "a"}],
        [{"acceptance_rate": 0.5}],
        [["a", 0.5]],
        {"": 0.5},
        [{"name": 5, "acceptance_rate": 0.5}],
    ],
    ids=repr,
)
def test_malformed_tasks(value):
    with pytest.raises(ValueError, match="tasks"):
        Scenario.load(CORRECTION, {"tasks": value})


@pytest.mark.parametrize("value", [5, None, "GSM8K"], ids=repr)
def test_malformed_tasks_of_the_constructor(value):
    scenario = Scenario.load(CORRECTION)
    with pytest.raises(ValueError, match="tasks"):
        dataclasses.replace(scenario, tasks=value)


def test_task_name_given_twice():
    tasks = [Task("a", 0.5), Task("a", 0.6)]
    with pytest.raises(ValueError, match="tasks"):
        Scenario.load(CORRECTION, {"tasks": tasks})


def test_task_object_with_a_bad_rate():
    scenario = Scenario.load(CORRECTION)
    tasks = (Task("a", 0.5), Task("b", 1.5))
    assert_refused(lambda: dataclasses.replace(scenario, tasks=tasks), "tasks.b", 1.5)


SECTIONS = ["models", "drafting", "verification", "payload", "radio", "channel", "episode"]


@pytest.mark.parametrize("value", [5, "x", [1], True], ids=repr)
@pytest.mark.parametrize("section", SECTIONS)
def test_section_that_is_no_table(section, value):
    assert_refused(lambda: Scenario.load(CORRECTION, {section: value}), section, value)
    data = Scenario.load(CORRECTION).to_dict() | {section: value}
    assert_refused(lambda: Scenario.load(data), section, value)
    assert_refused(lambda: Scenario.from_dict(data), section, value)


@pytest.mark.parametrize("section", SECTIONS)
def test_section_that_is_no_table_with_an_unrelated_override(section):
    data = Scenario.load(CORRECTION).to_dict() | {section: 5}
    assert_refused(lambda: Scenario.load(data, {"num_devices": 8}), section, 5)


@pytest.mark.parametrize("section", SECTIONS)
def test_section_of_the_constructor_must_be_an_object(section):
    scenario = Scenario.load(CORRECTION)
    value = scenario.to_dict()[section]
    assert_refused(lambda: dataclasses.replace(scenario, **{section: value}), section, value)


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [
        ("num_device", "num_devices"),
        ("max_draft_len", "max_draft_length"),
        ("nme", "name"),
        ("radio.uplink_powr_dbm", "radio.uplink_power_dbm"),
        ("uplink_power_dbm", "radio.uplink_power_dbm"),
        ("channel.fadin", "channel.fading"),
        ("episode.horizon", "episode.horizon_s"),
        ("verification.fixed", "verification.fixed_s"),
        ("reference_goodputs", "reference_goodput"),
        ("drafting.token_latency", "drafting.token_latency_s"),
        ("modls", "models"),
    ],
)
def test_unknown_field_names_the_nearest(unknown, nearest):
    with pytest.raises(ValueError, match=f"{re.escape(unknown)}'.*'{re.escape(nearest)}'"):
        Scenario.load(CORRECTION, {unknown: 1})


def test_unknown_section_names_the_nearest():
    with pytest.raises(ValueError, match=r"'raido.*'radio"):
        Scenario.load(CORRECTION, {"raido.bandwidth_hz": 1})


@pytest.mark.parametrize("field", ["extra", "radio.extra", "radio.noise_total_dbm"])
def test_unknown_field_of_a_dict(field):
    data = Scenario.load(CORRECTION).to_dict()
    section, _, leaf = field.rpartition(".")
    (data[section] if section else data)[leaf] = 1.0
    with pytest.raises(ValueError, match=f"unknown .*'{re.escape(field)}'"):
        Scenario.from_dict(data)


@pytest.mark.parametrize("field", ["name.x", "num_devices.x", "radio.bandwidth_hz.x", ""])
def test_override_of_something_inside_a_value(field):
    with pytest.raises(ValueError, match=f"'{re.escape(field)}'"):
        Scenario.load(CORRECTION, {field: 1})


def test_field_that_is_no_text():
    with pytest.raises(ValueError, match="5"):
        Scenario.load(Scenario.load(CORRECTION).to_dict() | {5: 1})


@pytest.mark.parametrize("overrides", ["num_devices", [("num_devices", 8)], 8], ids=repr)
def test_overrides_that_are_no_mapping(overrides):
    assert_refused(lambda: Scenario.load(CORRECTION, overrides), "overrides", overrides)


@pytest.mark.parametrize("name", ["qwen2", "", "Qwen2.5", "missing.toml", "/no/such.toml", "\0"])
def test_unknown_preset_or_file(name):
    assert_refused(lambda: Scenario.load(name), "scenario", name)
    with pytest.raises(ValueError, match=r"qwen2\.5, qwen3\.5"):
        Scenario.load(name)


def test_missing_path(tmp_path):
    assert_refused(
        lambda: Scenario.load(tmp_path / "no.toml"), "scenario", str(tmp_path / "no.toml")
    )


def test_folder_is_no_file(tmp_path):
    assert_refused(lambda: Scenario.load(tmp_path), "scenario", str(tmp_path))


def test_text_in_place_of_a_name():
    with pytest.raises(ValueError, match="scenario"):
        Scenario.load(text_of(CORRECTION))


@pytest.mark.parametrize("source", [None, 5, 2.5, b"qwen2.5", ["qwen2.5"]], ids=repr)
def test_source_of_a_wrong_type(source):
    assert_refused(lambda: Scenario.load(source), "scenario", source)


@pytest.mark.parametrize(
    "content", [b"a = = 3", b"[radio", b"a = 1\na = 2", b'name = "\xff"'], ids=repr
)
def test_broken_toml(tmp_path, content):
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    assert_refused(lambda: Scenario.load(file), "scenario", str(file))


def test_bad_value_in_a_file(tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text(text_of(CORRECTION).replace("num_devices = 20 ", "num_devices = -3 "), "utf8")
    assert_refused(lambda: Scenario.load(file), "num_devices", -3)


REQUIRED = sorted(
    {field for preset in (CORRECTION, UPLOAD) for field in TABLE[preset]}
    - {"drafting.spread", "channel.fading", "episode.horizon_s", "episode.rounds"}
    | {"name", *SECTIONS}
)


@pytest.mark.parametrize("field", REQUIRED)
def test_missing_field(field):
    preset = UPLOAD if field in TABLE[UPLOAD] else CORRECTION
    data = Scenario.load(preset).to_dict()
    section, _, leaf = field.rpartition(".")
    del (data[section] if section else data)[leaf]
    with pytest.raises(ValueError, match=re.escape(field)):
        Scenario.from_dict(data)


@pytest.mark.parametrize("field", REQUIRED)
def test_none_is_missing(field):
    preset = UPLOAD if field in TABLE[UPLOAD] else CORRECTION
    with pytest.raises(ValueError, match=re.escape(field)):
        Scenario.load(preset, {field: None})


def test_both_horizon_and_rounds():
    overrides = {"episode.horizon_s": 5.0, "episode.rounds": 7}
    assert_refused(lambda: Scenario.load(CORRECTION, overrides), "episode.horizon_s", 5.0)
    assert_refused(lambda: Episode(horizon_s=5.0, rounds=7), "episode.rounds", 7)


@pytest.mark.parametrize("overrides", [{"episode": {}}, {"episode.rounds": None}], ids=repr)
def test_neither_horizon_nor_rounds(overrides):
    assert_refused(lambda: Scenario.load(CORRECTION, overrides), "episode.horizon_s", None)
    assert_refused(lambda: Scenario.load(CORRECTION, overrides), "episode.rounds", None)


@pytest.mark.parametrize(("preset", "other"), [(CORRECTION, "upload"), (UPLOAD, "correction")])
def test_protocol_does_not_fit_the_radio(preset, other):
    scenario = Scenario.load(preset)
    with pytest.raises(ValueError, match=f"radio.*{type(scenario.radio).__name__}.*{other}"):
        dataclasses.replace(scenario, protocol=other)


@pytest.mark.parametrize(("preset", "other"), [(CORRECTION, "upload"), (UPLOAD, "correction")])
def test_override_of_the_protocol_alone_names_the_radio(preset, other):
    with pytest.raises(ValueError, match=r"radio\."):
        Scenario.load(preset, {"protocol": other})


def test_reference_length_over_the_longest_draft():
    assert_refused(
        lambda: Scenario.load(CORRECTION, {"reference_draft_length": 21}),
        "reference_draft_length",
        21,
    )
    assert Scenario.load(CORRECTION, {"reference_draft_length": 20}).reference_draft_length == 20
    longer = Scenario.load(CORRECTION, LONGER_DRAFTS | {"reference_draft_length": 21})
    assert longer.reference_draft_length == 21


def test_slowest_device_is_bounded():
    slow = {"drafting.token_latency_s": 6.0, "drafting.spread": {"min": 1.0, "max": 2.0}}
    assert_refused(lambda: Scenario.load(CORRECTION, slow), "drafting.token_latency_s", 12.0)


def test_listed_latencies_ignore_the_spread():
    latencies = [6.0] * 20
    wide = {"min": 1.0, "max": 2.0}
    given = {"drafting.token_latency_s": latencies, "drafting.spread": wide}
    assert Scenario.load(CORRECTION, given).drafting.token_latency_s == (6.0,) * 20


def test_a_round_must_take_time():
    zero = {"verification.fixed_s": 0, "verification.per_device_s": 0}
    with pytest.raises(ValueError, match=r"verification\.fixed_s.*per_device_s.* 0"):
        Scenario.load(CORRECTION, zero)


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (lambda r: dataclasses.replace(r, bandwidth_hz=-1.0), "radio.bandwidth_hz", -1.0),
        (lambda r: dataclasses.replace(r, uplink_power_dbm="1"), "radio.uplink_power_dbm", "1"),
        (lambda r: DistanceChannel(0.0, -1.0, 5.0), "channel.exponent", -1.0),
        (lambda r: UniformChannel(0.1, "rice"), "channel.fading", "rice"),
        (lambda r: UniformChannel(0.1, kind="distance"), "channel.kind", "distance"),
        (lambda r: Episode(rounds=1.5), "episode.rounds", 1.5),
    ],
)
def test_sections_check_themselves(make, field, value):
    radio = Scenario.load(CORRECTION).radio
    assert_refused(lambda: make(radio), field, value)


# --------------------------------------------------------------------------------------------
# Properties.


def either(number, num_devices):
    """One number, or one for each device."""
    return number | st.lists(number, min_size=num_devices, max_size=num_devices)


def ranges(low, high):
    ends = st.lists(st.floats(low, high), min_size=2, max_size=2).map(sorted)
    return ends.map(lambda pair: {"min": pair[0], "max": pair[1]})


@st.composite
def descriptions(draw):
    """The dict of a valid scenario."""
    k = draw(st.integers(1, 5))
    protocol = draw(st.sampled_from(["correction", "upload"]))
    power = st.floats(-100.0, 60.0) | st.just(-math.inf)
    noise = st.floats(-200.0, 0.0)
    radio = {"bandwidth_hz": st.floats(1.0, 1e12), "uplink_power_dbm": either(power, k)}
    if protocol == "correction":
        radio["downlink_power_ratio"] = st.floats(0.0, 1e6)
        radio["noise_server_dbm_hz"] = noise
        radio["noise_device_dbm_hz"] = either(noise, k)
    else:
        radio["noise_total_dbm"] = noise
    if draw(st.booleans()):
        channel = {
            "kind": st.just("distance"),
            "reference_gain_db": st.floats(-100.0, 0.0),
            "exponent": st.floats(0.0, 6.0),
            "distance_m": either(st.floats(0.1, 1e5), k) | ranges(0.1, 1e5),
        }
    else:
        gain = either(st.floats(0.0, 1e3), k) | ranges(0.0, 1e3)
        channel = {"kind": st.just("uniform"), "mean_gain": gain}
    channel["fading"] = st.sampled_from(["rayleigh", "none"])
    text = st.text(min_size=1, max_size=8)
    parts = {
        "name": text,
        "num_devices": st.just(k),
        "protocol": st.just(protocol),
        "max_draft_length": st.integers(1, 1000),
        "tasks": st.dictionaries(text, either(st.floats(0.0, 1.0), k), min_size=1, max_size=4),
        "models": st.fixed_dictionaries({"draft": text, "target": text}),
        "drafting": st.fixed_dictionaries(
            {"token_latency_s": either(st.floats(1e-6, 1.0), k), "spread": ranges(0.1, 10.0)}
        ),
        "verification": st.fixed_dictionaries(
            {"fixed_s": st.floats(1e-6, 10.0), "per_device_s": st.floats(0.0, 1.0)}
        ),
        "payload": st.fixed_dictionaries(
            {
                "vocabulary": st.integers(1, 10**9),
                "support": st.integers(1, 10**9),
                "bits": st.integers(1, 64),
            }
        ),
        "radio": st.fixed_dictionaries(radio),
        "channel": st.fixed_dictionaries(channel),
        "episode": st.one_of(
            st.fixed_dictionaries({"horizon_s": st.floats(1e-3, 5e5)}),
            st.fixed_dictionaries({"rounds": st.integers(1, 10**9)}),
        ),
    }
    return draw(st.fixed_dictionaries(parts))


def has_list(value):
    if isinstance(value, dict):
        return any(map(has_list, value.values()))
    return isinstance(value, list)


repeatable = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@repeatable
@given(data=descriptions())
def test_valid_numbers_survive_every_round_trip(data):
    scenario = Scenario.from_dict(data)
    assert scenario.to_dict() == data
    for trip in ROUND_TRIPS.values():
        assert trip(scenario) == scenario


@repeatable
@given(data=descriptions(), devices=st.integers(1, 5), price=st.floats(0.0, 1e6))
def test_overrides_leave_valid_sources_alone(data, devices, price):
    before = copy.deepcopy(data)
    overrides = {"num_devices": devices, "reference_goodput": price}
    if devices != data["num_devices"] and has_list(data):
        with pytest.raises(ValueError, match="num_devices"):
            Scenario.load(data, overrides)
    else:
        assert Scenario.load(data, overrides).reference_goodput == price
    assert data == before


@repeatable
@given(rate=st.floats().filter(lambda x: not 0.0 <= x <= 1.0))
def test_no_rate_outside_the_unit_interval_passes(rate):
    assert_refused(lambda: Scenario.load(CORRECTION, {"tasks.GSM8K": rate}), "tasks.GSM8K", rate)


@repeatable
@given(power=st.floats(max_value=200.0), ratio=st.floats(0.0, 1e12))
def test_powers_survive_toml_exactly(power, ratio):
    overrides = {"radio.uplink_power_dbm": power, "radio.downlink_power_ratio": ratio}
    text = Scenario.load(CORRECTION, overrides).to_toml()
    radio = Scenario.from_dict(tomllib.loads(text)).radio
    assert isinstance(radio, CorrectionRadio)
    assert (radio.uplink_power_dbm, radio.downlink_power_ratio) == (power, ratio)
