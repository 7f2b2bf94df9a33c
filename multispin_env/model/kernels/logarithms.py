"""Logarithms written out: LLVM vectorises loops over them, but none that calls a library."""

from __future__ import annotations

from typing import Final

import numpy as np

from multispin_env.model.kernels.compiling import lean

LN2: Final = float(np.log(2.0))
DB_PER_NEPER: Final = float(10.0 / np.log(10.0))  # of power; the natural logarithm is faster
ROOT_HALF_BITS: Final = int(np.sqrt(0.5).view(np.int64))


@lean
def natural_log(x):
    """The natural logarithm of a normal number, to a unit in the last place (fdlibm's method).

    x = 2^e (1 + f) with 1 + f between the roots of 1/2 and 2, and ln(1 + f) = 2 artanh(s) with
    s = f / (2 + f), whose series is fitted.
    """
    bits = np.float64(x).view(np.int64)
    exponent = (bits - ROOT_HALF_BITS) >> 52
    f = np.int64(bits - (exponent << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    high = 0.1818357216161805 + z * (0.15313837699209373 + z * 0.14798198605116586)
    low = 0.3999999999940942 + z * (0.2857142874366239 + z * (0.2222219843214978 + z * high))
    return exponent * LN2 + (f - s * (f - z * (0.6666666666666735 + z * low)))


@lean
def natural_log1p(x):
    """ln(1 + x) of x >= 0, to two units in the last place; beyond 1e300 as at 1e300."""
    x = min(x, 1e300)
    u = 1.0 + x
    return natural_log(u) - ((u - 1.0) - x) / u  # what rounding u has lost, to first order
