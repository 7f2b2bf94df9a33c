"""The radio channel: units, path loss and signal-to-noise ratios."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

#: Signal-to-noise ratios are clipped to +-SNR_LIMIT_DB wherever they are given in decibels.
SNR_LIMIT_DB: Final = 300.0


def db_to_ratio(decibel: ArrayLike) -> Any:
    """10^(dB/10). -inf dB is 0."""
    return 10.0 ** (np.asarray(decibel, dtype=np.float64) / 10.0)


def dbm_to_w(dbm: ArrayLike) -> Any:
    """Power in watt of a power in dBm (or W/Hz of dBm/Hz): 10^((dBm - 30)/10)."""
    return db_to_ratio(np.asarray(dbm, dtype=np.float64) - 30.0)


def path_gain(distance_m: ArrayLike, reference_gain_db: float, exponent: float) -> Any:
    """Mean power gain of a link of given length: reference gain at 1 m times d^-exponent.

    Args:
        distance_m: distances [m], any shape, above 0.
        reference_gain_db: gain at 1 m [dB].
        exponent: path-loss exponent.

    Returns:
        Mean of `|h|^2`, dimensionless, shape of `distance_m`. (Paper B, section VI.)
    """
    distance = np.asarray(distance_m, dtype=np.float64)
    return db_to_ratio(reference_gain_db) * distance**-exponent


def snr_db(snr: ArrayLike) -> Any:
    """A signal-to-noise ratio in decibels, clipped to +-300 dB (no signal is -300 dB)."""
    limit = 10.0 ** (SNR_LIMIT_DB / 10.0)
    return 10.0 * np.log10(np.clip(np.asarray(snr, dtype=np.float64), 1.0 / limit, limit))


def snr_from_db(decibel: ArrayLike) -> Any:
    """Inverse of :func:`snr_db`; the lower clipping bound stands for no signal and gives 0."""
    values = np.asarray(decibel, dtype=np.float64)
    return np.where(values <= -SNR_LIMIT_DB, 0.0, db_to_ratio(values))
