"""How fast are the environments? Rounds per second beside CartPole-v1, in the same process.

    python scripts/throughput.py            # all of it, about two minutes
    python scripts/throughput.py --quick    # a smoke run

Machines differ and are noisy, so the numbers to quote are the ratios: CartPole-v1 is timed again
right before every row. Actions are sampled beforehand; everything goes through `gym.make` and
`gym.make_vec` with infos on, as a user has it. Actions are uniform samples, episodes last a hundred
rounds, and starting them is included. Vector environments with lanes for more than one thread are
measured with one thread and with all that this process may use.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro

import multispin_env
from command_line import check_folder_of
from multispin_env import solvers
from multispin_env.envs.vector import MultiSpinVectorEnv
from multispin_env.model.kernels import tapes
from multispin_env.model.kernels.state import BLOCK
from multispin_env.solvers.problems import draw
from multispin_env.world import threads
from multispin_env.world.control import CONTROLS
from multispin_env.world.core import Core

IDS = tuple(control.name for control in CONTROLS)
MEMORY_LIMIT_BYTES = 2e9  # larger vector environments are left out


@dataclass
class Options:
    """Measure the throughput of the environments."""

    quick: bool = False
    """A few short measurements only."""
    output: Path | None = None
    """Write the numbers to this JSON file too."""


def repeated(measure: Callable[[], float], repeats: int) -> float:
    """The fastest of some measurements: what is added to it is other programs' work."""
    return min(measure() for _ in range(repeats))


def scalar_seconds(env: gym.Env[Any, Any], steps: int) -> float:
    """Seconds a step, resets included."""
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(1000)]
    env.reset(seed=0)
    start = time.perf_counter()
    for i in range(steps):
        _, _, terminated, truncated, _ = env.step(actions[i % 1000])
        if terminated or truncated:
            env.reset()
    return (time.perf_counter() - start) / steps


def vector_seconds(envs: gym.vector.VectorEnv[Any, Any, Any], steps: int) -> float:
    """Seconds a lane and step, autoresets included."""
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(10)]
    envs.reset(seed=0)
    for i in range(40):  # until the lanes are out of step with each other, as in training
        envs.step(actions[i % 10])
    start = time.perf_counter()
    for i in range(steps):
        envs.step(actions[i % 10])
    return (time.perf_counter() - start) / steps / envs.num_envs


def cartpole_seconds(steps: int = 20_000) -> float:
    return repeated(lambda: scalar_seconds(gym.make("CartPole-v1"), steps), 3)


def overrides(num_devices: int) -> dict[str, Any]:
    """Another number of devices, and episodes of a hundred rounds whatever their duration.

    A given reference saves its computation.
    """
    return {
        "num_devices": num_devices,
        "episode.rounds": 100,
        "reference_goodput": 100.0,
        "reference_draft_length": 6,
    }


def row(name: str, seconds: float, cartpole: float, num_devices: int) -> dict[str, Any]:
    result = {
        "name": name,
        "microseconds": seconds * 1e6,
        "rounds_per_second": 1.0 / seconds,
        "times_cartpole": cartpole / seconds,
        "nanoseconds_per_device": seconds / num_devices * 1e9,
    }
    print(
        f"{name:<42}{result['microseconds']:>9.2f} us{result['rounds_per_second']:>13,.0f} /s"
        f"{result['times_cartpole']:>9.2f} x{result['nanoseconds_per_device']:>9.1f} ns"
    )
    return result


def tables(quick: bool) -> list[dict[str, Any]]:
    """Scalar and vector environments of all sizes and kinds."""
    print(f"{'':<42}{'a round':>12}{'rounds':>16}{'CartPole':>11}{'a device':>12}")
    rows = []
    for k in (20,) if quick else (5, 20, 100, 1000):
        for name in IDS if k == 20 else IDS[:1]:
            env = gym.make(f"multispin/{name}-v0", overrides=overrides(k))
            steps = 2_000 if quick else max(2_000, 200_000 // k)
            cartpole = cartpole_seconds(2_000 if quick else 20_000)
            seconds = repeated(lambda env=env, steps=steps: scalar_seconds(env, steps), 3)
            rows.append(row(f"{name}, scalar, K={k}", seconds, cartpole, k))
    for n in (64,) if quick else (1, 64, 1024, 4096):
        for k in (20,) if quick else (5, 20, 100, 1000):
            if n * k * 1200 > MEMORY_LIMIT_BYTES:
                continue
            counts = sorted({1, len(threads.shares(n, k, threads.available()))})
            for name in IDS if k == 20 and n == 1024 else IDS[:1]:
                for count in counts:
                    envs = gym.make_vec(
                        f"multispin/{name}-v0", num_envs=n, overrides=overrides(k), threads=count
                    )
                    steps = int(np.clip(4e6 / (n * k), 10, 3000)) if not quick else 10
                    cartpole = cartpole_seconds(2_000 if quick else 20_000)
                    seconds = repeated(lambda e=envs, s=steps: vector_seconds(e, s), 3)
                    label = f"{name}, N={n}, K={k}, {count} thread{'s' * (count > 1)}"
                    rows.append(row(label, seconds, cartpole, k))
    return rows


# ---- where the time goes ----------------------------------------------------------------------


@contextmanager
def timed(totals: dict[str, float], owner: Any, method: str, label: str) -> Iterator[None]:
    """Add the time spent in a method to `totals[label]`."""
    original = getattr(owner, method)
    totals[label] = 0.0

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = original(*args, **kwargs)
        totals[label] += time.perf_counter() - start
        return result

    setattr(owner, method, wrapper)
    try:
        yield
    finally:
        setattr(owner, method, original)


def breakdown(num_envs: int, steps: int) -> dict[str, float]:
    """Nanoseconds a lane and step that go into the parts, in one thread: DraftLength-v0, K = 20.

    Random numbers and observations are made inside `play`; they are timed alone, and taken off.
    """
    envs = gym.make_vec(
        "multispin/DraftLength-v0", num_envs=num_envs, overrides=overrides(20), threads=1
    )
    totals: dict[str, float] = {}
    with (
        timed(totals, Core, "reset", "starting episodes"),
        timed(totals, Core, "play", "physics"),
        timed(totals, MultiSpinVectorEnv, "_infos", "info"),
    ):
        vector_seconds(envs, 1)
        totals.update(dict.fromkeys(totals, 0.0))
        actions = [envs.action_space.sample() for _ in range(10)]
        start = time.perf_counter()
        for i in range(steps):
            envs.step(actions[i % 10])
        whole = time.perf_counter() - start
    core = envs.unwrapped._core
    cells = np.arange(num_envs)
    blocks = max(1, steps // BLOCK)
    for name, function, calls in (
        ("observation", core.observe, steps),
        ("random numbers", lambda: tapes.draw_first(core._state, cells), blocks),
    ):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        totals[name] = time.perf_counter() - start
        totals["physics"] -= totals[name]
    totals["everything else"] = whole - sum(totals.values())
    scale = 1e9 / steps / num_envs
    return {name: seconds * scale for name, seconds in totals.items()}


# ---- solvers ----------------------------------------------------------------------------------


def drawn_problems(scenario: str, num_devices: int, count: int) -> list[Any]:
    """Rounds of a scenario, as the solvers see them."""
    loaded = multispin_env.Scenario.load(scenario, {"num_devices": num_devices})
    generator = np.random.default_rng(0)
    return [draw(loaded, generator) for _ in range(count)]


def solver_times(quick: bool) -> dict[str, float]:
    """Milliseconds a decision of every solver, compiled, on one core.

    A table with a column for each K. A solver whose decisions took more than half a second leaves
    out the larger ones, which would take over a few seconds.
    """
    solve = {
        "qwen2.5": ("computation_only", "uniform", "greedy", "deadline"),
        "qwen3.5": ("homogeneous", "uniform_bandwidth", "heterogeneous", "exact"),
    }
    sizes = (20, 50) if quick else (20, 50, 100, 200, 500, 1000)
    print(f"{'':<42}" + "".join(f"{f'K={k}':>9}" for k in sizes))
    results = {}
    for scenario, names in solve.items():
        problems = {k: drawn_problems(scenario, k, 2 if quick or k > 100 else 20) for k in sizes}
        for name in names:
            solver = getattr(solvers, name)
            print(f"{f'{name}, {scenario} [ms]':<42}", end="", flush=True)
            for k in sizes:
                milliseconds = 1e3 * decision_seconds(solver, problems[k])
                results[f"{name}, {scenario}, K={k} [ms]"] = milliseconds
                print(f"{milliseconds:>9.2f}", end="", flush=True)
                if milliseconds > 500.0:
                    break
            print()
    return results


def decision_seconds(solver: Callable[[Any], Any], problems: list[Any]) -> float:
    """Seconds a decision: the fastest of three tries for each of the problems, averaged."""
    solver(problems[0])

    def once(problem: Any) -> float:
        start = time.perf_counter()
        solver(problem)
        return time.perf_counter() - start

    return float(np.mean([repeated(lambda p=p: once(p), 3) for p in problems]))


# ---- fresh processes --------------------------------------------------------------------------

IMPORT = """
import time
start = time.perf_counter()
import multispin_env
print(time.perf_counter() - start)
"""
FIRST_STEP = """
import time
import gymnasium as gym, multispin_env
start = time.perf_counter()
env = gym.make("multispin/DraftLength-v0")
env.reset(seed=0)
env.step(env.action_space.sample())
print(time.perf_counter() - start)
"""
MEMORY = """
import resource
import gymnasium as gym, multispin_env
envs = gym.make_vec("multispin/DraftLength-v0", num_envs={n}, price=100.0,
                    overrides={{"num_devices": {k}}})
envs.reset(seed=0)
for _ in range(40):
    envs.step(envs.action_space.sample())
try:  # ru_maxrss would count the parent's memory too
    lines = open("/proc/self/status").read().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
except OSError:
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(kilobytes * 1024 / 1e9)
"""


def fresh(code: str, **environment: str) -> float:
    """The number that a fresh Python process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return float(done.stdout)


def fresh_processes(quick: bool) -> dict[str, float]:
    """Start-up times and peak memory."""
    results = {"import multispin_env [s]": repeated(lambda: fresh(IMPORT), 3)}
    with tempfile.TemporaryDirectory() as cache:
        results["first step, kernels not compiled [s]"] = fresh(FIRST_STEP, NUMBA_CACHE_DIR=cache)
        cached = repeated(lambda: fresh(FIRST_STEP, NUMBA_CACHE_DIR=cache), 3)
        results["first step, kernels cached [s]"] = cached
    n, k = (64, 100) if quick else (4096, 100)
    results[f"peak memory, N={n}, K={k} [GB]"] = fresh(MEMORY.format(n=n, k=k))
    return results


def peers() -> None:
    """Other environments of wireless control, where they are installed."""
    if importlib.util.find_spec("mobile_env") is None:
        print("mobile-env is not installed (pip install mobile-env): left out")
        return
    importlib.import_module("mobile_env")
    env = gym.make("mobile-medium-central-v0")
    cartpole = cartpole_seconds()
    row("mobile-env, medium, central", scalar_seconds(env, 500), cartpole, env.unwrapped.NUM_USERS)


def main() -> None:
    options = tyro.cli(Options)
    check_folder_of(options.output)
    print(
        f"Multi-SPIN Gym {multispin_env.__version__}, {threads.available()} threads on "
        f"{os.cpu_count()} cores; 'x' is times the steps/s of CartPole-v1\n"
    )
    reference = cartpole_seconds(2_000 if options.quick else 20_000)
    print(f"CartPole-v1 takes {1e6 * reference:.2f} us a step\n")
    rows = tables(options.quick)
    peers()
    print("\nWhere a lane's round goes (vector, N=1024, K=20):")
    parts = breakdown(64 if options.quick else 1024, 10 if options.quick else 100)
    for name, nanoseconds in parts.items():
        print(f"{name:<42}{nanoseconds:>9.0f} ns")
    print("\nA decision of a solver:")
    times = solver_times(options.quick)
    print()
    processes = fresh_processes(options.quick)
    for name, value in processes.items():
        print(f"{name:<42}{value:>9.2f}")
    if options.output is not None:
        results = {
            "rows": rows,
            "breakdown_ns": parts,
            "solvers_ms": times,
            "processes": processes,
        }
        options.output.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
