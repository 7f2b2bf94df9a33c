"""Solvers of the correction protocol against exact values and enumeration."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from slow_greedy import slow_greedy

from multispin_env import Scenario, solvers
from multispin_env.model import correction
from multispin_env.model.acceptance import expected_tokens, run_length
from multispin_env.model.kernels import correction_samples, correction_search
from multispin_env.model.latency import tokens_until
from multispin_env.solvers import CorrectionProblem, sampled
from multispin_env.solvers.problems import pose
from multispin_env.world import tape

VECTORS = json.loads((Path(__file__).parent.parent / "data" / "correction.json").read_text())
RULES = ("optimal", "uplink", "downlink", "random")


def faded(generator, num_devices, power_dbm=10, ratio=4, longest=5):
    """A round of a qwen2.5-like cell under Rayleigh fading."""
    scenario = Scenario.load(
        "qwen2.5",
        {
            "num_devices": num_devices,
            "max_draft_length": longest,
            "radio.uplink_power_dbm": power_dbm,
            "radio.downlink_power_ratio": ratio,
        },
    )
    devices = tape.DeviceLaw(scenario)(tape.draw_uniform(generator, num_devices))
    gain = devices.mean_gain * generator.exponential(size=num_devices)
    return pose(scenario, devices.acceptance_rate, devices.token_latency_s, gain)


def radio(p, order=slice(None)):
    return {
        "channel_gain": p.channel_gain[order],
        "uplink_power_w": p.uplink_power_w[order],
        "downlink_power_w": p.downlink_power_w,
        "payload_bits": p.payload_bits,
        "bandwidth_hz": p.bandwidth_hz,
        "noise_server_w_hz": p.noise_server_w_hz,
        "noise_device_w_hz": p.noise_device_w_hz[order],
    }


def all_goodputs(p, rule):
    """Every decision's exact goodput, from the latencies of all outcomes: lengths and values."""
    k = p.num_devices
    outcomes = np.array(list(itertools.product([0, 1], repeat=k)))
    if rule == "random":
        latency = np.zeros(len(outcomes))
        for coins in outcomes:
            downlink = np.broadcast_to(coins, outcomes.shape)
            sent = correction.correct(outcomes, rule=rule, downlink=downlink, **radio(p))
            latency += sent.latency_s / len(outcomes)
    else:
        latency = correction.correct(outcomes, rule=rule, **radio(p)).latency_s
    lengths = np.array(list(itertools.product(range(p.max_draft_length + 1), repeat=k)))
    accept = p.acceptance_rate**lengths
    probability = np.ones((len(lengths), len(outcomes)))
    for device in range(k):
        rejected = outcomes[:, device] == 1
        probability[:, rejected] *= 1 - accept[:, device, None]
        probability[:, ~rejected] *= accept[:, device, None]
    waiting = np.max(lengths * p.token_latency_s, axis=1) + p.verification_s
    tokens = expected_tokens(p.acceptance_rate, lengths).sum(axis=1)
    return lengths, tokens / (waiting + probability @ latency)


# ---- the paper's solvers ----------------------------------------------------------------------


@pytest.mark.parametrize("index", range(len(VECTORS["instances"])))
def test_exact_vectors(index):
    instance = VECTORS["instances"][index]
    p = CorrectionProblem(**instance["inputs"])
    greedy = solvers.greedy(p, exact=True)
    assert greedy.draft_length.tolist() == instance["greedy"]["draft_length"]
    assert greedy.goodput == pytest.approx(instance["greedy"]["goodput"], rel=1e-9)
    uniform = solvers.uniform(p, exact=True)
    assert set(uniform.draft_length) == {instance["uniform"]["draft_length"]}
    assert uniform.goodput == pytest.approx(instance["uniform"]["goodput"], rel=1e-9)
    blind = solvers.computation_only(p, exact=True)
    assert blind.draft_length.tolist() == instance["computation_only"]["draft_length"]
    assert blind.goodput == pytest.approx(instance["computation_only"]["goodput"], rel=1e-9)


@pytest.mark.parametrize("index", range(0, len(VECTORS["instances"]), 3))
def test_the_enumeration_of_this_file_finds_the_vectors_optimum(index):
    instance = VECTORS["instances"][index]
    inputs = instance["inputs"]
    if (inputs["max_draft_length"] + 1) ** len(inputs["acceptance_rate"]) > 50_000:
        pytest.skip("too many decisions")
    lengths, values = all_goodputs(CorrectionProblem(**inputs), "optimal")
    assert lengths[np.argmax(values)].tolist() == instance["optimum"]["draft_length"]
    assert values.max() == pytest.approx(instance["optimum"]["goodput"], rel=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_greedy_equals_its_direct_transcription(rule):
    generator = np.random.default_rng(0)
    for num_devices in (1, 3, 6):
        p = faded(generator, num_devices, power_dbm=20, longest=8)
        lengths, goodput = slow_greedy(p, rule, 24, 1)
        fast = solvers.greedy(p, rule, samples=24, seed=1)
        assert fast.goodput == pytest.approx(goodput, rel=1e-9)
        assert fast.draft_length.tolist() == lengths


@pytest.mark.parametrize("rule", RULES)
def test_changes_equal_the_difference_of_two_direct_averages(rule):
    generator = np.random.default_rng(1)
    for trial in range(60):
        p = faded(generator, int(generator.integers(1, 10)), power_dbm=generator.choice([0, 20]))
        round_ = sampled.SampledRound(p, rule, 16, trial)
        lengths, other = generator.integers(0, 6, (2, p.num_devices))
        change = np.empty(p.num_devices)
        base = correction_samples.latency_changes(
            round_.radio, round_.samples, lengths, other, change
        )
        assert base == correction_samples.mean_latency(round_.radio, round_.samples, lengths)
        coins = round_.samples.coins if rule == "random" else None

        def direct(gamma, round_=round_, coins=coins, p=p):
            sent = correction.correct(
                round_.samples.run_length < gamma,
                rule=rule,
                downlink=coins,
                **radio(p, round_.order),
            )
            return sent.latency_s.mean()

        assert base == pytest.approx(direct(lengths), rel=1e-12, abs=1e-15)
        for k in range(p.num_devices):
            changed = lengths.copy()
            changed[k] = other[k]
            expected = direct(changed)
            assert base + change[k] == pytest.approx(expected, rel=1e-9, abs=1e-9 * base)


def test_few_sobol_points_average_as_well_as_many_random_ones():
    generator = np.random.default_rng(2)
    errors = {"sobol": [], "random": []}
    for trial in range(40):
        p = faded(generator, 8, power_dbm=20)
        lengths = np.full(8, 3)
        truth = p.goodput(lengths, exact=True)
        few = sampled.SampledRound(p, "optimal", 128, trial)
        errors["sobol"].append(few.goodput(lengths) / truth - 1)
        errors["random"].append(p.goodput(lengths, samples=1000, seed=trial) / truth - 1)
    assert np.std(errors["sobol"]) <= 1.3 * np.std(errors["random"])


# ---- the deadline-subset search -----------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_some_optimum_is_bang_bang(rule):
    """The theorem itself: full enumeration is no better than deadlines and subsets."""
    generator = np.random.default_rng(3)
    for trial in range(15):
        p = faded(generator, int(generator.integers(2, 5)), power_dbm=(10, 20)[trial % 2])
        lengths, values = all_goodputs(p, rule)
        structured = 0.0
        for deadline_s in sampled.all_deadlines(p):
            most = tokens_until(deadline_s, p.token_latency_s, p.max_draft_length)
            kept = np.all((lengths == 0) | (lengths == most), axis=1)
            structured = max(structured, values[kept].max())
        assert structured == pytest.approx(values.max(), rel=1e-12)


@pytest.mark.slow
def test_deadline_is_close_to_enumeration_where_greedy_is_not():
    generator = np.random.default_rng(4)
    gaps = {"deadline": [], "greedy": []}
    for trial in range(240):
        num_devices = int(generator.integers(2, 6))
        rule, power_dbm, ratio = RULES[trial % 4], (10, 20)[trial // 4 % 2], (4, 16)[trial // 8 % 2]
        p = faded(generator, num_devices, power_dbm, ratio)
        lengths, values = all_goodputs(p, rule)
        place = {tuple(row): value for row, value in zip(lengths.tolist(), values)}
        for name, decision in (
            ("deadline", solvers.deadline(p, rule=rule, samples=1024)),
            ("greedy", solvers.greedy(p, rule, exact=True)),
        ):
            gaps[name].append(1 - place[tuple(decision.draft_length.tolist())] / values.max())
    assert np.mean(gaps["deadline"]) <= 5e-4
    assert np.max(gaps["deadline"]) <= 1e-2
    assert np.max(gaps["greedy"]) >= 0.2


def direct_value(p, lengths, rule, samples, seed):
    """Sample-average goodput by the general correction function, outcomes as the solvers'."""
    exponential, coins = sampled.sobol_outcomes(samples, p.num_devices, seed)
    order = np.argsort(p.uplink_power_w * p.channel_gain, kind="stable")
    run = run_length(exponential, p.acceptance_rate[order])
    sent = correction.correct(
        run < lengths[order],
        rule=rule,
        downlink=coins if rule == "random" else None,
        **radio(p, order),
    )
    waiting = np.max(lengths * p.token_latency_s) + p.verification_s
    return p.expected_tokens(lengths) / (waiting + sent.latency_s.mean())


@pytest.mark.parametrize("rule", RULES)
def test_branch_and_bound_equals_trying_every_deadline_and_subset(rule):
    generator = np.random.default_rng(8)
    subsets = np.array(list(itertools.product([0, 1], repeat=6)))
    for trial in range(4):
        p = faded(generator, 6, power_dbm=(10, 20)[trial % 2], longest=6)
        best = 0.0
        for deadline_s in sampled.all_deadlines(p):
            most = tokens_until(deadline_s, p.token_latency_s, p.max_draft_length)
            values = [direct_value(p, most * drafts, rule, 32, trial) for drafts in subsets]
            best = max(best, *values)
        found = solvers.branch_and_bound(p, rule, samples=32, seed=trial)
        assert found.goodput == pytest.approx(best, rel=1e-8)
        assert direct_value(p, found.draft_length, rule, 32, trial) == pytest.approx(best, rel=1e-8)


def test_branch_and_bound_says_when_it_gives_up():
    p = faded(np.random.default_rng(9), 20, longest=20)
    with pytest.raises(RuntimeError, match="max_nodes = 2: the search needs more"):
        solvers.branch_and_bound(p, "downlink", max_nodes=2)


@pytest.mark.slow
@pytest.mark.parametrize("power_dbm", [10, 20])
@pytest.mark.parametrize("ratio", [4, 16])
def test_deadline_is_close_to_the_certified_optimum_of_twenty_devices(power_dbm, ratio):
    generator = np.random.default_rng(10)
    gaps = {"deadline": [], "greedy": []}
    for _ in range(36):
        p = faded(generator, 20, power_dbm, ratio, longest=20)
        best = solvers.branch_and_bound(p).goodput
        gaps["deadline"].append(1 - solvers.deadline(p).goodput / best)
        gaps["greedy"].append(1 - solvers.greedy(p, samples=128).goodput / best)
    assert np.min(gaps["deadline"]) >= -1e-12
    assert np.mean(gaps["deadline"]) <= 1e-3
    assert np.max(gaps["deadline"]) <= 1e-2
    assert np.mean(gaps["greedy"]) >= 10 * np.mean(gaps["deadline"])


@pytest.mark.parametrize("rule", RULES)
def test_exhaustive_equals_the_enumeration_of_this_file(rule):
    generator = np.random.default_rng(11)
    for num_devices in (1, 2, 4):
        p = faded(generator, num_devices, longest=4)
        lengths, values = all_goodputs(p, rule)
        found = solvers.exhaustive(p, rule)
        assert found.goodput == pytest.approx(values.max(), rel=1e-12)
        assert values[(lengths == found.draft_length).all(axis=1)][0] == pytest.approx(
            values.max(), rel=1e-12
        )


def test_exhaustive_refuses_large_rounds():
    with pytest.raises(ValueError, match=r"\(max_draft_length \+ 1\)\^K = 21\^20"):
        solvers.exhaustive(faded(np.random.default_rng(0), 20, longest=20))


def hopeless(num_devices, **changes):
    """A round in which drafting does not pay."""
    arguments = {
        "acceptance_rate": [0.7] * num_devices,
        "token_latency_s": [0.02] * num_devices,
        "channel_gain": [0.0] * num_devices,
        "uplink_power_w": 0.01,
        "downlink_power_w": 0.04,
        "payload_bits": 1e6,
        "bandwidth_hz": 1e7,
        "noise_server_w_hz": 4e-21,
        "noise_device_w_hz": 4e-20,
        "verification_s": 0.05,
        "max_draft_length": 1,
    }
    return CorrectionProblem(**arguments | changes)


def test_nobody_drafts_where_that_is_best():
    """On few outcomes every device may be lucky: all drafting looks fine, one by one does not."""
    p = hopeless(6)
    for seed in range(30):
        for solve in (solvers.deadline, solvers.branch_and_bound):
            assert solve(p, samples=2, seed=seed).goodput >= 6 / 0.05 * (1 - 1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_latencies_of_suffixes_equal_direct_averages(rule):
    generator = np.random.default_rng(12)
    for trial in range(40):
        k = int(generator.integers(1, 9))
        p = faded(generator, k, power_dbm=generator.choice([0, 20]))
        if trial % 2:
            gain = np.where(generator.random(k) < 0.3, 0.0, p.channel_gain)
            p = hopeless(
                k, channel_gain=gain, acceptance_rate=p.acceptance_rate, max_draft_length=5
            )
        round_ = sampled.SampledRound(p, rule, 16, trial)
        length, mean = generator.integers(0, 6, k), np.empty(k + 1)
        correction_search.suffix_latencies(round_.radio, round_.samples, length, mean)
        for m in range(k + 1):
            kept = np.where(np.arange(k) >= m, length, 0)
            direct = correction_samples.mean_latency(round_.radio, round_.samples, kept)
            assert mean[m] == pytest.approx(direct, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("num_devices", [20, 100])
@pytest.mark.parametrize("power_dbm", [10, 20])
def test_deadline_is_never_below_greedy_or_uniform_on_the_same_outcomes(num_devices, power_dbm):
    generator = np.random.default_rng(5)
    for _ in range(12 if num_devices == 20 else 3):
        p = faded(generator, num_devices, power_dbm, longest=20)
        found = solvers.deadline(p).goodput
        assert found >= solvers.greedy(p, samples=128).goodput * (1 - 1e-9)
        assert found >= solvers.uniform(p, samples=128).goodput * (1 - 1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_a_price_is_maximised_as_the_ratio_is(rule):
    """At the optimal ratio as the price, tokens - price * latency is maximal, and zero, there."""
    generator = np.random.default_rng(6)
    for _ in range(20):
        p = faded(generator, 20, power_dbm=20, longest=20)
        best = solvers.deadline(p, rule=rule)
        priced = solvers.deadline(p, price=best.goodput, rule=rule)
        assert priced.goodput == pytest.approx(best.goodput, rel=2e-3)
        cheap = solvers.deadline(p, price=0.0, rule=rule)
        assert p.expected_tokens(cheap.draft_length) >= p.expected_tokens(best.draft_length)
        dear = solvers.deadline(p, price=1e9, rule=rule)
        assert not dear.draft_length.any()


def mean_goodput(rule, num_devices, power_dbm, ratio, rounds=25):
    """Mean goodput of rounds, lengths optimised under the rule: the same rounds for every rule."""
    generator = np.random.default_rng(7)
    drawn = (faded(generator, num_devices, power_dbm, ratio, longest=20) for _ in range(rounds))
    return np.mean([solvers.deadline(p, rule=rule).goodput for p in drawn])


def test_mode_rules_are_ordered_as_in_the_paper():
    means = {
        ratio: {rule: mean_goodput(rule, 20, power_dbm=10, ratio=ratio) for rule in RULES}
        for ratio in (4, 16)
    }
    for by_rule in means.values():
        assert all(by_rule["optimal"] > by_rule[rule] for rule in RULES[1:])
    assert means[16]["downlink"] > 1.03 * means[4]["downlink"]
    assert means[16]["uplink"] == means[4]["uplink"]


def test_neither_fixed_rule_dominates():
    """The uplink wins with many devices, whose powers add up; the downlink with few."""
    wins = {
        mean_goodput("uplink", k, power_dbm, 4) > mean_goodput("downlink", k, power_dbm, 4)
        for k in (2, 20)
        for power_dbm in (10, 20)
    }
    assert wins == {True, False}


# ---- edges ------------------------------------------------------------------------------------

SOLVERS = {
    "greedy": solvers.greedy,
    "uniform": solvers.uniform,
    "computation_only": solvers.computation_only,
    "deadline": lambda p, rule: solvers.deadline(p, rule=rule),
    "thorough": lambda p, rule: solvers.thorough(p, rule=rule),
    "branch_and_bound": solvers.branch_and_bound,
    "exhaustive": solvers.exhaustive,
}
EDGES = {
    "dead channel": {"channel_gain": [0.0, 1e-12, 1e-12]},
    "all dead": {"channel_gain": [0.0] * 3},
    "tiny gain": {"channel_gain": [1e-300, 1e-12, 1e-12]},
    "never accepted": {"acceptance_rate": [0.0] * 3},
    "always accepted": {"acceptance_rate": [1.0] * 3},
    "mixed": {"acceptance_rate": [0.0, 1.0, 0.5]},
    "no drafts allowed": {"max_draft_length": 0},
    "no power": {"uplink_power_w": [0.0] * 3, "downlink_power_w": 0.0},
    "equal devices": {"channel_gain": [1e-12] * 3, "acceptance_rate": [0.7] * 3},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", SOLVERS)
def test_edges_have_their_limits(name, edge, rule):
    arguments = {
        "acceptance_rate": [0.9, 0.7, 0.8],
        "token_latency_s": [0.015, 0.016, 0.017],
        "channel_gain": [1e-13, 1e-12, 1e-12],
        "uplink_power_w": [0.1] * 3,
        "downlink_power_w": 0.4,
        "payload_bits": 34816,
        "bandwidth_hz": 1e7,
        "noise_server_w_hz": 1.26e-20,
        "noise_device_w_hz": 2e-20,
        "verification_s": 0.07,
        "max_draft_length": 6,
    }
    p = CorrectionProblem(**arguments | EDGES[edge])
    decision = SOLVERS[name](p, rule=rule)
    assert np.all((decision.draft_length >= 0) & (decision.draft_length <= p.max_draft_length))
    assert np.isfinite(decision.goodput)
    assert decision.goodput >= 0
    if name in ("deadline", "thorough", "branch_and_bound", "exhaustive"):
        assert decision.goodput >= 3 / 0.07 * (1 - 1e-12)  # plain decoding is always possible
        if edge == "never accepted":
            assert not decision.draft_length.any()
        if edge == "always accepted":
            assert np.all(decision.draft_length == 6)
        if edge == "dead channel" and rule != "random":
            assert decision.draft_length[0] == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: solvers.greedy(p, "fastest"), "rule = 'fastest'"),
        (lambda p: solvers.greedy(p, samples=0), "samples = 0"),
        (lambda p: solvers.deadline(p, samples=2.5), r"samples = 2\.5"),
        (lambda p: solvers.deadline(p, price=-1.0), r"price = -1\.0"),
        (lambda p: solvers.deadline(p, price=float("nan")), "price = nan"),
    ],
)
def test_bad_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call(faded(np.random.default_rng(0), 3))
