"""Searches for the draft lengths of a round of corrections: deadlines, and who drafts until them.

See :mod:`multispin_env.solvers.corrections` for why some optimum has that form. Devices are sorted
by rising uplink SNR throughout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from multispin_env.model.kernels.compiling import compiled
from multispin_env.model.kernels.correction_samples import (
    Radio,
    Samples,
    latency_at,
    latency_changes,
    mean_latency,
    step_changes,
)
from multispin_env.model.kernels.corrections import GIVEN, OPTIMAL, UPLINK


class Objective(NamedTuple):
    """What a decision is valued by."""

    radio: Radio
    max_draft_length: int  #: gamma_max
    tokens: Any  #: expected tokens of every device and length, [K, gamma_max + 1]
    token_s: Any  #: T, [K]
    verification_s: float  #: T_ver
    price: float  #: of a second [tokens]; negative to maximise tokens / latency instead


@compiled
def value_of(tokens, latency_s, price):
    """Tokens per second, or tokens - price * latency where a price (>= 0) is given."""
    return tokens / latency_s if price < 0.0 else tokens - price * latency_s


@compiled
def longest_two(objective, length):
    """The longest and second longest drafting of a decision, lengths [K] [s], and whose is first.

    So the longest drafting of the others is known for every device. -1 if nobody drafts.
    """
    first_s, second_s, slowest = 0.0, 0.0, -1
    for k in range(length.shape[0]):
        drafting_s = length[k] * objective.token_s[k]
        if drafting_s > first_s:
            first_s, second_s, slowest = drafting_s, first_s, k
        else:
            second_s = max(second_s, drafting_s)
    return first_s, second_s, slowest


@compiled
def step_values(objective, samples, runs, length, grown, steps, total, values):
    """The value of a decision with one more token for one device, from step to step.

    Args:
        objective, samples: what decisions are valued by.
        runs, length, grown, steps: see :func:`step_changes`; who is at gamma_max stays there.
        total: expected tokens of the decision itself.
        values: [K] output.
    """
    num_devices = length.shape[0]
    correcting_s = step_changes(
        objective.radio, samples, runs, length, grown, steps, values
    )  # its changes first, then values
    first_s, second_s, slowest = longest_two(objective, length)
    for k in range(num_devices):
        longer = min(length[k] + 1, objective.max_draft_length)
        others_s = second_s if k == slowest else first_s
        waiting_s = max(others_s, longer * objective.token_s[k])
        then_s = max(correcting_s + values[k], 0.0)
        tokens = total + (objective.tokens[k, longer] - objective.tokens[k, length[k]])
        latency_s = waiting_s + objective.verification_s + then_s
        values[k] = value_of(tokens, latency_s, objective.price)


# ---- subsets that draft until a deadline -----------------------------------------------------


@compiled
def until(deadline_s, objective, longest):
    """Write what each device can draft until a deadline; a margin guards x = n T_k."""
    for k in range(longest.shape[0]):
        fits = np.floor(deadline_s / objective.token_s[k] * (1.0 + 1e-12))
        longest[k] = np.int64(min(fits, float(objective.max_draft_length)))


@compiled
def value_lengths(objective, samples, length):
    """The value of a decision, lengths [K]."""
    total, drafting_s = 0.0, 0.0
    for k in range(length.shape[0]):
        total += objective.tokens[k, length[k]]
        drafting_s = max(drafting_s, length[k] * objective.token_s[k])
    correcting_s = mean_latency(objective.radio, samples, length)
    latency_s = drafting_s + correcting_s + objective.verification_s
    return value_of(total, latency_s, objective.price)


@compiled
def value_subset(objective, samples, deadline_s, drafts):
    """The value of a subset, `drafts` [K], that drafts until a deadline."""
    length = np.empty(drafts.shape[0], np.int64)
    until(deadline_s, objective, length)
    for k in range(length.shape[0]):
        length[k] = length[k] if drafts[k] else 0
    return value_lengths(objective, samples, length)


@compiled
def improve_subset(objective, samples, deadline_s, max_flips, drafts):
    """Flip devices in or out of drafting until a deadline, the best first, while that helps.

    Args:
        objective, samples: what decisions are valued by.
        deadline_s: drafting lasts at most this long.
        max_flips: how many flips to make at most; 0 only values the subset.
        drafts: [K] 1 where a device drafts; improved in place.

    Returns:
        The value of the subset.
    """
    tokens, token_s = objective.tokens, objective.token_s
    verification_s, price = objective.verification_s, objective.price
    num_devices = token_s.shape[0]
    longest = np.empty(num_devices, np.int64)
    length, other = np.empty(num_devices, np.int64), np.empty(num_devices, np.int64)
    change = np.empty(num_devices)
    until(deadline_s, objective, longest)
    while max_flips > 0:
        total = 0.0
        for k in range(num_devices):
            length[k] = longest[k] if drafts[k] else 0
            other[k] = longest[k] - length[k]
            total += tokens[k, length[k]]
        first_s, second_s, slowest = longest_two(objective, length)
        correcting_s = latency_changes(objective.radio, samples, length, other, change)
        value = value_of(total, first_s + correcting_s + verification_s, price)
        best, best_value = -1, value + 1e-12 * abs(value)
        for k in range(num_devices):
            others_s = second_s if k == slowest else first_s
            waiting_s = max(others_s, other[k] * token_s[k])
            then_s = waiting_s + max(correcting_s + change[k], 0.0) + verification_s
            flipped = total - tokens[k, length[k]] + tokens[k, other[k]]
            candidate = value_of(flipped, then_s, price)
            if candidate > best_value:
                best, best_value = k, candidate
        if best < 0:
            return value
        drafts[best] = 1 - drafts[best]
        max_flips -= 1
    return value_subset(objective, samples, deadline_s, drafts)


@compiled
def suffix_latencies(radio, samples, length, mean):
    """Mean correction latency if only the devices m, m + 1, ... draft, for every m at once.

    These are the subsets that leave out the m worst uplinks. Under OPTIMAL the split of a larger
    subset lies further down, so one walk finds all of them.

    Args:
        radio, samples: how corrections travel, and what to average over.
        length: [K] what a device drafts if it does.
        mean: [K + 1] output [s].
    """
    num_samples, num_devices = samples.run_length.shape
    snr, cost_w, power_w = radio.snr, radio.cost_w, radio.power_w
    members = np.empty(num_devices, np.int64)
    cost = np.empty(num_devices)  # of the members, 0 for those that go up in any case
    mean[:] = 0.0
    for s in range(num_samples):
        run_length, coins = samples.run_length[s], samples.coins[s]
        count = 0
        for k in range(num_devices):
            if run_length[k] < length[k]:
                up = radio.rule == UPLINK or (radio.rule == GIVEN and coins[k] == 0)
                members[count] = k
                cost[count] = 0.0 if up else min(cost_w[k], 1e150)  # no infinite differences
                count += 1
        split, spent, first_up = count, 0.0, np.inf
        for i in range(count - 1, -1, -1):  # the rejected devices i, i + 1, ...
            k = members[i]
            spent += cost[i]
            if radio.rule == OPTIMAL:
                # Those before `split` go down; the last of them if there is power for the others.
                while split > i + 1:
                    if snr[members[split - 1]] * (spent - cost[split - 1]) <= power_w:
                        break
                    split -= 1
                    spent -= cost[split]
                level = max(snr[members[split - 1]], power_w / spent)
            else:
                if radio.rule == UPLINK or (radio.rule == GIVEN and coins[k] == 0):
                    first_up = snr[k]
                level = min(first_up, power_w / spent)
            latency = latency_at(level, count - i, radio.payload_bits, radio.bandwidth_hz)
            for m in range(members[i - 1] + 1 if i > 0 else 0, k + 1):
                mean[m] += latency
    for m in range(num_devices + 1):
        mean[m] /= num_samples


# ---- the local search of `deadline` --------------------------------------------------------------


@compiled
def best_suffix(objective, samples, deadline_s, length, mean):
    """The best subset that leaves out the m worst uplinks, at a deadline: its value, and m.

    `length` [K] and `mean` [K + 1] are overwritten.
    """
    num_devices = length.shape[0]
    until(deadline_s, objective, length)
    suffix_latencies(objective.radio, samples, length, mean)
    total, waiting_s = float(num_devices), 0.0
    best_value, best = -np.inf, 0
    for m in range(num_devices, -1, -1):
        if m < num_devices:
            total += objective.tokens[m, length[m]] - 1.0
            waiting_s = max(waiting_s, length[m] * objective.token_s[m])
        latency_s = waiting_s + mean[m] + objective.verification_s
        value = value_of(total, latency_s, objective.price)
        if value > best_value:
            best_value, best = value, m
    return best_value, best


@compiled
def descend(objective, samples, grid, here, drafts):
    """Improve a subset by flips, and move to other deadlines of `grid` while that helps.

    Args:
        objective, samples: what decisions are valued by.
        grid: deadlines, rising.
        here: which of them to start at. Strides over the others start at K / 2 and are halved.
        drafts: [K] 1 where a device drafts; improved in place.

    Returns:
        The value, and which deadline it has.
    """
    num_devices = drafts.shape[0]
    value = improve_subset(objective, samples, grid[here], num_devices, drafts)
    stride = max(1, num_devices // 2)
    while stride >= 1:
        moved = False
        for near in (here - stride, here + stride):
            if moved or not 0 <= near < grid.shape[0]:
                continue
            # With the subset as it is; only where that is better the subset is improved.
            if value_subset(objective, samples, grid[near], drafts) > value:
                value = improve_subset(objective, samples, grid[near], num_devices, drafts)
                here, moved = near, True
        if not moved:
            stride //= 2
    return value, here


@compiled
def leave_out(objective, samples, deadline_s, best_value, best):
    """Leave out one of the three worst drafting devices, or the two or three worst of them.

    Improves again by flips where one flip after it shows that it is better.

    Args:
        objective, samples, deadline_s: as :func:`improve_subset`.
        best_value, best: a subset, [K], and its value; the subset is improved in place.

    Returns:
        The value, as before where nothing is better.
    """
    num_devices = best.shape[0]
    drafts = np.empty(num_devices, np.int64)
    tried = 0
    for k in range(num_devices):
        if best[k] == 0 or tried == 3:
            continue
        tried += 1
        for all_worse in range(1 if tried == 1 else 2):
            drafts[:] = best
            drafts[k] = 0
            if all_worse == 1:
                drafts[:k] = 0
            value = improve_subset(objective, samples, deadline_s, 1, drafts)
            if value > best_value + 1e-12 * abs(best_value):
                value = improve_subset(objective, samples, deadline_s, num_devices, drafts)
                best[:] = drafts
                return value
    return best_value


@compiled
def deadline_search(objective, samples, grid, best_length):
    """The local search of :func:`multispin_env.solvers.corrections.deadline`.

    1. On a quarter of the samples, sweep the deadlines n max T_k, at which everybody has drafted n
       tokens (between them the goodput dips: all wait and only some draft one more), and the
       subsets that leave out the m worst uplinks.
    2. On half of the samples, improve the subsets of the best three deadlines by flips, and
       descend: move to other deadlines of `grid`, by halving strides, while that helps.
    3. On all samples, improve the best of the three; then leave out one of its three worst
       drafting devices, or the two or three worst of them, and improve again, while that helps.

    Args:
        objective, samples: what decisions are valued by.
        grid: all n T_k, rising, and 0.
        best_length: [K] output.

    Returns:
        The deadline of the answer [s].
    """
    num_devices, longest = best_length.shape[0], objective.max_draft_length
    run_length, coins = samples
    quarter, half = max(1, run_length.shape[0] // 4), max(1, run_length.shape[0] // 2)
    some = Samples(run_length[:quarter], coins[:quarter])
    slowest_s = objective.token_s.max()
    mean = np.empty(num_devices + 1)
    values, first = np.empty(longest + 1), np.empty(longest + 1, np.int64)
    for n in range(longest + 1):
        values[n], first[n] = best_suffix(objective, some, n * slowest_s, best_length, mean)

    some = Samples(run_length[:half], coins[:half])
    best, drafts = np.zeros(num_devices, np.int64), np.empty(num_devices, np.int64)
    best_value, deadline_s = -np.inf, 0.0
    for _ in range(min(3, longest + 1)):
        n = int(np.argmax(values))
        values[n] = -np.inf
        drafts[:] = 0
        drafts[first[n] :] = 1
        here = np.searchsorted(grid, n * slowest_s * (1.0 + 1e-12), "right") - 1
        value, here = descend(objective, some, grid, here, drafts)
        if value > best_value:
            best_value, deadline_s = value, grid[here]
            best[:] = drafts

    best_value = improve_subset(objective, samples, deadline_s, num_devices, best)
    improved = True
    while improved:
        value = leave_out(objective, samples, deadline_s, best_value, best)
        improved = value != best_value
        best_value = value
    nobody = value_of(float(num_devices), objective.verification_s, objective.price)
    if nobody >= best_value:
        best[:] = 0
    until(deadline_s, objective, best_length)
    for k in range(num_devices):
        best_length[k] *= best[k]
    return deadline_s
