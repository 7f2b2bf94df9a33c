"""Uploading every drafted token (paper A): spectral efficiency and bandwidth allocation.

Every drafted token's truncated distribution, Q bits, goes to the server *before* verification.
Device k drafts and uploads L_k tokens in L_k (T_k + Q / (B_k r_k)) seconds (A-26), the server
waits for the slowest, and the downlink is free. L_k = 0 sends nothing and needs no bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multispin_env.model.kernels.uploads import Drafts, upload_all

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Allocation:
    """Bandwidths [Hz], shape [..., K], and the time until all have uploaded [s], shape [...]."""

    bandwidth_hz: Floats
    latency_s: Any


def spectral_efficiency(power_w: ArrayLike, channel_gain: ArrayLike, noise_w: ArrayLike) -> Any:
    """Bits per second and hertz: r = log2(1 + p H / N0), N0 the total noise power (A-8)."""
    with np.errstate(under="ignore"):
        snr = np.asarray(power_w) / noise_w * np.asarray(channel_gain, dtype=np.float64)
        return np.log1p(snr) / np.log(2.0)


def allocate(
    draft_length: ArrayLike,
    *,
    token_latency_s: ArrayLike,
    spectral_efficiency: ArrayLike,
    token_bits: ArrayLike,
    bandwidth_hz: ArrayLike,
    share: ArrayLike | None = None,
) -> Allocation:
    """The bandwidths that let a round of uploads end first (Lemma 3), or those of given shares.

    Lemma 3 solves: minimise max_k L_k (T_k + Q / (B_k r_k)) over B_k > 0, sum B_k <= B. At the
    optimum all devices that draft finish together, at the root phi > max L_k T_k of (A-32)::

        sum_k Q L_k / (r_k (phi - L_k T_k)) = B,     B_k = Q L_k / (r_k (phi - L_k T_k)).

    With one common length this is Lemma 1 (A-20, A-21): phi = L * theta.

    Args:
        draft_length: L, nonnegative integers, [..., K].
        token_latency_s, spectral_efficiency: broadcast to [..., K].
        token_bits, bandwidth_hz: Q and B, broadcast to [...].
        share: nonnegative weights [..., K] that split the band over the devices that draft
            (all zero means equally), in place of the optimal allocation.

    Returns:
        Bandwidths that sum to B (0 for devices that do not draft), and the latency: 0 if nobody
        drafts, inf if a device that drafts has a dead channel or no bandwidth.
    """
    length = np.asarray(draft_length)
    shape = np.broadcast_shapes(length.shape, np.shape(spectral_efficiency))

    def devices(value: Any, dtype: Any = np.float64) -> Any:
        return np.array(np.broadcast_to(value, shape), dtype=dtype).reshape(-1, shape[-1])

    def cells(value: Any) -> Floats:
        return np.array(np.broadcast_to(value, shape[:-1]), dtype=np.float64).reshape(-1)

    bits = np.asarray(token_bits, dtype=np.float64)[..., None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        work = np.where(length > 0, length * bits / np.asarray(spectral_efficiency), 0.0)
    allocated, latency_s = devices(0.0), cells(0.0)
    drafts = Drafts(
        devices(length, np.int64),
        devices(token_latency_s),
        devices(work),
        devices(0.0 if share is None else share),
        cells(bandwidth_hz),
    )
    upload_all(share is not None, drafts, allocated, latency_s, np.empty((4, shape[-1])))
    latency: Any = latency_s.reshape(shape[:-1])
    return Allocation(allocated.reshape(shape), latency[()])
