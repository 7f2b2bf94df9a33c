"""Who controls what: the four kinds of environment, and what each observes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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


#: Key of the seconds that are left of the episode, [1]: the one that is per cell.
TIME_LEFT: Final = "time_left_s"


def float_keys(control: Control, observe_acceptance: bool) -> tuple[str, ...]:
    """Keys of the float observations, in the row order of `kernels.observing.observe_cell`."""
    keys = ["snr_db", "token_latency_s"]
    keys += ["next_snr_db"] * control.pending
    keys += ["acceptance_rate"] * observe_acceptance
    return tuple(keys)


def integer_keys(control: Control, observe_acceptance: bool) -> tuple[str, ...]:
    """Keys of the integer observations, in the row order of `kernels.observing.observe_cell`."""
    keys = ["draft_length", "rejected"] if control.pending else []
    if not observe_acceptance:
        keys += ["accepted_count", "rejection_count", "accepted"]
        keys += [] if control.pending else ["rejected"]
    return tuple(keys)
