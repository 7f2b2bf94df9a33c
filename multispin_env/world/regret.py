"""How far a round's decision was from the best known one: `regret=True`.

The best known decision is that of the strongest shipped solver, `deadline` or `exact`, for the same
devices and channel; both decisions are valued in expectation over acceptances, so that the regret
tells bad decisions from bad luck. Where the agent picks modes, it does so knowing the outcome, and
its modes are compared with Lemma 2's for that outcome.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from multispin_env import solvers
from multispin_env.model.sums import total
from multispin_env.solvers.corrections import sampled_goodput
from multispin_env.solvers.problems import CorrectionProblem, Problem, UploadProblem
from multispin_env.world.control import DRAFT_BANDWIDTH, MODE_SELECTION, Control

#: Quasi-random outcomes that both decisions are valued on.
SAMPLES: Final = 1024


def regret_keys(control: Control) -> tuple[str, ...]:
    """The info keys that `regret=True` adds."""
    goodputs = ("best_goodput", "chosen_goodput", "regret")
    return (*goodputs, "excess_latency_s") if control.mode else goodputs


def round_regret(
    control: Control,
    rule: str,
    problem: Problem,
    drafted: NDArray[np.int64],
    rejected: NDArray[np.int64],
    bandwidth_hz: NDArray[np.float64],
    emitted: float,
    latency_parts_s: tuple[float, float, float],
) -> dict[str, float]:
    """The values of :func:`regret_keys` for one round.

    Args:
        control: what the agent decides.
        rule: how corrections travel where it does not decide that.
        problem: what was known when the round started.
        drafted, rejected, bandwidth_hz: what was played, [K].
        emitted: tokens that the round generated.
        latency_parts_s: drafting, verification and communication [s], uncut.
    """
    computing_s, taken_s = total(latency_parts_s[:2]), latency_parts_s[2]
    shortest_s = _shortest_correction(problem, rejected, taken_s) if control.mode else 0.0
    if control == MODE_SELECTION:
        best, chosen = emitted / (computing_s + shortest_s), emitted / (computing_s + taken_s)
    else:
        chosen = expected_goodput(control, rule, problem, drafted, bandwidth_hz, SAMPLES)
        if isinstance(problem, UploadProblem):
            best = solvers.exact(problem).goodput
        else:
            strongest = solvers.deadline(problem, rule=rule).draft_length
            best = sampled_goodput(problem, strongest, rule, samples=SAMPLES)
    best = max(best, chosen)  # best known, and the agent's decision is known
    result = {"best_goodput": best, "chosen_goodput": chosen, "regret": best - chosen}
    if control.mode:
        result["excess_latency_s"] = taken_s - shortest_s
    return result


def expected_goodput(
    control: Control,
    rule: str,
    problem: Problem,
    drafted: NDArray[np.int64],
    bandwidth_hz: NDArray[np.float64],
    samples: int,
) -> float:
    """Expected goodput of the lengths played (and, where the agent splits it, the band) [tokens/s].

    Args: as :func:`round_regret`; `samples` quasi-random outcomes are averaged over.
    """
    if isinstance(problem, UploadProblem):
        return problem.goodput(drafted, bandwidth_hz if control == DRAFT_BANDWIDTH else None)
    return sampled_goodput(problem, drafted, rule, samples=samples)


def _shortest_correction(problem: Problem, rejected: NDArray[np.int64], taken_s: float) -> float:
    """Correction latency under Lemma 2, at most what was taken (which is capped) [s]."""
    assert isinstance(problem, CorrectionProblem)
    return min(float(problem.correct(rejected == 1).latency_s), taken_s)
