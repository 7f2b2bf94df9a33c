"""What a field of a scenario may hold.

A check takes the dotted name of a field and a value; it returns the value in its canonical type, or
raises a ValueError that names the field, the value and what is allowed. A field gets its check by
:func:`checked`, and :class:`.sections.Section` applies it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field
from typing import Any

import numpy as np

PerDevice = float | tuple[float, ...]
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Range:
    """A uniform distribution on [min, max], from which each device draws at reset."""

    min: float
    max: float


def checked(check: Check, default: Any = MISSING) -> Any:
    """A dataclass field whose value goes through `check`; required if it has no default."""
    if default is MISSING:
        return field(metadata={"check": check})
    return field(default=default, metadata={"check": check})


def refusal(name: str, value: Any, allowed: str) -> ValueError:
    """The error that a wrong value raises."""
    return ValueError(f"{name} = {value!r}: must be {allowed}")


def real(name: str, value: Any, low: float, high: float, allowed: str) -> float:
    """A real number in [low, high] as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise refusal(name, value, allowed)
    try:
        converted = float(value)
    except OverflowError:  # an integer beyond the largest float
        converted = math.nan
    if math.isnan(converted) or not low <= converted <= high:
        raise refusal(name, value, allowed)
    return converted


# ---- the checks, and functions that make them -------------------------------------------------


def number(low: float, high: float, per_device: bool = False) -> Check:
    """A float in [low, high]; with `per_device` also a list with one float a device."""
    interval = f"a number in [{low:g}, {high:g}]"
    allowed = f"{interval}, or a list with one a device" if per_device else interval

    def check(name: str, value: Any) -> PerDevice:
        if isinstance(value, np.ndarray):
            value = value.item() if value.ndim == 0 else list(value)
        if per_device and isinstance(value, list | tuple):
            return tuple(real(f"{name}[{k}]", v, low, high, interval) for k, v in enumerate(value))
        return real(name, value, low, high, allowed)

    return check


def number_range(low: float, high: float) -> Check:
    """A range `{min, max}` inside [low, high]."""
    allowed = f"a table {{min, max}} with {low:g} <= min <= max <= {high:g}"

    def check(name: str, value: Any) -> Range:
        if isinstance(value, Range):
            value = asdict(value)
        if not isinstance(value, Mapping) or set(value) != {"min", "max"}:
            raise refusal(name, value, allowed)
        bounds = [real(f"{name}.{end}", value[end], low, high, allowed) for end in ("min", "max")]
        if bounds[0] > bounds[1]:
            raise refusal(name, value, allowed)
        return Range(*bounds)

    return check


def number_or_range(low: float, high: float) -> Check:
    """A number, a list with one number a device, or a range to draw from."""
    constant, drawn = number(low, high, per_device=True), number_range(low, high)

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


def integer(low: int, high: int) -> Check:
    """An integer in [low, high]."""
    allowed = f"an integer in [{low}, {high}]"

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise refusal(name, value, allowed)
        if not low <= value <= high:
            raise refusal(name, value, allowed)
        return int(value)

    return check


def nonempty_string(name: str, value: Any) -> str:
    """A string that is not empty; a check itself."""
    if not isinstance(value, str) or not value:
        raise refusal(name, value, "a non-empty string")
    return value


def choice(choices: Sequence[str]) -> Check:
    """One of some strings."""

    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise refusal(name, value, "one of " + ", ".join(repr(c) for c in choices))
        return str(value)

    return check


def instance(*kinds: type) -> Check:
    """An object of one of some classes."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kinds):
            raise refusal(name, value, "a " + " or ".join(kind.__name__ for kind in kinds))
        return value

    return check


def optional(check: Check) -> Check:
    """None, or what `check` takes."""
    return lambda name, value: None if value is None else check(name, value)
