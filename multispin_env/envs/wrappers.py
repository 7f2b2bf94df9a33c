"""Wrappers that give learners the spaces they like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import ArrayLike, NDArray

from multispin_env.model.latency import tokens_until
from multispin_env.world.control import TIME_LEFT

#: Bandwidth share of a flat action's lower end, relative to the upper end.
LEAST_SHARE: Final = 0.01


def flat_action_space(inner: spaces.Space[Any]) -> spaces.Box:
    """The flat counterpart `Box(-1, 1, (2K,))` of DraftBandwidth's Dict action space."""
    if not (isinstance(inner, spaces.Dict) and set(inner) == {"draft_length", "bandwidth"}):
        raise ValueError(f"action space {inner}: must be that of multispin/DraftBandwidth-v0")
    return spaces.Box(-1.0, 1.0, (2 * inner["bandwidth"].shape[0],), np.float32)  # type: ignore[index]


def unflatten_action(flat: Any, inner: spaces.Space[Any]) -> dict[str, NDArray[Any]]:
    """The Dict action that a flat one, or a batch [N, 2K] of them, stands for.

    With u = (a + 1) / 2, the first K entries are lengths, round(u * max_draft_length), the others
    bandwidth shares, 0.01 + 0.99 u. Values outside [-1, 1] (an unsquashed Gaussian policy) are
    clipped. The least share is not 0, because a device that drafts without a band never finishes,
    and a clipped Gaussian is at its bound all the time.

    Raises:
        ValueError: a wrong shape, or a value that is not finite.
    """
    longest = _longest(inner)
    values = np.asarray(flat, dtype=np.float64)
    width = 2 * len(longest)
    if values.ndim not in (1, 2) or values.shape[-1] != width or not np.all(np.isfinite(values)):
        raise ValueError(f"action = {flat!r}: must be {width} finite numbers, or a batch of such")
    lengths, shares = np.split((np.clip(values, -1.0, 1.0) + 1.0) / 2.0, 2, axis=-1)
    return {
        "draft_length": np.rint(lengths * longest).astype(np.int64),
        "bandwidth": (LEAST_SHARE + (1.0 - LEAST_SHARE) * shares).astype(np.float32),
    }


def flatten_action(action: Mapping[str, Any], inner: spaces.Space[Any]) -> NDArray[np.float32]:
    """The flat action [..., 2K] that stands for a Dict action: the inverse of the above.

    Shares are scaled so that the largest is 1; none is below the least.
    """
    longest = _longest(inner)
    shares = np.asarray(action["bandwidth"], dtype=np.float64)
    largest = np.max(shares, axis=-1, keepdims=True)
    shares = np.where(largest > 0, shares / np.where(largest > 0, largest, 1.0), 1.0)
    units = (np.maximum(shares, LEAST_SHARE) - LEAST_SHARE) / (1.0 - LEAST_SHARE)
    lengths = np.asarray(action["draft_length"]) / np.maximum(longest, 1)
    return np.concatenate([2.0 * lengths - 1.0, 2.0 * units - 1.0], axis=-1).astype(np.float32)


def _longest(inner: spaces.Space[Any]) -> NDArray[Any]:
    """The longest draft of every device [K], from DraftBandwidth's Dict action space."""
    assert isinstance(inner, spaces.Dict)
    lengths = inner["draft_length"]
    assert isinstance(lengths, spaces.MultiDiscrete)
    return lengths.nvec - 1


class FlattenBandwidth(gym.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """DraftBandwidth-v0's action as one `Box(-1, 1, (2K,))`, for continuous-control learners.

    See :func:`unflatten_action` for the map.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ActionWrapper.__init__(self, env)
        self.action_space = flat_action_space(env.action_space)

    def action(self, action: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """The Dict action that a flat one stands for."""
        if np.shape(action) != self.action_space.shape:
            raise ValueError(
                f"action has shape {np.shape(action)}: must be {self.action_space.shape}"
            )
        return unflatten_action(action, self.env.action_space)


def deadline_action_space(inner: spaces.Space[Any]) -> spaces.MultiDiscrete:
    """`MultiDiscrete([gamma_max + 1] + [2] * K)`, for DraftLength's action space."""
    if not isinstance(inner, spaces.MultiDiscrete) or len(set(inner.nvec.tolist())) > 1:
        raise ValueError(f"action space {inner}: must be that of multispin/DraftLength-v0")
    return spaces.MultiDiscrete([inner.nvec[0], *[2] * len(inner.nvec)])


def deadline_lengths(
    action: ArrayLike, token_latency_s: NDArray[Any], longest: int
) -> NDArray[np.int64]:
    """Draft lengths [..., K] that a deadline and a set of drafting devices [..., 1 + K] stand for.

    The first entry n is a deadline in tokens of the slowest device, x = n max_k T_k; the others
    say who drafts until it. Some best lengths of every round have this form
    (docs/optimality.md), but for the deadlines between multiples of max_k T_k.

    Args:
        action: of :func:`deadline_action_space`, or a batch of such.
        token_latency_s: T_k as observed [s], [..., K].
        longest: gamma_max.
    """
    action, token_s = np.asarray(action), np.asarray(token_latency_s, dtype=np.float64)
    deadline_s = action[..., 0] * token_s.max(axis=-1)
    return action[..., 1:] * tokens_until(deadline_s, token_s, longest)


class DeadlineAction(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """DraftLength-v0's action as a common deadline, and who drafts until it.

    A round's drafting lasts as long as its slowest device. Learners that decide for each device
    apart are punished for whoever is slowest, and settle on not drafting at all; a common deadline
    takes the maximum out of the way. See :func:`deadline_lengths` for the map.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self.action_space = deadline_action_space(env.action_space)
        self._longest = self.get_wrapper_attr("scenario").max_draft_length
        self._token_latency_s: NDArray[Any] | None = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """As the environment; the devices' token latencies are remembered."""
        observation, info = self.env.reset(**kwargs)
        self._token_latency_s = observation["token_latency_s"].copy()
        return observation, info

    def step(self, action: Any) -> Any:
        """Play a round with the lengths that an action stands for."""
        if self._token_latency_s is None:
            raise ResetNeeded("call reset before step")
        if not self.action_space.contains(action):
            raise ValueError(f"action = {action!r}: must be in {self.action_space}")
        return self.env.step(deadline_lengths(action, self._token_latency_s, self._longest))


class FlatObservation(gym.ObservationWrapper[NDArray[np.float32], Any, Any], RecordConstructorArgs):
    """The Dict observation as one float32 vector, scaled to about [-1, 1] for plain networks.

    The parts stand in the order of the observation space's keys, K numbers each. Decibels are
    divided by 30, latencies (seconds a token) multiplied by 30, draft lengths and accepted tokens
    divided by the longest draft; counts become log1p(count) / 10; the time that is left is divided
    by the horizon; rates and flags stay.
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
        scenario = self.get_wrapper_attr("scenario")
        self._longest = np.float32(scenario.max_draft_length)
        self._horizon_s = np.float32(scenario.episode.horizon_s or np.inf)
        low, high = (
            self.observation({key: getattr(inner[key], end) for key in self._keys})
            for end in ("low", "high")
        )
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """The flat vector of a Dict observation."""
        parts = []
        for key in self._keys:
            value: NDArray[Any] = np.asarray(observation[key], dtype=np.float32)
            if key.endswith("_db"):
                value = value / np.float32(30.0)
            elif key == "token_latency_s":
                value = value * np.float32(30.0)
            elif key in ("draft_length", "accepted"):
                value = value / self._longest
            elif key == TIME_LEFT:
                value = value / self._horizon_s
            elif key.endswith("_count"):
                value = np.log1p(value) / np.float32(10.0)
            parts.append(value)
        return np.concatenate(parts)
