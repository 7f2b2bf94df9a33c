"""The papers' policies, and ours: solvers applied to each round's observation.

All are causal: they know the observation and the scenario's constants, never the tape. With
`observe_acceptance=False` they take the acceptance rates for their posterior means given the
feedback so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from baselines.policy import Context, Observation, Policy
from multispin_env import solvers
from multispin_env.model.correction import check_rule
from multispin_env.world.control import DRAFT_BANDWIDTH, JOINT, MODE_SELECTION

UPLOAD_SOLVERS: Final[dict[str, Callable[..., Any]]] = {
    "homogeneous": solvers.homogeneous,
    "heterogeneous": solvers.heterogeneous,
    "uniform_bandwidth": solvers.uniform_bandwidth,
    "exact": solvers.exact,
}


class CorrectionSolver(Policy):
    """Draft lengths by a solver of the correction protocol; in Joint modes as well.

    Knows: the coming round's channel, acceptance rates and drafting speeds; in Joint also which
    drafts of the pending round were rejected. Costs, at K = 20: `computation_only` 0.2 ms,
    `deadline`, `greedy` and `uniform` 1 ms, `thorough` 100 ms (2 ms for 8 devices) a decision.

    Args:
        context: the environment.
        solver: a key of :data:`.DRAFT_SOLVERS`.
        rule: lengths are the best under this rule, and in Joint modes follow it. Default: the
            environment's `correction`, and in Joint the optimal rule.
        seed: of the coins under `random` in Joint.
        options: passed to the solver, for example `samples` or, for `deadline` and `thorough`,
            `price`.
    """

    def __init__(
        self,
        context: Context,
        *,
        solver: str,
        rule: str | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(context)
        self._solve = solvers.DRAFT_SOLVERS[solver]
        self._rule = context.correction if rule is None else rule
        check_rule(self._rule)
        self._options = options
        self._coins = np.random.default_rng(seed)

    @staticmethod
    def fits(context: Context) -> bool:
        """Fits where the agent decides lengths in the correction protocol."""
        return context.control.draft and context.scenario.protocol == "correction"

    def seed(self, seed: int) -> None:
        """Start the coins anew."""
        self._coins = np.random.default_rng(seed)

    def act(self, observation: Observation) -> Any:
        """The solver's lengths for every observation of the batch."""
        joint = self.control == JOINT
        actions = []
        for lane in range(len(observation["snr_db"])):
            problem = self.pose(observation, lane, following=joint)
            action = self._solve(problem, rule=self._rule, **self._options).draft_length
            if joint:
                seed = int(self._coins.integers(2**31)) if self._rule == "random" else 0
                modes = self.modes(observation, lane, self._rule, seed)
                action = np.concatenate([action, modes])
            actions.append(action)
        return np.stack(actions)


class JointSolver(CorrectionSolver):
    """Lengths and modes under one rule, in Joint: the papers' comparison of mode rules.

    Knows and costs as :class:`CorrectionSolver`, whose arguments it has.
    """

    @staticmethod
    def fits(context: Context) -> bool:
        """Fits where the agent decides lengths and modes."""
        return context.control == JOINT


class UploadSolver(Policy):
    """Draft lengths, and bandwidths where the agent splits the band, by a solver of paper A.

    Knows: the coming round's channel, acceptance rates and drafting speeds. Costs, at K = 20:
    `homogeneous` and `uniform_bandwidth` 0.2 ms, `exact` 5 ms, `heterogeneous` 12 ms a decision.
    A length of 0 is allowed, as in the environment.

    Args:
        context: the environment.
        solver: a key of UPLOAD_SOLVERS.
        options: passed to the solver.
    """

    def __init__(self, context: Context, *, solver: str, **options: Any) -> None:
        super().__init__(context)
        self._solve = UPLOAD_SOLVERS[solver]
        self._options = options

    @staticmethod
    def fits(context: Context) -> bool:
        """Fits where the agent decides lengths in the upload protocol."""
        return context.control.draft and context.scenario.protocol == "upload"

    def act(self, observation: Observation) -> Any:
        """The solver's decision for every observation of the batch."""
        lanes = range(len(observation["snr_db"]))
        problems = [self.pose(observation, lane) for lane in lanes]
        decisions = [self._solve(problem, **self._options) for problem in problems]
        lengths = np.stack([decision.draft_length for decision in decisions])
        if self.control != DRAFT_BANDWIDTH:
            return lengths
        band = np.stack([decision.bandwidth_hz for decision in decisions])
        share = band / np.maximum(band.max(axis=1, keepdims=True), 1e-300)
        return {"draft_length": lengths, "bandwidth": share.astype(np.float32)}


class ModeRule(Policy):
    """Modes by a rule: optimal (Lemma 2), all uplink or all downlink.

    Knows: the pending round's channel and which drafts were rejected. Costs 0.1 ms a decision.

    Args:
        context: the environment.
        rule: `optimal`, `uplink` or `downlink`.
    """

    def __init__(self, context: Context, *, rule: str) -> None:
        super().__init__(context)
        if rule not in ("optimal", "uplink", "downlink"):
            raise ValueError(f"rule = {rule!r}: must be 'optimal', 'uplink' or 'downlink'")
        self._rule = rule

    @staticmethod
    def fits(context: Context) -> bool:
        """Fits where the agent decides modes only."""
        return context.control == MODE_SELECTION

    def act(self, observation: Observation) -> Any:
        """Modes for every observation of the batch."""
        if self._rule != "optimal":
            everybody = np.int8(self._rule == "downlink")
            return np.full(observation["snr_db"].shape, everybody)
        lanes = range(len(observation["snr_db"]))
        return np.stack([self.modes(observation, lane) for lane in lanes]).astype(np.int8)
