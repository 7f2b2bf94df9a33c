"""The fast search for upload lengths, against plain scans, enumeration and scipy."""

import itertools

import numpy as np
import pytest
from scipy import special

from multispin_env.model.kernels import upload_grid, upload_search
from multispin_env.solvers import UploadProblem, uploads

RATES = [0.0, 0.01, 0.5, 0.7393, 0.8582, 0.999, 1.0]
KINDS = ["plain", "alike", "twins", "unequal", "dead", "narrow", "wide"]


def drawn(generator, num_devices, kind="plain", **changes):
    """A random problem of some kind."""
    rate = generator.choice(RATES, num_devices)
    latency = generator.uniform(0.85, 1.15, num_devices) * 0.008
    efficiency = np.log2(1 + 70 * generator.exponential(size=num_devices))
    if kind == "alike":
        rate, latency, efficiency = (
            np.full(num_devices, x[0]) for x in (rate, latency, efficiency)
        )
    if kind == "twins":
        for x in (rate, latency, efficiency):
            x[num_devices // 2 :] = x[: num_devices - num_devices // 2]
    if kind == "unequal":
        latency = 10.0 ** generator.uniform(-5, 1, num_devices)
    if kind == "dead":
        efficiency[generator.integers(num_devices)] = 0.0
    arguments = {
        "acceptance_rate": rate,
        "token_latency_s": latency,
        "spectral_efficiency": efficiency,
        "bandwidth_hz": {"narrow": 1e3, "wide": 1e12}.get(kind, 10 ** generator.uniform(5.5, 7.5)),
        "token_bits": 34816,
        "verification_s": 0.02 + 0.02 * num_devices,
        "max_draft_length": 12,
        "min_draft_length": 0 if kind == "dead" else int(generator.integers(2)),
    }
    return UploadProblem(**arguments | changes)


def neighbours(lengths, p):
    """All allowed lengths that one token more, less, or moved leads to."""
    k = p.num_devices
    one = np.eye(k, dtype=int)
    moves = [one[i] for i in range(k)] + [-one[i] for i in range(k)]
    moves += [one[i] - one[j] for i, j in itertools.permutations(range(k), 2)]
    found = lengths + np.array(moves)
    allowed = (found >= p.min_draft_length) & (found <= p.max_draft_length)
    return found[np.all(allowed, axis=1)]


# ---- filling the band --------------------------------------------------------------------------


def plain_filling(phi, p):
    """Lengths and relaxed tokens by scanning all devices for every token; None if nothing fits."""
    alpha, work = (
        p.acceptance_rate,
        p.token_bits / np.where(p.spectral_efficiency > 0, p.spectral_efficiency, 1.0),
    )
    alive = p.spectral_efficiency > 0

    def band(k, length):
        if length == 0:
            return 0.0
        room = phi - length * p.token_latency_s[k]
        if length > p.max_draft_length or room <= 0 or not alive[k]:
            return np.inf
        return length * work[k] / room

    lengths = [p.min_draft_length] * p.num_devices
    free = p.bandwidth_hz - sum(band(k, n) for k, n in enumerate(lengths))
    if free < 0:
        return None
    tokens = sum(sum(a**i for i in range(n + 1)) for a, n in zip(alpha, lengths))
    while True:
        best, best_ratio = -1, 0.0
        for k, length in enumerate(lengths):
            more = band(k, length + 1) - band(k, length)
            gain = np.prod(np.full(length + 1, alpha[k]))
            if more < np.inf and gain > best_ratio * more:
                best, best_ratio = k, gain / more
        if best < 0:
            return np.array(lengths), tokens
        more = band(best, lengths[best] + 1) - band(best, lengths[best])
        gain = alpha[best] ** (lengths[best] + 1)
        if more > free:
            return np.array(lengths), tokens + gain * free / more
        free -= more
        tokens += gain
        lengths[best] += 1


def empty_filling(p):
    k = p.num_devices
    return upload_search.Filling(
        np.full(k, p.min_draft_length),
        *(np.empty(k) for _ in range(3)),
        *(np.empty(k, np.int64) for _ in range(2)),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_band_is_filled_as_by_a_scan_wherever_the_search_starts(kind):
    generator = np.random.default_rng(KINDS.index(kind))
    compared = 0
    for _ in range(15):
        p = drawn(generator, int(generator.integers(1, 8)), kind)
        job, filling, price = uploads._compiled(p), empty_filling(p), np.inf
        theta = uploads.token_latency(p)
        scale = theta if np.isfinite(theta) else 0.05
        for phi in scale * 10 ** generator.uniform(-1, 1.5, 20):  # up and down, near and far
            if generator.random() < 0.2:
                price = float(generator.choice([0.0, 1e-9, 1e-6, np.inf]))
            tokens, price = upload_search.fill_band(phi, price, job, filling)
            expected = plain_filling(phi, p)
            if expected is None:
                assert tokens == -1.0
                continue
            assert tokens == pytest.approx(expected[1], rel=1e-12)
            # Which of two equal devices drafts more does not matter.
            devices = (p.acceptance_rate, p.token_latency_s, p.spectral_efficiency)
            assert sorted(zip(*devices, filling.lengths)) == sorted(zip(*devices, expected[0]))
            compared += filling.lengths.sum() > p.num_devices * p.min_draft_length
    assert compared > 40


# ---- moves of one token ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_move_that_helps_is_rejected(kind):
    generator = np.random.default_rng(KINDS.index(kind))
    rejected = total = 0
    for _ in range(25):
        p = drawn(generator, int(generator.integers(2, 9)), kind)
        k, job = p.num_devices, uploads._compiled(p)
        lengths = generator.integers(p.min_draft_length, p.max_draft_length + 1, k)
        if generator.random() < 0.7:  # at the optimum the most moves are close to helping
            lengths = uploads.exact(p).draft_length
        lengths = np.where(p.spectral_efficiency > 0, lengths, 0)
        value = p.goodput(lengths)
        changes = upload_search.Changes(*(np.empty((2, k)) for _ in range(3)))
        demand, slope = upload_search.linearise(lengths, value, job, changes)
        for moved in neighbours(lengths, p):
            more, less = np.flatnonzero(moved > lengths), np.flatnonzero(moved < lengths)
            hopeless = upload_search.is_hopeless(
                int(more[0]) if more.size else -1, int(less[0]) if less.size else -1,
                value, demand, slope, job, changes,
            )  # fmt: skip
            total += 1
            rejected += hopeless
            if hopeless:
                assert p.goodput(moved) <= value * (1 + 1e-13)
    assert rejected > 0.2 * total


@pytest.mark.parametrize("kind", KINDS)
def test_no_move_of_one_token_improves_what_is_found(kind):
    generator = np.random.default_rng(10 + KINDS.index(kind))
    for k in (1, 2, 5, 20):
        for _ in range(3):
            p = drawn(generator, k, kind)
            decision = uploads.exact(p)
            for moved in neighbours(decision.draft_length, p):
                assert p.goodput(moved) <= decision.goodput * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_is_that_of_enumeration_and_within_its_bound(kind):
    generator = np.random.default_rng(20 + KINDS.index(kind))
    for _ in range(12):
        k = int(generator.integers(1, 6))
        p = drawn(generator, k, kind, max_draft_length=5 if k < 5 else 3)
        choices = range(p.min_draft_length, p.max_draft_length + 1)
        everything = np.array(list(itertools.product(choices, repeat=k)))
        tokens = [
            sum(sum(a**i for i in range(n + 1)) for a, n in zip(p.acceptance_rate, lengths))
            for lengths in everything
        ]
        goodput = np.array(tokens) / (p.ready_latency(everything) + p.verification_s)
        decision = uploads.exact(p)
        assert decision.goodput == pytest.approx(goodput.max(), rel=1e-12)
        assert goodput.max() <= decision.upper_bound * (1 + 1e-12)


# ---- the grid of Proposition 1 -----------------------------------------------------------------


def test_the_omega_function_equals_scipy():
    x = np.concatenate([np.linspace(-40, 40, 4001), 10.0 ** np.linspace(1.5, 12, 500)])
    with np.errstate(over="ignore"):
        found = [upload_grid.wright_omega(value, np.exp(value)) for value in x]
    np.testing.assert_allclose(found, special.wrightomega(x), rtol=2e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_on_the_grid_are_those_of_proposition_1(kind):
    generator = np.random.default_rng(30 + KINDS.index(kind))
    for _ in range(10):
        p = drawn(generator, 6, kind, min_draft_length=0, max_draft_length=60)
        phi, multiplier = 10 ** generator.uniform(-2, 2, 7), 10 ** generator.uniform(-12, 2, 9)
        grid, job = uploads._proposition_1(p, phi, multiplier), uploads._compiled(p)
        for i, j in itertools.product(range(9), range(7)):
            real = np.empty(6)
            upload_grid.grid_lengths(i, j, grid, job, real)
            expected = np.clip(uploads.continuous_lengths(p, phi[j], multiplier[i]), 0, 60)
            # (phi - y) / T cancels where y is close to phi.
            error = 1e-13 * phi[j] / p.token_latency_s
            assert np.all(np.abs(real - expected) <= 1e-9 + error)


@pytest.mark.parametrize("spacing", ["log", "linear"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_best_point_of_the_grid_is_found(kind, spacing):
    generator = np.random.default_rng(40 + KINDS.index(kind))
    for _ in range(6):
        p = drawn(generator, int(generator.integers(2, 9)), kind)
        grid = uploads._grid(p, p.spectral_efficiency > 0, (20, 15), spacing)
        least = np.full((1, p.num_devices), p.min_draft_length)
        if grid is None:
            assert np.array_equal(
                uploads.heterogeneous(p, (20, 15), spacing).draft_length, least[0]
            )
            continue
        phi, multiplier = np.meshgrid(grid.phi, grid.multiplier)
        real = uploads.continuous_lengths(p, phi.ravel(), multiplier.ravel())
        rounded = np.rint(np.clip(real, p.min_draft_length, p.max_draft_length)).astype(int)
        every = np.concatenate([least, rounded])
        best = max(p.goodput(lengths) for lengths in every)
        decision = uploads.heterogeneous(p, (20, 15), spacing)
        assert decision.goodput == pytest.approx(best, rel=1e-12)
        assert decision.draft_length.tolist() in every.tolist()
