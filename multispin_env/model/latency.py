"""How long the parts of a round take."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: No round is charged more than this [s], so that no number is ever infinite.
MAX_ROUND_S: Final = 1e6


def drafting_latency(draft_length: ArrayLike, token_latency_s: ArrayLike) -> Any:
    """Time until the last device has drafted [s]: max_k gamma_k T_k (B-15).

    Args:
        draft_length: tokens, shape [..., K].
        token_latency_s: seconds a token, broadcast against `draft_length`.

    Returns:
        Seconds, shape [...].
    """
    return np.max(np.asarray(draft_length) * np.asarray(token_latency_s), axis=-1)


def tokens_until(
    deadline_s: ArrayLike, token_latency_s: ArrayLike, longest: ArrayLike
) -> NDArray[np.int64]:
    """Tokens that each device can draft until a deadline: min(floor(x / T_k), gamma_max).

    Args:
        deadline_s: x [s], shape [...].
        token_latency_s: T_k, seconds a token, shape [..., K].
        longest: gamma_max.

    Returns:
        Tokens, shape [..., K]. A margin of 1e-12 guards the floor where x is n T_k.
    """
    deadline = np.asarray(deadline_s, dtype=np.float64)[..., None]
    fits = np.floor(deadline / np.asarray(token_latency_s) * (1.0 + 1e-12))
    return np.asarray(np.minimum(fits, longest), dtype=np.int64)


def verification_latency(num_devices: ArrayLike, fixed_s: float, per_device_s: float) -> Any:
    """Time of one batched verification [s]: T0 + K T1 (A-7, B-16)."""
    return fixed_s + np.asarray(num_devices) * per_device_s


def transmission_latency(payload_bits: ArrayLike, bandwidth_hz: ArrayLike, snr: ArrayLike) -> Any:
    """Time to send a payload at the Shannon rate [s]: D / (B log2(1 + snr)).

    Args:
        payload_bits: D, above 0.
        bandwidth_hz: B of the link [Hz].
        snr: signal-to-noise ratio over that bandwidth.

    Returns:
        Seconds, the broadcast shape; inf where the link is dead (snr 0 or bandwidth 0).
    """
    band = np.asarray(bandwidth_hz, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        # Without a band nothing is sent, at whatever ratio.
        efficiency = np.where(band > 0, np.log1p(np.asarray(snr, dtype=np.float64)), 0.0)
        return np.asarray(payload_bits, dtype=np.float64) * np.log(2.0) / (band * efficiency)
