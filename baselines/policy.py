"""What a policy is, and what it is told about its environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from multispin_env.envs.spaces import action_space
from multispin_env.envs.wrappers import flatten_action
from multispin_env.scenario import Scenario
from multispin_env.scenario.devices import DeviceLaw
from multispin_env.solvers.problems import CorrectionProblem, Problem, pose_observed
from multispin_env.world.control import DRAFT_BANDWIDTH, DRAFT_LENGTH, JOINT, Control

Observation = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Context:
    """What a policy may know beforehand: what it controls, and the cell's constants.

    It never holds the environment, so that no policy can read the tape.
    """

    control: Control
    scenario: Scenario
    informed: bool = True  #: acceptance rates are observed, not only feedback
    flat: bool = False  #: actions go through :class:`multispin_env.envs.wrappers.FlattenBandwidth`
    correction: str = "optimal"  #: the rule of corrections, where the agent does not pick modes

    @classmethod
    def of(cls, env: Any) -> Context:
        """The context of an environment, a vector environment (also SB3's), or a scenario.

        A scenario alone stands for the draft-length control.

        Raises:
            ValueError: `env` is none of these, not one of this project's environments, or a vector
                environment whose lanes have different physics: a policy belongs to one scenario.
        """
        if isinstance(env, Scenario):
            return cls(DRAFT_LENGTH, env)
        inner: Any = getattr(env, "unwrapped", None)
        control, scenarios = getattr(inner, "control", None), getattr(inner, "scenarios", None)
        correction = getattr(inner, "correction", "optimal")
        if control is None and hasattr(inner, "get_attr"):  # Sync, Async or SB3's vectors
            control, scenarios = inner.get_attr("control")[0], list(inner.get_attr("scenario"))
            correction = inner.get_attr("correction")[0]
        scenarios = scenarios or [getattr(inner, "scenario", None)]
        if not isinstance(control, Control) or not isinstance(scenarios[0], Scenario):
            raise ValueError(f"env = {env!r}: must be a multispin/* environment or a Scenario")
        if any(other != scenarios[0] for other in scenarios):
            raise ValueError("env has lanes with different scenarios: a policy belongs to one")
        shown = getattr(inner, "single_observation_space", inner.observation_space)
        flat = control.bandwidth and isinstance(env.action_space, spaces.Box)
        return cls(control, scenarios[0], "acceptance_rate" in shown.spaces, flat, correction)


class Policy(ABC):
    """A controller with Stable-Baselines3's `predict`.

    Subclasses say in :meth:`fits` which environments they can control, and decide in
    :meth:`act`.
    """

    def __init__(self, context: Context) -> None:
        self.control = context.control
        self.scenario = context.scenario
        self._space = action_space(
            self.control, self.scenario.num_devices, self.scenario.max_draft_length
        )
        self._flat = context.flat
        self._law = DeviceLaw(self.scenario)

    @staticmethod
    def fits(context: Context) -> bool:
        """Whether the policy can control such an environment."""
        return True

    def predict(
        self,
        observation: Observation,
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, tuple[NDArray[Any], ...] | None]:
        """The action for one observation (arrays [K]) or a batch of them ([N, K]).

        Args:
            observation: as the environment gives it.
            state: unused, these policies have no memory; returned as it came.
            episode_start: unused likewise.
            deterministic: unused by policies that do not sample.
        """
        if not isinstance(observation, Mapping):
            raise ValueError(
                f"observation is a {type(observation).__name__}: these policies read the Dict "
                "observation, without FlatObservation"
            )
        batched = np.ndim(observation["snr_db"]) == 2
        rows = observation if batched else {k: np.asarray(v)[None] for k, v in observation.items()}
        action = self.act(rows)
        if self._flat:
            action = flatten_action(action, self._space)
        if batched:
            return action, state
        if isinstance(action, dict):
            return {key: value[0] for key, value in action.items()}, state
        return action[0], state

    @abstractmethod
    def act(self, observation: Observation) -> Any:
        """Actions for a batch of observations: arrays [N, ...], or a dict of them."""

    def pose(self, observation: Observation, lane: int, *, following: bool = False) -> Problem:
        """The problem behind one lane's observation: of the round shown, or of the following one.

        Where the acceptance rates are hidden, their posterior means given the feedback so far
        stand in for them: certainty equivalence.
        """
        row = {key: np.asarray(value[lane]) for key, value in observation.items()}
        if following:
            row["snr_db"] = row["next_snr_db"]
        row["acceptance_rate"] = self._law.acceptance_rate(row)
        return pose_observed(self.scenario, row)

    def modes(
        self, observation: Observation, lane: int, rule: str = "optimal", seed: int = 0
    ) -> NDArray[np.int64]:
        """Modes of a lane's pending round under a rule [K]; 0 where nothing is sent."""
        pending = self.pose(observation, lane)
        assert isinstance(pending, CorrectionProblem)
        sent = pending.correct(observation["rejected"][lane] == 1, rule, seed)
        return sent.downlink.astype(np.int64)

    def draft_action(self, draft_length: NDArray[np.int64], observation: Observation) -> Any:
        """Lengths [N, K] as an action of the environment; bands equal, modes optimal."""
        if self.control == DRAFT_BANDWIDTH:
            equal = np.ones(draft_length.shape, dtype=np.float32)
            return {"draft_length": draft_length, "bandwidth": equal}
        if self.control == JOINT:
            lanes = range(len(draft_length))
            modes = np.stack([self.modes(observation, lane) for lane in lanes])
            return np.concatenate([draft_length, modes], axis=1)
        return draft_length
