"""Play real rounds and compare: draft lengths 0..12 under the four correction rules.

    python scripts/demo.py                     # a table, and curves as PNG under outputs/
    python scripts/demo.py --episodes 32       # faster, wider intervals

Every cell of the table is a mean over the same episodes (same devices, fading and acceptances:
common random numbers), with a 95 % confidence interval over episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray
from scipy import stats
from tqdm import tqdm

import baselines
import multispin_env

RULES = ("optimal", "uplink", "downlink", "random")
LENGTHS = range(13)
POWERS_DBM = (10, 20)


@dataclass
class Options:
    """Compare draft lengths and correction rules on the scenario qwen2.5."""

    episodes: int = 256
    """Episodes behind each number."""
    output: Path = Path("outputs")
    """Folder for the picture."""


def episode_goodputs(rule: str, power_dbm: float, draft_length: int, seeds: Sequence[int]):
    """Goodput of each seeded episode [tokens/s], shape [len(seeds)]."""
    env = gym.make(
        "multispin/DraftLength-v0",
        scenario="qwen2.5",
        overrides={"radio.uplink_power_dbm": power_dbm},
        correction=rule,
        reward="tokens",
    )
    policy = baselines.make("fixed", env, draft_length=draft_length)
    goodputs = []
    for seed in seeds:
        observation, info = env.reset(seed=seed)
        while "episode_goodput" not in info:
            action, _ = policy.predict(observation)
            observation, _, _, _, info = env.step(action)
        goodputs.append(info["episode_goodput"])
    return np.array(goodputs)


def half_width(values: NDArray[np.float64]) -> float:
    """Half of the 95 % t interval of a mean over episodes."""
    return float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1))


def table(power_dbm: float, results: dict[str, list[NDArray[np.float64]]]) -> str:
    """One power's results as text, a row a length."""
    lines = [
        f"\nqwen2.5, 20 devices, uplink {power_dbm} dBm, downlink {power_dbm + 6} dBm: "
        "goodput of all devices [tokens/s], 95 % interval",
        "length " + "".join(f"{rule:>17}" for rule in RULES),
    ]
    best = {rule: int(np.argmax([v.mean() for v in results[rule]])) for rule in RULES}
    for length in LENGTHS:
        cells = []
        for rule in RULES:
            values = results[rule][length]
            mark = "*" if best[rule] == length else " "
            cells.append(f"{values.mean():>9.1f} ±{half_width(values):5.1f}{mark}")
        lines.append(f"{length:>6} " + "".join(cells))
    lines.append("* best length of its column")
    return "\n".join(lines)


def picture(results: dict[int, dict[str, list[NDArray[np.float64]]]], path: Path) -> None:
    """Goodput against draft length, one panel a power, bands for the intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(10, 4), sharey=True, layout="constrained")
    styles = zip(RULES, ["#0072B2", "#E69F00", "#009E73", "#CC79A7"], ["-", "--", "-.", ":"])
    for rule, colour, line in styles:
        for axis, (power_dbm, by_rule) in zip(axes, results.items()):
            mean = np.array([v.mean() for v in by_rule[rule]])
            half = np.array([half_width(v) for v in by_rule[rule]])
            axis.plot(LENGTHS, mean, line, color=colour, marker="o", markersize=4, label=rule)
            axis.fill_between(LENGTHS, mean - half, mean + half, color=colour, alpha=0.15)
            axis.set(
                title=f"uplink power {power_dbm} dBm", xlabel="draft length of all devices [tokens]"
            )
    for axis in axes:
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="goodput [tokens/s]", ylim=(0, None))
    axes[-1].legend(title="corrections")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    options = tyro.cli(Options)
    if options.episodes < 2:
        raise SystemExit(f"--episodes = {options.episodes}: must be at least 2 for an interval")
    print(
        f"Multi-SPIN Gym {multispin_env.__version__}: {options.episodes} episodes of 30 s a number"
    )
    seeds = range(options.episodes)
    results: dict[int, dict[str, list[NDArray[np.float64]]]] = {}
    with tqdm(total=len(POWERS_DBM) * len(RULES) * len(LENGTHS), unit="policy") as bar:
        for power_dbm in POWERS_DBM:
            results[power_dbm] = {rule: [] for rule in RULES}
            for rule in RULES:
                for length in LENGTHS:
                    goodputs = episode_goodputs(rule, power_dbm, length, seeds)
                    results[power_dbm][rule].append(goodputs)
                    bar.update()
    for power_dbm, by_rule in results.items():
        print(table(power_dbm, by_rule))
    path = options.output / "demo.png"
    picture(results, path)
    print(f"\nThe curves are in {path}")


if __name__ == "__main__":
    main()
