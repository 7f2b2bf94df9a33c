"""Action and observation spaces of the four kinds of environment."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from gymnasium import spaces

from multispin_env.model.channel import SNR_LIMIT_DB
from multispin_env.scenario import MAX_TOKEN_LATENCY_S
from multispin_env.world.control import (
    CONTROLS,
    DRAFT_BANDWIDTH,
    DRAFT_LENGTH,
    JOINT,
    MODE_SELECTION,
    TIME_LEFT,
    Control,
    float_keys,
    integer_keys,
)

__all__ = [  # the kinds of environment have been here before
    "CONTROLS",
    "COUNT_MAX",
    "DRAFT_BANDWIDTH",
    "DRAFT_LENGTH",
    "JOINT",
    "MODE_SELECTION",
    "Control",
    "action_space",
    "float_keys",
    "integer_keys",
    "observation_space",
]

#: Upper bound of the counters in the feedback observation.
COUNT_MAX: Final = 2**53


def action_space(control: Control, num_devices: int, max_draft_length: int) -> spaces.Space[Any]:
    """The action space of one environment."""
    draft = [max_draft_length + 1] * num_devices
    if control.bandwidth:
        return spaces.Dict(
            draft_length=spaces.MultiDiscrete(draft),
            bandwidth=spaces.Box(0.0, 1.0, (num_devices,), np.float32),
        )
    if control.draft and control.mode:
        return spaces.MultiDiscrete(draft + [2] * num_devices)
    if control.mode:
        return spaces.MultiBinary(num_devices)
    return spaces.MultiDiscrete(draft)


def observation_space(
    control: Control,
    num_devices: int,
    max_draft_length: int,
    observe_acceptance: bool,
    horizon_s: float | None = None,
) -> spaces.Dict:
    """The observation space of one environment: a Dict of boxes of shape [K].

    With `horizon_s`, the longest that an episode may last, also the time that is left, [1].
    """
    bounds: dict[str, tuple[float, float]] = {
        "snr_db": (-SNR_LIMIT_DB, SNR_LIMIT_DB),
        "next_snr_db": (-SNR_LIMIT_DB, SNR_LIMIT_DB),
        "token_latency_s": (0.0, MAX_TOKEN_LATENCY_S),
        "acceptance_rate": (0.0, 1.0),
        "draft_length": (0, max_draft_length),
        "accepted": (0, max_draft_length),
        "rejected": (0, 1),
        "accepted_count": (0, COUNT_MAX),
        "rejection_count": (0, COUNT_MAX),
    }
    floats = float_keys(control, observe_acceptance)
    integers = integer_keys(control, observe_acceptance)
    boxes: dict[str, spaces.Space[Any]] = {}
    for key in floats + integers:
        low, high = bounds[key]
        dtype: Any = np.float32 if key in floats else np.int64
        boxes[key] = spaces.Box(dtype(low), dtype(high), (num_devices,), dtype)
    if horizon_s is not None:
        boxes[TIME_LEFT] = spaces.Box(0.0, np.float32(horizon_s), (1,), np.float32)
    return spaces.Dict(boxes)
