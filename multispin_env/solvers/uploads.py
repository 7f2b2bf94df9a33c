"""Solvers of the upload protocol (paper A): one length for all, one for each, and the rivals.

All maximise the goodput of one round, the expected tokens over max_k L_k (T_k + Q / (B_k r_k)) +
T_ver, over integer lengths L and bandwidths B_k that sum to at most B (problem P2, A-28), under the
restrictions that their names say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from multispin_env.model.acceptance import expected_tokens, exponential_rate
from multispin_env.model.kernels import upload_grid, upload_search
from multispin_env.model.latency import tokens_until
from multispin_env.solvers.problems import UploadProblem

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class UploadDecision:
    """A solver's answer: lengths and bandwidths [K], and the expected goodput [tokens/s]."""

    draft_length: Integers
    bandwidth_hz: Floats
    goodput: float
    upper_bound: float = np.inf  #: no decision reaches more; only :func:`exact` gives one


def _with_optimal_bandwidth(problem: UploadProblem, lengths: Integers) -> UploadDecision:
    """A decision with the bandwidths of Lemma 3."""
    band = problem.allocate(lengths).bandwidth_hz
    return UploadDecision(lengths, band, problem.goodput(lengths))


def _with_equal_bandwidth(problem: UploadProblem, lengths: Integers) -> UploadDecision:
    """A decision with B / K for every device."""
    band = np.full(problem.num_devices, problem.bandwidth_hz / problem.num_devices)
    return UploadDecision(lengths, band, problem.goodput(lengths, band))


def _compiled(problem: UploadProblem) -> upload_search.Round:
    """The problem as compiled code takes it."""
    power, total = upload_search.tables(problem.acceptance_rate, problem.max_draft_length)
    return upload_search.Round(
        power,
        total,
        problem.token_latency_s,
        problem.unit_work_hz_s,
        problem.bandwidth_hz,
        problem.verification_s,
        problem.min_draft_length,
        problem.max_draft_length,
    )


def _lengths(problem: UploadProblem) -> Integers:
    """All allowed lengths, rising."""
    return np.arange(problem.min_draft_length, problem.max_draft_length + 1)


# ---- one length for all (paper A, section IV) --------------------------------------------------


def token_latency(problem: UploadProblem) -> float:
    """Lemma 1: the least time theta in which all devices draft and upload one token [s] (A-21)."""
    return float(problem.ready_latency(np.ones((1, problem.num_devices), np.int64))[0])


def homogeneous(problem: UploadProblem) -> UploadDecision:
    """*Homo-Multi-SPIN*: the best common length, by trying all; bandwidths by Lemma 1.

    With a common length L the round takes L theta + T_ver, theta from :func:`.token_latency`, so
    that the goodput of all lengths costs one allocation.
    """
    theta = token_latency(problem)
    lengths = _lengths(problem)
    rates = problem.acceptance_rate[:, None]
    tokens = expected_tokens(rates, lengths).sum(axis=0)
    with np.errstate(invalid="ignore"):
        latency = np.where(lengths > 0, lengths * theta, 0.0) + problem.verification_s
    best = lengths[int(np.argmax(tokens / latency))]
    return _with_optimal_bandwidth(problem, np.full(problem.num_devices, best))


def continuous_optimal_length(
    acceptance_rate: ArrayLike, verification_s: ArrayLike, token_latency_s: ArrayLike
) -> Any:
    """Theorem 1: the real L >= 0 that maximises (1 - alpha^(L+1)) / (L theta + T_ver).

    With t = T_ver / theta and the lower branch of Lambert's W::

        L = -ln(-W_{-1}(-alpha^(t-1) / e)) / ln alpha - 1
            if t > (1 - alpha) / (alpha |ln alpha|),

    and 0 otherwise (A-24). The argument of W under- and overflows; it is written as -e^s with
    s = (t - 1) ln alpha - 1, and W_{-1}(-e^s) is the Wright omega function at s - i pi (a float
    just beyond pi: just before it, scipy is on the principal branch).

    Args:
        acceptance_rate: alpha in [0, 1]; 0 gives 0, 1 gives inf.
        verification_s, token_latency_s: T_ver and theta, above 0; all three broadcast.
    """
    alpha = np.asarray(acceptance_rate, dtype=np.float64)
    t = np.asarray(verification_s, dtype=np.float64) / np.asarray(token_latency_s)
    rate = exponential_rate(alpha)  # -ln alpha
    with np.errstate(all="ignore"):
        interior = t * alpha * rate > 1.0 - alpha
        s = -(t - 1.0) * rate - 1.0
        omega = np.real(special.wrightomega(s - 1j * np.nextafter(np.pi, 4.0)))
        length = np.log(-omega) / rate - 1.0
    length = np.where(interior, np.maximum(length, 0.0), 0.0)
    return np.where(alpha >= 1.0, np.inf, length)[()]


def homogeneous_closed_form(problem: UploadProblem) -> UploadDecision:
    """Lemma 1 and Theorem 1: the best common length in closed form, for one acceptance rate.

    The goodput is unimodal in the length, so the best integer is next to the real optimum.

    Raises:
        ValueError: the acceptance rates differ; use :func:`homogeneous`.
    """
    alpha = problem.acceptance_rate
    if np.any(alpha != alpha[0]):
        raise ValueError(
            f"acceptance_rate = {alpha}: the closed form needs one rate for all; use homogeneous()"
        )
    real = continuous_optimal_length(alpha[0], problem.verification_s, token_latency(problem))
    low, high = problem.min_draft_length, problem.max_draft_length
    around = np.clip([np.floor(min(real, high)), np.ceil(min(real, high))], low, high).astype(int)
    decisions = [
        _with_optimal_bandwidth(problem, np.full(problem.num_devices, length))
        for length in np.unique(around)
    ]
    return max(decisions, key=lambda decision: decision.goodput)


# ---- one length for each (paper A, section V) ----------------------------------------------------


def continuous_lengths(problem: UploadProblem, phi: ArrayLike, multiplier: ArrayLike) -> Any:
    """Proposition 1: the real lengths that satisfy the KKT conditions for given phi and lambda.

    For a round whose drafting and uploading takes phi, maximise the expected tokens subject to
    sum_k Q L_k / (r_k (phi - L_k T_k)) <= B. With beta = -ln alpha and y = phi - L T,
    stationarity::

        alpha^(L+1) beta / (1 - alpha) = lambda Q phi / (r y^2)

    reads w e^w = beta / (2 T) sqrt(lambda Q phi (1 - alpha) / (r beta alpha)) e^(beta phi / (2 T))
    for w = beta y / (2 T), so w is the principal branch of Lambert's W of the right-hand
    side (A-37), here the Wright omega function of its logarithm, which never overflows.

    Args:
        problem: K devices.
        phi, multiplier: phi [s] and lambda, arrays of one shape [...]; above 0.

    Returns:
        Lengths [..., K], unrounded; they may be negative. -inf for a dead channel and for
        alpha = 0.
    """
    phi = np.asarray(phi, dtype=np.float64)[..., None]
    multiplier = np.asarray(multiplier, dtype=np.float64)[..., None]
    alpha, token_s = problem.acceptance_rate, problem.token_latency_s
    beta = exponential_rate(alpha)
    with np.errstate(all="ignore"):
        price = multiplier * problem.token_bits * phi / problem.spectral_efficiency
        # (1 - alpha) / beta tends to 1 as alpha tends to 1.
        ratio = np.where(beta > 0, -np.expm1(-beta) / beta, 1.0)
        log_argument = (
            np.log(beta / (2.0 * token_s))
            + 0.5 * np.log(price * ratio / alpha)
            + beta * phi / (2.0 * token_s)
        )
        y = np.where(
            beta > 1e-8,
            2.0 * token_s / beta * special.wrightomega(log_argument).real,
            np.sqrt(price),  # the limit alpha -> 1
        )
        lengths = (phi - y) / token_s
    alive = (problem.spectral_efficiency > 0) & (alpha > 0)
    return np.where(alive, lengths, -np.inf)


def heterogeneous(
    problem: UploadProblem, grid: tuple[int, int] = (50, 50), spacing: str = "log"
) -> UploadDecision:
    """*Hete-Multi-SPIN* (Algorithm 1): Proposition 1 on a grid over (phi, lambda), rounded.

    The ranges are those of Appendix G with epsilon = 1e-6: phi from max_k (T_k + Q / (B r_k)) to
    max_k Lmax (T_k + K Q / (B r_k)), lambda up to the value beyond which nobody drafts a second
    token. Every point gives lengths, clipped to what is allowed; Lemma 3 gives their exact latency.

    Args:
        problem: K devices.
        grid: how many values of phi and of lambda.
        spacing: `log` (within 0.01 % of the optimum on average at 50 x 50) or `linear` (the paper
            does not say which; a linear grid loses up to 7 %).

    Raises:
        ValueError: an unknown spacing, or a grid with less than 2 values in a direction.
    """
    if spacing not in ("log", "linear"):
        raise ValueError(f"spacing = {spacing!r}: must be 'log' or 'linear'")
    if len(grid) != 2 or min(grid) < 2:
        raise ValueError(f"grid = {grid!r}: must be two integers >= 2")
    alive = problem.spectral_efficiency > 0
    points = None
    if alive.any() and problem.max_draft_length > 0:
        points = _grid(problem, alive, grid, spacing)
    if points is None:
        return _with_optimal_bandwidth(problem, _least(problem))
    return _best_of(problem, upload_grid.best_of_grid(points, _compiled(problem)))


def _least(problem: UploadProblem) -> Integers:
    """The least lengths, [K]."""
    return np.full(problem.num_devices, problem.min_draft_length, dtype=np.int64)


def _grid(
    problem: UploadProblem, alive: NDArray[np.bool_], grid: tuple[int, int], spacing: str
) -> upload_grid.Grid | None:
    """The grid of :func:`heterogeneous`; None if nobody's second token is ever accepted."""
    space = np.geomspace if spacing == "log" else np.linspace
    token_s, alpha = problem.token_latency_s[alive], problem.acceptance_rate[alive]
    rate = problem.spectral_efficiency[alive]
    upload_s = problem.token_bits / (problem.bandwidth_hz * rate)
    low = float(np.max(token_s + upload_s))
    high = problem.max_draft_length * float(np.max(token_s + problem.num_devices * upload_s))
    beta = exponential_rate(alpha)
    with np.errstate(all="ignore"):
        ratio = np.where(beta > 0, beta / -np.expm1(-beta), 1.0)
        steepest = rate * (high - token_s) ** 2 / (problem.token_bits * high) * ratio * alpha**2
    top = float(np.max(np.where(alpha > 0, steepest, 0.0)))
    if top <= 0.0:
        return None
    phi = space(low, max(high, low * (1 + 1e-9)), grid[0])
    return _proposition_1(problem, phi, space(1e-6 * top, top, grid[1]))


def _proposition_1(problem: UploadProblem, phi: Floats, multiplier: Floats) -> upload_grid.Grid:
    """What :func:`continuous_lengths` computes that only phi or only lambda decides."""
    alpha, token_s = problem.acceptance_rate, problem.token_latency_s
    beta = exponential_rate(alpha)
    curved = (problem.spectral_efficiency > 0) & (alpha > 0) & (beta > 1e-8)
    with np.errstate(all="ignore"):
        scale = np.where(curved, beta / (2.0 * token_s), 0.0)
        ratio = np.where(curved, -np.expm1(-beta) / beta / alpha, 1.0)
        price = problem.token_bits / problem.spectral_efficiency * ratio
        stem = np.where(alpha > 0, np.sqrt(price) * np.exp(scale * phi[:, None]), np.inf)
        offset = np.where(curved, np.log(scale) + 0.5 * np.log(price), -np.inf)
    return upload_grid.Grid(phi, multiplier, scale, offset, stem)


def _best_of(problem: UploadProblem, lengths: Integers) -> UploadDecision:
    """The best of some decisions [M, K], with the bandwidths of Lemma 3.

    Of equal ones the first in lexicographic order.
    """
    lengths = np.unique(lengths, axis=0)
    tokens = expected_tokens(problem.acceptance_rate, lengths).sum(axis=1)
    goodput = tokens / (problem.ready_latency(lengths) + problem.verification_s)
    return _with_optimal_bandwidth(problem, lengths[int(np.argmax(goodput))])


def exact(problem: UploadProblem, deadlines: int = 200) -> UploadDecision:
    """The integer optimum of problem P2, with an upper bound that certifies it.

    For a fixed phi, lengths are chosen under sum_k B_k(L_k) <= B with
    B_k(L) = Q L / (r_k (phi - L T_k)): the tokens are concave and the bandwidths convex in each
    length, so adding the token with the best ratio of gain to bandwidth, until the band is full,
    is optimal up to the last, fractional addition. With that fraction it is the optimum of the
    relaxed problem, hence an upper bound.

    All phi are swept on a logarithmic grid, the best lengths are improved by +-1 and swap moves
    until none helps, and the bound between two neighbours of the grid,
    tokens(phi_2) / (phi_1 + T_ver), is tightened by bisection where it is above the best decision.

    Args:
        problem: K devices.
        deadlines: values of phi in the first sweep.

    Returns:
        The decision; its `upper_bound` is a proof that no decision exceeds it.
    """
    if isinstance(deadlines, bool) or int(deadlines) < 2:
        raise ValueError(f"deadlines = {deadlines!r}: must be an integer >= 2")
    lengths, bound = upload_search.exact_lengths(_compiled(problem), int(deadlines))
    decision = _with_optimal_bandwidth(problem, lengths)
    return UploadDecision(
        lengths, decision.bandwidth_hz, decision.goodput, max(bound, decision.goodput)
    )


# ---- the rivals of the paper -----------------------------------------------------------------


def uniform_bandwidth(problem: UploadProblem) -> UploadDecision:
    """*Uni-BW Multi-SPIN*: B / K for every device, the best length for each; exact.

    The round takes max_k L_k t_k + T_ver with t_k = T_k + K Q / (B r_k), and tokens rise with every
    length. So for some deadline x among the n t_k every device drafts what it can until then.
    """
    band = problem.bandwidth_hz / problem.num_devices
    with np.errstate(divide="ignore"):
        per_token = problem.token_latency_s + problem.token_bits / (
            band * problem.spectral_efficiency
        )
    counts = _lengths(problem)
    deadlines = np.unique(np.outer(counts, per_token[np.isfinite(per_token)]))
    if deadlines.size == 0:  # no device can send
        deadlines = np.zeros(1)
    fits = tokens_until(deadlines, per_token, problem.max_draft_length)
    lengths = np.maximum(fits, problem.min_draft_length)
    tokens = expected_tokens(problem.acceptance_rate, lengths).sum(axis=1)
    with np.errstate(invalid="ignore"):
        latency = np.max(np.where(lengths > 0, lengths * per_token, 0.0), axis=1)
    return _with_equal_bandwidth(
        problem, lengths[int(np.argmax(tokens / (latency + problem.verification_s)))]
    )


def fixed(problem: UploadProblem, draft_length: int = 8) -> UploadDecision:
    """*Fixed BW&L*: one length for all (8 in the paper) and B / K for every device."""
    low, high = problem.min_draft_length, problem.max_draft_length
    if isinstance(draft_length, bool) or not low <= int(draft_length) <= high:
        raise ValueError(f"draft_length = {draft_length!r}: must be an integer in [{low}, {high}]")
    return _with_equal_bandwidth(
        problem, np.full(problem.num_devices, int(draft_length), dtype=np.int64)
    )


def point_to_point(problem: UploadProblem, verification_s: float) -> UploadDecision:
    """*P2P-SPIN*: each device alone with the whole band and a verification of its own.

    Args:
        problem: K devices.
        verification_s: T_ver(1), the verification of a single draft [s].

    Returns:
        Each device's best length; the goodput is the mean over devices, of one served at a time.
    """
    _check_positive("verification_s", verification_s)
    lengths = _lengths(problem)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_token = problem.token_latency_s + problem.token_bits / (
            problem.bandwidth_hz * problem.spectral_efficiency
        )
        ready_s = np.where(lengths > 0, lengths * per_token[:, None], 0.0)
    goodput = expected_tokens(problem.acceptance_rate[:, None], lengths) / (
        ready_s + verification_s
    )
    best = np.argmax(goodput, axis=1)
    band = np.full(problem.num_devices, problem.bandwidth_hz)
    return UploadDecision(lengths[best], band, float(np.mean(np.max(goodput, axis=1))))


def centralised(
    problem: UploadProblem,
    server_token_latency_s: float,
    verification_s: float,
    schedule: str = "single",
) -> UploadDecision:
    """*Cen-SPIN*: the server drafts too, and nothing is sent.

    Args:
        problem: K devices, of which only the acceptance rates matter.
        server_token_latency_s: time of one drafted token at the server [s].
        verification_s: T_ver(1) [s]; read under `single` only.
        schedule: the paper leaves it open. `single`: one prompt at a time, each with its best
            length and a verification of its own; the goodput is the mean over prompts. `serial`:
            drafts one after the other, one batched verification, the best common length.
            `batched`: drafts at the same time, one batched verification, the best common length.
    """
    _check_positive("server_token_latency_s", server_token_latency_s)
    _check_positive("verification_s", verification_s)
    lengths = _lengths(problem)
    tokens = expected_tokens(problem.acceptance_rate[:, None], lengths)
    drafting_s = lengths * server_token_latency_s
    k = problem.num_devices
    nothing = np.zeros(k)
    if schedule == "single":
        goodput = tokens / (drafting_s + verification_s)
        best = lengths[np.argmax(goodput, axis=1)]
        return UploadDecision(best, nothing, float(np.mean(np.max(goodput, axis=1))))
    if schedule not in ("serial", "batched"):
        raise ValueError(f"schedule = {schedule!r}: must be 'single', 'serial' or 'batched'")
    one_after_the_other = k if schedule == "serial" else 1
    common = tokens.sum(axis=0) / (one_after_the_other * drafting_s + problem.verification_s)
    best = np.full(k, lengths[int(np.argmax(common))])
    return UploadDecision(best, nothing, float(np.max(common)))


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise ValueError(f"{name} = {value!r}: must be a number above 0")
    if not 0 < value < np.inf:
        raise ValueError(f"{name} = {value!r}: must be a finite number above 0")
