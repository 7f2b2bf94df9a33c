"""Solvers of the upload protocol against exact values, enumeration and optimality conditions."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

from multispin_env import solvers
from multispin_env.solvers import UploadProblem, uploads

VECTORS = json.loads((Path(__file__).parent.parent / "data" / "upload.json").read_text())
INSTANCES = {instance["name"]: instance for instance in VECTORS["instances"]}


def problem(instance, **changes):
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
    return UploadProblem(**arguments | changes)


def drawn(generator, num_devices, **changes):
    """A random problem, channels from good to nearly dead."""
    gain = generator.uniform(0.2, 0.5, num_devices) * generator.exponential(size=num_devices)
    arguments = {
        "acceptance_rate": generator.choice([0.05, 0.5, 0.7393, 0.8582, 0.965], num_devices),
        "token_latency_s": generator.uniform(0.85, 1.15, num_devices) * 0.008,
        "spectral_efficiency": np.log2(1 + 230 * gain),
        "bandwidth_hz": generator.choice([1e6, 5e6, 2e7]),
        "token_bits": 34816,
        "verification_s": 0.02 + 0.02 * num_devices,
        "max_draft_length": 6,
        "min_draft_length": int(generator.integers(2)),
    }
    return UploadProblem(**arguments | changes)


def enumerated(p):
    """The best goodput over all lengths."""
    choices = range(p.min_draft_length, p.max_draft_length + 1)
    return max(p.goodput(np.array(x)) for x in itertools.product(choices, repeat=p.num_devices))


# ---- the paper's values -----------------------------------------------------------------------


@pytest.mark.parametrize("instance", INSTANCES.values(), ids=INSTANCES)
def test_every_scheme_has_its_exact_value(instance):
    p, schemes, inputs = problem(instance), instance["schemes"], instance["inputs"]
    alone_s = inputs["T_fix"] + inputs["T_lin"]
    server_s = schemes["cen"]["single"]["td"]
    found = solvers.homogeneous(p)
    assert found.goodput == pytest.approx(schemes["homo"]["tau"], rel=1e-8)
    assert set(found.draft_length) == {schemes["homo"]["L"]}
    assert solvers.fixed(p).goodput == pytest.approx(schemes["fixed"]["tau"], rel=1e-8)
    found = solvers.uniform_bandwidth(p)
    assert found.goodput == pytest.approx(schemes["unibw_exact"]["tau"], rel=1e-8)
    found = solvers.point_to_point(p, alone_s)
    assert found.goodput == pytest.approx(schemes["p2p"]["mean"], rel=1e-8)
    assert found.draft_length.tolist() == schemes["p2p"]["L"]
    for schedule in ("single", "serial", "batched"):
        found = solvers.centralised(p, server_s, alone_s, schedule)
        assert found.goodput == pytest.approx(schemes["cen"][schedule]["tau"], rel=1e-8)


@pytest.mark.parametrize("instance", INSTANCES.values(), ids=INSTANCES)
def test_theorem_1_has_its_exact_values(instance):
    p = problem(instance)
    theta = uploads.token_latency(p)
    assert theta == pytest.approx(instance["lemma1"]["theta"], rel=1e-9)
    for entry in instance["theorem1_homogeneous_alpha"]:
        real = uploads.continuous_optimal_length(entry["alpha"], p.verification_s, theta)
        if entry["interior"]:
            assert real == pytest.approx(entry["L_cont"], rel=1e-8)
        else:
            assert real == 0.0
        alike = problem(instance, acceptance_rate=np.full(p.num_devices, entry["alpha"]))
        decision = solvers.homogeneous_closed_form(alike)
        assert set(decision.draft_length) == {entry["L_exhaustive"]}
        per_device = decision.goodput / p.num_devices
        assert per_device == pytest.approx(entry["tau_per_device_Lstar"], rel=1e-8)


@pytest.mark.parametrize("instance", INSTANCES.values(), ids=INSTANCES)
def test_proposition_1_has_its_exact_values(instance):
    given = instance["prop1"]
    real = uploads.continuous_lengths(problem(instance), given["phi"], given["lam"])
    np.testing.assert_allclose(real, given["L_cont"], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("instance", INSTANCES.values(), ids=INSTANCES)
def test_heterogeneous_and_exact_reach_the_strong_optimum(instance):
    p, hete = problem(instance), instance["hete"]
    strong = hete["strong"]["tau"]
    assert solvers.heterogeneous(p).goodput >= strong * (1 - 5e-4)
    decision = solvers.exact(p)
    assert decision.goodput == pytest.approx(strong, rel=1e-6)
    assert strong * (1 - 1e-9) <= decision.upper_bound <= strong * (1 + 3e-5)
    if "strong_L0_allowed" in hete:
        free = solvers.exact(problem(instance, min_draft_length=0))
        assert free.goodput == pytest.approx(hete["strong_L0_allowed"]["tau"], rel=1e-6)


# ---- against something independent --------------------------------------------------------------


def test_exact_equals_enumeration_and_lies_within_its_certificate():
    generator = np.random.default_rng(0)
    for _ in range(150):
        p = drawn(generator, int(generator.integers(1, 5)))
        best = enumerated(p)
        decision = solvers.exact(p)
        assert decision.goodput == pytest.approx(best, rel=1e-12)
        assert decision.goodput <= decision.upper_bound
        # The bound relaxes integers; with few devices one fractional token weighs most.
        assert decision.upper_bound <= best * (1 + 0.1 / p.num_devices)


def test_the_bound_holds_for_any_lengths():
    generator = np.random.default_rng(1)
    for _ in range(20):
        p = drawn(generator, 20, max_draft_length=25)
        bound = solvers.exact(p).upper_bound
        for _ in range(200):
            lengths = generator.integers(p.min_draft_length, 12, 20)
            assert p.goodput(lengths) <= bound


@pytest.mark.parametrize("deadlines", [2, 20, 500])
def test_any_sweep_keeps_the_certificate_valid(deadlines):
    generator = np.random.default_rng(2)
    for _ in range(20):
        p = drawn(generator, 3)
        decision = solvers.exact(p, deadlines=deadlines)
        best = enumerated(p)
        assert decision.goodput <= best * (1 + 1e-12)
        assert best <= decision.upper_bound * (1 + 1e-12)


def test_theorem_1_is_where_the_derivative_vanishes():
    generator = np.random.default_rng(3)
    for _ in range(300):
        alpha, t = generator.uniform(0.05, 0.999), 10 ** generator.uniform(-1, 3)

        def slope(length, alpha=alpha, t=t):  # the numerator of the derivative, up to a factor
            power = alpha ** (length + 1)
            return -power * np.log(alpha) * (length + t) - (1 - power)

        real = uploads.continuous_optimal_length(alpha, t, 1.0)
        if slope(0.0) <= 0:
            assert real == 0.0
        else:
            root = optimize.brentq(slope, 0.0, 1e5, xtol=1e-13)
            assert real == pytest.approx(root, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("t", [1e-6, 1.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("alpha", [0.0, 1e-12, 0.5, 1 - 1e-9, 1.0])
def test_theorem_1_neither_over_nor_underflows(alpha, t):
    real = uploads.continuous_optimal_length(alpha, t, 1.0)
    assert real >= 0
    assert not np.isnan(real)
    if alpha == 1.0:
        assert real == np.inf


def test_theorem_1_grows_with_verification_and_acceptance_and_falls_with_token_latency():
    lengths = uploads.continuous_optimal_length(0.8, np.linspace(0.1, 1, 20), 0.02)
    assert np.all(np.diff(lengths) > 0)
    lengths = uploads.continuous_optimal_length(0.8, 0.3, np.linspace(0.01, 0.1, 20))
    assert np.all(np.diff(lengths) < 0)
    lengths = uploads.continuous_optimal_length(np.linspace(0.5, 0.99, 20), 0.3, 0.02)
    assert np.all(np.diff(lengths) > 0)


def test_closed_form_equals_exhaustive_search():
    generator = np.random.default_rng(4)
    for _ in range(200):
        k = int(generator.integers(1, 6))
        rate = np.full(k, generator.uniform(0, 1))
        p = drawn(generator, k, acceptance_rate=rate, max_draft_length=25)
        closed, searched = solvers.homogeneous_closed_form(p), solvers.homogeneous(p)
        assert closed.goodput == pytest.approx(searched.goodput, rel=1e-12)


def test_proposition_1_satisfies_the_stationarity_condition():
    generator = np.random.default_rng(5)
    for _ in range(200):
        p = drawn(generator, 5)
        phi, multiplier = generator.uniform(0.05, 0.5), 10 ** generator.uniform(-8, -4)
        lengths = uploads.continuous_lengths(p, phi, multiplier)
        alpha, beta = p.acceptance_rate, -np.log(p.acceptance_rate)
        gain = alpha ** (lengths + 1) * beta / (1 - alpha)
        y = phi - lengths * p.token_latency_s
        price = multiplier * p.token_bits * phi / (p.spectral_efficiency * y**2)
        np.testing.assert_allclose(gain, price, rtol=1e-8)


def test_uniform_bandwidth_equals_enumeration():
    generator = np.random.default_rng(6)
    for _ in range(60):
        p = drawn(generator, int(generator.integers(1, 4)))
        band = np.full(p.num_devices, p.bandwidth_hz / p.num_devices)
        choices = range(p.min_draft_length, p.max_draft_length + 1)
        best = max(
            p.goodput(np.array(x), band) for x in itertools.product(choices, repeat=p.num_devices)
        )
        assert solvers.uniform_bandwidth(p).goodput == pytest.approx(best, rel=1e-12)


def test_the_floor_of_a_deadline_is_not_lost_to_rounding():
    p = UploadProblem(
        acceptance_rate=[0.9] * 2,
        token_latency_s=[0.1, 0.1],
        spectral_efficiency=[1e6] * 2,  # uploads take no time
        bandwidth_hz=1e6,
        token_bits=1.0,
        verification_s=0.2,
        max_draft_length=25,
    )
    assert len(set(solvers.uniform_bandwidth(p).draft_length)) == 1


def test_schemes_are_ordered_as_in_the_paper():
    from multispin_env import Scenario
    from multispin_env.solvers.problems import pose
    from multispin_env.world import tape

    scenario = Scenario.load("qwen3.5")
    law, generator = tape.DeviceLaw(scenario), np.random.default_rng(7)
    means = np.zeros(4)
    for _ in range(40):
        devices = law(tape.draw_uniform(generator, 20))
        gain = devices.mean_gain * generator.exponential(size=20)
        p = pose(scenario, devices.acceptance_rate, devices.token_latency_s, gain, 1)
        for i, solve in enumerate(
            (solvers.heterogeneous, solvers.uniform_bandwidth, solvers.homogeneous, solvers.fixed)
        ):
            means[i] += solve(p).goodput
    assert np.all(np.diff(means) < 0)


# ---- edges ------------------------------------------------------------------------------------

ALL = {
    "homogeneous": solvers.homogeneous,
    "heterogeneous": solvers.heterogeneous,
    "linear": lambda p: solvers.heterogeneous(p, spacing="linear"),
    "exact": solvers.exact,
    "uniform_bandwidth": solvers.uniform_bandwidth,
    "point_to_point": lambda p: solvers.point_to_point(p, 0.03),
    "centralised": lambda p: solvers.centralised(p, 0.005, 0.03),
}
EDGES = {
    "dead channel": {"spectral_efficiency": [0.0, 5.0, 6.0]},
    "all dead": {"spectral_efficiency": [0.0] * 3},
    "never accepted": {"acceptance_rate": [0.0] * 3},
    "always accepted": {"acceptance_rate": [1.0] * 3},
    "mixed": {"acceptance_rate": [0.0, 1.0, 0.5]},
    "nothing to choose": {"max_draft_length": 0, "min_draft_length": 0},
    "tiny gain": {"spectral_efficiency": [1e-12, 5.0, 6.0]},
    "narrow": {"bandwidth_hz": 1.0},
    "wide": {"bandwidth_hz": 1e15},
}


@pytest.mark.parametrize("min_draft_length", [0, 1])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", ALL)
def test_edges_have_their_limits(name, edge, min_draft_length):
    changes = {"min_draft_length": min_draft_length} | EDGES[edge]
    p = problem(INSTANCES["k3_llama"], **changes)
    decision = ALL[name](p)
    assert np.all(decision.draft_length >= p.min_draft_length)
    assert np.all(decision.draft_length <= p.max_draft_length)
    assert np.isfinite(decision.goodput)
    assert decision.goodput >= 0
    assert np.all(np.isfinite(decision.bandwidth_hz))
    if name in ("exact", "heterogeneous", "homogeneous", "uniform_bandwidth"):
        assert decision.goodput == pytest.approx(
            p.goodput(decision.draft_length, decision.bandwidth_hz), rel=1e-9
        )
    if edge == "never accepted":
        assert np.all(decision.draft_length == min_draft_length)


def test_one_device_needs_no_allocation():
    p = problem(INSTANCES["k1_llama"])
    best = max(p.goodput(np.array([length])) for length in range(1, 26))
    for solve in (solvers.exact, solvers.heterogeneous, solvers.homogeneous):
        assert solve(p).goodput == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: solvers.homogeneous_closed_form(p), "acceptance_rate.*one rate"),
        (lambda p: solvers.heterogeneous(p, spacing="cubic"), "spacing = 'cubic'"),
        (lambda p: solvers.heterogeneous(p, grid=(1, 50)), r"grid = \(1, 50\)"),
        (lambda p: solvers.exact(p, deadlines=1), "deadlines = 1"),
        (lambda p: solvers.fixed(p, 26), "draft_length = 26"),
        (lambda p: solvers.fixed(p, True), "draft_length = True"),
        (lambda p: solvers.point_to_point(p, 0.0), "verification_s = 0.0"),
        (lambda p: solvers.point_to_point(p, float("nan")), "verification_s = nan"),
        (lambda p: solvers.centralised(p, -1.0, 0.1), "server_token_latency_s = -1.0"),
        (lambda p: solvers.centralised(p, 0.1, 0.1, "parallel"), "schedule = 'parallel'"),
    ],
)
def test_bad_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call(problem(INSTANCES["k3_llama"]))
