"""From the arguments of an environment to a :class:`~multispin_env.world.core.Core`, all checked.

Both shells, scalar and vector, are configured here, so that they accept and refuse the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multispin_env import solvers
from multispin_env.envs.rewards import Reward, check_reward
from multispin_env.model.correction import RULES
from multispin_env.scenario import Scenario
from multispin_env.solvers.problems import check_integer
from multispin_env.world import threads as available_threads
from multispin_env.world.control import Control
from multispin_env.world.core import Core, DraftPolicy, Observation

ScenarioLike = str | Path | Mapping[str, Any] | Scenario
Overrides = Mapping[str, Any]
#: Lengths where the agent only picks modes: one for all, one a device, a solver's name, or a
#: callable of DraftLength's observation of the round to be drafted.
DraftPolicyLike = int | Sequence[int] | str | Callable[[Observation], Any]


def load_scenarios(
    control: Control,
    num_cells: int,
    scenario: ScenarioLike | Sequence[ScenarioLike] | None,
    overrides: Overrides | Sequence[Overrides] | None,
) -> list[Scenario]:
    """One scenario a cell: one and its overrides for all, or a list with one for each.

    Args:
        control: has the default scenario, and says which protocols fit.
        num_cells: how many are needed.
        scenario, overrides: as given to the environment.

    Raises:
        ValueError: the protocol does not fit the control, or the cells differ in shape.
    """
    scenario = control.scenario if scenario is None else scenario
    listed = isinstance(scenario, Sequence) and not isinstance(scenario, str)
    for name, given in (("scenario", scenario if listed else None), ("overrides", overrides)):
        if isinstance(given, Sequence) and len(given) != num_cells:
            raise ValueError(
                f"{name} lists {len(given)} entries: must be one for each of "
                f"{num_cells} environments, or one for all"
            )
    base: Sequence[Any] = scenario if listed else [scenario] * num_cells  # type: ignore[assignment]
    changes = overrides if isinstance(overrides, Sequence) else [overrides] * num_cells
    loaded: dict[tuple[int, int], Scenario] = {}  # cells that share a scenario share the object
    for b, c in zip(base, changes):
        if (id(b), id(c)) not in loaded:
            loaded[id(b), id(c)] = Scenario.load(b, c)
    scenarios = [loaded[id(b), id(c)] for b, c in zip(base, changes)]
    first = scenarios[0]
    for n, other in enumerate(scenarios):
        if other.protocol not in control.protocols:
            raise ValueError(
                f"scenario {other.name!r} has protocol {other.protocol!r}: {control.id} takes "
                + " or ".join(map(repr, control.protocols))
            )
        for name in ("protocol", "num_devices", "max_draft_length"):
            if getattr(other, name) != getattr(first, name):
                raise ValueError(
                    f"environment {n}: {name} = {getattr(other, name)!r} differs from "
                    f"{getattr(first, name)!r} of environment 0; all must agree in it"
                )
    return scenarios


def make_core(
    control: Control,
    scenarios: list[Scenario],
    *,
    batched: bool,
    correction: str = "optimal",
    observe_acceptance: bool = True,
    observe_time: bool = False,
    draft_policy: DraftPolicyLike | None = None,
    regret: bool = False,
    threads: int | None = 1,
) -> Core:
    """The core that the arguments describe.

    Args:
        batched: whether the shell hands out arrays over cells (and a callable `draft_policy`
            sees such), or the numbers and arrays of one cell.
        threads: how many share the cells, at most; None for :func:`.threads.available`.
    """
    if not isinstance(correction, str) or correction not in RULES:
        names = ", ".join(map(repr, RULES))
        raise ValueError(f"correction = {correction!r}: must be one of {names}")
    if correction != "optimal" and scenarios[0].protocol == "upload":
        raise ValueError(
            f"correction = {correction!r}: the upload protocol of scenario "
            f"{scenarios[0].name!r} corrects nothing after verification"
        )
    if correction != "optimal" and control.mode:
        raise ValueError(f"correction = {correction!r}: in {control.id} the agent picks the modes")
    if isinstance(draft_policy, str) and not observe_acceptance:
        raise ValueError(f"draft_policy = {draft_policy!r}: solvers need observe_acceptance=True")
    if draft_policy is not None and (control.draft or not control.mode):
        raise ValueError(f"draft_policy is given: in {control.id} the agent picks the lengths")
    flags = {
        "observe_acceptance": observe_acceptance,
        "observe_time": observe_time,
        "regret": regret,
    }
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise ValueError(f"{name} = {flag!r}: must be True or False")
    for scenario in scenarios if observe_time else ():
        if scenario.episode.horizon_s is None:
            raise ValueError(
                f"observe_time = True: scenario {scenario.name!r} has episode.rounds = "
                f"{scenario.episode.rounds}: must have episode.horizon_s, of which time is left"
            )
    if threads is not None:
        check_integer("threads", threads, 1)
    fixed_draft: NDArray[np.int64] | None = None
    policy: DraftPolicy | None = None
    if isinstance(draft_policy, str):
        policy = solvers.draft_policy(draft_policy, scenarios)
    elif callable(draft_policy):
        policy = draft_policy if batched else partial(_one_cell, policy=draft_policy)
    elif control.mode:
        fixed_draft = _fixed_draft(draft_policy, scenarios)
    return Core(
        control,
        scenarios,
        correction=correction,
        observe_acceptance=bool(observe_acceptance),
        observe_time=bool(observe_time),
        fixed_draft=fixed_draft,
        draft_policy=policy,
        regret=bool(regret),
        batched=batched,
        num_threads=available_threads.available() if threads is None else int(threads),
    )


def prices(reward: Reward, price: float | None, scenarios: list[Scenario]) -> NDArray[np.float64]:
    """The price of a second in each cell [tokens/s], [N]; zeros where the reward has none."""
    check_reward(reward, price)
    if reward != "margin":
        return np.zeros(len(scenarios))
    if price is not None:
        return np.full(len(scenarios), float(price))
    return _for_each(scenarios, solvers.reference_goodput)


def _for_each(scenarios: list[Scenario], function: Callable[[Scenario], Any]) -> NDArray[Any]:
    """A function of every cell's scenario, computed once for each distinct object, [N]."""
    values = {id(s): function(s) for s in {id(s): s for s in scenarios}.values()}
    return np.array([values[id(s)] for s in scenarios])


def _fixed_draft(given: int | Sequence[int] | None, scenarios: list[Scenario]) -> NDArray[np.int64]:
    """Lengths [N, K] that are the same in every round: the given ones, or the reference."""
    num_devices, longest = scenarios[0].num_devices, scenarios[0].max_draft_length
    if given is None:
        lengths = _for_each(scenarios, solvers.reference_draft_length)[:, None]
    else:
        lengths = np.asarray(given)
        if (
            lengths.dtype.kind not in "iu"
            or lengths.shape not in [(), (num_devices,)]
            or np.any((lengths < 0) | (lengths > longest))
        ):
            raise ValueError(
                f"draft_policy = {given!r}: must be an integer in [0, {longest}], a list of "
                f"{num_devices} such integers, a solver's name, or a callable of the observation"
            )
    return np.array(np.broadcast_to(lengths, (len(scenarios), num_devices)), dtype=np.int64)


def _one_cell(observation: Observation, policy: Callable[[Observation], Any]) -> NDArray[Any]:
    return np.asarray(policy({key: value[0] for key, value in observation.items()}))[None]
