"""Branch and bound over the subsets of devices that draft until one deadline, compiled by numba."""

from __future__ import annotations

import numpy as np

from multispin_env.model.kernels.compiling import compiled, lean
from multispin_env.model.kernels.correction_samples import latency_at
from multispin_env.model.kernels.correction_search import value_of
from multispin_env.model.kernels.corrections import GIVEN, OPTIMAL, UPLINK


@compiled
def subset_levels(radio, rejects, coins, included, level, count):
    """Level and number of the included devices that are rejected in each sample.

    Args:
        radio: how corrections travel.
        rejects: [S, K] true where a device's draft is rejected, if it drafts.
        coins: [S, K] 1 for downlink; read under GIVEN only.
        included: [K] 1 where a device drafts.
        level, count: [S] outputs; the level is inf where nobody is rejected.
    """
    num_samples, num_devices = rejects.shape
    rule, snr, cost_w, power_w = radio.rule, radio.snr, radio.cost_w, radio.power_w
    for s in range(num_samples):
        spent, worst_up, num = 0.0, np.inf, 0
        served = False  # under OPTIMAL: the budget is used up, all others go up
        for k in range(num_devices):
            if included[k] != 1 or not rejects[s, k]:
                continue
            num += 1
            if rule == OPTIMAL:
                if served:
                    continue
                # Serve the worst on the downlink while the next would be better off there.
                if spent > 0.0 and snr[k] * spent > power_w:
                    served = True
                    continue
                spent += cost_w[k]
                worst_up = max(snr[k], power_w / spent)
            elif rule == UPLINK or (rule == GIVEN and coins[s, k] == 0):
                worst_up = min(worst_up, snr[k])
            else:
                spent += cost_w[k]
        if rule != OPTIMAL and spent > 0.0:
            worst_up = min(worst_up, power_w / spent)
        level[s], count[s] = worst_up, num


@lean
def level_alone(radio, up, k):
    """The level if only device k is rejected; `up` is read under GIVEN only."""
    reached = radio.power_w / radio.cost_w[k]
    if radio.rule == OPTIMAL:
        return max(radio.snr[k], reached)
    return radio.snr[k] if radio.rule == UPLINK or (radio.rule == GIVEN and up) else reached


@compiled
def best_subset(objective, samples, length, forced, target, max_nodes, best):
    """Branch and bound over the subsets of devices that draft until one deadline.

    See :func:`multispin_env.solvers.optima.branch_and_bound`.

    Args:
        objective, samples: what decisions are valued by.
        length: [K] what a device drafts if it does.
        forced: a device that drafts in any case, or -1.
        target: the value to beat.
        max_nodes: how many nodes to visit at most.
        best: [K] output: 1 where a device drafts, in the best subset that beats the target.

    Returns:
        The value of that subset (or the target), and the number of nodes visited; -1 if there
        would have been more.
    """
    num_samples, num_devices = samples.run_length.shape
    run_length, coins, radio = samples.run_length, samples.coins, objective.radio
    payload_bits, bandwidth_hz = radio.payload_bits, radio.bandwidth_hz
    price = objective.price
    gain, drafting_s = np.empty(num_devices), length * objective.token_s
    for k in range(num_devices):
        gain[k] = objective.tokens[k, length[k]] - 1.0
    rejects = np.empty((num_samples, num_devices), np.bool_)
    for s in range(num_samples):
        for k in range(num_devices):
            rejects[s, k] = run_length[s, k] < length[k]
    alone = np.empty((num_samples, num_devices))
    level, count = np.empty(num_samples), np.empty(num_samples, np.int64)
    for s in range(num_samples):
        for k in range(num_devices):
            alone[s, k] = level_alone(radio, coins[s, k] == 0, k)

    # Decisions are made worst uplink first. `state` is 1 in, 0 out, -1 open.
    order = np.empty(num_devices, np.int64)
    state = np.zeros(num_devices, np.int64)
    num_open = 0
    for k in range(num_devices):
        if k == forced:
            state[k] = 1
        elif length[k] > 0:
            order[num_open] = k
            state[k] = -1
            num_open += 1
    cost = np.empty(num_devices)
    depth, nodes, entering = 0, 0, True
    while True:
        if entering:
            nodes += 1
            if nodes > max_nodes:
                return target, -1
            subset_levels(radio, rejects, coins, state, level, count)
            correcting_s, tokens, waiting_s = 0.0, float(num_devices), 0.0
            for k in range(num_devices):
                cost[k] = 0.0
                if state[k] == 1:
                    tokens += gain[k]
                    waiting_s = max(waiting_s, drafting_s[k])
            for s in range(num_samples):
                more, cap = 0, level[s]
                for i in range(depth, num_open):
                    k = order[i]
                    if rejects[s, k]:
                        more += 1
                        if count[s] == 0:
                            cap = alone[s, k] if more == 1 else max(cap, alone[s, k])
                now_s = latency_at(level[s], count[s], payload_bits, bandwidth_hz)
                correcting_s += now_s
                if more > 0:
                    then_s = latency_at(cap, count[s] + more, payload_bits, bandwidth_hz)
                    slope = (then_s - now_s) / more
                    for i in range(depth, num_open):
                        if rejects[s, order[i]]:
                            cost[order[i]] += slope
            latency_s = waiting_s + objective.verification_s + correcting_s / num_samples
            value = value_of(tokens, latency_s, price)
            if value > target:
                target = value
                for k in range(num_devices):
                    best[k] = 1 if state[k] == 1 else 0
            rate = target if price < 0.0 else price  # what a second costs
            bound = tokens - rate * latency_s
            for i in range(depth, num_open):
                bound += max(0.0, gain[order[i]] - rate * cost[order[i]] / num_samples)
            bound -= 0.0 if price < 0.0 else target
            if bound > 1e-9 * tokens and depth < num_open:
                state[order[depth]] = 1
                depth += 1
                continue
        # Back: the last device that is in goes out; those that are out are open again.
        entering = False
        while depth > 0 and state[order[depth - 1]] == 0:
            depth -= 1
            state[order[depth]] = -1
        if depth == 0:
            return target, nodes
        state[order[depth - 1]] = 0
        entering = True
