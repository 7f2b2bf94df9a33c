"""The reference of a scenario: its default price and its default draft length."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multispin_env import tape
from multispin_env.scenario import Scenario
from multispin_env.solvers.corrections import Decision
from multispin_env.solvers.problems import CorrectionProblem, Problem, pose

Integers = NDArray[np.int64]

REFERENCE_ROUNDS: Final = 64  # rounds that a reference averages over
REFERENCE_SAMPLES: Final = 64  # acceptance outcomes a round, correction protocol
REFERENCE_SEED: Final = 20260604
SEARCH_STEPS: Final = 25  # values tried in each direction of the search


@dataclass(frozen=True)
class Reference:
    """What a scenario can be expected to reach."""

    draft_length: int  #: the common length that is best on average [tokens]
    goodput: float  #: mean goodput of the strongest solver [tokens/s]: the default price


def drop_worst(problem: Problem, *, samples: int = REFERENCE_SAMPLES, seed: int = 0) -> Decision:
    """The best of "drop the m devices with the worst channel, one common length for the rest".

    A search over two numbers, each over all its values or, if these are many, over a spread of
    them. A dropped device decodes plainly (length 0): it can delay the round neither by a slow
    correction nor by a slow upload.
    """
    gain = getattr(problem, "channel_gain", None)
    quality = problem.spectral_efficiency if gain is None else gain  # type: ignore[union-attr]
    order = np.argsort(quality, kind="stable")
    k = problem.num_devices
    value = _valuer(problem, samples, seed)
    best = Decision(np.zeros(k, np.int64), value(np.zeros(k, np.int64)))
    for dropped in _spread(0, k - 1):
        for common in _spread(1, problem.max_draft_length):
            lengths = np.zeros(k, np.int64)
            lengths[order[dropped:]] = common
            goodput = value(lengths)
            if goodput > best.goodput:
                best = Decision(lengths, goodput)
    return best


def _spread(low: int, high: int) -> Integers:
    """All integers in [low, high], or about SEARCH_STEPS of them, denser at the low end."""
    if high - low < SEARCH_STEPS:
        return np.arange(low, high + 1)
    return np.unique(np.rint(np.geomspace(1, high - low + 1, SEARCH_STEPS)).astype(int)) + low - 1


def _valuer(problem: Problem, samples: int, seed: int) -> Callable[[Integers], float]:
    if isinstance(problem, CorrectionProblem):
        return lambda lengths: problem.goodput(lengths, samples=samples, seed=seed)
    return problem.goodput


def reference(scenario: Scenario) -> Reference:
    """The reference length and goodput of a scenario: stored ones, or else computed ones.

    Computed: over 64 rounds with devices and channels drawn from a fixed seed, the mean goodput of
    the strongest shipped solver (:func:`drop_worst`), and the common length whose goodput is
    largest on average. Deterministic, and cached for the process.
    """
    length, goodput = scenario.reference_draft_length, scenario.reference_goodput
    if length is None or goodput is None:
        # The name, the models and the episode do not matter; one entry serves all of these.
        physics = replace(
            scenario, name="-", reference_draft_length=None, reference_goodput=None
        ).to_dict()
        del physics["models"], physics["episode"]
        computed = _compute(json.dumps(physics, sort_keys=True))
        length = computed.draft_length if length is None else length
        goodput = computed.goodput if goodput is None else goodput
    return Reference(length, goodput)


@lru_cache(maxsize=1024)
def _compute(physics: str) -> Reference:
    data: dict[str, Any] = json.loads(physics)
    data["models"], data["episode"] = {"draft": "-", "target": "-"}, {"rounds": 1}
    scenario = Scenario.from_dict(data)
    generator, law = np.random.default_rng(REFERENCE_SEED), tape.DeviceLaw(scenario)
    best = 0.0
    uniform = np.zeros(scenario.max_draft_length + 1)
    for _ in range(REFERENCE_ROUNDS):
        devices = law(tape.draw_uniform(generator, scenario.num_devices))
        fading = generator.standard_exponential(scenario.num_devices)
        if scenario.channel.fading == "none":
            fading = np.ones_like(fading)
        posed = pose(
            scenario,
            devices.acceptance_rate,
            devices.token_latency_s,
            devices.mean_gain * fading,
        )
        value = _valuer(posed, REFERENCE_SAMPLES, 0)
        best += drop_worst(posed).goodput / REFERENCE_ROUNDS
        for common in range(uniform.size):
            uniform[common] += value(np.full(scenario.num_devices, common, np.int64))
    return Reference(int(np.argmax(uniform)), best)
