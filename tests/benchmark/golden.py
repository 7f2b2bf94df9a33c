"""The first rounds of every task of the shipped suites: what must never change.

python tests/benchmark/golden.py     # writes tests/data/golden.json when a suite is released
"""

import json
from pathlib import Path

import numpy as np

from multispin_env import benchmark

PATH = Path(__file__).parents[1] / "data" / "golden.json"
INTEGERS = ("tokens", "emitted", "drafted", "accepted", "rejected", "mode")
FLOATS = ("latency_s", "communication_s", "power_w", "bandwidth_hz", "time_s")


def action(task, number):
    """A decision that uses every part of the action space."""
    devices = np.arange(task.scenario.num_devices)
    lengths, modes = (devices + number) % 7, (devices + number) % 2
    if task.control.bandwidth:
        return {"draft_length": lengths, "bandwidth": (1 + devices % 3) / 3}
    if task.control.draft and task.control.mode:
        return np.concatenate([lengths, modes])
    return modes if task.control.mode else lengths


def trace(task, rounds=3):
    """Integers and floats of the first rounds of the first dev and training episodes."""
    found = []
    for split in ("dev", "train"):
        env = task.make()
        (seed,) = task.seeds(split, 1)
        observation, _ = env.reset(seed=seed)
        shown = {key: np.asarray(value, float).tolist() for key, value in observation.items()}
        steps = []
        for number in range(rounds):
            _, reward, _, _, info = env.step(action(task, number))
            integers = {key: np.asarray(info[key]).tolist() for key in INTEGERS}
            floats = {key: np.asarray(info[key]).tolist() for key in FLOATS}
            steps.append({"integers": integers, "floats": floats | {"reward": reward}})
        found.append({"seed": seed, "observation": shown, "steps": steps})
    return found


def main():
    suites = {
        name: {task.name: trace(task) for task in benchmark.load(name).tasks}
        for name in benchmark.list_suites()
    }
    PATH.write_text(json.dumps(suites) + "\n")


if __name__ == "__main__":
    main()
