"""Solvers of the correction protocol (paper B): how long each device should draft.

All maximise the goodput of one round, G(gamma) = E[tokens] / E[latency], given the channel and the
rule by which corrections travel. The expectation of the correction latency is a sample average
over verification outcomes, the same for all decisions (common random numbers), or exact for few
devices.

**Why the optimum is bang-bang.** Fix a deadline x for drafting, and let q_k = alpha_k^gamma_k be
the probability that device k's draft is accepted. The outcomes are independent, so for any rule
that depends on the rejected set R only,

    E[T_comm] = sum over R of T(R) prod_{k in R} (1 - q_k) prod_{k not in R} q_k

is affine in each q_k with the others fixed. So are the expected tokens,
sum_k (1 - alpha_k q_k) / (1 - alpha_k). The drafting and verification latencies are constants once
x is fixed (nobody drafts longer than x, and waiting until x costs nothing more). So G is a ratio of
two affine functions of each q_k, hence monotone in it, and tokens - price * latency is affine: in
both cases each device's best length is an end of its range, 0 or floor(x / T_k), at most gamma_max.
What remains is to choose x, one of the n T_k, and the set of devices that draft.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from multispin_env.model import kernels
from multispin_env.model.acceptance import expected_tokens, run_length
from multispin_env.model.correction import RULES, check_rule
from multispin_env.solvers.problems import CorrectionProblem, check_integer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: A relative gain below this is taken for rounding.
TOLERANCE: Final = 1e-12


@dataclass(frozen=True)
class Decision:
    """A solver's answer: draft lengths [K] and their expected goodput [tokens/s]."""

    draft_length: Integers
    goodput: float


@lru_cache(maxsize=16)
def _outcomes(samples: int, num_devices: int, seed: int) -> tuple[Floats, Integers]:
    """Quasi-random exponential variates and coins, [samples, K]: kept between calls.

    Scrambled Sobol points: as few as 128 average as well as a thousand independent ones.
    """
    sampler = qmc.Sobol(2 * num_devices, scramble=True, rng=np.random.default_rng(seed))
    exponent = int(np.ceil(np.log2(samples)))
    uniform = sampler.random_base2(exponent)[:samples]
    exponential = -np.log1p(-uniform[:, :num_devices])
    coins = (uniform[:, num_devices:] < 0.5).astype(np.int64)
    exponential.setflags(write=False)
    coins.setflags(write=False)
    return exponential, coins


class _Round:
    """A problem under a rule, ready to value many decisions on the same outcomes.

    Devices are sorted by their uplink, as the kernel wants them; :meth:`restore` undoes that.
    """

    def __init__(self, problem: CorrectionProblem, rule: str, samples: int, seed: int) -> None:
        check_rule(rule)
        check_integer("samples", samples, 1)
        self.problem = problem
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            noise_w = problem.noise_server_w_hz * problem.bandwidth_hz
            snr = problem.uplink_power_w * problem.channel_gain / noise_w
            cost = problem.noise_device_w_hz * problem.bandwidth_hz / problem.channel_gain
        self.order = np.argsort(snr, kind="stable")
        self.snr, self.cost = snr[self.order], cost[self.order]
        self.alpha = problem.acceptance_rate[self.order]
        self.token_s = problem.token_latency_s[self.order]
        self.longest = int(problem.max_draft_length)
        self.rule = RULES[rule]
        exponential, coins = _outcomes(int(samples), problem.num_devices, seed)
        self.run = run_length(exponential, self.alpha)
        self.coins = coins
        #: Expected tokens of every device and length, [K, gamma_max + 1].
        self.tokens = expected_tokens(self.alpha[:, None], np.arange(self.longest + 1))
        self.device = np.arange(problem.num_devices)

    def restore(self, lengths: Integers) -> Integers:
        """Lengths in the problem's order of devices."""
        result = np.empty_like(lengths)
        result[self.order] = lengths
        return result

    def changes(self, lengths: Integers, other: Integers) -> tuple[float, Floats]:
        """Mean correction latency, and its change for each device's alternative [K]."""
        change = np.empty(lengths.size)
        p = self.problem
        base = kernels.latency_changes(
            self.rule,
            self.run,
            self.coins,
            lengths,
            other,
            self.snr,
            self.cost,
            p.downlink_power_w,
            p.payload_bits,
            p.bandwidth_hz,
            change,
        )
        return base, change

    def alternatives(self, lengths: Integers, other: Integers) -> tuple[Any, Any]:
        """Tokens and latency of a decision with one device at its alternative, [1 + K].

        Entry 0 is the decision itself, entry 1 + k has device k at `other[k]`.
        """
        base, change = self.changes(lengths, other)
        held, offered = self.tokens[self.device, lengths], self.tokens[self.device, other]
        tokens = held.sum() + np.concatenate(([0.0], offered - held))
        drafting = lengths * self.token_s
        order = np.argsort(drafting)
        # The longest drafting of the others: the largest, or for the largest itself the next.
        others = np.full(lengths.size, drafting[order[-1]])
        others[order[-1]] = drafting[order[-2]] if lengths.size > 1 else 0.0
        waits = np.concatenate(([drafting.max()], np.maximum(others, other * self.token_s)))
        correcting = base + np.concatenate(([0.0], change))
        return tokens, waits + self.problem.verification_s + np.maximum(correcting, 0.0)

    def goodput(self, lengths: Integers) -> float:
        """Sample-average goodput of a decision [tokens/s]."""
        base, _ = self.changes(lengths, lengths)
        drafting = float(np.max(lengths * self.token_s))
        latency = drafting + self.problem.verification_s + max(base, 0.0)
        return float(self.tokens[self.device, lengths].sum() / latency)


# ---- the paper's solvers ---------------------------------------------------------------------


def greedy(
    problem: CorrectionProblem,
    rule: str = "optimal",
    *,
    samples: int = 1000,
    seed: int = 0,
    exact: bool = False,
) -> Decision:
    """Algorithm 1 of paper B: all +1 while that helps, then the best single +1 while that helps.

    Starts at no drafts. The synchronised phase stops at gamma_max; the coordinate phase takes the
    device with the largest goodput, ties to the lowest index, and stops when none is better.

    Args:
        problem: the round.
        rule: how corrections travel.
        samples, seed: outcomes of the sample average (1,000 in the paper).
        exact: enumerate outcomes instead, for few devices.
    """
    round_ = _Round(problem, rule, samples, seed)
    lengths = np.zeros(problem.num_devices, np.int64)

    def value(candidate: Integers) -> float:
        if exact:
            return problem.goodput(round_.restore(candidate), rule, exact=True)
        return round_.goodput(candidate)

    best = value(lengths)
    while lengths[0] < round_.longest:
        longer = value(lengths + 1)
        if longer <= best:
            break
        lengths, best = lengths + 1, longer
    while True:
        longer_by_one = np.minimum(lengths + 1, round_.longest)
        if exact:
            steps = np.diag(longer_by_one - lengths)
            values = np.array([value(lengths + step) for step in steps])
        else:
            tokens, latency = round_.alternatives(lengths, longer_by_one)
            values = tokens[1:] / latency[1:]
        values = round_.restore(values)
        k = int(np.argmax(values))
        if values[k] <= best * (1.0 + TOLERANCE):
            return Decision(round_.restore(lengths), best)
        lengths[round_.order == k] += 1
        best = float(values[k])


def uniform(
    problem: CorrectionProblem,
    rule: str = "optimal",
    *,
    samples: int = 1000,
    seed: int = 0,
    exact: bool = False,
) -> Decision:
    """*Optimal uniform draft length*: the best common length, by trying 0..gamma_max.

    Args: as :func:`greedy`.
    """
    goodputs = uniform_goodputs(problem, rule, samples=samples, seed=seed, exact=exact)
    common = int(np.argmax(goodputs))  # the shortest of equals
    return Decision(np.full(problem.num_devices, common), float(goodputs[common]))


def uniform_goodputs(
    problem: CorrectionProblem,
    rule: str = "optimal",
    *,
    samples: int = 128,
    seed: int = 0,
    exact: bool = False,
) -> Floats:
    """Goodput of every common length on the same outcomes [tokens/s], [gamma_max + 1].

    Args: as :func:`greedy`.
    """
    round_ = _Round(problem, rule, samples, seed)

    def value(lengths: Integers) -> float:
        return problem.goodput(lengths, rule, exact=True) if exact else round_.goodput(lengths)

    commons = range(round_.longest + 1)
    return np.array([value(np.full(problem.num_devices, n)) for n in commons])


def computation_only(
    problem: CorrectionProblem,
    rule: str = "optimal",
    *,
    samples: int = 1000,
    seed: int = 0,
    exact: bool = False,
) -> Decision:
    """*Computation-only*: maximises tokens / (drafting + verification), blind to the channel.

    Exact: tokens rise with every length, so for some deadline x among the n T_k every device
    drafts what it can until then. The goodput of the answer includes corrections under `rule`.

    Args: as :func:`greedy`; they only value the answer.
    """
    lengths = _until(_deadlines(problem), problem.token_latency_s, problem.max_draft_length)
    tokens = expected_tokens(problem.acceptance_rate, lengths).sum(axis=1)
    drafting = np.max(lengths * problem.token_latency_s, axis=1)
    best = lengths[int(np.argmax(tokens / (drafting + problem.verification_s)))]
    if exact:
        return Decision(best, problem.goodput(best, rule, exact=True))
    round_ = _Round(problem, rule, samples, seed)
    return Decision(best, round_.goodput(best[round_.order]))


def _deadlines(problem: CorrectionProblem) -> Floats:
    """All n T_k, rising, and 0."""
    counts = np.arange(problem.max_draft_length + 1)
    return np.unique(np.outer(counts, problem.token_latency_s))


def _until(deadline_s: Any, token_s: Floats, longest: int) -> Integers:
    """Tokens that each device can draft until a deadline, [..., K]; a margin guards x = n T_k."""
    fits = np.floor(np.asarray(deadline_s)[..., None] / token_s * (1.0 + 1e-12))
    return np.minimum(fits, longest).astype(np.int64)


# ---- the deadline-subset search ----------------------------------------------------------------


def deadline(
    problem: CorrectionProblem,
    price: float | None = None,
    rule: str = "optimal",
    *,
    samples: int = 128,
    seed: int = 0,
) -> Decision:
    """The deadline-subset search: the best deadline, and the best set of devices that draft.

    By the theorem in the module's docstring some optimum lets every device draft either nothing or
    all it can until a deadline. For a given deadline the set is improved by the best single flip
    (one pass over the outcomes values all K of them) until none helps; deadlines are tried first
    from coarse to fine on few outcomes, then next to the best one on all, and last devices are
    swapped. A local search: against full enumeration of small rounds it loses 0.01 % on average and
    under 1 % at worst (tests/solvers).

    Args:
        problem: the round.
        price: maximise tokens - price * latency [tokens] instead of the ratio; tokens/s.
        rule: how corrections travel.
        samples, seed: outcomes of the sample average; quasi-random, so that few are enough.

    Returns:
        Lengths, and their sample-average goodput (also under a price).
    """
    if price is not None and not 0.0 <= price < np.inf:
        raise ValueError(f"price = {price!r}: must be a finite number >= 0, or None")
    full = _Round(problem, rule, samples, seed)
    search = _Search(_Round(problem, rule, min(samples, COARSE_SAMPLES), seed), price)
    # First the deadlines at which everybody has drafted n tokens: between them the goodput dips,
    # because all wait and only some draft one more.
    slowest = float(problem.token_latency_s.max())
    everybody = np.ones(problem.num_devices, np.int64)
    best = search.improve(0.0, everybody)
    worse, n = 0, 0
    while n < problem.max_draft_length and worse < PATIENCE:
        n += 1
        found = search.improve(n * slowest, best.drafts if best.drafts.any() else everybody)
        worse = 0 if found.value > best.value else worse + 1
        best = max(best, found, key=lambda state: state.value)
    # Then, on all outcomes, its neighbours, and the deadlines around the best two, where the
    # slowest devices miss a token.
    search = _Search(full, price)
    near = [search.improve(best.deadline_s + i * slowest, best.drafts) for i in (0, -1, 1)]
    near.sort(key=lambda state: -state.value)
    grid, stride = _deadlines(problem), max(1, problem.num_devices // 2)
    near = [search.descend(grid, state, stride) for state in near[:2]]
    best = search.swap(max(near, key=lambda state: state.value))
    lengths = search.lengths(best)
    return Decision(full.restore(lengths), full.goodput(lengths))


#: How many deadlines may be worse in a row before the sweep ends.
PATIENCE: Final = 3
#: Outcomes of the first, coarse sweep over deadlines.
COARSE_SAMPLES: Final = 32
#: Devices that a swap tries to replace: those with the worst uplinks.
SWAP_CANDIDATES: Final = 3


@dataclass(frozen=True)
class _State:
    """A deadline, the devices that draft until it, and what that is worth."""

    deadline_s: float
    drafts: Integers  #: 1 where a device drafts
    value: float


class _Search:
    """Local search over subsets and deadlines on the outcomes of one round."""

    def __init__(self, round_: _Round, price: float | None) -> None:
        self._round = round_
        self._price = price

    def lengths(self, state: _State) -> Integers:
        """Draft lengths, devices in the round's order."""
        return np.where(state.drafts == 1, self._until(state.deadline_s), 0)

    def _until(self, deadline_s: float) -> Integers:
        return _until(deadline_s, self._round.token_s, self._round.longest)

    def improve(self, deadline_s: float, drafts: Integers) -> _State:
        """The subset that no single flip improves, reached from `drafts`."""
        round_, problem = self._round, self._round.problem
        longest = self._until(max(deadline_s, 0.0))
        drafts = drafts.copy()
        value = kernels.improve_subset(
            round_.rule,
            round_.run,
            round_.coins,
            longest,
            round_.tokens[round_.device, longest] - 1.0,
            longest * round_.token_s,
            round_.snr,
            round_.cost,
            problem.downlink_power_w,
            problem.payload_bits,
            problem.bandwidth_hz,
            problem.verification_s,
            -1.0 if self._price is None else self._price,
            drafts,
        )
        return _State(deadline_s, drafts, value)

    def descend(self, grid: Floats, best: _State, stride: int) -> _State:
        """Move to better deadlines of a grid, by halving strides, until no neighbour is better."""
        index = int(np.searchsorted(grid, best.deadline_s * (1.0 + 1e-12), side="right")) - 1
        while stride >= 1:
            for near in (index - stride, index + stride):
                if 0 <= near < len(grid):
                    found = self.improve(float(grid[near]), best.drafts)
                    if found.value > best.value:
                        best, index = found, near
                        break
            else:
                stride //= 2
        return best

    def swap(self, best: _State) -> _State:
        """Replace one drafting device by others while that helps, the worst uplinks first."""
        improved = True
        while improved:
            improved = False
            for k in np.flatnonzero(best.drafts)[:SWAP_CANDIDATES]:
                without = best.drafts.copy()
                without[k] = 0
                found = self.improve(best.deadline_s, without)
                if found.value > best.value + TOLERANCE * abs(best.value):
                    best, improved = found, True
                    break
        return best
