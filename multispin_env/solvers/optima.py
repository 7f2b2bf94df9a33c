"""Optima of the correction protocol, to play where time allows and to measure others by.

:mod:`~multispin_env.solvers.corrections` has the theorem that they rest on: some best decision lets
every device draft either nothing or all it can until a deadline.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from multispin_env.model.acceptance import expected_tokens, rejection_probability
from multispin_env.model.correction import check_rule
from multispin_env.model.kernels import correction_bound, correction_subsets
from multispin_env.model.latency import tokens_until
from multispin_env.solvers.corrections import deadline
from multispin_env.solvers.problems import CorrectionProblem, check_integer
from multispin_env.solvers.sampled import Decision, SampledRound, all_deadlines

#: :func:`thorough` tries every subset of at most this many devices.
EVERY_SUBSET_MAX_DEVICES: Final = 8
#: And of more, visits at most this many nodes times devices of search trees.
THOROUGH_MAX_WORK: Final = 400_000
#: Deadlines at which it first improves a subset by flips.
THOROUGH_FLIPPED: Final = 32


def thorough(
    problem: CorrectionProblem,
    price: float | None = None,
    rule: str = "optimal",
    *,
    samples: int = 128,
    seed: int = 0,
) -> Decision:
    """The best deadline and the best set of devices that draft, where :func:`deadline` may miss it.

    For at most 8 devices all subsets at all deadlines are tried: no decision of that form is better
    on the same outcomes. For more, the deadlines are searched in a promising order, by flips and
    then by branch and bound (:func:`branch_and_bound` has the bound) until that is complete, or a
    budget of nodes is used up. The answer is never worse than :func:`deadline`'s, which it starts
    from, on the same outcomes.

    It has a name of its own because the decisions of :func:`deadline` define prices and stored
    references. docs/optimality.md tells where the two differ: where drafting speeds, channels or
    acceptance rates are very unequal.

    Args: as :func:`deadline`.

    Returns:
        Lengths, and their sample-average goodput (also under a price).
    """
    round_ = SampledRound(problem, rule, samples, seed)
    objective, grid = round_.objective(price), all_deadlines(problem)
    start = deadline(problem, price, rule, samples=samples, seed=seed)
    best = round_.sort(start.draft_length)
    if problem.num_devices <= EVERY_SUBSET_MAX_DEVICES:
        correction_subsets.every_subset(objective, round_.samples, grid, best)
    else:
        nodes = THOROUGH_MAX_WORK // problem.num_devices
        correction_subsets.search_in_order(
            objective, round_.samples, grid, THOROUGH_FLIPPED, nodes, best
        )
    return Decision(round_.restore(best), round_.goodput(best))


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
    round_ = SampledRound(problem, rule, samples, seed)
    best = round_.sort(deadline(problem, rule=rule, samples=samples, seed=seed).draft_length)
    goodput = round_.goodput(best)
    drafts = np.empty(problem.num_devices, np.int64)
    for forced, count in np.ndindex(problem.num_devices, problem.max_draft_length):
        deadline_s = (count + 1) * round_.token_s[forced]
        lengths = tokens_until(deadline_s, round_.token_s, round_.longest)
        value, nodes = correction_bound.best_subset(
            round_.objective(), round_.samples, lengths, forced, goodput, int(max_nodes), drafts
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
