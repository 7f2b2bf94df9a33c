"""The correction protocol (paper B): who goes up, who goes down, with what power, and how long."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from multispin_env.model.kernels.compiling import inner, lean
from multispin_env.model.kernels.logarithms import LN2

# Rules that choose the mode of each rejected device.
OPTIMAL: Final = 0  # Lemma 2
UPLINK: Final = 1  # every device uploads its draft distribution
DOWNLINK: Final = 2  # the server sends every target distribution
GIVEN: Final = 3  # the caller gives the modes (an agent's action, or random coins)


class Link(NamedTuple):
    """The radio of a round; arrays [K] and numbers, or [N, K] and [N] for N rounds."""

    uplink_snr: Any  # [K] full-band, at full uplink power
    downlink_cost_w: Any  # [K] downlink power that gives a full-band ratio of 1
    uplink_power_w: Any  # [K]
    downlink_power_w: Any  # the server's budget
    payload_bits: Any
    bandwidth_hz: Any


@inner
def optimal_level(rejected, link, scratch):
    """The largest full-band SNR that all rejected devices can have at once (Lemmas 1 and 2).

    Think of water filling. To reach the level eta, the devices whose uplink is worse, snr < eta,
    must be served on the downlink, and each costs eta * cost. So

        eta* = sup { eta : eta * sum of cost over {snr < eta} <= power }
             = max over m of min( snr of the (m+1)-th worst, power / cost of the m worst ).

    The left side grows with eta. Serving everybody down, or nobody, gives a level that is surely
    reached. More than that needs those at or below it served down, which gives a level that is
    surely not passed. Among the devices between the two bounds a quickselect finds the crossing
    without sorting, in expected linear time.

    Args:
        rejected: [K] 1 where the draft was rejected.
        link: the radio of the round.
        scratch: [4, K] overwritten.

    Returns:
        The level; undefined where nothing was rejected.
    """
    num_devices = rejected.shape[0]
    uplink_snr, downlink_cost_w = link.uplink_snr, link.downlink_cost_w
    downlink_power_w = link.downlink_power_w
    all_snr, all_cost, snr, cost = scratch[0], scratch[1], scratch[2], scratch[3]
    for k in range(num_devices):  # an accepted draft is never worst, and costs nothing
        all_snr[k] = uplink_snr[k] if rejected[k] else np.inf
    for k in range(num_devices):
        all_cost[k] = downlink_cost_w[k] if rejected[k] else 0.0
    everybody, worst = 0.0, np.inf
    for k in range(num_devices):
        everybody += all_cost[k]
        worst = min(worst, all_snr[k])
    reached = max(worst, downlink_power_w / everybody)
    spent = 0.0  # on the devices that go down to pass what is reached
    for k in range(num_devices):
        spent += all_cost[k] if all_snr[k] <= reached else 0.0
    passed = downlink_power_w / spent
    high = 0  # how many are undecided: few, mostly
    for k in range(num_devices):
        if reached < all_snr[k] < passed:
            snr[high], cost[high] = all_snr[k], all_cost[k]
            high += 1

    low, best = 0, reached  # entries before `low` go down; the best feasible SNR so far
    while low < high:
        pivot = snr[(low + high) // 2]
        # Three-way partition of snr[low:high]: worse than the pivot, equal, better.
        less, i, more = low, low, high
        cost_less, cost_equal = 0.0, 0.0
        while i < more:
            here, price = snr[i], cost[i]
            if here < pivot:
                snr[i], cost[i] = snr[less], cost[less]
                snr[less], cost[less] = here, price
                cost_less += price
                less += 1
                i += 1
            elif here > pivot:
                more -= 1
                snr[i], cost[i] = snr[more], cost[more]
                snr[more], cost[more] = here, price
            else:
                cost_equal += price
                i += 1
        if pivot * (spent + cost_less) <= downlink_power_w:
            best = pivot
            spent += cost_less + cost_equal
            low = more
        else:
            high = less
    # Either the pivot device limits the round from the uplink, or all below it go down. At a
    # tie of the two, rounding must not send the pivot down as well: hence the margin.
    return max(best, downlink_power_w / spent) * (1.0 - 1e-12)


@inner
def correct(rule, rejected, chosen, link, mode, power_w, scratch):
    """Modes, powers and latency of the corrections of a round, with equal bandwidth.

    Args:
        rule: OPTIMAL, UPLINK, DOWNLINK or GIVEN.
        rejected: [K] 1 where the draft was rejected.
        chosen: [K] 1 for downlink; read under GIVEN only.
        link: the radio of the round.
        mode, power_w: [K] outputs; mode 0 is uplink, 1 downlink, -1 silent.
        scratch: [4, K] overwritten.

    Returns:
        Seconds until the slowest correction has arrived; 0 if nothing was rejected, inf if a
        device cannot be reached.
    """
    num_devices = rejected.shape[0]
    uplink_snr, downlink_cost_w = link.uplink_snr, link.downlink_cost_w
    uplink_power_w, downlink_power_w = link.uplink_power_w, link.downlink_power_w
    up_snr, down_cost = scratch[0], scratch[1]
    if rule == GIVEN:
        for k in range(num_devices):
            mode[k] = (1 if chosen[k] == 1 else 0) if rejected[k] == 1 else -1
    else:
        least = np.inf if rule == DOWNLINK else -1.0  # who does not reach more goes down
        if rule == OPTIMAL:
            least = optimal_level(rejected, link, scratch)
        for k in range(num_devices):
            down = uplink_snr[k] <= least
            mode[k] = (1 if down else 0) if rejected[k] == 1 else -1
    for k in range(num_devices):
        up_snr[k] = uplink_snr[k] if mode[k] == 0 else np.inf
    for k in range(num_devices):
        down_cost[k] = downlink_cost_w[k] if mode[k] == 1 else 0.0
    count, num_down = 0, 0
    for k in range(num_devices):
        count += rejected[k]
        num_down += 1 if mode[k] == 1 else 0
    level, cost = np.inf, 0.0  # level: of the weakest device
    for k in range(num_devices):
        level = min(level, up_snr[k])
        cost += down_cost[k]
    inverse = 0.0
    if num_down > 0:  # Lemma 1: shares that equalise the delay, all the budget
        level = min(level, downlink_power_w / cost)
        inverse = 1.0 / cost
    if cost == np.inf:  # out of reach, however the budget is shared: equally
        inverse = 1.0 / num_down
        for k in range(num_devices):
            down_cost[k] = 1.0 if mode[k] == 1 else 0.0
    for k in range(num_devices):
        down_w = downlink_power_w * (down_cost[k] * inverse)
        power_w[k] = uplink_power_w[k] if mode[k] == 0 else down_w
    if count == 0:
        return 0.0
    rate = link.bandwidth_hz / count * np.log1p(level * count) / LN2
    return link.payload_bits / rate


@lean
def correct_all(rule, rejected, chosen, links, mode, power_w, latency_s, scratch):
    """:func:`correct` for N rounds: arrays [N, K] or [N], latencies as an output too."""
    for n in range(rejected.shape[0]):
        link = Link(
            links.uplink_snr[n],
            links.downlink_cost_w[n],
            links.uplink_power_w[n],
            links.downlink_power_w[n],
            links.payload_bits[n],
            links.bandwidth_hz[n],
        )
        latency_s[n] = correct(rule, rejected[n], chosen[n], link, mode[n], power_w[n], scratch)
