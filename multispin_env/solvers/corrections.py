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

from functools import partial
from typing import Final

import numpy as np

from multispin_env.model.acceptance import expected_tokens
from multispin_env.model.kernels import correction_samples, correction_search
from multispin_env.model.latency import tokens_until
from multispin_env.solvers.problems import CorrectionProblem
from multispin_env.solvers.sampled import Decision, Floats, Integers, SampledRound, all_deadlines

#: A relative gain below this is taken for rounding.
TOLERANCE: Final = 1e-12


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
    round_ = SampledRound(problem, rule, samples, seed)
    return round_.goodput(round_.sort(draft_length))


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
    round_ = SampledRound(problem, rule, samples, seed)
    lengths = np.zeros(problem.num_devices, np.int64)
    best = round_.goodput(lengths, exact)
    while lengths[0] < round_.longest:
        longer = round_.goodput(lengths + 1, exact)
        if longer <= best:
            break
        lengths, best = lengths + 1, longer
    values_of = partial(_exact_values, round_) if exact else _Steps(round_).values
    grown = -1
    while True:
        values = values_of(lengths, grown)
        k = int(np.argmax(round_.restore(values)))
        grown = int(np.flatnonzero(round_.order == k)[0])
        if values[grown] <= best * (1.0 + TOLERANCE):
            return Decision(round_.restore(lengths), best)
        lengths[grown] += 1
        best = float(values[grown])


def _exact_values(round_: SampledRound, lengths: Integers, grown: int) -> Floats:
    """As :meth:`_Steps.values`, of exact goodputs, each from scratch."""
    steps = np.diag(np.minimum(lengths + 1, round_.longest) - lengths)
    return np.array([round_.goodput(lengths + step, exact=True) for step in steps])


class _Steps:
    """Sample-average goodputs with one more token for one device, kept from step to step."""

    def __init__(self, round_: SampledRound) -> None:
        self._round = round_
        self._runs = correction_samples.sort_runs(round_.samples.run_length, round_.longest)
        shape = round_.samples.run_length.shape
        self._steps = correction_samples.Steps(np.empty(shape[0]), np.empty(shape))

    def values(self, lengths: Integers, grown: int) -> Floats:
        """The goodputs, [K]: who is at gamma_max stays there.

        `grown` is the device that has one token more than in the last call, -1 in the first.
        """
        round_, values = self._round, np.empty(lengths.size)
        correction_search.step_values(
            round_.objective(), round_.samples, self._runs, lengths, grown, self._steps,
            round_.tokens[round_.device, lengths].sum(), values,
        )  # fmt: skip
        return values


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
    round_ = SampledRound(problem, rule, samples, seed)
    commons = (np.full(problem.num_devices, n) for n in range(round_.longest + 1))
    return np.array([round_.goodput(lengths, exact) for lengths in commons])


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
    lengths = tokens_until(
        all_deadlines(problem), problem.token_latency_s, problem.max_draft_length
    )
    tokens = expected_tokens(problem.acceptance_rate, lengths).sum(axis=1)
    drafting = np.max(lengths * problem.token_latency_s, axis=1)
    best = lengths[int(np.argmax(tokens / (drafting + problem.verification_s)))]
    round_ = SampledRound(problem, rule, samples, seed)
    return Decision(best, round_.goodput(round_.sort(best), exact))


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
    docs/optimality.md tells how far it is from the optimum in rounds of the scenarios (0.1 % on
    average at most, under 1 % at worst) and which command measures that. Where devices are very
    unequal it can lose a third: see :func:`.thorough`.

    Args:
        problem: the round.
        price: maximise tokens - price * latency [tokens] instead of the ratio; tokens/s.
        rule: how corrections travel.
        samples, seed: outcomes of the sample average; quasi-random, so that few are enough.

    Returns:
        Lengths, and their sample-average goodput (also under a price).
    """
    round_ = SampledRound(problem, rule, samples, seed)
    lengths = np.empty(problem.num_devices, np.int64)
    grid = all_deadlines(problem)
    correction_search.deadline_search(round_.objective(price), round_.samples, grid, lengths)
    return Decision(round_.restore(lengths), round_.goodput(lengths))
