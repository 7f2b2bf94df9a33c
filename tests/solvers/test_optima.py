"""`thorough` against enumeration, branch and bound, and the search that it starts from."""

import itertools

import numpy as np
import pytest

from multispin_env import solvers
from multispin_env.solvers import CorrectionProblem, optima
from multispin_env.solvers.corrections import sampled_goodput

RULES = ("optimal", "uplink", "downlink", "random")


def hard_round(generator, num_devices, longest=40):
    """Drafting speeds, rates and channels that differ by powers of ten; some links are dead."""
    rate = generator.choice([0.01, 0.5, 0.9, 0.999], num_devices)
    gain = 10.0 ** generator.uniform(-14, -11, num_devices)
    return CorrectionProblem(
        acceptance_rate=rate,
        token_latency_s=10.0 ** generator.uniform(-3, -0.5, num_devices),
        channel_gain=np.where(generator.random(num_devices) < 0.2, 0.0, gain),
        uplink_power_w=0.1,
        downlink_power_w=generator.choice([0.04, 0.4]),
        payload_bits=34816,
        bandwidth_hz=1e7,
        noise_server_w_hz=1.26e-20,
        noise_device_w_hz=2e-20,
        verification_s=generator.choice([0.02, 0.07, 0.3]),
        max_draft_length=int(generator.integers(1, longest + 1)),
    )


def worth(p, lengths, rule, price=None, **sampling):
    """The objective of one decision, from its sample-average goodput."""
    goodput = sampled_goodput(p, lengths, rule, **sampling)
    tokens = p.expected_tokens(lengths)
    return goodput if price is None else tokens - price * tokens / goodput


def draft_until_a_deadline(p):
    """Every decision in which who drafts at all drafts until the last has finished."""
    for lengths in itertools.product(range(p.max_draft_length + 1), repeat=p.num_devices):
        deadline_s = max(n * t for n, t in zip(lengths, p.token_latency_s))
        fits = (deadline_s + 1e-9) / p.token_latency_s
        most = np.minimum(np.floor(fits), p.max_draft_length)
        if all(n in (0, m) for n, m in zip(lengths, most)):
            yield np.array(lengths)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("priced", [False, True])
@pytest.mark.parametrize("few", [optima.EVERY_SUBSET_MAX_DEVICES, 0])
def test_thorough_is_the_best_on_the_samples(monkeypatch, rule, priced, few):
    """Of all decisions of the form that some optimum has, valued one by one; by either search."""
    monkeypatch.setattr(optima, "EVERY_SUBSET_MAX_DEVICES", few)
    generator = np.random.default_rng(0)
    for seed in range(12):
        num_devices = int(generator.integers(1, 5))
        p = hard_round(generator, num_devices, longest=(30, 12, 6, 4)[num_devices - 1])
        plain = num_devices / p.verification_s
        price = plain * generator.uniform(0.2, 1.5) if priced else None
        sampling = {"samples": 32, "seed": seed}
        found = solvers.thorough(p, price, rule, **sampling)
        best = max(worth(p, n, rule, price, **sampling) for n in draft_until_a_deadline(p))
        value = worth(p, found.draft_length, rule, price, **sampling)
        assert value == pytest.approx(best, rel=1e-9)
        assert found.goodput == sampled_goodput(p, found.draft_length, rule, **sampling)


@pytest.mark.parametrize("rule", RULES)
def test_thorough_on_many_samples_is_the_best_of_all_decisions(rule):
    """Of all lengths whatever, valued exactly: the theorem and the code at once."""
    generator = np.random.default_rng(1)
    for _ in range(12):
        p = hard_round(generator, 3, longest=6)
        found = solvers.thorough(p, rule=rule, samples=8192)
        best = solvers.exhaustive(p, rule).goodput
        assert p.goodput(found.draft_length, rule, exact=True) >= best * (1 - 1e-3)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("num_devices", [9, 11, 16])
def test_thorough_equals_branch_and_bound(rule, num_devices):
    generator = np.random.default_rng(num_devices)
    for _ in range(4):
        p = hard_round(generator, num_devices, longest=16)
        found, best = solvers.thorough(p, rule=rule), solvers.branch_and_bound(p, rule)
        assert found.goodput == pytest.approx(best.goodput, rel=1e-8)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("work", [optima.THOROUGH_MAX_WORK, 60, 0])
def test_thorough_is_never_worse_than_deadline(monkeypatch, rule, work):
    """Also where its budget is used up at once."""
    monkeypatch.setattr(optima, "THOROUGH_MAX_WORK", work)
    generator = np.random.default_rng(3)
    for num_devices in (1, 2, 5, 8, 9, 12, 30):
        p = hard_round(generator, num_devices)
        for price in (None, 0.0, num_devices / p.verification_s):
            found = solvers.thorough(p, price, rule).draft_length
            start = solvers.deadline(p, price, rule).draft_length
            assert worth(p, found, rule, price) >= worth(p, start, rule, price) - 1e-9


SLOW_AND_FAST = {
    "acceptance_rate": [0.9, 0.6],
    "token_latency_s": [0.15, 0.005],
    "channel_gain": [1e-13, 1e-11],
    "uplink_power_w": 0.1,
    "downlink_power_w": 0.4,
    "payload_bits": 34816,
    "bandwidth_hz": 1e7,
    "noise_server_w_hz": 1.26e-20,
    "noise_device_w_hz": 2e-20,
    "verification_s": 0.07,
    "max_draft_length": 15,
}
WEAK_AND_FAST = SLOW_AND_FAST | {
    "acceptance_rate": [0.99, 0.9],
    "token_latency_s": [0.15, 0.01],
    "channel_gain": [1e-13, 1e-14],
}


@pytest.mark.parametrize(
    ("inputs", "loss", "lengths"),
    [(SLOW_AND_FAST, 0.2297, [0, 3]), (WEAK_AND_FAST, 0.0442, [0, 4])],
)
def test_two_devices_of_unequal_speed_on_which_deadline_loses(inputs, loss, lengths):
    """The best deadline is a few tokens of the fast device, and less than one of the slow one."""
    p = CorrectionProblem(**inputs)
    found = solvers.thorough(p)
    assert found.draft_length.tolist() == lengths
    assert 1 - solvers.deadline(p).goodput / found.goodput == pytest.approx(loss, abs=1e-4)
    assert solvers.exhaustive(p).draft_length.tolist() == lengths


def test_a_bad_price_is_refused():
    with pytest.raises(ValueError, match=r"price = -1\.0: must be a finite number >= 0"):
        solvers.thorough(CorrectionProblem(**SLOW_AND_FAST), price=-1.0)
