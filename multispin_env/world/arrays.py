"""Arrays that callers hand in, and what is taken for them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Kinds of dtype that are taken for lengths and modes, and for shares.
INTEGERS: Final = "iub"
NUMBERS: Final = "iuf"


def checked_array(name: str, value: Any, shape: tuple[int, ...], kinds: str) -> NDArray[Any]:
    """`value` as an array; raises unless it has the given shape and one of the kinds of dtype."""
    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind not in kinds:
        allowed = "an integer" if kinds == INTEGERS else "a numeric"
        raise ValueError(
            f"{name} has shape {array.shape} and dtype {array.dtype}: "
            f"must have shape {shape} and {allowed} dtype"
        )
    return array


def whole_modes(action: Any) -> Any:
    """Modes as integers where they come as whole floats, as Stable-Baselines3's Bernoulli does."""
    array = np.asarray(action)
    if array.dtype.kind == "f" and np.all((array == 0) | (array == 1)):
        return array.astype(np.int64)
    return array
