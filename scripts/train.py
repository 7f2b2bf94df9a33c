"""Train a network by a preset; score it on dev episodes.

    python scripts/train.py draft                   # imitation of `deadline` over many scenarios
    python scripts/train.py scratch --seed 1        # policy gradient, no teacher
    tensorboard --logdir runs/train

Presets are the TOML files in agents/presets; copy one and pass its path. Weights and a card with
the dev scores are written to the output folder; an interrupted training goes on where it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from agents import training
from multispin_env import parallel


@dataclass
class Options:
    """Train a network."""

    preset: Annotated[str, tyro.conf.Positional]
    """A shipped preset (draft, modes, uploads, scratch) or a TOML file."""
    seed: int = 0
    """Of everything."""
    output: Path = Path("runs/train")
    """Folder; a folder with the preset's name and the seed is made inside."""
    workers: int = 2
    """Processes that label states."""
    backend: parallel.Backend = "loky"
    """Who labels states: loky on this machine, ray on a cluster (docs/benchmark.md)."""


def main() -> None:
    options = tyro.cli(Options)
    try:
        preset = training.Preset.load(options.preset)
        parallel.check(options.workers, options.backend)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
    torch.set_num_threads(1)  # small networks: threads only wait for each other
    folder = options.output / f"{Path(preset.name).stem}-{options.seed}"
    start, bar, stage = time.perf_counter(), tqdm(), ""
    with SummaryWriter(str(folder / "log")) as log:
        steps = training.train(
            preset,
            options.seed,
            checkpoints=folder,
            workers=options.workers,
            backend=options.backend,
        )
        for update, latest in steps:
            network = latest
            if update.stage != stage:
                stage = update.stage
                bar.close()
                bar = tqdm(total=update.of, desc=stage, initial=update.step - 1)
            bar.update(update.step - bar.n)
            if update.step % 100 == 0 and update.numbers:
                bar.set_postfix({key: f"{value:.4g}" for key, value in update.numbers.items()})
                for key, value in update.numbers.items():
                    log.add_scalar(f"{stage}/{key}", value, update.step)
        bar.close()
        minutes = (time.perf_counter() - start) / 60
        card = training.finish(preset, network, options.seed, folder)
        for task, found in card["dev"].items():
            log.add_scalar(f"dev/{task}", found["ratio"], update.step)
            print(
                f"{task}: {found['goodput']:.1f} tokens/s, {found['ratio']:.4f} ± "
                f"{found['half_width']:.4f} of the strongest analytical policy"
            )
    print(f"Trained in {minutes:.1f} minutes; weights and card: {folder}")


if __name__ == "__main__":
    main()
