"""Mean correction latencies of decisions on samples: the loops under the solvers of corrections.

Samples are run lengths and coins, [S, K], the same for all decisions. Devices are sorted by rising
uplink SNR throughout.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from multispin_env.model.kernels.compiling import compiled, lean
from multispin_env.model.kernels.corrections import DOWNLINK, GIVEN, OPTIMAL, UPLINK
from multispin_env.model.kernels.logarithms import LN2

#: A correction that takes longer counts as this long [s], so that sums of samples stay finite.
LONGEST_S: Final = 1e9


class Radio(NamedTuple):
    """How corrections travel."""

    rule: int  #: OPTIMAL, UPLINK, DOWNLINK or GIVEN (modes by the coins of a sample)
    snr: Any  #: full-band uplink SNR, [K], rising
    cost_w: Any  #: downlink power that gives a full-band SNR of 1, [K]
    power_w: float  #: the server's budget
    payload_bits: float  #: D
    bandwidth_hz: float  #: B


class Samples(NamedTuple):
    """Outcomes to average over."""

    run_length: Any  #: [S, K] integers: a draft is rejected if it is longer
    coins: Any  #: [S, K] 1 for downlink; read under GIVEN only


# ---- the mean correction latency ---------------------------------------------------------------


@compiled
def latency_at(level, count, payload_bits, bandwidth_hz):
    """Correction latency of `count` devices whose weakest has the full-band SNR `level` [s]."""
    if count == 0:
        return 0.0
    ratio = level * count
    nepers = np.log(1.0 + ratio) if ratio > 0.01 else np.log1p(ratio)  # log1p is slower
    return min(payload_bits * LN2 * count / (bandwidth_hz * nepers), LONGEST_S)


@lean
def level_of(radio, run_length, coins, length):
    """The level of the rejected devices of one sample, arrays [K]; inf where there are none.

    Sums are in the order of the devices, as in :func:`read_rejected`: to the bit the same level.
    """
    num_devices = length.shape[0]
    snr, cost_w, power_w = radio.snr, radio.cost_w, radio.power_w
    spent, worst = 0.0, np.inf
    if radio.rule == OPTIMAL:
        served = 0
        for k in range(num_devices):
            if run_length[k] < length[k]:
                if served > 0 and not snr[k] * spent <= power_w:  # nor if that is NaN
                    break
                spent += cost_w[k]
                worst = snr[k]
                served += 1
        return max(worst, power_w / spent) if served > 0 else np.inf
    for k in range(num_devices):
        rejected = run_length[k] < length[k]
        up = radio.rule == UPLINK or (radio.rule == GIVEN and coins[k] == 0)
        worst = snr[k] if rejected and up and worst == np.inf else worst
        spent += cost_w[k] if rejected and not up else 0.0
    return worst if radio.rule == UPLINK else min(worst, power_w / spent)


@compiled
def mean_latency(radio, samples, length):
    """Mean correction latency of a decision, lengths [K] [s]."""
    num_samples, num_devices = samples.run_length.shape
    total = 0.0
    for s in range(num_samples):
        run_length = samples.run_length[s]
        count = 0
        for k in range(num_devices):
            count += 1 if run_length[k] < length[k] else 0
        level = level_of(radio, run_length, samples.coins[s], length)
        total += latency_at(level, count, radio.payload_bits, radio.bandwidth_hz)
    return total / num_samples


# ---- how each device's alternative would change it ---------------------------------------------


class Rejected(NamedTuple):
    """The rejected devices of one sample; memory to overwrite."""

    members: Any  #: [K] the devices, worst uplink first
    place: Any  #: [K] of each device among them
    before: Any  #: [K + 1] sums of the downlink costs of the first m
    after: Any  #: [K + 1] and of all but the first m; kept under DOWNLINK and GIVEN


class Level(NamedTuple):
    """The level of one sample, and what it takes to find the next."""

    size: int  #: how many are rejected
    split: int  #: under OPTIMAL this many go down, but for the last if it limits from the uplink
    level: float  #: full-band SNR of the weakest; inf where nobody is rejected
    first_up: float  #: under GIVEN the worst uplink in use, and the next
    second_up: float


@compiled
def no_rejected(num_devices):
    """Memory for :class:`Rejected`."""
    return Rejected(
        np.empty(num_devices, np.int64),
        np.empty(num_devices, np.int64),
        np.empty(num_devices + 1),
        np.empty(num_devices + 1),
    )


@lean
def read_rejected(radio, run_length, coins, length, rejected):
    """List the rejected devices of a sample, arrays [K], and find their level."""
    members, place, before, after = rejected
    num_devices = length.shape[0]
    snr, cost_w, power_w = radio.snr, radio.cost_w, radio.power_w
    given = radio.rule == GIVEN
    count, spent = 0, 0.0
    first_up, second_up = np.inf, np.inf
    before[0] = 0.0
    for k in range(num_devices):  # overwrites what is not rejected: without a branch
        is_rejected = run_length[k] < length[k]
        up = given and coins[k] == 0
        if given and is_rejected and up:
            second_up = snr[k] if first_up < np.inf and second_up == np.inf else second_up
            first_up = snr[k] if first_up == np.inf else first_up
        members[count] = k
        place[k] = count
        spent += cost_w[k] if is_rejected and not up else 0.0
        count += 1 if is_rejected else 0
        before[count] = spent
    if given or radio.rule == DOWNLINK:
        after[count] = 0.0
        for i in range(count - 1, -1, -1):
            up = given and coins[members[i]] == 0
            after[i] = after[i + 1] + (0.0 if up else cost_w[members[i]])
    split, level = 0, np.inf
    if radio.rule == OPTIMAL:
        while split < count and (split == 0 or snr[members[split]] * before[split] <= power_w):
            split += 1
        if count > 0:
            level = max(snr[members[split - 1]], power_w / before[split])
    elif radio.rule == UPLINK:
        level = snr[members[0]] if count > 0 else np.inf
    else:
        level = min(first_up, power_w / before[count])
    return Level(count, split, level, first_up, second_up)


@lean
def level_without(radio, up, k, rejected, now):
    """The level once device k is no longer rejected, found from where the old one was."""
    members, place, before, after = rejected
    snr, cost_w, power_w = radio.snr, radio.cost_w, radio.power_w
    here = place[k]
    if radio.rule == OPTIMAL:
        if here >= now.split:
            return now.level
        spent, i = 0.0, now.split  # there is power for more devices
        for j in range(now.split):
            spent += cost_w[members[j]] if j != here else 0.0
        while i < now.size and (spent == 0.0 or snr[members[i]] * spent <= power_w):
            spent += cost_w[members[i]]
            i += 1
        last = i - 1 if i - 1 != here else i - 2
        return max(snr[members[last]] if last >= 0 else 0.0, power_w / spent)
    if radio.rule == UPLINK:
        if here > 0:
            return now.level
        return snr[members[1]] if now.size > 1 else np.inf
    worst, spent = now.first_up, before[now.size]
    if up:
        worst = now.second_up if snr[k] == now.first_up else worst
    else:
        spent = before[here] + after[here + 1]
    return min(worst, power_w / spent)


@lean
def level_with(radio, up, k, rejected, now):
    """The level once device k is rejected too, found from where the old one was."""
    members, before = rejected.members, rejected.before
    snr, cost_w, power_w = radio.snr, radio.cost_w, radio.power_w
    if radio.rule == OPTIMAL:
        if now.size > 0 and not snr[k] < now.level:
            return now.level
        i = now.split  # there is power for fewer
        while (
            i > 0
            and snr[members[i - 1]] > snr[k]
            and snr[members[i - 1]] * (before[i - 1] + cost_w[k]) > power_w
        ):
            i -= 1
        best = max(snr[members[i - 1]] if i > 0 else 0.0, snr[k])
        return max(best, power_w / (before[i] + cost_w[k]))
    if radio.rule == UPLINK:
        return min(now.level, snr[k])
    worst, spent = now.first_up, before[now.size]
    if up:
        worst = min(now.first_up, snr[k])
    else:
        spent += cost_w[k]
    return min(worst, power_w / spent)


@compiled
def latency_changes(radio, samples, length, other, change):
    """Mean correction latency of a decision, and how each device's alternative would change it.

    For every sample the latency is known with one logarithm. Where a device's alternative length
    turns its rejection into an acceptance (or the reverse), its level is found again from where the
    old one was: under OPTIMAL the split moves by a step or two, so that all K alternatives together
    cost little more than the decision itself.

    Args:
        radio, samples: how corrections travel, and what to average over.
        length, other: [K] draft lengths, and each device's alternative.
        change: [K] output: mean latency with one device at `other`, less that of `length`.

    Returns:
        The mean latency of `length` [s].
    """
    num_samples, num_devices = samples.run_length.shape
    rejected = no_rejected(num_devices)
    change[:] = 0.0
    total = 0.0
    for s in range(num_samples):
        run_length, coins = samples.run_length[s], samples.coins[s]
        now = read_rejected(radio, run_length, coins, length, rejected)
        latency = latency_at(now.level, now.size, radio.payload_bits, radio.bandwidth_hz)
        total += latency
        for k in range(num_devices):
            was, will = run_length[k] < length[k], run_length[k] < other[k]
            if was == will:
                continue
            up = radio.rule == GIVEN and coins[k] == 0
            if will:
                level, count = level_with(radio, up, k, rejected, now), now.size + 1
            else:
                level, count = level_without(radio, up, k, rejected, now), now.size - 1
            change[k] += latency_at(level, count, radio.payload_bits, radio.bandwidth_hz) - latency
    for k in range(num_devices):
        change[k] /= num_samples
    return total / num_samples


# ---- one more token for one device ---------------------------------------------------------------


class Runs(NamedTuple):
    """The samples of every device sorted by its run length; ties in the order of the samples."""

    start: Any  #: [K, gamma_max + 2] where runs of n start; runs over gamma_max count as that
    sample: Any  #: [K, S]


class Steps(NamedTuple):
    """What one more token would cost, kept from step to step."""

    latency_s: Any  #: [S] correction latency
    added_s: Any  #: [S, K] what a rejection of the device adds; where its next token is rejected


@compiled
def sort_runs(run_length, max_draft_length):
    """Sort the samples of every device, [S, K], by its run length: a counting sort."""
    num_samples, num_devices = run_length.shape
    start = np.zeros((num_devices, max_draft_length + 2), np.int64)
    sample = np.empty((num_devices, num_samples), np.int64)
    for s in range(num_samples):
        for k in range(num_devices):
            start[k, min(run_length[s, k], max_draft_length) + 1] += 1
    for k in range(num_devices):
        for n in range(max_draft_length + 1):
            start[k, n + 1] += start[k, n]
    place = start.copy()
    for s in range(num_samples):
        for k in range(num_devices):
            n = min(run_length[s, k], max_draft_length)
            sample[k, place[k, n]] = s
            place[k, n] += 1
    return Runs(start, sample)


@compiled
def read_step(radio, samples, length, s, steps, rejected):
    """Fill in one sample of `steps`."""
    run_length, coins = samples.run_length[s], samples.coins[s]
    now = read_rejected(radio, run_length, coins, length, rejected)
    latency = latency_at(now.level, now.size, radio.payload_bits, radio.bandwidth_hz)
    steps.latency_s[s] = latency
    for k in range(length.shape[0]):
        if run_length[k] == length[k]:
            up = radio.rule == GIVEN and coins[k] == 0
            level = level_with(radio, up, k, rejected, now)
            then = latency_at(level, now.size + 1, radio.payload_bits, radio.bandwidth_hz)
            steps.added_s[s, k] = then - latency


@compiled
def step_changes(radio, samples, runs, length, grown, steps, change):
    """:func:`latency_changes` where every alternative is one more token, from step to step.

    One more token changes only the samples in which the device's run ends there: elsewhere
    `steps` are what they were. Sums are in the order of the samples, to the bit as there.

    Args:
        radio, samples: how corrections travel, and what to average over.
        runs: see :func:`sort_runs`.
        length: [K] draft lengths; who is at gamma_max stays there.
        grown: the device whose length has grown by one token since the last call; -1 at first.
        steps: brought up to date.
        change: [K] output.

    Returns:
        The mean latency of `length` [s].
    """
    num_samples, num_devices = samples.run_length.shape
    longest = runs.start.shape[1] - 2
    rejected = no_rejected(num_devices)
    if grown < 0:
        for s in range(num_samples):
            read_step(radio, samples, length, s, steps, rejected)
    else:  # where its last token is rejected, and where the next would be
        n = length[grown]
        for i in range(runs.start[grown, n - 1], runs.start[grown, min(n + 1, longest)]):
            read_step(radio, samples, length, runs.sample[grown, i], steps, rejected)
    total = 0.0
    for s in range(num_samples):
        total += steps.latency_s[s]
    for k in range(num_devices):
        added = 0.0
        if length[k] < longest:
            for i in range(runs.start[k, length[k]], runs.start[k, length[k] + 1]):
                added += steps.added_s[runs.sample[k, i], k]
        change[k] = added / num_samples
    return total / num_samples
