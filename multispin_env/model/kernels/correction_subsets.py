"""More thorough searches over deadlines and subsets of devices, compiled by numba.

:func:`every_subset` tries all of them, for few devices; :func:`search_in_order` as many as it may.
"""

from __future__ import annotations

import numpy as np

from multispin_env.model.kernels.compiling import compiled
from multispin_env.model.kernels.correction_bound import best_subset
from multispin_env.model.kernels.correction_samples import (
    Samples,
    latency_at,
    level_of,
)
from multispin_env.model.kernels.correction_search import (
    best_suffix,
    improve_subset,
    until,
    value_lengths,
    value_of,
)
from multispin_env.model.kernels.corrections import GIVEN

# ---- few devices: every subset -------------------------------------------------------------------


@compiled
def tabulate(radio, samples):
    """The correction latency of every set of rejected devices, [1, 2^K] [s].

    Sets are numbers whose bit k stands for device k. Under GIVEN the coins of a sample matter: a
    row for each sample, [S, 2^K].
    """
    num_samples, num_devices = samples.run_length.shape
    rows = num_samples if radio.rule == GIVEN else 1
    table = np.empty((rows, 2**num_devices))
    accepts_none = np.zeros(num_devices, np.int64)
    length = np.empty(num_devices, np.int64)
    for s in range(rows):
        for rejected in range(2**num_devices):
            count = 0
            for k in range(num_devices):
                length[k] = rejected >> k & 1
                count += length[k]
            level = level_of(radio, accepts_none, samples.coins[s], length)
            table[s, rejected] = latency_at(level, count, radio.payload_bits, radio.bandwidth_hz)
    return table


@compiled
def every_subset(objective, samples, grid, best_length):
    """The best of all subsets at all deadlines; a few milliseconds for eight devices.

    What a subset is worth without corrections bounds it: most need no look at the samples.

    Args:
        objective, samples: what decisions are valued by.
        grid: all n T_k, rising, and 0.
        best_length: [K] a decision to beat by more than rounding; overwritten by the best.
    """
    num_samples, num_devices = samples.run_length.shape
    tokens, token_s, price = objective.tokens, objective.token_s, objective.price
    given = objective.radio.rule == GIVEN
    table = tabulate(objective.radio, samples)
    length = np.empty(num_devices, np.int64)
    rejects = np.empty(num_samples, np.int64)  # sets: who is rejected if all draft
    best_value = value_lengths(objective, samples, best_length)
    for deadline_s in grid:
        until(deadline_s, objective, length)
        rejects[:] = 0
        for s in range(num_samples):
            for k in range(num_devices):
                rejects[s] |= (1 if samples.run_length[s, k] < length[k] else 0) << k
        for drafts in range(2**num_devices):
            total, drafting_s = float(num_devices), 0.0
            for k in range(num_devices):
                if drafts >> k & 1:
                    total += tokens[k, length[k]] - 1.0
                    drafting_s = max(drafting_s, length[k] * token_s[k])
            if drafting_s < deadline_s * (1.0 - 1e-9):
                continue  # the same lengths as at an earlier deadline
            latency_s = drafting_s + objective.verification_s
            if value_of(total, latency_s, price) <= best_value:
                continue
            sum_s = 0.0
            for s in range(num_samples):
                sum_s += table[s if given else 0, rejects[s] & drafts]
            value = value_of(total, latency_s + sum_s / num_samples, price)
            if value > best_value + 1e-12 * abs(best_value):
                best_value = value
                for k in range(num_devices):
                    best_length[k] = length[k] if drafts >> k & 1 else 0


# ---- more devices: the most promising first ------------------------------------------------------


@compiled
def rank_deadlines(objective, samples, grid, first):
    """Deadlines of `grid` in the order of how good they look, the best first.

    They are valued on a quarter of the samples, by the best of the subsets that leave out the m
    worst uplinks; that m is written into `first`, [len(grid)].
    """
    num_samples, num_devices = samples.run_length.shape
    quarter = max(1, num_samples // 4)
    some = Samples(samples.run_length[:quarter], samples.coins[:quarter])
    length, mean = np.empty(num_devices, np.int64), np.empty(num_devices + 1)
    values = np.empty(grid.shape[0])
    for i in range(grid.shape[0]):
        values[i], first[i] = best_suffix(objective, some, grid[i], length, mean)
    return np.argsort(-values, kind="mergesort")


@compiled
def search_in_order(objective, samples, grid, max_flipped, max_nodes, best_length):
    """Improve a decision by flips, then by branch and bound, over deadlines in a promising order.

    Args:
        objective, samples: what decisions are valued by.
        grid: all n T_k, rising, and 0.
        max_flipped: at how many deadlines to improve a subset by flips.
        max_nodes: of the search trees of all deadlines.
        best_length: [K] a decision to beat by more than rounding; overwritten by the best.

    Returns:
        Whether the search is complete: no subset at any deadline is better, to a relative 1e-9.
    """
    num_devices = best_length.shape[0]
    length, drafts = np.empty(num_devices, np.int64), np.empty(num_devices, np.int64)
    first = np.empty(grid.shape[0], np.int64)
    order = rank_deadlines(objective, samples, grid, first)
    best_value = value_lengths(objective, samples, best_length)
    for i in order[:max_flipped]:
        drafts[:] = 0
        drafts[first[i] :] = 1
        value = improve_subset(objective, samples, grid[i], num_devices, drafts)
        if value > best_value + 1e-12 * abs(best_value):
            best_value = value
            until(grid[i], objective, length)
            best_length[:] = length * drafts
    for i in order:
        until(grid[i], objective, length)
        for k in range(num_devices):
            # Somebody drafts until the deadline: otherwise an earlier one has the same lengths.
            if length[k] == 0 or length[k] * objective.token_s[k] < grid[i] * (1.0 - 1e-9):
                continue
            value, nodes = best_subset(objective, samples, length, k, best_value, max_nodes, drafts)
            if value > best_value + 1e-12 * abs(best_value):
                best_value = value
                best_length[:] = length * drafts
            if nodes < 0:
                return False
            max_nodes -= nodes
    return True
