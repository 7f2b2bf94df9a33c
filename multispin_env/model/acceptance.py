"""How many drafted tokens survive verification.

Every drafted token of a device is accepted with its acceptance rate, independently (A-10, B-14).
The *run length* G is the number of tokens that would be accepted in a row if the draft never
ended: P(G >= n) = alpha^n. A draft of length gamma then has min(G, gamma) accepted tokens, and is
rejected (at the first bad token) exactly when G < gamma. Either way one more token follows: the
correction of the rejected one, or a bonus token. A draft of length 0 is plain decoding: never
rejected, one token.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

#: Run lengths are capped here; a device with acceptance rate 1 always has this one.
RUN_LENGTH_MAX: Final = 2**31 - 1


def exponential_rate(acceptance_rate: ArrayLike) -> Any:
    """-ln(alpha): the rate at which a run breaks off. 0 for alpha = 1, inf for alpha = 0."""
    with np.errstate(divide="ignore"):
        return -np.log(np.asarray(acceptance_rate, dtype=np.float64)) + 0.0  # +0.0: no -0.0


def mean_run(acceptance_rate: ArrayLike) -> Any:
    """1 / -ln(alpha): mean of the exponential whose floor is a run length; inf for alpha = 1."""
    with np.errstate(divide="ignore"):
        return 1.0 / exponential_rate(acceptance_rate)


def run_length(exponential: ArrayLike, acceptance_rate: ArrayLike) -> Any:
    """Run length of a standard exponential variate E: floor(E / -ln alpha).

    Then P(G >= n) = P(E >= -n ln alpha) = alpha^n. Capped at RUN_LENGTH_MAX.

    Args:
        exponential: standard exponential variates, >= 0, broadcast against the rates.
        acceptance_rate: in [0, 1].

    Returns:
        int64, the broadcast shape.
    """
    variate = np.asarray(exponential, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        run = np.floor(variate * mean_run(acceptance_rate))
    return np.fmin(run, RUN_LENGTH_MAX).astype(np.int64)  # fmin: 0 * inf counts as the longest run


def expected_tokens(acceptance_rate: ArrayLike, draft_length: ArrayLike) -> Any:
    """Expected number of tokens that one device emits in one round (A-12, B-14).

    E[min(G, gamma)] + 1 = (1 - alpha^(gamma+1)) / (1 - alpha); gamma + 1 for alpha = 1.

    Args:
        acceptance_rate: alpha in [0, 1].
        draft_length: gamma >= 0, broadcast against `acceptance_rate`.

    Returns:
        Expected tokens, the broadcast shape.
    """
    alpha = np.asarray(acceptance_rate, dtype=np.float64)
    gamma = np.asarray(draft_length, dtype=np.float64)
    rate = np.minimum(exponential_rate(alpha), 1e3)  # exp(-1000) is 0 already; no inf * 0
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        # expm1 keeps the digits that 1 - alpha^n loses when alpha is close to 1.
        partial = -np.expm1(-(gamma + 1.0) * rate) / (1.0 - alpha)
    return np.where(alpha < 1.0, partial, gamma + 1.0)


def posterior_mean_rate(rates: ArrayLike, accepted: ArrayLike, rejections: ArrayLike) -> Any:
    """Mean acceptance rate given feedback, if each of some rates was as likely beforehand.

    Of a device's verified tokens `accepted` were accepted and `rejections` were not (the tokens
    after a rejection are not verified), so its rate alpha has the likelihood
    alpha^accepted (1 - alpha)^rejections.

    Args:
        rates: [T, ..., K] the rates that a device may have.
        accepted, rejections: [..., K] counts.

    Returns:
        [..., K]; where the feedback is impossible under all rates, the mean of the rates.
    """
    alpha = np.asarray(rates, dtype=np.float64)
    successes, failures = np.asarray(accepted, np.float64), np.asarray(rejections, np.float64)
    log_weight = np.asarray(special.xlogy(successes, alpha))
    log_weight = log_weight + np.asarray(special.xlog1py(failures, -alpha))
    best = np.max(log_weight, axis=0)
    weight = np.exp(log_weight - np.where(np.isfinite(best), best, 0.0))
    weight = np.where(np.isfinite(best), weight, 1.0)
    return np.sum(weight * alpha, axis=0) / np.sum(weight, axis=0)


def rejection_probability(acceptance_rate: ArrayLike, draft_length: ArrayLike) -> Any:
    """Probability that a draft is rejected: 1 - alpha^gamma (0 for gamma = 0)."""
    alpha = np.asarray(acceptance_rate, dtype=np.float64)
    with np.errstate(under="ignore"):
        return 1.0 - alpha ** np.asarray(draft_length, dtype=np.float64)
