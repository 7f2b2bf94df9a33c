"""The reference of a scenario: its default price and its default draft length."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from multispin_env.model.acceptance import expected_tokens
from multispin_env.model.sums import total
from multispin_env.scenario import Scenario
from multispin_env.solvers import corrections, uploads
from multispin_env.solvers.problems import CorrectionProblem, Problem, draw

REFERENCE_ROUNDS: Final = 64  # rounds that a reference averages over
REFERENCE_SEED: Final = 20260604
PATIENCE_S: Final = 2.0  # a default price that takes longer than this is announced

_GOODPUTS: dict[str, float] = {}  # computed before in this process, by fingerprint
_LENGTHS: dict[str, int] = {}


@dataclass(frozen=True)
class Reference:
    """What a scenario can be expected to reach."""

    draft_length: int  #: the common length that is best on average over rounds [tokens]
    goodput: float  #: mean goodput of the strongest solver [tokens/s], the default price


def reference(scenario: Scenario) -> Reference:
    """Both reference values of a scenario; see the two functions below."""
    return Reference(reference_draft_length(scenario), reference_goodput(scenario))


def reference_goodput(scenario: Scenario) -> float:
    """The stored reference goodput, or else the mean of the strongest solver over 64 rounds.

    Devices and channels are drawn from a fixed seed; the solver is :func:`deadline` for corrections
    and :func:`exact` for uploads. Deterministic, and kept for the process. [tokens/s]

    Warns:
        UserWarning: once it is clear that the computation takes longer than two seconds.
    """
    if scenario.reference_goodput is not None:
        return scenario.reference_goodput
    key = scenario.fingerprint
    if key not in _GOODPUTS:
        goodputs = [
            corrections.deadline(p).goodput
            if isinstance(p, CorrectionProblem)
            else uploads.exact(p).goodput
            for p in _announced(scenario, _rounds(scenario))
        ]
        _GOODPUTS[key] = float(np.mean(goodputs))
    return _GOODPUTS[key]


def _announced(scenario: Scenario, rounds: Iterator[Problem]) -> Iterator[Problem]:
    """The rounds, and a warning once those done tell that all will take long.

    The first is not timed, because it may compile kernels. A quarter of the patience must have
    passed before anything is said, so that a hiccup of the machine is no reason for it.
    """
    start, warned = 0.0, False
    for done, problem in enumerate(rounds):
        yield problem
        now = time.perf_counter()
        if done == 0:
            start = now
        elapsed_s = now - start
        total_s = elapsed_s / max(done, 1) * REFERENCE_ROUNDS
        if not warned and elapsed_s > PATIENCE_S / 4 and total_s > PATIENCE_S:
            warned = True
            warnings.warn(
                f"the default price of {scenario.name!r} with num_devices = "
                f"{scenario.num_devices} takes about {total_s:.0f} s to compute in every new "
                "process: give price= to the environment, or reference_goodput to the scenario",
                stacklevel=2,
            )


def reference_draft_length(scenario: Scenario) -> int:
    """The stored reference length, or else the common length with the best mean goodput.

    The mean is over the 64 rounds of :func:`reference_goodput`, of each round's expected goodput.
    It is a sensible length to draft where the agent picks modes, not the best constant over an
    episode: where one faded device holds up everybody, that may be 0. [tokens]
    """
    if scenario.reference_draft_length is not None:
        return scenario.reference_draft_length
    key = scenario.fingerprint
    if key not in _LENGTHS:
        goodputs = total(_uniform_goodputs(p) for p in _rounds(scenario))
        _LENGTHS[key] = int(np.argmax(goodputs))
    return _LENGTHS[key]


def _uniform_goodputs(problem: Problem) -> np.ndarray:
    """Goodput of every common length, [max_draft_length + 1]."""
    lengths = np.arange(problem.max_draft_length + 1)
    if isinstance(problem, CorrectionProblem):
        return corrections.uniform_goodputs(problem)
    tokens = expected_tokens(problem.acceptance_rate[:, None], lengths).sum(axis=0)
    with np.errstate(invalid="ignore"):
        ready_s = np.where(lengths > 0, lengths * uploads.token_latency(problem), 0.0)
    return np.asarray(tokens / (ready_s + problem.verification_s))


def _rounds(scenario: Scenario) -> Iterator[Problem]:
    """The rounds that a reference averages over."""
    generator = np.random.default_rng(REFERENCE_SEED)
    for _ in range(REFERENCE_ROUNDS):
        yield draw(scenario, generator)
