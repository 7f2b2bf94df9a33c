"""The sections of a scenario, in the order of the TOML files.

A field of a section is one line: its type, its check and, if it may be left out, its default; the
comment above it is what the documentation says of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from multispin_env.model.latency import MAX_ROUND_S
from multispin_env.scenario.checks import (
    PerDevice,
    Range,
    checked,
    choice,
    integer,
    nonempty_string,
    number,
    number_or_range,
    number_range,
    optional,
)

#: Slowest drafting that a device may have [s/token]; bounds the observation space.
MAX_TOKEN_LATENCY_S: Final = 10.0

FADINGS: Final = ("rayleigh", "none")
POWER_DBM: Final = number(-math.inf, 200.0, per_device=True)  # -inf dBm is no power at all


@dataclass(frozen=True)
class Section:
    """A part of a scenario whose fields are checked when it is made."""

    PREFIX: ClassVar[str] = ""  # dotted name of its table, and a dot; none for the whole scenario

    def __post_init__(self) -> None:
        for item in fields(self):
            value = item.metadata["check"](self.PREFIX + item.name, getattr(self, item.name))
            object.__setattr__(self, item.name, value)

    def flat(self) -> Iterator[tuple[str, Any]]:
        """Dotted names and values of all fields, with those of the sections inside."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Section):
                yield from value.flat()
            else:
                yield self.PREFIX + item.name, value


@dataclass(frozen=True)
class Models(Section):
    """Names of the small drafting model and of the large verifying one."""

    PREFIX: ClassVar[str] = "models."
    #: name of the model that devices draft with
    draft: str = checked(nonempty_string)
    #: name of the model that the server verifies with
    target: str = checked(nonempty_string)


@dataclass(frozen=True)
class Drafting(Section):
    """How fast devices draft: `token_latency_s` times a factor drawn from `spread`.

    A list of latencies, one a device, is taken as it is: `spread` does not apply.
    """

    PREFIX: ClassVar[str] = "drafting."
    #: time to draft one token [s]
    token_latency_s: PerDevice = checked(number(1e-9, MAX_TOKEN_LATENCY_S, per_device=True))
    #: factor on it, drawn for each device
    spread: Range = checked(number_range(1e-3, 1e3), Range(1.0, 1.0))


@dataclass(frozen=True)
class Verification(Section):
    """Batched verification takes fixed_s + K * per_device_s."""

    PREFIX: ClassVar[str] = "verification."
    #: latency of a batch, whatever its size [s]
    fixed_s: float = checked(number(0.0, 1e3))
    #: more latency for each device of the batch [s]
    per_device_s: float = checked(number(0.0, 1.0))


@dataclass(frozen=True)
class Payload(Section):
    """One truncated token distribution: `support` entries of an index and a `bits`-bit value."""

    PREFIX: ClassVar[str] = "payload."
    #: entries of the vocabulary; an index takes ceil(log2 of it) bits
    vocabulary: int = checked(integer(1, 10**9))
    #: entries of a truncated distribution
    support: int = checked(integer(1, 10**9))
    #: bits of a probability
    bits: int = checked(integer(1, 64))

    @property
    def distribution_bits(self) -> int:
        """Bits of one truncated distribution, support * (ceil(log2 vocabulary) + bits)."""
        return self.support * ((self.vocabulary - 1).bit_length() + self.bits)


@dataclass(frozen=True)
class CorrectionRadio(Section):
    """Radio of the correction protocol; noise is a power spectral density.

    The server's downlink budget is `downlink_power_ratio` times the largest uplink power.
    """

    PREFIX: ClassVar[str] = "radio."
    #: the whole band [Hz], shared equally by the rejected devices
    bandwidth_hz: float = checked(number(1.0, 1e15))
    #: largest power of a device [dBm]
    uplink_power_dbm: PerDevice = checked(POWER_DBM)
    #: the server's budget over the largest uplink power
    downlink_power_ratio: float = checked(number(0.0, 1e12))
    #: noise density at the server [dBm/Hz]
    noise_server_dbm_hz: float = checked(number(-400.0, 100.0))
    #: noise density at a device [dBm/Hz]
    noise_device_dbm_hz: PerDevice = checked(number(-400.0, 100.0, per_device=True))


@dataclass(frozen=True)
class UploadRadio(Section):
    """Radio of the upload protocol; noise is a total power, whatever the bandwidth."""

    PREFIX: ClassVar[str] = "radio."
    #: the whole band [Hz], shared by the devices that draft
    bandwidth_hz: float = checked(number(1.0, 1e15))
    #: power of a device [dBm]
    uplink_power_dbm: PerDevice = checked(POWER_DBM)
    #: noise power at the server, whatever the bandwidth [dBm]
    noise_total_dbm: float = checked(number(-400.0, 100.0))


@dataclass(frozen=True)
class DistanceChannel(Section):
    """Mean gain from the distance: reference gain at 1 m, then a power law."""

    PREFIX: ClassVar[str] = "channel."
    #: mean gain at 1 m [dB]
    reference_gain_db: float = checked(number(-math.inf, 200.0))
    #: path-loss exponent
    exponent: float = checked(number(0.0, 20.0))
    #: distance from the server [m]; a range is drawn from, for each device
    distance_m: PerDevice | Range = checked(number_or_range(1e-3, 1e7))
    #: small-scale fading, drawn anew every round
    fading: str = checked(choice(FADINGS), "rayleigh")
    #: names this kind of channel
    kind: str = checked(choice(["distance"]), "distance")


@dataclass(frozen=True)
class UniformChannel(Section):
    """Mean gain given or drawn directly."""

    PREFIX: ClassVar[str] = "channel."
    #: mean gain; a range is drawn from, for each device
    mean_gain: PerDevice | Range = checked(number_or_range(0.0, 1e20))
    #: small-scale fading, drawn anew every round
    fading: str = checked(choice(FADINGS), "rayleigh")
    #: names this kind of channel
    kind: str = checked(choice(["uniform"]), "uniform")


@dataclass(frozen=True)
class Episode(Section):
    """An episode's length: simulated seconds, or a number of rounds. Exactly one is given."""

    PREFIX: ClassVar[str] = "episode."
    #: simulated time of an episode [s]
    horizon_s: float | None = checked(optional(number(1e-6, MAX_ROUND_S / 2)), None)
    #: or its number of rounds; exactly one of the two
    rounds: int | None = checked(optional(integer(1, 10**9)), None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.horizon_s is None) == (self.rounds is None):
            raise ValueError(
                f"episode.horizon_s = {self.horizon_s!r} and episode.rounds = {self.rounds!r}: "
                "exactly one of the two must be given"
            )


#: The radio of each protocol.
RADIOS: Final[dict[str, type[Section]]] = {"correction": CorrectionRadio, "upload": UploadRadio}
#: The channel of each kind.
CHANNELS: Final[dict[str, type[Section]]] = {"distance": DistanceChannel, "uniform": UniformChannel}
