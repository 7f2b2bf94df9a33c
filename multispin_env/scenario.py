"""A scenario: everything that is fixed about one cell, in physical units.

A scenario names the models, the radio, the channel statistics, the tasks and the length of an
episode. What is random (which task a device works on, where it stands, the fading) is drawn by
:mod:`multispin_env.world.tape` from the ranges given here.

Scenarios are frozen dataclasses, loaded from TOML files; the shipped ones are listed by
:func:`multispin_env.list_scenarios`. Every value is checked when a scenario is made, so that an
object that exists is valid.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from multispin_env.model.channel import dbm_to_w
from multispin_env.model.latency import MAX_ROUND_S, verification_latency

PROTOCOLS: Final = ("correction", "upload")
FADINGS: Final = ("rayleigh", "none")

#: Fields that change no physics; overriding only these keeps a preset's computed reference.
NOT_PHYSICS: Final = frozenset(
    {
        "name",
        "models",
        "episode",
        "reference_draft_length",
        "reference_goodput",
        "reference_physics",
    }
)

#: Slowest drafting that a device may have [s/token]; bounds the observation space.
MAX_TOKEN_LATENCY_S: Final = 10.0

#: Least duration of a round [s]; keeps goodputs finite.
MIN_ROUND_S: Final = 1e-9

PerDevice = float | tuple[float, ...]
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Range:
    """A uniform distribution on [min, max], from which each device draws at reset."""

    min: float
    max: float


# --------------------------------------------------------------------------------------------
# Checks. Each takes the dotted name and the value, returns the value in its canonical type, or
# raises a ValueError that names the field, the value and what is allowed.


def _fail(name: str, value: Any, allowed: str) -> ValueError:
    return ValueError(f"{name} = {value!r}: must be {allowed}")


def _real(name: str, value: Any, low: float, high: float, allowed: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise _fail(name, value, allowed)
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the largest float
        number = math.nan
    if math.isnan(number) or not low <= number <= high:
        raise _fail(name, value, allowed)
    return number


def _number(low: float, high: float, per_device: bool = False) -> Check:
    """A float in [low, high]; with `per_device` also a list with one float a device."""
    interval = f"a number in [{low:g}, {high:g}]"
    allowed = f"{interval}, or a list with one a device" if per_device else interval

    def check(name: str, value: Any) -> PerDevice:
        if isinstance(value, np.ndarray):
            value = value.item() if value.ndim == 0 else list(value)
        if per_device and isinstance(value, list | tuple):
            return tuple(_real(f"{name}[{k}]", v, low, high, interval) for k, v in enumerate(value))
        return _real(name, value, low, high, allowed)

    return check


def _integer(low: int, high: int, optional: bool = False) -> Check:
    allowed = f"an integer in [{low}, {high}]"

    def check(name: str, value: Any) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise _fail(name, value, allowed)
        if not low <= value <= high:
            raise _fail(name, value, allowed)
        return int(value)

    return check


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _fail(name, value, "a non-empty string")
    return value


def _choice(choices: Sequence[str]) -> Check:
    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise _fail(name, value, "one of " + ", ".join(repr(c) for c in choices))
        return str(value)

    return check


def _range(low: float, high: float) -> Check:
    """A range `{min, max}` inside [low, high]."""
    allowed = f"a table {{min, max}} with {low:g} <= min <= max <= {high:g}"

    def check(name: str, value: Any) -> Range:
        if isinstance(value, Range):
            value = asdict(value)
        if not isinstance(value, Mapping) or set(value) != {"min", "max"}:
            raise _fail(name, value, allowed)
        bounds = [_real(f"{name}.{end}", value[end], low, high, allowed) for end in ("min", "max")]
        if bounds[0] > bounds[1]:
            raise _fail(name, value, allowed)
        return Range(*bounds)

    return check


def _drawn(low: float, high: float) -> Check:
    """A number, a list with one number a device, or a range to draw from."""
    constant, drawn = _number(low, high, per_device=True), _range(low, high)

    def check(name: str, value: Any) -> PerDevice | Range:
        if isinstance(value, Range | Mapping):
            bounds: Range = drawn(name, value)
            return bounds
        try:
            numbers: PerDevice = constant(name, value)
        except ValueError as error:
            raise ValueError(f"{error}, or a table {{min, max}} to draw from") from None
        return numbers

    return check


def _checked(check: Check, default: Any = MISSING) -> Any:
    """A dataclass field whose value goes through `check`."""
    if default is MISSING:
        return field(metadata={"check": check})
    return field(default=default, metadata={"check": check})


class _Section:
    """A part of a scenario whose fields are checked when it is made."""

    PREFIX: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            checked = item.metadata["check"](self.PREFIX + item.name, getattr(self, item.name))
            object.__setattr__(self, item.name, checked)


# --------------------------------------------------------------------------------------------
# The sections, in the order of the TOML files.


@dataclass(frozen=True)
class Task:
    """A kind of work and the rate at which its drafted tokens are accepted."""

    name: str
    acceptance_rate: PerDevice  # in [0, 1]; a list gives each device its own rate


@dataclass(frozen=True)
class Models(_Section):
    """Names of the small drafting model and of the large verifying one."""

    PREFIX: ClassVar[str] = "models."
    #: name of the model that devices draft with
    draft: str = _checked(_text)
    #: name of the model that the server verifies with
    target: str = _checked(_text)


@dataclass(frozen=True)
class Drafting(_Section):
    """How fast devices draft: `token_latency_s` times a factor drawn from `spread`.

    A list of latencies, one a device, is taken as it is: `spread` does not apply.
    """

    PREFIX: ClassVar[str] = "drafting."
    #: time to draft one token [s]
    token_latency_s: PerDevice = _checked(_number(1e-9, MAX_TOKEN_LATENCY_S, per_device=True))
    #: factor on it, drawn for each device
    spread: Range = _checked(_range(1e-3, 1e3), Range(1.0, 1.0))


@dataclass(frozen=True)
class Verification(_Section):
    """Batched verification takes fixed_s + K * per_device_s."""

    PREFIX: ClassVar[str] = "verification."
    #: latency of a batch, whatever its size [s]
    fixed_s: float = _checked(_number(0.0, 1e3))
    #: more latency for each device of the batch [s]
    per_device_s: float = _checked(_number(0.0, 1.0))


@dataclass(frozen=True)
class Payload(_Section):
    """One truncated token distribution: `support` entries of an index and a `bits`-bit value."""

    PREFIX: ClassVar[str] = "payload."
    #: entries of the vocabulary; an index takes ceil(log2 of it) bits
    vocabulary: int = _checked(_integer(1, 10**9))
    #: entries of a truncated distribution
    support: int = _checked(_integer(1, 10**9))
    #: bits of a probability
    bits: int = _checked(_integer(1, 64))

    @property
    def distribution_bits(self) -> int:
        """Bits of one truncated distribution, support * (ceil(log2 vocabulary) + bits)."""
        return self.support * ((self.vocabulary - 1).bit_length() + self.bits)


_DBM = _number(-math.inf, 200.0, per_device=True)  # -inf dBm is no power at all


@dataclass(frozen=True)
class CorrectionRadio(_Section):
    """Radio of the correction protocol; noise is a power spectral density.

    The server's downlink budget is `downlink_power_ratio` times the largest uplink power.
    """

    PREFIX: ClassVar[str] = "radio."
    #: the whole band [Hz], shared equally by the rejected devices
    bandwidth_hz: float = _checked(_number(1.0, 1e15))
    #: largest power of a device [dBm]
    uplink_power_dbm: PerDevice = _checked(_DBM)
    #: the server's budget over the largest uplink power
    downlink_power_ratio: float = _checked(_number(0.0, 1e12))
    #: noise density at the server [dBm/Hz]
    noise_server_dbm_hz: float = _checked(_number(-400.0, 100.0))
    #: noise density at a device [dBm/Hz]
    noise_device_dbm_hz: PerDevice = _checked(_number(-400.0, 100.0, per_device=True))


@dataclass(frozen=True)
class UploadRadio(_Section):
    """Radio of the upload protocol; noise is a total power, whatever the bandwidth."""

    PREFIX: ClassVar[str] = "radio."
    #: the whole band [Hz], shared by the devices that draft
    bandwidth_hz: float = _checked(_number(1.0, 1e15))
    #: power of a device [dBm]
    uplink_power_dbm: PerDevice = _checked(_DBM)
    #: noise power at the server, whatever the bandwidth [dBm]
    noise_total_dbm: float = _checked(_number(-400.0, 100.0))


@dataclass(frozen=True)
class DistanceChannel(_Section):
    """Mean gain from the distance: reference gain at 1 m, then a power law."""

    PREFIX: ClassVar[str] = "channel."
    #: mean gain at 1 m [dB]
    reference_gain_db: float = _checked(_number(-math.inf, 200.0))
    #: path-loss exponent
    exponent: float = _checked(_number(0.0, 20.0))
    #: distance from the server [m]; a range is drawn from, for each device
    distance_m: PerDevice | Range = _checked(_drawn(1e-3, 1e7))
    #: small-scale fading, drawn anew every round
    fading: str = _checked(_choice(FADINGS), "rayleigh")
    #: names this kind of channel
    kind: str = _checked(_choice(["distance"]), "distance")


@dataclass(frozen=True)
class UniformChannel(_Section):
    """Mean gain given or drawn directly."""

    PREFIX: ClassVar[str] = "channel."
    #: mean gain; a range is drawn from, for each device
    mean_gain: PerDevice | Range = _checked(_drawn(0.0, 1e20))
    #: small-scale fading, drawn anew every round
    fading: str = _checked(_choice(FADINGS), "rayleigh")
    #: names this kind of channel
    kind: str = _checked(_choice(["uniform"]), "uniform")


@dataclass(frozen=True)
class Episode(_Section):
    """An episode's length: simulated seconds, or a number of rounds. Exactly one is given."""

    PREFIX: ClassVar[str] = "episode."
    #: simulated time of an episode [s]
    horizon_s: float | None = _checked(_optional(_number(1e-6, MAX_ROUND_S / 2)), None)
    #: or its number of rounds; exactly one of the two
    rounds: int | None = _checked(_integer(1, 10**9, optional=True), None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.horizon_s is None) == (self.rounds is None):
            raise ValueError(
                f"episode.horizon_s = {self.horizon_s!r} and episode.rounds = {self.rounds!r}: "
                "exactly one of the two must be given"
            )


def _tasks(name: str, value: Any) -> tuple[Task, ...]:
    """Tasks from a mapping `name -> acceptance rate`, or from a sequence of tasks."""
    table = _task_table(value)
    if not isinstance(table, Mapping) or not table:
        raise _fail(name, value, "a table with at least one task: its name and acceptance rate")
    pairs = list(table.items())
    rate = _number(0.0, 1.0, per_device=True)
    return tuple(Task(_text(name, key), rate(f"{name}.{key}", r)) for key, r in pairs)


def _task_table(value: Any) -> Any:
    """A sequence of tasks (as `asdict` gives it) as a table; anything else as it is.

    Raises:
        ValueError: a name stands twice.
    """
    if not isinstance(value, list | tuple):
        return value
    items = [asdict(task) if isinstance(task, Task) else task for task in value]
    if not all(isinstance(i, Mapping) and set(i) == {"name", "acceptance_rate"} for i in items):
        return value
    table = {item["name"]: item["acceptance_rate"] for item in items}
    if len(table) < len(items):
        raise _fail("tasks", value, "a table in which no name stands twice")
    return table


def _section(*kinds: type) -> Check:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kinds):
            raise _fail(name, value, "a " + " or ".join(kind.__name__ for kind in kinds))
        return value

    return check


@dataclass(frozen=True)
class Scenario(_Section):
    """One cell, complete and checked; see the module's docstring.

    Make one with :meth:`load` (a preset's name, a TOML path, a dict, a scenario) and change it
    with `overrides`, a mapping of dotted field names to values:

    >>> Scenario.load("qwen2.5", overrides={"num_devices": 8}).num_devices
    8

    ============================  ===================================================  ==========
    field                         meaning                                              range
    ============================  ===================================================  ==========
    name                          any name
    protocol                      `correction` (paper B) or `upload` (paper A)
    num_devices                   K                                                    1..100000
    max_draft_length              longest draft [tokens]                               1..1000
    tasks                         name -> acceptance rate; a device draws one          [0, 1]
    models                        `Models`
    drafting                      `Drafting`
    verification                  `Verification`
    payload                       `Payload`
    radio                         `CorrectionRadio` or `UploadRadio`
    channel                       `DistanceChannel` or `UniformChannel`
    episode                       `Episode`
    reference_draft_length        a good common length [tokens]; computed if left out
    reference_goodput             default price of a second [tokens/s]; as above
    reference_physics             fingerprint of what the two were computed for
    ============================  ===================================================  ==========

    The two reference values hold for one physics only. Where `reference_physics` is given and is
    not the :attr:`fingerprint` of the rest, as in an edited copy, all three are dropped.

    Raises:
        ValueError: a field is unknown, missing or outside its range; the message names it.
    """

    #: any name
    name: str = _checked(_text)
    #: what goes over the air, corrections (paper B) or all drafts (paper A)
    protocol: str = _checked(_choice(PROTOCOLS))
    #: K
    num_devices: int = _checked(_integer(1, 100_000))
    #: longest draft [tokens]
    max_draft_length: int = _checked(_integer(1, 1000))
    #: name and acceptance rate of each; a device draws one
    tasks: tuple[Task, ...] = _checked(_tasks)
    #: the pair of models
    models: Models = _checked(_section(Models))
    #: speed of drafting
    drafting: Drafting = _checked(_section(Drafting))
    #: latency of the batched verification
    verification: Verification = _checked(_section(Verification))
    #: size of a token distribution
    payload: Payload = _checked(_section(Payload))
    #: powers, noise and band
    radio: CorrectionRadio | UploadRadio = _checked(_section(CorrectionRadio, UploadRadio))
    #: gains
    channel: DistanceChannel | UniformChannel = _checked(_section(DistanceChannel, UniformChannel))
    #: how long an episode is
    episode: Episode = _checked(_section(Episode))
    #: a good common length [tokens]
    reference_draft_length: int | None = _checked(_integer(0, 1000, optional=True), None)
    #: default price of a second [tokens/s]
    reference_goodput: float | None = _checked(_optional(_number(0.0, 1e12)), None)
    #: fingerprint of what the two were computed for
    reference_physics: str | None = _checked(_optional(_text), None)

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = CorrectionRadio if self.protocol == "correction" else UploadRadio
        if not isinstance(self.radio, wanted):
            raise ValueError(
                f"radio is a {type(self.radio).__name__}: "
                f"the {self.protocol} protocol takes a {wanted.__name__}"
            )
        if self.verification_s < MIN_ROUND_S:
            raise _fail(
                "verification.fixed_s + num_devices * verification.per_device_s",
                self.verification_s,
                f"at least {MIN_ROUND_S:g} s, for a round must take time",
            )
        if self.reference_physics not in (None, self.fingerprint):
            for name in ("reference_draft_length", "reference_goodput", "reference_physics"):
                object.__setattr__(self, name, None)
        if self.reference_draft_length is not None and (
            self.reference_draft_length > self.max_draft_length
        ):
            raise _fail(
                "reference_draft_length",
                self.reference_draft_length,
                f"at most max_draft_length = {self.max_draft_length}",
            )
        self._check_per_device_lists()
        slowest = np.max(self.drafting.token_latency_s)
        if not isinstance(self.drafting.token_latency_s, tuple):
            slowest *= self.drafting.spread.max
        if slowest > MAX_TOKEN_LATENCY_S:
            raise _fail(
                "drafting.token_latency_s * drafting.spread.max",
                float(slowest),
                f"at most {MAX_TOKEN_LATENCY_S:g} s",
            )

    def _check_per_device_lists(self) -> None:
        values = {f"tasks.{task.name}": task.acceptance_rate for task in self.tasks}
        for section in (self.drafting, self.radio, self.channel):
            for item in fields(section):
                values[section.PREFIX + item.name] = getattr(section, item.name)
        for name, value in values.items():
            if isinstance(value, tuple) and len(value) != self.num_devices:
                raise ValueError(
                    f"{name} lists {len(value)} values: must list num_devices = "
                    f"{self.num_devices}, or give one number for all"
                )

    @property
    def fingerprint(self) -> str:
        """A hash of the physics, of all but the name, the models, the episode and the reference."""
        physics = {
            item.name: _plain(getattr(self, item.name))
            for item in fields(self)
            if item.name not in NOT_PHYSICS
        }
        text = json.dumps(physics, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    # ---- derived quantities, each in one place --------------------------------------------

    @property
    def verification_s(self) -> float:
        """Latency of verifying all devices in one batch [s]; equations A-7, B-16."""
        parts = self.verification
        return float(verification_latency(self.num_devices, parts.fixed_s, parts.per_device_s))

    @property
    def uplink_power_w(self) -> np.ndarray:
        """Largest uplink power of each device [W], shape [K]."""
        return self._per_device(dbm_to_w(np.asarray(self.radio.uplink_power_dbm)))

    @property
    def downlink_power_w(self) -> float:
        """Downlink power budget of the server [W]; correction protocol only."""
        assert isinstance(self.radio, CorrectionRadio)
        return self.radio.downlink_power_ratio * float(self.uplink_power_w.max())

    @property
    def noise_server_w(self) -> float:
        """Noise power at the server over the whole band [W]."""
        if isinstance(self.radio, CorrectionRadio):
            return float(dbm_to_w(self.radio.noise_server_dbm_hz)) * self.radio.bandwidth_hz
        return float(dbm_to_w(self.radio.noise_total_dbm))

    @property
    def noise_device_w(self) -> np.ndarray:
        """Noise power at each device over the whole band [W], shape [K]; correction only."""
        assert isinstance(self.radio, CorrectionRadio)
        density = dbm_to_w(np.asarray(self.radio.noise_device_dbm_hz))
        return self._per_device(density) * self.radio.bandwidth_hz

    def _per_device(self, value: Any) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), self.num_devices))

    # ---- in and out ------------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        source: str | Path | Mapping[str, Any] | Scenario,
        overrides: Mapping[str, Any] | None = None,
    ) -> Scenario:
        """Load a scenario and change some of its fields.

        Args:
            source: a preset's name (:func:`.list_scenarios`), the path of a TOML file, a dict as
                :meth:`to_dict` gives it, or a scenario.
            overrides: dotted field names and their new values, for example
                ``{"radio.uplink_power_dbm": 10, "num_devices": 8}``. When they change the
                physics, the stored reference no longer holds and is computed when needed.

        Raises:
            ValueError: no such preset or file, an unknown field, or a value out of range.
        """
        if isinstance(source, Scenario):
            if not overrides:
                return source
            data = source.to_dict()
        elif isinstance(source, Mapping):
            data = _plain(source)
        else:
            data = _read(source)
        return cls.from_dict(_override(data, overrides or {}))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scenario:
        """The scenario that a (nested) dict describes: the inverse of :meth:`to_dict`."""
        if not isinstance(data, Mapping):
            raise _fail("scenario", data, "a mapping of fields to values")
        data = _plain(data)
        for key in data:
            if not isinstance(key, str):
                raise ValueError(f"unknown scenario field {key!r}: names are strings")
        if not isinstance(data.get("channel", {}), Mapping):
            raise _fail("channel", data["channel"], "a table")
        protocol = _choice(PROTOCOLS)("protocol", data.get("protocol"))
        kind = _choice(list(_CHANNELS))("channel.kind", data.get("channel", {}).get("kind"))
        classes: dict[str, Any] = {
            "models": Models,
            "drafting": Drafting,
            "verification": Verification,
            "payload": Payload,
            "radio": _RADIOS[protocol],
            "channel": _CHANNELS[kind],
            "episode": Episode,
        }
        valid = _field_names(cls) + [
            section_class.PREFIX + name
            for section_class in classes.values()
            for name in _field_names(section_class)
        ]
        values: dict[str, Any] = {}
        for key, value in data.items():
            if key not in classes:
                _known(key, valid, protocol, kind)
                values[key] = value
                continue
            if not isinstance(value, Mapping):
                raise _fail(key, value, "a table")
            for inner in value:
                _known(f"{key}.{inner}", valid, protocol, kind)
            values[key] = _make(classes[key], key + ".", value)
        scenario: Scenario = _make(cls, "", values)
        return scenario

    def to_dict(self) -> dict[str, Any]:
        """The scenario as nested plain dicts, lists, numbers and strings."""
        data = asdict(self)
        data["tasks"] = {task.name: task.acceptance_rate for task in self.tasks}
        plain: dict[str, Any] = _plain(data)
        return plain

    def to_toml(self) -> str:
        """The scenario as the text of a TOML file."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())


_RADIOS: Final[dict[str, type]] = {"correction": CorrectionRadio, "upload": UploadRadio}
_CHANNELS: Final[dict[str, type]] = {"distance": DistanceChannel, "uniform": UniformChannel}


def list_scenarios() -> list[str]:
    """Names of the shipped scenarios."""
    folder = resources.files("multispin_env") / "scenarios"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


# --------------------------------------------------------------------------------------------
# Helpers of loading.


def _field_names(cls: Any) -> list[str]:
    return [item.name for item in fields(cls)]


def _known(name: str, valid: Sequence[str], protocol: str, kind: str) -> None:
    """Raise unless `name` is a field; the message names the nearest one."""
    if name in valid:
        return
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.0)[0]
    raise ValueError(
        f"unknown scenario field {name!r} (protocol {protocol!r}, channel kind {kind!r}): "
        f"did you mean {near!r}?"
    )


def _make(cls: Any, prefix: str, values: Mapping[str, Any]) -> Any:
    missing = [
        prefix + item.name
        for item in fields(cls)
        if item.default is MISSING and item.name not in values
    ]
    if missing:
        hint = "; a table replaces its whole section, change single fields by their dotted names"
        raise ValueError(f"the scenario lacks {', '.join(missing)}{hint if prefix else ''}")
    return cls(**values)


def _plain(value: Any) -> Any:
    """A deep copy in plain dicts and lists, without the entries that are None."""
    if isinstance(value, Range | Task | _Section):
        value = asdict(value)  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _read(source: str | Path) -> dict[str, Any]:
    """The content of a preset or of a TOML file."""
    if not isinstance(source, str | Path):
        raise _fail("scenario", source, "a name, the path of a TOML file, a mapping or a Scenario")
    if isinstance(source, str) and source in list_scenarios():
        content = (resources.files("multispin_env") / "scenarios" / f"{source}.toml").read_bytes()
    else:
        try:
            content = Path(source).read_bytes()
        except (OSError, ValueError) as error:
            raise ValueError(
                f"scenario = {str(source)!r}: must be one of {', '.join(list_scenarios())}, "
                f"or the path of a TOML file ({type(error).__name__})"
            ) from error
    try:
        return tomllib.loads(content.decode("utf8"))
    except ValueError as error:  # not UTF-8, or not TOML
        raise ValueError(f"scenario = {str(source)!r}: not a TOML file ({error})") from error


def _override(data: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with dotted `overrides` written into it."""
    if not isinstance(overrides, Mapping):
        raise _fail("overrides", overrides, "a mapping of dotted field names to values")
    if "episode.rounds" in overrides or "episode.horizon_s" in overrides:
        data["episode"] = {}  # the two exclude each other: the new one replaces the old one
    channel = data.get("channel")
    if isinstance(channel, dict) and overrides.get("channel.kind", channel.get("kind")) != (
        channel.get("kind")
    ):  # the fields of the two kinds have nothing in common but the fading
        data["channel"] = {key: channel[key] for key in ("fading",) if key in channel}
    data["tasks"] = _task_table(data.get("tasks"))
    physics_changes = any(str(name).split(".")[0] not in NOT_PHYSICS for name in overrides)
    for name in ("reference_draft_length", "reference_goodput"):
        if physics_changes:
            data.pop(name, None)
        if name in overrides:  # given, not computed: it holds whatever the physics
            data.pop("reference_physics", None)
    for name, value in overrides.items():
        *parents, leaf = str(name).split(".", 1) if "." in str(name) else [str(name)]
        table = data
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise ValueError(f"unknown scenario field {name!r}: {parent!r} is not a table")
        table[leaf] = _plain(value)
    return data
