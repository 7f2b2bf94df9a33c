"""Correcting rejected drafts (paper B): modes, powers and delays.

After verification the devices whose draft was rejected move one truncated distribution of D bits
each, all at once over disjoint bands B_k: *uplink* (mode 0), the device sends its draft
distribution with at most P_k^ul; or *downlink* (mode 1), the server sends the target distribution
with p_k, where the powers p_k of all downlink devices share the budget P^dl. The round waits for
the slowest. Given the rejected set R this is::

    minimise  max_{k in R} D / (B_k log2(1 + p_k g_k / (N_k B_k)))
    over      m_k in {0, 1},  0 <= p_k <= P_k^ul (m_k = 0),  sum_{m_k = 1} p_k <= P^dl,

with g_k the channel gain and N_k the noise density at the receiver: the server's for uplink,
the device's for downlink. Lemma 1 gives the powers, Lemma 2 the modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from multispin_env.model.kernels import corrections
from multispin_env.model.kernels.corrections import Link
from multispin_env.model.latency import transmission_latency

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Rules by name. `random` tosses a fair coin for every device.
RULES: Final = {
    "optimal": corrections.OPTIMAL,
    "uplink": corrections.UPLINK,
    "downlink": corrections.DOWNLINK,
    "random": corrections.GIVEN,
}


def check_rule(rule: str) -> None:
    """ValueError unless `rule` is a key of :data:`RULES`."""
    if rule not in RULES:
        raise ValueError(f"rule = {rule!r}: must be one of {', '.join(map(repr, RULES))}")


@dataclass(frozen=True)
class Correction:
    """What the correction phase of a round does; arrays [..., K], latency [...]."""

    mode: Integers  #: 0 uplink, 1 downlink, -1 silent (the draft was accepted)
    power_w: Floats  #: transmit power [W], 0 where silent
    latency_s: Any  #: time until the slowest correction has arrived [s]; 0 without rejections

    @property
    def downlink(self) -> NDArray[np.bool_]:
        """Which devices are corrected on the downlink."""
        return np.asarray(self.mode == 1)


def uplink_latency(
    channel_gain: ArrayLike,
    uplink_power_w: ArrayLike,
    payload_bits: ArrayLike,
    bandwidth_hz: ArrayLike,
    noise_server_w_hz: ArrayLike,
) -> Any:
    """Delay of an uplink correction at full power [s]: D / (B log2(1 + P g / (N0 B))) (B-19).

    Full power is optimal: the delay falls with the power, and nobody else is affected.
    All arguments broadcast; `bandwidth_hz` is the device's own band. inf for a dead channel.
    """
    with np.errstate(divide="ignore", invalid="ignore", under="ignore", over="ignore"):
        noise = np.asarray(noise_server_w_hz, dtype=np.float64) * np.asarray(bandwidth_hz)
        snr = np.asarray(uplink_power_w) * np.asarray(channel_gain, dtype=np.float64) / noise
    return transmission_latency(payload_bits, bandwidth_hz, snr)


def downlink_equal_bandwidth(
    channel_gain: ArrayLike,
    downlink_power_w: float,
    payload_bits: float,
    bandwidth_hz: float,
    noise_device_w_hz: ArrayLike,
) -> tuple[float, Floats]:
    """Lemma 1 when all downlink devices have the same bandwidth: a closed form.

    The optimum equalises all delays and uses the whole budget. With equal bands this means equal
    signal-to-noise ratios, so p_k is proportional to N0_k / g_k and::

        t = D / (B log2(1 + P^dl / (B sum_k N0_k / g_k))).

    Args:
        channel_gain: gains of the downlink devices, shape [K].
        downlink_power_w: budget P^dl [W].
        payload_bits: D.
        bandwidth_hz: band of *each* device [Hz].
        noise_device_w_hz: noise densities, broadcast to [K].

    Returns:
        The delay [s], inf if a gain or the budget is 0, and the powers [W], shape [K].
    """
    gain = np.asarray(channel_gain, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        cost = np.asarray(noise_device_w_hz, dtype=np.float64) * bandwidth_hz / gain
        total = float(np.sum(cost))
    share = cost / total if np.isfinite(total) else np.full(gain.shape, 1.0 / gain.size)
    latency = transmission_latency(payload_bits, bandwidth_hz, downlink_power_w / total)
    return float(latency), downlink_power_w * share


def downlink_given_bandwidth(
    channel_gain: ArrayLike,
    downlink_power_w: float,
    payload_bits: float,
    bandwidth_hz: ArrayLike,
    noise_device_w_hz: ArrayLike,
) -> tuple[float, Floats]:
    """Lemma 1 for given, unequal bandwidths: the common delay t is a root.

    The power that device k needs to finish at t falls with t, so exactly one t uses the budget::

        sum_k (N0_k B_k / g_k) (2^(D / (B_k t)) - 1) = P^dl.

    Solved for log t between two bounds: some device gets at least P^dl / K, none more than P^dl.

    Args and returns: as :func:`downlink_equal_bandwidth`, with `bandwidth_hz` of shape [K].
    """
    gain, band, noise = np.broadcast_arrays(
        np.asarray(channel_gain, dtype=np.float64),
        np.asarray(bandwidth_hz, dtype=np.float64),
        np.asarray(noise_device_w_hz, dtype=np.float64),
    )
    if downlink_power_w <= 0 or np.any(gain <= 0) or np.any(band <= 0):
        return float("inf"), np.full(gain.shape, downlink_power_w / gain.size)
    unit = noise * band / gain  # power for a signal-to-noise ratio of 1

    def powers(log_t: float) -> Floats:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(unit * np.expm1(payload_bits * np.log(2.0) / (band * np.exp(log_t))))

    def excess(log_t: float) -> float:  # in logarithms, so that it stays finite and near linear
        with np.errstate(divide="ignore", over="ignore"):
            total = float(np.log(np.sum(powers(log_t))) - np.log(downlink_power_w))
        return min(max(total, -1e6), 1e6)

    alone = np.max(transmission_latency(payload_bits, band, downlink_power_w / unit))
    shared = np.max(transmission_latency(payload_bits, band, downlink_power_w / unit / gain.size))
    low, high = float(np.log(alone)) - 1e-9, float(np.log(shared)) + 1e-9
    if not np.isfinite(high):
        return float("inf"), np.full(gain.shape, downlink_power_w / gain.size)
    log_t = float(optimize.brentq(excess, low, high, xtol=1e-15, rtol=8.9e-16))
    return float(np.exp(log_t)), powers(log_t)


def correct(
    rejected: ArrayLike,
    *,
    channel_gain: ArrayLike,
    uplink_power_w: ArrayLike,
    downlink_power_w: ArrayLike,
    payload_bits: ArrayLike,
    bandwidth_hz: ArrayLike,
    noise_server_w_hz: ArrayLike,
    noise_device_w_hz: ArrayLike,
    rule: str = "optimal",
    downlink: ArrayLike | None = None,
) -> Correction:
    """Modes, powers and latency of the corrections, the band B split equally over R.

    Under `optimal` this solves the problem of the module's docstring (Lemmas 1 and 2). With
    equal bands one logarithm is enough: writing a_k = P_k^ul g_k / N0^ser, c_k = N0_k / g_k and
    S_m for the sum of c over the m devices with the smallest a::

        eta = max_m min(a_{m+1}, P^dl / S_m),    T = D r / (B log2(1 + eta r / B)),   r = |R|,

    where the m worst uplinks are served on the downlink: some optimum has this form, because
    exchanging a device with a worse uplink for one with a better uplink never helps.

    Args:
        rejected: which drafts were rejected, [..., K].
        channel_gain, uplink_power_w, noise_device_w_hz: broadcast to [..., K].
        downlink_power_w, payload_bits, bandwidth_hz, noise_server_w_hz: broadcast to [...].
        rule: `optimal`; `uplink` or `downlink` for all; `random` reads `downlink` as the coins.
        downlink: [..., K] the given modes; needed by `random` and by it only.

    Raises:
        ValueError: an unknown rule, or `downlink` missing or superfluous.
    """
    check_rule(rule)
    if (downlink is not None) != (rule == "random"):
        raise ValueError(f"downlink must be given with rule 'random', and only then ({rule!r})")
    rejected = np.asarray(rejected)
    gain = np.asarray(channel_gain, dtype=np.float64)
    shape = np.broadcast_shapes(rejected.shape, gain.shape)

    def devices(value: Any, dtype: Any = np.float64) -> Any:
        return np.array(np.broadcast_to(value, shape), dtype=dtype).reshape(-1, shape[-1])

    def cells(value: Any) -> Floats:
        return np.array(np.broadcast_to(value, shape[:-1]), dtype=np.float64).reshape(-1)

    band = np.asarray(bandwidth_hz, dtype=np.float64)
    noise_server = np.asarray(noise_server_w_hz, dtype=np.float64) * band
    noise_device = np.asarray(noise_device_w_hz, dtype=np.float64) * band[..., None]
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        uplink_snr = np.asarray(uplink_power_w) / noise_server[..., None] * gain
        downlink_cost_w = noise_device / gain
    mode, power_w = devices(0, np.int64), devices(0.0)
    latency_s = cells(0.0)
    links = Link(
        devices(uplink_snr),
        devices(downlink_cost_w),
        devices(uplink_power_w),
        cells(downlink_power_w),
        cells(payload_bits),
        cells(band),
    )
    corrections.correct_all(
        RULES[rule],
        devices(rejected, np.int64),
        devices(0 if downlink is None else downlink, np.int64),
        links,
        mode,
        power_w,
        latency_s,
        np.empty((4, shape[-1])),
    )
    latency: Any = latency_s.reshape(shape[:-1])
    return Correction(mode.reshape(shape), power_w.reshape(shape), latency[()])


def correct_given_bandwidth(
    channel_gain: ArrayLike,
    uplink_power_w: ArrayLike,
    downlink_power_w: float,
    payload_bits: float,
    bandwidth_hz: ArrayLike,
    noise_server_w_hz: float,
    noise_device_w_hz: ArrayLike,
) -> Correction:
    """Lemmas 1 and 2 for given, unequal bandwidths of rejected devices.

    Sort the devices by their uplink delay. Some optimum has the fastest n on the uplink and the
    rest on the downlink; the uplink delay grows with n, the downlink delay falls, and all K + 1
    splits are tried.

    Args:
        channel_gain, uplink_power_w, bandwidth_hz, noise_device_w_hz: broadcast to [K]; the
            devices are all rejected, and `bandwidth_hz` is each device's own band.
        downlink_power_w, payload_bits, noise_server_w_hz: numbers.
    """
    gain, uplink, band, noise = np.broadcast_arrays(
        np.asarray(channel_gain, dtype=np.float64),
        np.asarray(uplink_power_w, dtype=np.float64),
        np.asarray(bandwidth_hz, dtype=np.float64),
        np.asarray(noise_device_w_hz, dtype=np.float64),
    )
    delay = uplink_latency(gain, uplink, payload_bits, band, noise_server_w_hz)
    order = np.argsort(delay, kind="stable")
    best: Correction | None = None
    for split in range(gain.size + 1):
        up, down = order[:split], order[split:]
        mode = np.zeros(gain.size, dtype=np.int64)
        power_w = uplink.copy()
        latency = float(np.max(delay[up], initial=0.0))
        if down.size:
            downlink_s, power_w[down] = downlink_given_bandwidth(
                gain[down], downlink_power_w, payload_bits, band[down], noise[down]
            )
            mode[down] = 1
            latency = max(latency, downlink_s)
        if best is None or latency < best.latency_s:
            best = Correction(mode, power_w, latency)
    assert best is not None
    return best
