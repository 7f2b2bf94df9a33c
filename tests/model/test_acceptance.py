"""Acceptance, against exact rational and decimal arithmetic and against coin tosses."""

import json
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from multispin_env.model.acceptance import (
    RUN_LENGTH_MAX,
    expected_tokens,
    exponential_rate,
    posterior_mean_rate,
    rejection_probability,
    run_length,
)

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "upload.json").read_text("utf8"))

NEAR_ONE = [1.0 - 1e-12, 1.0 - 2.0**-53, 1.0 - 1e-9, 1.0 - 3e-13]
RATES = [0.0, 1e-300, 1e-9, 0.1, 0.5, 0.7126, 0.9, 0.999, *NEAR_ONE, 1.0]
SAMPLES = 200_000


def power_sum(alpha, gamma):
    """Sum of alpha^n for n = 0..gamma, in exact rational arithmetic."""
    rate = Fraction(alpha)
    return sum(rate**n for n in range(gamma + 1))


def geometric_sum(alpha, gamma):
    """The same sum for a huge gamma: 100 digits are enough for any cancellation."""
    if alpha == 1.0:
        return gamma + 1.0
    with localcontext() as context:
        context.prec = 100
        rate = Decimal(alpha)
        return float((1 - rate ** (gamma + 1)) / (1 - rate))


def toss_run_lengths(alpha, size, seed, longest=400):
    """Run lengths by tossing a coin for every token, as the protocol does."""
    accepted = np.random.default_rng(seed).random((size, longest)) < alpha
    return np.where(accepted.all(axis=1), longest, np.argmin(accepted, axis=1))


def drawn_run_lengths(alpha, size, seed):
    return run_length(np.random.default_rng(seed).standard_exponential(size), alpha)


@pytest.mark.parametrize("alpha", RATES)
@pytest.mark.parametrize("gamma", [0, 1, 2, 8, 20])
def test_expected_tokens_is_the_sum_of_powers(alpha, gamma):
    exact = float(power_sum(alpha, gamma))
    assert float(expected_tokens(alpha, gamma)) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("alpha", RATES)
@pytest.mark.parametrize("gamma", [1000, 10**6, 2**31 - 1, 10**9])
def test_expected_tokens_of_a_huge_draft(alpha, gamma):
    exact = geometric_sum(alpha, gamma)
    assert float(expected_tokens(alpha, gamma)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("entry", VECTORS["exp_tokens"], ids=str)
def test_expected_tokens_of_the_vectors(entry):
    assert float(expected_tokens(entry["alpha"], entry["L"])) == pytest.approx(entry["E"], rel=1e-9)


def test_expected_tokens_broadcasts():
    alpha, gamma = np.array([[0.0], [0.3], [1.0]]), np.array([0, 1, 5, 9])
    result = expected_tokens(alpha, gamma)
    assert result.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        assert result[i, j] == pytest.approx(float(power_sum(alpha[i, 0], int(gamma[j]))))


@pytest.mark.parametrize("draw", [drawn_run_lengths, toss_run_lengths])
@pytest.mark.parametrize(("alpha", "gamma"), [(0.3, 3), (0.7126, 8), (0.85, 6), (0.965, 25)])
def test_expected_tokens_agrees_with_monte_carlo(draw, alpha, gamma):
    emitted = np.minimum(draw(alpha, 50_000, seed=3), gamma) + 1
    error = emitted.std(ddof=1) / np.sqrt(emitted.size)
    assert abs(emitted.mean() - expected_tokens(alpha, gamma)) < 4 * error


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.7126, 0.85, 0.965, 0.999])
def test_run_length_survival_is_a_power(alpha):
    drawn = drawn_run_lengths(alpha, SAMPLES, seed=5)
    for n in (1, 2, 5, 10, 30):
        count = int(np.sum(drawn >= n))
        assert stats.binomtest(count, SAMPLES, alpha**n).pvalue > 1e-5


@pytest.mark.parametrize("alpha", [0.2, 0.7126, 0.9])
def test_run_length_is_geometric(alpha):
    drawn = drawn_run_lengths(alpha, SAMPLES, seed=7)
    last = int(np.log(50 / SAMPLES) / np.log(alpha))  # at least 50 expected in each class
    observed = np.bincount(np.minimum(drawn, last), minlength=last + 1)
    probability = [alpha**n * (1 - alpha) for n in range(last)] + [alpha**last]
    assert stats.chisquare(observed, np.array(probability) * SAMPLES).pvalue > 1e-4


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_run_length_agrees_with_coin_tosses(alpha):
    tossed, drawn = (f(alpha, 50_000, seed=11) for f in (toss_run_lengths, drawn_run_lengths))
    top = int(np.quantile(tossed, 0.999))
    table = [np.bincount(np.minimum(g, top), minlength=top + 1) for g in (tossed, drawn)]
    assert stats.chi2_contingency(np.array(table)).pvalue > 1e-4


def test_run_length_at_the_ends():
    variates = np.array([0.0, 1e-300, 1e-9, 1.0, 700.0])
    assert run_length(variates, 0.0).tolist() == [0] * 5
    assert run_length(variates, 1.0).tolist() == [RUN_LENGTH_MAX] * 5
    # -ln(1 - 2^-53) is 2^-53 to all digits: the run would be 2^53 tokens long, and is capped.
    assert run_length(1.0, 1.0 - 2.0**-53) == RUN_LENGTH_MAX
    assert run_length(1.0, 1.0 - 1e-6) == 999_999
    assert run_length(variates, 0.5).dtype == np.int64


def test_exponential_rate_of_known_rates():
    rates = exponential_rate([0.0, np.exp(-1.0), 0.5, 1.0])
    assert rates == pytest.approx([np.inf, 1.0, 0.6931471805599453, 0.0])
    assert not np.signbit(rates[3])


@pytest.mark.parametrize("alpha", RATES)
@pytest.mark.parametrize("gamma", [0, 1, 5, 20])
def test_rejection_probability_is_the_complement_of_full_acceptance(alpha, gamma):
    exact = float(1 - Fraction(alpha) ** gamma)
    assert float(rejection_probability(alpha, gamma)) == pytest.approx(exact, rel=1e-12, abs=1e-15)


def test_rejection_probability_agrees_with_coin_tosses():
    rejected = int(np.sum(toss_run_lengths(0.8, SAMPLES // 4, seed=13, longest=6) < 6))
    probability = float(rejection_probability(0.8, 6))
    assert stats.binomtest(rejected, SAMPLES // 4, probability).pvalue > 1e-4


@pytest.mark.parametrize("function", [expected_tokens, rejection_probability])
@pytest.mark.parametrize("gamma", [0, 1, 20, 10**6, 10**9])
def test_nothing_raises_under_strict_arithmetic(function, gamma):
    with np.errstate(all="raise"):
        result = function(np.array(RATES), gamma)
    assert np.all(np.isfinite(result))


def test_run_length_does_not_raise_under_strict_arithmetic():
    variates = np.array([[0.0], [1e-300], [1.0], [800.0]])
    with np.errstate(all="raise"):
        lengths = run_length(variates, np.array(RATES))
    assert np.all((lengths >= 0) & (lengths <= RUN_LENGTH_MAX))


@pytest.mark.parametrize("rates", [[0.85, 0.7, 0.68], [0.0, 0.5, 1.0], [0.6]])
def test_posterior_mean_rate_agrees_with_rejection_sampling(rates):
    """Draw rates and verify tokens until enough draws have exactly the given feedback."""
    rng = np.random.default_rng(0)
    for accepted, rejections in ((0, 0), (3, 1), (4, 0), (2, 3)):
        drawn = rng.choice(rates, 200_000)
        total = accepted + rejections
        matching = drawn[rng.binomial(total, drawn) == accepted]
        found = posterior_mean_rate(np.reshape(rates, (-1, 1)), [accepted], [rejections])[0]
        if matching.size == 0:  # impossible feedback
            assert found == np.mean(rates)
        else:
            error = matching.std() / np.sqrt(matching.size)
            assert abs(found - matching.mean()) <= 5 * error + 1e-12
