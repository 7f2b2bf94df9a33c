"""Wrappers that give learners the flat spaces they like."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray


class FlattenBandwidth(gym.ActionWrapper[Any, NDArray[np.float32], Any], RecordConstructorArgs):
    """DraftBandwidth-v0's action as one `Box(-1, 1, (2K,))`, for continuous-control learners.

    The first K entries are lengths, round((a + 1) / 2 * max_draft_length), the others bandwidth
    shares, (a + 1) / 2. Values outside [-1, 1] (an unsquashed Gaussian policy) are clipped.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ActionWrapper.__init__(self, env)
        inner = env.action_space
        if not (isinstance(inner, spaces.Dict) and set(inner) == {"draft_length", "bandwidth"}):
            raise ValueError(
                f"env has action space {inner}: FlattenBandwidth wraps multispin/DraftBandwidth-v0"
            )
        lengths = inner["draft_length"]
        assert isinstance(lengths, spaces.MultiDiscrete)
        self._longest = lengths.nvec - 1
        self.action_space = spaces.Box(-1.0, 1.0, (2 * len(lengths.nvec),), np.float32)

    def action(self, action: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """The Dict action that a flat one stands for."""
        flat = np.asarray(action, dtype=np.float64)
        if flat.shape != self.action_space.shape or not np.all(np.isfinite(flat)):
            raise ValueError(
                f"action = {action!r}: must be {2 * len(self._longest)} finite numbers"
            )
        unit = (np.clip(flat, -1.0, 1.0) + 1.0) / 2.0
        lengths, shares = np.split(unit, 2)
        return {
            "draft_length": np.rint(lengths * self._longest).astype(np.int64),
            "bandwidth": shares.astype(np.float32),
        }


class FlatObservation(gym.ObservationWrapper[NDArray[np.float32], Any, Any], RecordConstructorArgs):
    """The Dict observation as one float32 vector, scaled to about [-1, 1] for plain networks.

    The parts stand in the order of the observation space's keys, K numbers each. Decibels are
    divided by 30, latencies (seconds a token) multiplied by 30, draft lengths and accepted tokens
    divided by the longest draft; counts become log1p(count) / 10; rates and flags stay.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        inner = env.observation_space
        if not (isinstance(inner, spaces.Dict) and "snr_db" in inner.spaces):
            raise ValueError(
                f"env has observation space {inner}: FlatObservation wraps multispin/*"
            )
        self._keys = tuple(inner.spaces)
        low = self.observation({key: _bound(inner[key], "low") for key in self._keys})
        high = self.observation({key: _bound(inner[key], "high") for key in self._keys})
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """The flat vector of a Dict observation."""
        longest = self.get_wrapper_attr("scenario").max_draft_length
        parts = []
        for key in self._keys:
            value: NDArray[Any] = np.asarray(observation[key], dtype=np.float32)
            if key.endswith("_db"):
                value = value / np.float32(30.0)
            elif key == "token_latency_s":
                value = value * np.float32(30.0)
            elif key in ("draft_length", "accepted"):
                value = value / np.float32(longest)
            elif key.endswith("_count"):
                value = np.log1p(value) / np.float32(10.0)
            parts.append(value)
        return np.concatenate(parts)


def _bound(space: spaces.Space[Any], end: str) -> Any:
    return getattr(space, end)
