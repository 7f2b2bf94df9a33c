"""Train an agent by a preset; score it on dev episodes.

    python scripts/train.py draft                   # imitation of `deadline` over many scenarios
    python scripts/train.py scratch --seed 1        # policy gradient, no teacher
    python scripts/train.py ppo-plain               # Stable-Baselines3, as it comes
    tensorboard --logdir runs/train

Presets are the TOML files in agents/presets; copy one and pass its path. Weights and a card with
the dev scores are written to the output folder; an interrupted training goes on where it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import torch
import tyro
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from agents import training
from command_line import one_line_errors
from multispin_env import parallel

#: Steps between two points of a curve.
LOG_STEPS: Final = 100


@dataclass
class Options:
    """Train an agent."""

    preset: Annotated[str, tyro.conf.Positional]
    """A shipped preset (draft, modes, uploads, scratch, finetuned, ppo, ppo-plain, ppo-uploads,
    a2c, sac) or a TOML file."""
    seed: int = 0
    """Of everything."""
    task: tuple[str, ...] = ()
    """Instead of the preset's: what Stable-Baselines3 plays, and what is scored."""
    output: Path = Path("runs/train")
    """Folder; a folder with the preset's name and the seed is made inside."""
    workers: int = 2
    """Processes that label states."""
    backend: parallel.Backend = "loky"
    """Who labels states: loky on this machine, ray on a cluster (docs/benchmark.md)."""


def main() -> None:
    options = tyro.cli(Options)
    with one_line_errors():
        parallel.check(options.workers, options.backend)
        train(options, training.Preset.load(options.preset, options.task))


def train(options: Options, preset: training.Preset) -> None:
    """Train, score and save."""
    torch.set_num_threads(1)  # small networks: threads only wait for each other
    folder = options.output / f"{Path(preset.name).stem}-{options.seed}"
    start, bar, stage, shown = time.perf_counter(), tqdm(), "", {}
    with SummaryWriter(str(folder / "log")) as log:
        steps = training.train(
            preset,
            options.seed,
            checkpoints=folder,
            workers=options.workers,
            backend=options.backend,
        )
        for update, latest in steps:
            trained = latest
            if update.stage != stage:
                stage, shown = update.stage, {}
                bar.close()
                bar = tqdm(total=update.of, desc=stage, initial=update.step - 1)
            bar.update(update.step - bar.n)
            if update.step % LOG_STEPS == 0 or "goodput" in update.numbers:
                for key, value in update.numbers.items():
                    log.add_scalar(f"{stage}/{key}", value, update.step)
                    shown[key] = f"{value:.4g}"
                bar.set_postfix(shown)
        bar.close()
        minutes = (time.perf_counter() - start) / 60
        command = f"python scripts/train.py {preset.name} --seed {options.seed}"
        command += " --task " + " ".join(options.task) if options.task else ""
        card = training.finish(preset, trained, options.seed, folder, command)
        for task, found in card["dev"].items():
            log.add_scalar(f"dev/{task}", found["ratio"], update.step)
            print(
                f"{task}: {found['goodput']:.1f} tokens/s, {found['ratio']:.4f} ± "
                f"{found['half_width']:.4f} of the strongest analytical policy"
            )
    print(f"Trained in {minutes:.1f} minutes; weights and card: {folder}")


if __name__ == "__main__":
    main()
