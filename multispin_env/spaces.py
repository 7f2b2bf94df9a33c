"""Who controls what: the four kinds of environment, their action and observation spaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from multispin_env.model.channel import SNR_LIMIT_DB
from multispin_env.scenario import MAX_TOKEN_LATENCY_S

#: Upper bound of the counters in the feedback observation.
COUNT_MAX: Final = 2**53


@dataclass(frozen=True)
class Control:
    """One kind of environment."""

    name: str  #: as in the environment's id
    protocols: tuple[str, ...]  #: the protocols that it fits
    scenario: str  #: its default scenario
    draft: bool = False  #: the agent decides draft lengths
    mode: bool = False  #: it decides modes
    bandwidth: bool = False  #: it decides bandwidth shares

    @property
    def pending(self) -> bool:
        """Whether a step starts right after verification, with a round waiting for its modes."""
        return self.mode

    @property
    def id(self) -> str:
        """The id under which Gymnasium knows it."""
        return f"multispin/{self.name}-v0"


DRAFT_LENGTH: Final = Control("DraftLength", ("correction", "upload"), "qwen2.5", draft=True)
MODE_SELECTION: Final = Control("ModeSelection", ("correction",), "qwen2.5", mode=True)
JOINT: Final = Control("Joint", ("correction",), "qwen2.5", draft=True, mode=True)
DRAFT_BANDWIDTH: Final = Control("DraftBandwidth", ("upload",), "qwen3.5", True, bandwidth=True)

CONTROLS: Final = (DRAFT_LENGTH, MODE_SELECTION, JOINT, DRAFT_BANDWIDTH)


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


def float_keys(control: Control, observe_acceptance: bool) -> tuple[str, ...]:
    """Keys of the float observations, in the row order of `kernels.observe_cell`."""
    keys = ["snr_db", "token_latency_s"]
    keys += ["next_snr_db"] * control.pending
    keys += ["acceptance_rate"] * observe_acceptance
    return tuple(keys)


def integer_keys(control: Control, observe_acceptance: bool) -> tuple[str, ...]:
    """Keys of the integer observations, in the row order of `kernels.observe_cell`."""
    keys = ["draft_length", "rejected"] if control.pending else []
    if not observe_acceptance:
        keys += ["accepted_count", "rejection_count", "accepted"]
        keys += [] if control.pending else ["rejected"]
    return tuple(keys)


def observation_space(
    control: Control, num_devices: int, max_draft_length: int, observe_acceptance: bool
) -> spaces.Dict:
    """The observation space of one environment: a Dict of boxes of shape [K]."""
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
    return spaces.Dict(boxes)
