"""Solvers of the correction protocol (paper B): how long each device should draft.

All maximise the goodput of one round, G(gamma) = E[tokens] / E[latency], given the channel and the
rule by which corrections travel. The expectation of the correction latency is a sample average
over verification outcomes, the same for all decisions (common random numbers), or exact for few
devices.

**Why the optimum is bang-bang.** Fix a deadline x for drafting, and let q_k = alpha_k^gamma_k be
the probability that device k's draft is accepted. The outcomes are independent, so for any rule
that depends on the rejected set R only::

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

from multispin_env.model import kernels_old as kernels
from multispin_env.model.acceptance import expected_tokens, rejection_probability, run_length
from multispin_env.model.correction import RULES, check_rule
from multispin_env.model.latency import tokens_until
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
    from scipy.stats import qmc  # takes as long to import as all that an environment needs

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


def sampled_goodput(
    problem: CorrectionProblem,
    draft_length: Integers,
    rule: str = "optimal",
    *,
    samples: int = 128,
    seed: int = 0,
) -> float:
    """Goodput of a decision on the outcomes that the solvers average over [tokens/s].

    As :meth:`.CorrectionProblem.goodput`, on quasi-random outcomes, and ten times as fast.
    """
    round_ = _Round(problem, rule, samples, seed)
    return round_.goodput(np.asarray(draft_length, dtype=np.int64)[round_.order])


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

    Args: as :func:`.greedy`.
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

    Args: as :func:`.greedy`.
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

    Args: as :func:`.greedy`; they only value the answer.
    """
    lengths = tokens_until(_deadlines(problem), problem.token_latency_s, problem.max_draft_length)
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
    all it can until a deadline. Deadlines and the sets that leave out the worst uplinks are swept
    first; the best are improved by single flips (one pass over the outcomes values all K of them)
    and by leaving out several devices at once, until nothing helps. It is a local search:
    docs/optimality.md tells how far it is from the optimum (0.1 % on average at most, under 1 % at
    worst) and which command measures that.

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
    round_ = _Round(problem, rule, samples, seed)
    lengths = np.empty(problem.num_devices, np.int64)
    kernels.deadline_search(
        round_.rule,
        round_.run,
        round_.coins,
        round_.longest,
        round_.tokens,
        round_.token_s,
        round_.snr,
        round_.cost,
        problem.downlink_power_w,
        problem.payload_bits,
        problem.bandwidth_hz,
        problem.verification_s,
        -1.0 if price is None else float(price),
        _deadlines(problem),
        lengths,
    )
    return Decision(round_.restore(lengths), round_.goodput(lengths))


# ---- optima to measure others by -----------------------------------------------------------------


def branch_and_bound(
    problem: CorrectionProblem,
    rule: str = "optimal",
    *,
    samples: int = 128,
    seed: int = 0,
    max_nodes: int = 1_000_000,
) -> Decision:
    """The certified optimum of the sample-average problem over all deadlines and subsets.

    The answer that :func:`deadline` looks for, proved to be the best on the same outcomes, to a
    relative 1e-9. For K = 20 it takes a tenth of a second where trying all 2^20 subsets of every
    deadline takes minutes.

    Take a deadline and the goodput G to beat: a subset S is better iff tokens(S) - G * latency(S)
    > 0. Devices are decided one by one, the worst uplink first. With I decided to draft and F
    undecided, no S between I and I + F exceeds::

        tokens(I) - G * latency(I) + sum over k in F of max(0, gain_k - G * cost_k),

    where cost_k bounds from below what k adds to the mean correction latency. A correction of r
    devices at level eta takes f(r) = D r / (B log2(1 + eta r / B)), which rises with r, falls with
    eta, and is concave in r. Adding devices never raises the level, so for each outcome the
    latency of S is at least f at the level of I, and by concavity lies above the chord of f from
    `|R_I|` to `|R_(I + F)|`: its slope is the cost of every device of F that is rejected. (If
    nobody of I is rejected, the level of the best single device of F takes the place of I's, and
    f(0) = 0.) A deadline n T_k needs to be tried only with k drafting: otherwise an earlier one
    gives the same lengths.

    Args:
        problem: the round.
        rule: how corrections travel.
        samples, seed: as :func:`deadline`; the same outcomes.
        max_nodes: of the search tree of one deadline.

    Raises:
        RuntimeError: the tree has more nodes.
    """
    check_integer("max_nodes", max_nodes, 1)
    round_ = _Round(problem, rule, samples, seed)
    best = deadline(problem, rule=rule, samples=samples, seed=seed).draft_length[round_.order]
    goodput = round_.goodput(best)
    drafts = np.empty(problem.num_devices, np.int64)
    for forced, count in np.ndindex(problem.num_devices, problem.max_draft_length):
        deadline_s = (count + 1) * round_.token_s[forced]
        lengths = tokens_until(deadline_s, round_.token_s, round_.longest)
        value, nodes = kernels.best_subset(
            round_.rule,
            round_.run,
            round_.coins,
            lengths,
            round_.tokens[round_.device, lengths] - 1.0,
            lengths * round_.token_s,
            forced,
            round_.snr,
            round_.cost,
            problem.downlink_power_w,
            problem.payload_bits,
            problem.bandwidth_hz,
            problem.verification_s,
            goodput,
            int(max_nodes),
            drafts,
        )
        if nodes < 0:
            raise RuntimeError(f"max_nodes = {max_nodes}: the search needs more")
        if value > goodput:
            best, goodput = lengths * drafts, value
    return Decision(round_.restore(best), round_.goodput(best))


#: Decisions that :func:`exhaustive` tries at most.
EXHAUSTIVE_MAX_DECISIONS: Final = 200_000


def exhaustive(problem: CorrectionProblem, rule: str = "optimal") -> Decision:
    """The true optimum of a small round: every decision, valued exactly.

    Args:
        problem: the round; (gamma_max + 1)^K may be 200,000 at most.
        rule: how corrections travel; `random` is in expectation over its coins.

    Raises:
        ValueError: the round is too large.
    """
    check_rule(rule)
    longest, k = int(problem.max_draft_length), problem.num_devices
    if (longest + 1) ** k > EXHAUSTIVE_MAX_DECISIONS:
        raise ValueError(
            f"(max_draft_length + 1)^K = {longest + 1}^{k}: must be at most "
            f"{EXHAUSTIVE_MAX_DECISIONS}"
        )
    outcomes, latency_s = problem.outcome_latencies(rule)
    lengths = np.array(list(np.ndindex(*(longest + 1,) * k)))
    reject = rejection_probability(problem.acceptance_rate, lengths)
    correcting_s = np.zeros(len(lengths))
    for outcome, seconds in zip(outcomes, latency_s):
        probability = np.prod(np.where(outcome == 1, reject, 1.0 - reject), axis=1)
        possible = probability > 0  # an impossible outcome may take forever: 0 * inf is not 0
        correcting_s[possible] += probability[possible] * seconds
    tokens = expected_tokens(problem.acceptance_rate, lengths).sum(axis=1)
    drafting_s = np.max(lengths * problem.token_latency_s, axis=1)
    goodput = tokens / (drafting_s + problem.verification_s + correcting_s)
    best = int(np.argmax(goodput))
    return Decision(lengths[best], float(goodput[best]))
