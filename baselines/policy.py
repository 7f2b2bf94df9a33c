"""What a policy is, and what it is told about its environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from multispin_env.scenario import Scenario
from multispin_env.spaces import DRAFT_BANDWIDTH, DRAFT_LENGTH, Control

Observation = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Context:
    """What a policy may know beforehand: what it controls, and the cell's constants.

    It never holds the environment, so that no policy can read the tape.
    """

    control: Control
    scenario: Scenario

    @classmethod
    def of(cls, env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Scenario) -> Context:
        """The context of an environment, a vector environment, or a scenario.

        A scenario alone stands for the draft-length control.

        Raises:
            ValueError: `env` is none of these, not one of this project's environments, or a vector
                environment whose lanes have different physics: a policy belongs to one scenario.
        """
        if isinstance(env, Scenario):
            return cls(DRAFT_LENGTH, env)
        inner: Any = getattr(env, "unwrapped", None)
        if isinstance(inner, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv):
            control, scenarios = inner.get_attr("control")[0], list(inner.get_attr("scenario"))
        else:
            control = getattr(inner, "control", None)
            scenarios = getattr(inner, "scenarios", [getattr(inner, "scenario", None)])
        if not isinstance(control, Control) or not isinstance(scenarios[0], Scenario):
            raise ValueError(f"env = {env!r}: must be a multispin/* environment or a Scenario")
        if any(other != scenarios[0] for other in scenarios):
            raise ValueError("env has lanes with different scenarios: a policy belongs to one")
        return cls(control, scenarios[0])


class Policy(ABC):
    """A controller with Stable-Baselines3's `predict`.

    Subclasses say in :meth:`fits` which environments they can control, and decide in
    :meth:`act`.
    """

    def __init__(self, context: Context) -> None:
        self.control = context.control
        self.scenario = context.scenario

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
        batched = np.ndim(observation["snr_db"]) == 2
        if batched:
            return self.act(observation), state
        action = self.act({key: np.asarray(value)[None] for key, value in observation.items()})
        if isinstance(action, dict):
            return {key: value[0] for key, value in action.items()}, state
        return action[0], state

    @abstractmethod
    def act(self, observation: Observation) -> Any:
        """Actions for a batch of observations: arrays [N, ...], or a dict of them."""

    def draft_action(self, draft_length: NDArray[np.int64]) -> Any:
        """Lengths [N, K] as an action of the environment, the band split equally."""
        if self.control == DRAFT_BANDWIDTH:
            equal = np.ones(draft_length.shape, dtype=np.float32)
            return {"draft_length": draft_length, "bandwidth": equal}
        return draft_length
