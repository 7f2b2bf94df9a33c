"""Sums that are the same to the last bit on every Python, and for one round as for many lanes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def total(values: Iterable[Any]) -> Any:
    """Sum of numbers or of arrays, from left to right, with a plain addition each.

    The built-in `sum` is not used for what may be a float: since Python 3.12 it carries the
    rounding errors of floats along, but not those of arrays or of NumPy's scalars. A round's sum
    would then depend on the Python, and differ from the sum of the same round in a lane.

    Args:
        values: numbers, or arrays of shapes that broadcast; arrays are not written to.

    Returns:
        0 + first + second + ...: 0 without values, and never -0.0.
    """
    result: Any = 0
    for value in values:
        result = result + value
    return result
