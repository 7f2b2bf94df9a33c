"""Algorithm 1 of paper B, word by word, as an oracle: every candidate, outcome and split of modes
valued from scratch, the downlink delay of Lemma 1 by bisection.

    python tests/solvers/slow_greedy.py      # its time beside that of solvers.greedy; minutes
"""

import math
import time

import numpy as np

from multispin_env import Scenario, solvers
from multispin_env.solvers.problems import pose
from multispin_env.solvers.sampled import sobol_outcomes
from multispin_env.world import tape


def uplink_delay(p, k, band):
    snr = p.uplink_power_w[k] * p.channel_gain[k] / (p.noise_server_w_hz * band)
    return p.payload_bits / (band * math.log2(1 + snr))


def downlink_delay(p, members, band):
    """The t at which the powers that all members need add up to the budget (Lemma 1)."""

    def needed_power(t):
        exponent = p.payload_bits / (band * t)
        if exponent > 1000:
            return math.inf
        costs = (p.noise_device_w_hz[k] * band / p.channel_gain[k] for k in members)
        return sum(cost * (2**exponent - 1) for cost in costs)

    low, high = 0.0, 1e-6
    while needed_power(high) > p.downlink_power_w:
        high *= 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if needed_power(middle) > p.downlink_power_w else (low, middle)
    return high


def correction_latency(p, rejected, rule, coins):
    """The slowest correction of a rejected set, the best split of Lemma 2 found by trying all."""
    if not rejected:
        return 0.0
    band = p.bandwidth_hz / len(rejected)
    worst_first = sorted(rejected, key=lambda k: -uplink_delay(p, k, band))
    if rule == "random":
        worst_first.sort(key=lambda k: -coins[k])
        splits = [int(sum(coins[k] for k in rejected))]
    else:
        count = len(rejected)
        splits = {"optimal": range(count + 1), "uplink": [0], "downlink": [count]}[rule]
    delays = []
    for split in splits:
        up = max((uplink_delay(p, k, band) for k in worst_first[split:]), default=0.0)
        down = downlink_delay(p, worst_first[:split], band) if split else 0.0
        delays.append(max(up, down))
    return min(delays)


def slow_greedy(p, rule, samples, seed):
    """Draft lengths and goodput of Algorithm 1 on the outcomes that solvers.greedy averages."""
    exponential, coins = sobol_outcomes(samples, p.num_devices, seed)
    order = np.argsort(p.uplink_power_w * p.channel_gain, kind="stable")
    place = np.argsort(order)  # the outcomes belong to the devices by rank of their uplinks
    exponential, coins = exponential[:, place], coins[:, place]
    devices = range(p.num_devices)

    def value(lengths):
        total = 0.0
        for sample, coin in zip(exponential, coins):
            # G < gamma for G = floor(E / -ln alpha), that is alpha^gamma < exp(-E)
            rejected = [
                k for k in devices if p.acceptance_rate[k] ** lengths[k] < math.exp(-sample[k])
            ]
            total += correction_latency(p, rejected, rule, coin)
        waiting = max(n * t for n, t in zip(lengths, p.token_latency_s)) + p.verification_s
        tokens = sum(sum(a**i for i in range(n + 1)) for a, n in zip(p.acceptance_rate, lengths))
        return tokens / (waiting + total / samples)

    lengths, best = [0] * p.num_devices, value([0] * p.num_devices)
    while lengths[0] < p.max_draft_length:
        longer = value([n + 1 for n in lengths])
        if longer <= best:
            break
        lengths, best = [n + 1 for n in lengths], longer
    while True:
        candidates = []
        for k in devices:
            candidate = list(lengths)
            candidate[k] = min(candidate[k] + 1, p.max_draft_length)
            candidates.append(candidate)
        values = [value(candidate) for candidate in candidates]
        if max(values) <= best * (1 + 1e-12):
            return lengths, best
        best = max(values)
        lengths = candidates[values.index(best)]


def main():
    scenario = Scenario.load("qwen2.5")
    generator = np.random.default_rng(0)
    devices = tape.DeviceLaw(scenario)(tape.draw_uniform(generator, scenario.num_devices))
    gain = devices.mean_gain * generator.exponential(size=scenario.num_devices)
    p = pose(scenario, devices.acceptance_rate, devices.token_latency_s, gain)
    solvers.greedy(p)  # compiled
    start = time.perf_counter()
    for _ in range(100):
        fast = solvers.greedy(p)
    fast_s = (time.perf_counter() - start) / 100
    start = time.perf_counter()
    lengths, goodput = slow_greedy(p, "optimal", 1000, 0)
    slow_s = time.perf_counter() - start
    print(f"K = 20, 1,000 outcomes: {slow_s:.1f} s transcribed, {1e3 * fast_s:.2f} ms compiled")
    print(
        f"ratio {slow_s / fast_s:,.0f}; the same lengths: {lengths == fast.draft_length.tolist()}"
    )
    print(f"goodput {goodput:.6f} and {fast.goodput:.6f} tokens/s")


if __name__ == "__main__":
    main()
