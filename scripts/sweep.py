"""Look for better numbers for a preset; writes them as a preset.

    python scripts/sweep.py scratch --trials 20 --budget 0.3
    python scripts/train.py runs/sweep/scratch-0/best.toml

The preset's table [sweep] says what may vary (docs/agents.md). Trials are scored on training
episodes of the preset's tasks, never on dev. An interrupted sweep goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import optuna
import tomli_w
import tyro
from tqdm import tqdm

from agents import training, tuning
from command_line import one_line_errors
from multispin_env import parallel


@dataclass
class Options:
    """Sweep over the numbers of a preset."""

    preset: Annotated[str, tyro.conf.Positional]
    """A shipped preset (scratch, modes) or a TOML file, with a table [sweep]."""
    trials: int = 20
    """In all; the first ten are random."""
    seed: int = 0
    """Of the proposals, and of every training."""
    budget: float = 1.0
    """Share of the stages' states, steps and updates that a trial has."""
    batch: int = 4
    """Trials that are proposed together; more keep more workers busy, but learn later."""
    workers: int = 2
    """Processes of this machine."""
    backend: parallel.Backend = "loky"
    """loky on this machine, ray on a cluster (docs/benchmark.md)."""
    output: Path = Path("runs/sweep")
    """Folder; a folder with the preset's name and the seed is made inside."""


def table(study: optuna.Study, count: int = 10) -> str:
    """The best trials and their numbers."""
    names = list(tuning.best(study)[0].params)
    widths = [max(len(name), 10) for name in names]
    lines = ["trial   ratio  " + "  ".join(f"{n:>{w}}" for n, w in zip(names, widths))]
    for trial in tuning.best(study)[:count]:
        values = "  ".join(f"{trial.params[n]!s:.10}".rjust(w) for n, w in zip(names, widths))
        lines.append(f"{trial.number:>5}  {trial.values[0]:.4f}  {values}")
    return "\n".join(lines)


def run(options: Options) -> None:
    folder = options.output / f"{Path(options.preset).stem}-{options.seed}"
    steps = tuning.sweep(
        options.preset,
        folder / "study.journal",
        trials=options.trials,
        seed=options.seed,
        budget=options.budget,
        batch=options.batch,
        workers=options.workers,
        backend=options.backend,
    )
    with tqdm(total=options.trials, unit="trial") as bar:
        for study in steps:
            found = tuning.best(study)
            bar.update(len(found) - bar.n)
            if found:
                bar.set_postfix_str(f"best {found[0].values[0]:.4f}")
    first = found[0]
    content = tuning.varied(training.read(options.preset), first.params)
    head = (
        f"# Trial {first.number} of `python scripts/sweep.py {options.preset} --seed "
        f"{options.seed} --budget {options.budget:g} --batch {options.batch}`\n"
    )
    (folder / "best.toml").write_text(head + tomli_w.dumps(content), "utf8")
    print("Mean over the tasks of goodput / reference goodput, on training episodes:")
    print(table(study))
    print(f"The best as a preset: python scripts/train.py {folder / 'best.toml'}")


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with one_line_errors(goes_on=True):
        run(tyro.cli(Options))


if __name__ == "__main__":
    main()
