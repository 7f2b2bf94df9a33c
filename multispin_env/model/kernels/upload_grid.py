"""Proposition 1 on a grid over phi and the price of bandwidth, compiled by numba.

See :func:`multispin_env.solvers.uploads.heterogeneous`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from multispin_env.model.kernels.compiling import compiled, lean
from multispin_env.model.kernels.logarithms import natural_log
from multispin_env.model.kernels.upload_search import MARGIN, Valuation, goodput_of, is_late


class Grid(NamedTuple):
    """Proposition 1 on a grid: the lengths are (phi - y) / T.

    With s = sqrt(lambda phi), y is the solution of::

        scale y + ln(scale y) = x,    x = offset + ln s + scale phi.

    Where x is so low that the first term vanishes beside the logarithm, y is stem s, which is also
    the limit alpha -> 1.
    """

    phi: Any  #: [P]
    multiplier: Any  #: [M] lambda
    scale: Any  #: [K] beta / (2 T)
    offset: Any  #: [K]; -inf where stem s is y
    stem: Any  #: [P, K]; inf for a device that drafts nothing


@lean
def wright_omega(x, z):
    """The w > 0 with w + ln w = x, to rounding, for x >= -40; z = e^x is read below 1 only.

    Two steps of Fritsch, Shafer and Crowley's iteration, of fourth order, from a guess that is
    right to a twentieth. Without branches, so that LLVM vectorises it.
    """
    log_x = natural_log(max(x, 1.0))
    small = z * (60.0 + z * (114.0 + z * 17.0)) / (60.0 + z * (174.0 + z * 101.0))  # Pade, in 0
    w = max(x - log_x + log_x / x if x >= 1.0 else small, 1e-300)
    for _ in range(2):
        r = x - w - natural_log(w)
        t = 2.0 * (w + 1.0) * (w + 1.0 + r * (2.0 / 3.0))
        w *= 1.0 + r / (w + 1.0) * (t - r) / (t - 2.0 * r)
    return w


@lean
def grid_lengths(m, p, grid, job, real):
    """The real lengths [K] of Proposition 1 at one point of the grid, clipped to those allowed."""
    phi = grid.phi[p]
    root = np.sqrt(grid.multiplier[m] * phi)
    log_root = np.log(root)
    for k in range(real.shape[0]):
        scale, y = grid.scale[k], grid.stem[p, k] * root
        x = grid.offset[k] + log_root + scale * phi
        y = wright_omega(x, scale * y) / scale if x >= -40.0 else y
        real[k] = min(max((phi - y) / job.token_s[k], job.low), job.high)


@compiled
def best_of_grid(grid, job):
    """The rounded lengths of the points of a grid whose goodput is best, to a margin.

    Returns:
        Lengths [ties, K]. Among them are the least lengths, if nothing is better.
    """
    num_devices = job.token_s.shape[0]
    memory = Valuation(np.empty(num_devices), np.empty(num_devices), np.empty((4, num_devices)))
    lengths, real = np.full(num_devices, job.low, np.int64), np.empty(num_devices)
    value = goodput_of(lengths, job, memory)
    ties = np.empty((1 + grid.phi.size * grid.multiplier.size, num_devices), np.int64)
    ties[0] = lengths
    count = 1
    for m in range(grid.multiplier.size):
        for p in range(grid.phi.size):
            grid_lengths(m, p, grid, job, real)
            for k in range(num_devices):
                lengths[k] = np.int64(np.rint(real[k]))
            if is_late(lengths, value, job):
                continue
            goodput = goodput_of(lengths, job, memory)
            if goodput > value * (1.0 + MARGIN):
                count = 0
            if goodput >= value * (1.0 - MARGIN):
                ties[count] = lengths
                count += 1
                value = max(value, goodput)
    return ties[:count].copy()
