"""Draw one round of each protocol, for the page of concepts.

    python scripts/draw_round.py                # writes docs/round.svg

The rounds are played, not sketched: six devices, 10 dBm in the correction protocol, draft lengths
by the strongest policy, and the first round of the correction protocol in which one device is left
out and both directions are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import tyro
from matplotlib.axes import Axes
from matplotlib.patches import Patch

import baselines
from multispin_env.envs import rendering
from multispin_env.envs.rendering import KINDS, Timeline

Phase = tuple[str, float, float]  # its name, start and end [s]


@dataclass
class Options:
    """Draw a round of each protocol."""

    output: Path = Path("docs/round.svg")
    """File to write."""
    seed: int = 31
    """Seed of the episodes."""


def main() -> None:
    options = tyro.cli(Options)
    correction = rounds("qwen2.5", "deadline", options.seed, {"radio.uplink_power_dbm": 10})
    upload = rounds("qwen3.5", "exact", options.seed, {})
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "round", "axes.spines.top": False})
    figure, axes = plt.subplots(2, 1, figsize=(7.6, 5.6), layout="constrained")
    info, picture = next(r for r in correction if is_telling(r[0]))
    draw(axes[0], "Correction protocol", info, picture, correction_phases(info))
    info, picture = next(upload)
    draw(axes[1], "Upload protocol", info, picture, upload_phases(info))
    axes[1].set_xlabel("time in the round [s]")
    handles = [Patch(color=colour(kind), label=KINDS[kind][0]) for kind in KINDS]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=6,
        fontsize=8,
        frameon=False,
        columnspacing=1.2,
        handlelength=1.2,
    )
    figure.savefig(options.output, metadata={"Date": None})
    print(options.output)


def rounds(
    scenario: str, policy: str, seed: int, overrides: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], Timeline]]:
    """The rounds of an episode: infos and timelines."""
    env = gym.make(
        "multispin/DraftLength-v0", scenario=scenario, overrides={"num_devices": 6} | overrides
    )
    inner: Any = env.unwrapped
    player = baselines.make(policy, env)
    observation, info = env.reset(seed=seed)
    while "episode_goodput" not in info:
        action, _ = player.predict(observation)
        observation, _, _, _, info = env.step(action)
        yield info, rendering.timeline(inner.scenario, inner.tape, info, 0.0)


def is_telling(info: dict[str, Any]) -> bool:
    """Whether one device is left out, the others draft on, and corrections go both ways."""
    left_out, modes = int((info["drafted"] == 0).sum()), set(info["mode"].tolist())
    long_enough = info["drafted"].max() >= 4 and info["communication_s"] > 0.03
    return left_out == 1 and long_enough and {0, 1} <= modes


def draw(
    axes: Axes, title: str, info: dict[str, Any], picture: Timeline, phases: list[Phase]
) -> None:
    """One round: a row a device, the phases above."""
    for bar in picture.bars:
        axes.barh(
            bar.device,
            bar.end_s - bar.start_s,
            left=bar.start_s,
            height=1.0 if bar.kind == "verification" else 0.7,
            color=colour(bar.kind),
        )
    for device, (emitted, dropped) in enumerate(zip(picture.emitted, picture.dropped)):
        note = f"+{emitted}" + ("  no draft" if dropped else "")
        axes.text(picture.duration_s * 1.01, device, note, va="center")
    for name, start, end in phases:
        axes.annotate("", (start, -0.75), (end, -0.75), arrowprops={"arrowstyle": "<->", "lw": 0.8})
        axes.text((start + end) / 2, -0.9, name, ha="center", va="bottom", fontsize=8)
    axes.set_xlim(0, picture.duration_s)
    axes.set_ylim(len(picture.emitted) - 0.4, -1.5)
    rows = range(len(picture.emitted))
    axes.set_yticks(rows, [f"device {k + 1}   {picture.snr_db[k]:.0f} dB" for k in rows])
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "right"]].set_visible(False)
    tokens, seconds = info["emitted"], info["latency_s"]
    axes.set_title(
        f"{title}: {tokens} tokens in {seconds:.2f} s, {tokens / seconds:.0f} tokens/s",
        loc="left",
        fontsize=10,
    )


def correction_phases(info: dict[str, Any]) -> list[Phase]:
    """What happens when, in the correction protocol."""
    drafted = info["drafting_s"]
    verified = drafted + info["verification_s"]
    return [
        ("drafting", 0.0, drafted),
        ("verification", drafted, verified),
        ("correction", verified, verified + info["communication_s"]),
    ]


def upload_phases(info: dict[str, Any]) -> list[Phase]:
    """What happens when, in the upload protocol."""
    ready = info["drafting_s"] + info["communication_s"]
    return [
        ("drafting and uploading", 0.0, ready),
        ("verification", ready, ready + info["verification_s"]),
    ]


def colour(kind: str) -> tuple[float, ...]:
    """Of a kind of bar, as in the renderer."""
    return tuple(channel / 255 for channel in KINDS[kind][1])


if __name__ == "__main__":
    main()
