"""What a decision is worth, against plain enumeration of outcomes, coins and modes."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from multispin_env import Scenario
from multispin_env.solvers import CorrectionProblem, UploadProblem
from multispin_env.solvers.problems import pose, pose_observed

DATA = Path(__file__).parents[1] / "data"
CORRECTIONS = json.loads((DATA / "correction.json").read_text("utf8"))["instances"]
UPLOADS = json.loads((DATA / "upload.json").read_text("utf8"))["instances"]
RULES = ["optimal", "uplink", "downlink", "random"]

CORRECTION = {
    "acceptance_rate": [0.5, 0.8],
    "token_latency_s": [0.016, 0.017],
    "channel_gain": [2e-12, 5e-14],
    "uplink_power_w": [0.1, 0.05],
    "downlink_power_w": 0.4,
    "payload_bits": 34816,
    "bandwidth_hz": 1e7,
    "noise_server_w_hz": 1.26e-20,
    "noise_device_w_hz": 2e-20,
    "verification_s": 0.06,
    "max_draft_length": 20,
}
UPLOAD = {
    "acceptance_rate": [0.7, 0.9],
    "token_latency_s": [0.005, 0.006],
    "spectral_efficiency": [4.0, 6.0],
    "bandwidth_hz": 1e6,
    "token_bits": 31744,
    "verification_s": 0.05,
    "max_draft_length": 25,
}


# ---- independent arithmetic ------------------------------------------------------------------


def assignment_latency(p, members, modes):
    """Latency of one assignment of modes (1 downlink) to the rejected devices."""
    band = p.bandwidth_hz / len(members)
    down = [k for k, mode in zip(members, modes) if mode]
    # Equal delays on equal bands are equal ratios: p_k = ratio * N_k band / g_k, summing to P.
    need = sum(p.noise_device_w_hz[k] * band / p.channel_gain[k] for k in down)
    ratios = [p.downlink_power_w / need] if down else []
    for k, mode in zip(members, modes):
        if not mode:
            power = p.uplink_power_w[k] * p.channel_gain[k]
            ratios.append(power / (p.noise_server_w_hz * band))
    return p.payload_bits / (band * np.log1p(min(ratios)) / np.log(2.0))


def outcome_latency(p, members, rule):
    """Latencies of a rejected set that are equally likely: one, or one for each toss of coins."""
    if not members:
        return [0.0]
    tosses = list(itertools.product([0, 1], repeat=len(members)))
    delays = [assignment_latency(p, members, modes) for modes in tosses]
    chosen = {"optimal": [min(delays)], "uplink": delays[:1], "downlink": delays[-1:]}
    return chosen.get(rule, delays)


def moments(p, lengths, rule):
    """Mean and standard deviation of the communication latency over outcomes and coins."""
    mean = square = 0.0
    for outcome in itertools.product([0, 1], repeat=p.num_devices):
        probability = 1.0
        for rejected, alpha, gamma in zip(outcome, p.acceptance_rate, lengths):
            probability *= 1 - alpha**gamma if rejected else alpha**gamma
        delays = np.array(outcome_latency(p, np.flatnonzero(outcome).tolist(), rule))
        mean += probability * np.mean(delays)
        square += probability * np.mean(delays**2)
    return mean, np.sqrt(square - mean**2)


def draw_problem(rng, num_devices):
    return CorrectionProblem(
        acceptance_rate=rng.uniform(0.3, 0.97, num_devices),
        token_latency_s=rng.uniform(0.015, 0.02, num_devices),
        channel_gain=10.0 ** rng.uniform(-14, -11, num_devices),
        uplink_power_w=10.0 ** rng.uniform(-2, -1, num_devices),
        downlink_power_w=0.2,
        payload_bits=34816,
        bandwidth_hz=1e7,
        noise_server_w_hz=1.26e-20,
        noise_device_w_hz=rng.uniform(1e-20, 3e-20, num_devices),
        verification_s=0.0428 + 0.0076 * num_devices,
        max_draft_length=20,
    )


def communication(p, lengths, **options):
    """E[communication]: the expected latency without drafting and verification."""
    drafting = max(gamma * slot for gamma, slot in zip(lengths, p.token_latency_s))
    return p.expected_latency(lengths, **options) - drafting - p.verification_s


# ---- correction protocol ---------------------------------------------------------------------


@pytest.mark.parametrize("instance", CORRECTIONS, ids=range(len(CORRECTIONS)))
def test_exact_expectations_of_the_vectors(instance):
    p = CorrectionProblem(**instance["inputs"])
    for entry in instance["goodput"]:
        lengths = entry["draft_length"]
        assert p.expected_tokens(lengths) == pytest.approx(entry["expected_tokens"], rel=1e-8)
        seconds = communication(p, lengths, exact=True)
        assert seconds == pytest.approx(entry["expected_communication_s"], rel=1e-8)
        assert p.goodput(lengths, exact=True) == pytest.approx(entry["goodput"], rel=1e-8)


@pytest.mark.parametrize("name", ["optimum", "greedy", "computation_only"])
@pytest.mark.parametrize("instance", CORRECTIONS, ids=range(len(CORRECTIONS)))
def test_goodput_of_the_stored_decisions(instance, name):
    p = CorrectionProblem(**instance["inputs"])
    decision = instance[name]
    goodput = p.goodput(decision["draft_length"], exact=True)
    assert goodput == pytest.approx(decision["goodput"], rel=1e-8)


@pytest.mark.parametrize("instance", CORRECTIONS, ids=range(len(CORRECTIONS)))
def test_uniform_optimum_of_the_vectors(instance):
    p = CorrectionProblem(**instance["inputs"])
    values = [
        p.goodput(np.full(p.num_devices, n), exact=True) for n in range(p.max_draft_length + 1)
    ]
    assert int(np.argmax(values)) == instance["uniform"]["draft_length"]
    assert max(values) == pytest.approx(instance["uniform"]["goodput"], rel=1e-8)


@pytest.mark.parametrize("instance", CORRECTIONS, ids=range(len(CORRECTIONS)))
def test_corrections_of_the_vectors(instance):
    p = CorrectionProblem(**instance["inputs"])
    for entry in instance["correction"]:
        rejected = np.isin(np.arange(p.num_devices), entry["rejected"])
        assert float(p.correct(rejected).latency_s) == pytest.approx(entry["latency_s"], rel=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("num_devices", [1, 2, 3, 5])
def test_exact_expectation_equals_an_independent_loop(num_devices, rule):
    rng = np.random.default_rng(num_devices)
    for _ in range(5):
        p = draw_problem(rng, num_devices)
        lengths = rng.integers(0, 13, num_devices)
        mean, _ = moments(p, lengths, rule)
        seconds = communication(p, lengths, rule=rule, exact=True)
        assert seconds == pytest.approx(mean, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sampled_expectation_is_within_four_standard_errors(rule, seed):
    rng = np.random.default_rng(20 + seed)
    p = draw_problem(rng, 4)
    lengths = rng.integers(1, 10, 4)
    mean, deviation = moments(p, lengths, rule)
    samples = 20_000
    seconds = communication(p, lengths, rule=rule, samples=samples, seed=seed)
    assert abs(seconds - mean) < 4 * deviation / np.sqrt(samples)
    goodput = p.goodput(lengths, rule, samples=samples, seed=seed)
    assert goodput == pytest.approx(
        p.expected_tokens(lengths) / p.expected_latency(lengths, rule, samples=samples, seed=seed)
    )


def test_the_error_of_a_sampled_expectation_falls_with_the_samples():
    # Replicates scatter as the exact standard deviation predicts, so the seeds are independent.
    p, lengths = draw_problem(np.random.default_rng(30), 3), [4, 6, 2]
    mean, deviation = moments(p, lengths, "random")
    estimates = [
        communication(p, lengths, rule="random", samples=400, seed=seed) for seed in range(200)
    ]
    score = (np.array(estimates) - mean) / (deviation / np.sqrt(400))
    assert abs(score.mean()) < 4 / np.sqrt(200)
    assert 0.8 < score.std() < 1.2  # 4 standard errors: 4 / sqrt(2 * 200) = 0.2


def test_the_same_seed_gives_the_same_outcomes_to_every_decision():
    # A longer draft is rejected in every outcome in which the shorter one is.
    p = draw_problem(np.random.default_rng(31), 1)
    seconds = [communication(p, [n], samples=50, seed=4) for n in range(21)]
    assert np.all(np.diff(seconds) >= -1e-12)
    assert seconds == [communication(p, [n], samples=50, seed=4) for n in range(21)]


@pytest.mark.parametrize("exact", [True, False])
def test_an_impossible_outcome_may_take_forever(exact):
    inputs = {**CORRECTION, "acceptance_rate": [0.5, 1.0], "channel_gain": [1e-12, 0.0]}
    p = CorrectionProblem(**inputs)
    assert np.isfinite(p.expected_latency([4, 20], exact=exact))
    assert np.isfinite(p.expected_latency([4, 0], "random", exact=exact))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_a_dead_device_that_drafts_has_no_goodput(rule, exact):
    p = CorrectionProblem(**{**CORRECTION, "channel_gain": [1e-12, 0.0]})
    assert p.goodput([4, 4], rule, exact=exact) == 0.0
    assert p.goodput([4, 0], rule, exact=exact) > 0.0


@pytest.mark.parametrize("exact", [True, False])
def test_plain_decoding_is_one_token_a_verification(exact):
    p = CorrectionProblem(**CORRECTION)
    assert p.goodput([0, 0], exact=exact) == pytest.approx(2 / 0.06, rel=1e-12)


@pytest.mark.parametrize("exact", [True, False])
def test_certain_outcomes_need_no_expectation(exact):
    p = CorrectionProblem(**{**CORRECTION, "acceptance_rate": [0.0, 1.0]})
    alone = assignment_latency(p, [0], [0]), assignment_latency(p, [0], [1])
    assert p.expected_tokens([3, 5]) == pytest.approx(1 + 6)
    seconds = communication(p, [3, 5], exact=exact)
    assert seconds == pytest.approx(min(alone), rel=1e-9)


def test_coins_are_fair_and_reproducible():
    p = draw_problem(np.random.default_rng(32), 10)
    modes = np.array([p.correct([True] * 10, "random", seed=s).downlink for s in range(400)])
    assert stats.binomtest(int(modes.sum()), modes.size, 0.5).pvalue > 1e-4
    assert np.ptp(modes.mean(axis=1)) > 0
    again = p.correct([True] * 10, "random", seed=3)
    assert np.array_equal(again.downlink, modes[3])


def test_too_many_devices_are_not_enumerated():
    p = draw_problem(np.random.default_rng(33), 17)
    with pytest.raises(ValueError, match=r"exact.*17"):
        p.expected_latency(np.ones(17, dtype=int), exact=True)


# ---- upload protocol -------------------------------------------------------------------------


def upload_problem(instance, **changes):
    inputs = instance["inputs"]
    arguments = {
        "acceptance_rate": inputs["alpha"],
        "token_latency_s": inputs["T_S"],
        "spectral_efficiency": inputs["r"],
        "bandwidth_hz": inputs["B"],
        "token_bits": inputs["Q_tok"],
        "verification_s": inputs["T_ver"],
        "max_draft_length": inputs["Lmax"],
    }
    return UploadProblem(**{**arguments, **changes})


def upload_cases():
    return pytest.mark.parametrize("instance", UPLOADS, ids=[i["name"] for i in UPLOADS])


@upload_cases()
def test_homogeneous_scheme_of_the_vectors(instance):
    u = upload_problem(instance)
    values = [u.goodput(np.full(u.num_devices, n)) for n in range(1, u.max_draft_length + 1)]
    assert 1 + int(np.argmax(values)) == instance["schemes"]["homo"]["L"]
    assert max(values) == pytest.approx(instance["schemes"]["homo"]["tau"], rel=1e-8)


@upload_cases()
def test_fixed_scheme_of_the_vectors(instance):
    u, expected = upload_problem(instance), instance["schemes"]["fixed"]
    band = np.full(u.num_devices, instance["inputs"]["B"] / u.num_devices)
    goodput = u.goodput(np.full(u.num_devices, expected["L"]), band)
    assert goodput == pytest.approx(expected["tau"], rel=1e-8)


@upload_cases()
def test_uniform_bandwidth_scheme_of_the_vectors(instance):
    u, expected = upload_problem(instance), instance["schemes"]["unibw_exact"]
    band = np.full(u.num_devices, instance["inputs"]["B"] / u.num_devices)
    assert u.goodput(expected["L"], band) == pytest.approx(expected["tau"], rel=1e-8)


@upload_cases()
def test_heterogeneous_decisions_of_the_vectors(instance):
    u = upload_problem(instance)
    for expected in (instance["lemma3"], instance["hete"]["strong"]):
        assert u.goodput(expected["L"]) == pytest.approx(expected["tau"], rel=1e-8)
        # The stored bandwidths equalise the delays to their 10 digits.
        assert u.goodput(expected["L"], expected["B"]) == pytest.approx(expected["tau"], rel=1e-8)
    assert u.expected_tokens(instance["lemma3"]["L"]) == pytest.approx(
        instance["lemma3"]["sum_tokens"], rel=1e-9
    )


@upload_cases()
def test_plain_decoding_decisions_of_the_vectors(instance):
    expected = instance["hete"]["strong_L0_allowed"]
    u = upload_problem(instance, min_draft_length=0)
    assert u.goodput(expected["L"]) == pytest.approx(expected["tau"], rel=1e-8)


@upload_cases()
def test_allocation_of_the_vectors(instance):
    u, expected = upload_problem(instance), instance["lemma3"]
    result = u.allocate(expected["L"])
    assert float(result.latency_s) == pytest.approx(expected["phi"], rel=1e-9)
    assert result.bandwidth_hz == pytest.approx(expected["B"], rel=1e-9)


def test_an_upload_over_a_dead_channel_has_no_goodput():
    u = UploadProblem(**{**UPLOAD, "spectral_efficiency": [0.0, 6.0], "min_draft_length": 0})
    assert u.goodput([1, 3]) == 0.0
    assert u.goodput([1, 3], [5e5, 5e5]) == 0.0
    assert u.goodput([0, 3], [0.0, 1e6]) == pytest.approx(u.goodput([0, 3]), rel=1e-12)
    assert u.goodput([0, 3]) > 0.0


def test_an_upload_without_bandwidth_has_no_goodput():
    u = UploadProblem(**UPLOAD)
    assert u.goodput([1, 1], [1e6, 0.0]) == 0.0


def test_uploads_of_nothing_are_plain_decoding():
    u = UploadProblem(**{**UPLOAD, "min_draft_length": 0})
    assert u.goodput([0, 0]) == pytest.approx(2 / 0.05, rel=1e-12)
    assert u.goodput([0, 0], [0.0, 0.0]) == pytest.approx(2 / 0.05, rel=1e-12)


def test_upload_goodput_worked_out_by_hand():
    # One device, 1 bit/s/Hz: 2 * (0.5 + 1) + 1 seconds for 1 + 1/2 + 1/4 tokens.
    u = UploadProblem(
        acceptance_rate=[0.5],
        token_latency_s=[0.5],
        spectral_efficiency=[1.0],
        bandwidth_hz=100.0,
        token_bits=100.0,
        verification_s=1.0,
        max_draft_length=2,
    )
    assert u.goodput([2]) == pytest.approx(1.75 / 4, rel=1e-14)
    assert u.goodput([2], [50.0]) == pytest.approx(1.75 / 6, rel=1e-14)


# ---- argument errors -------------------------------------------------------------------------

PER_DEVICE = {
    "acceptance_rate": [-0.1, 1.1, np.inf],
    "token_latency_s": [0.0, -0.01, np.inf],
    "channel_gain": [-1e-12, np.inf],
    "uplink_power_w": [-0.1, np.inf],
    "noise_device_w_hz": [0.0, -1e-20, np.inf],
    "spectral_efficiency": [-1.0, np.inf],
}
SCALAR = {
    "downlink_power_w": [-0.1, np.inf],
    "payload_bits": [0, -1],
    "token_bits": [0, -1],
    "bandwidth_hz": [0.0, -1.0, np.inf],
    "noise_server_w_hz": [0.0, -1e-20],
    "verification_s": [-0.1, np.inf],
}
BASES = {CorrectionProblem: CORRECTION, UploadProblem: UPLOAD}


def bad_arguments():
    for kind, base in BASES.items():
        for name in base:
            for value in PER_DEVICE.get(name, []):
                yield kind, name, [0.5, value]
            for value in SCALAR.get(name, []):
                yield kind, name, value
            if name in PER_DEVICE:
                yield kind, name, [0.5, np.nan]
                yield kind, name, [[0.5, 0.5]]
            if name in PER_DEVICE and name != "acceptance_rate":  # the one that gives K
                yield kind, name, [0.5, 0.5, 0.5]
            if name in SCALAR:
                yield kind, name, np.nan
                yield kind, name, [0.5, 0.5]
        yield kind, "acceptance_rate", []
        for value in (-1, np.nan, 2.5, True):
            yield kind, "max_draft_length", value
    for value in (-1, np.nan, 0.5, 26):
        yield UploadProblem, "min_draft_length", value


@pytest.mark.parametrize(("kind", "name", "value"), list(bad_arguments()))
def test_a_wrong_argument_is_named(kind, name, value):
    with pytest.raises(ValueError, match=name):
        kind(**{**BASES[kind], name: value})


@pytest.mark.parametrize("kind", BASES)
def test_numbers_stand_for_all_devices(kind):
    base = BASES[kind]
    names = [name for name in base if name in PER_DEVICE and name != "acceptance_rate"]
    numbers = {name: np.ravel(base[name])[0] for name in names}
    repeated = {name: [number] * 2 for name, number in numbers.items()}
    short, spelled_out = kind(**{**base, **numbers}), kind(**{**base, **repeated})
    assert short.goodput([3, 4]) == spelled_out.goodput([3, 4])


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize(
    "lengths", [[1], [1, 1, 1], [[1, 1]], 1, [1.0, 1.0], [1, np.nan], [1, -1], [1, 26], [True] * 2]
)
def test_wrong_draft_lengths_are_named(kind, lengths):
    p = kind(**BASES[kind])
    for method in (p.goodput, p.expected_tokens):
        with pytest.raises(ValueError, match="draft_length"):
            method(lengths)


def test_uploads_keep_the_least_draft_length():
    with pytest.raises(ValueError, match="draft_length"):
        UploadProblem(**UPLOAD).goodput([0, 1])
    with pytest.raises(ValueError, match="draft_length"):
        UploadProblem(**UPLOAD).allocate([0, 1])


@pytest.mark.parametrize(
    "band", [[1e6], 1e6, [[5e5, 5e5]], [5e5, np.nan], [5e5, -1.0], [5e5, np.inf]]
)
def test_wrong_bandwidths_are_named(band):
    with pytest.raises(ValueError, match="bandwidth_hz"):
        UploadProblem(**UPLOAD).goodput([1, 1], band)


@pytest.mark.parametrize("exact", [True, False])
def test_an_unknown_rule_is_named(exact):
    p = CorrectionProblem(**CORRECTION)
    with pytest.raises(ValueError, match=r"rule = 'best'.*optimal"):
        p.goodput([1, 1], "best", exact=exact)
    with pytest.raises(ValueError, match=r"rule = 'best'.*optimal"):
        p.correct([True, True], "best")


@pytest.mark.parametrize("rejected", [[True], True, [True] * 3])
def test_a_rejected_set_of_the_wrong_shape_is_named(rejected):
    with pytest.raises(ValueError, match="rejected"):
        CorrectionProblem(**CORRECTION).correct(rejected)


@pytest.mark.parametrize("samples", [0, -1])
def test_a_wrong_number_of_samples_is_named(samples):
    with pytest.raises(ValueError, match="samples"):
        CorrectionProblem(**CORRECTION).goodput([1, 1], samples=samples)


# ---- problems of a scenario ------------------------------------------------------------------


def test_a_correction_scenario_poses_the_numbers_of_the_paper():
    p = pose(Scenario.load("qwen2.5"), np.full(20, 0.8), np.full(20, 0.0152), np.full(20, 1e-12))
    assert isinstance(p, CorrectionProblem)
    assert p.num_devices == 20
    assert p.payload_bits == 1024 * (18 + 16)
    assert p.uplink_power_w == pytest.approx([0.1] * 20)
    assert p.downlink_power_w == pytest.approx(0.4)
    assert p.noise_server_w_hz == pytest.approx(1.2589254e-20, rel=1e-7)
    assert p.noise_device_w_hz == pytest.approx([1.9952623e-20] * 20, rel=1e-7)
    assert p.verification_s == pytest.approx(0.0428 + 20 * 0.0076)
    assert p.bandwidth_hz == 1e7
    assert p.max_draft_length == 20


def test_an_upload_scenario_poses_the_numbers_of_the_paper():
    gain = np.linspace(0.2, 0.5, 20)
    u = pose(Scenario.load("llama2"), np.full(20, 0.8), np.full(20, 0.005), gain)
    assert isinstance(u, UploadProblem)
    assert u.token_bits == 1024 * (15 + 16)
    assert u.spectral_efficiency == pytest.approx(np.log2(1 + 230.14418 * gain), rel=1e-7)
    assert u.verification_s == pytest.approx(0.27708)
    assert (u.min_draft_length, u.max_draft_length) == (0, 25)


@pytest.mark.parametrize(("name", "gain"), [("qwen2.5", 3e-12), ("llama2", 0.3)])
def test_an_observation_poses_the_problem_behind_it(name, gain):
    scenario = Scenario.load(name, {"num_devices": 3})
    gains = np.array([gain, 0.0, 2 * gain])
    rates, latencies = np.array([0.5, 0.6, 0.7]), np.array([0.01, 0.02, 0.03])
    noise_dbm = -169 + 70 if name == "qwen2.5" else -70.0
    power_dbm = 20 if name == "qwen2.5" else -46.38
    with np.errstate(divide="ignore"):
        snr_db = np.maximum(power_dbm + 10 * np.log10(gains) - noise_dbm, -300.0)
    observation = {"snr_db": snr_db, "acceptance_rate": rates, "token_latency_s": latencies}
    seen, known = pose_observed(scenario, observation), pose(scenario, rates, latencies, gains)
    attribute = "channel_gain" if name == "qwen2.5" else "spectral_efficiency"
    assert getattr(seen, attribute) == pytest.approx(getattr(known, attribute), rel=1e-9)
    assert getattr(seen, attribute)[1] == 0.0
    assert seen.goodput([3, 0, 5]) == pytest.approx(known.goodput([3, 0, 5]), rel=1e-9)


def test_hidden_acceptance_rates_pose_no_problem():
    with pytest.raises(ValueError, match="acceptance_rate"):
        pose_observed(Scenario.load("qwen2.5"), {"snr_db": [0.0], "token_latency_s": [0.01]})
