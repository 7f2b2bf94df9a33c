"""Make the README's animation: an episode at 10 dBm, where the correction modes differ.

    python scripts/make_gif.py                  # writes docs/episode.gif

Draft lengths are those of `solvers.deadline`: devices in a deep fade are dropped, the others draft
until a common deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import imageio.v3 as iio
import tyro
from tqdm import trange

from multispin_env.solvers import draft_policy


@dataclass
class Options:
    """Render some rounds of one episode as an animated GIF."""

    output: Path = Path("docs/episode.gif")
    """File to write."""
    rounds: int = 16
    """Rounds to show, a second each."""
    seed: int = 1
    """Seed of the episode."""


def main() -> None:
    options = tyro.cli(Options)
    env = gym.make(
        "multispin/DraftLength-v0",
        overrides={"radio.uplink_power_dbm": 10},
        render_mode="rgb_array",
    )
    policy = draft_policy("deadline", [env.unwrapped.scenario])
    observation, _ = env.reset(seed=options.seed)
    frames = []
    for _ in trange(options.rounds, unit="round"):
        action = policy({key: value[None] for key, value in observation.items()})[0]
        observation, *_ = env.step(action)
        frames.append(env.render())
    options.output.parent.mkdir(parents=True, exist_ok=True)
    iio.imwrite(options.output, frames, duration=1000, loop=0)
    size = options.output.stat().st_size / 1024
    print(f"{options.output}: {len(frames)} rounds, {size:.0f} KiB")


if __name__ == "__main__":
    main()
