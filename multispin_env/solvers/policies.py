"""Solvers by name, as draft policies: observation of the next round -> draft lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multispin_env.scenario import Scenario
from multispin_env.solvers.corrections import computation_only, deadline, greedy, uniform
from multispin_env.solvers.optima import thorough
from multispin_env.solvers.problems import pose_observed

#: Solvers of the correction protocol by name.
DRAFT_SOLVERS: Final[dict[str, Callable[..., Any]]] = {
    "computation_only": computation_only,
    "deadline": deadline,
    "greedy": greedy,
    "thorough": thorough,
    "uniform": uniform,
}


def draft_policy(
    name: str, scenarios: Sequence[Scenario]
) -> Callable[[Mapping[str, Any]], NDArray[np.int64]]:
    """The batched draft policy of a solver: observation arrays [N, K] -> lengths [N, K].

    Args:
        name: a key of :data:`.DRAFT_SOLVERS`.
        scenarios: one for each of the N cells.
    """
    if name not in DRAFT_SOLVERS:
        names = ", ".join(map(repr, DRAFT_SOLVERS))
        raise ValueError(f"draft_policy = {name!r}: must be one of the solvers {names}")
    return partial(_solve, name=name, scenarios=tuple(scenarios))


def _solve(
    observation: Mapping[str, Any], name: str, scenarios: tuple[Scenario, ...]
) -> NDArray[np.int64]:
    solver = DRAFT_SOLVERS[name]
    return np.stack(
        [
            solver(pose_observed(scenario, {k: v[n] for k, v in observation.items()})).draft_length
            for n, scenario in enumerate(scenarios)
        ]
    )
