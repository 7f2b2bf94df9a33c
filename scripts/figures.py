"""Reproduce the figures and tables of both papers, and ours.

    python scripts/figures.py                       # all of them: about 6 minutes on two cores
    python scripts/figures.py paper-a-fig7 regret   # some
    python scripts/figures.py --quick               # a smoke run, about a minute
    python scripts/figures.py --docs                # also refreshes docs/reproduction.md

Each figure is a PNG, an SVG and a CSV of all its numbers, with 95 % intervals. What was measured
before with the same arguments and the same code is read from `cache` under the output folder.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tqdm import tqdm

from experiments import memory, page, tables
from experiments.registry import FIGURES
from experiments.tables import Row
from multispin_env import parallel


@dataclass
class Options:
    """Measure and draw figures."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Which ones; all if none is named."""
    quick: bool = False
    """A smoke run: few rounds and points, wide intervals."""
    output: Path = Path("outputs/figures")
    """Folder for pictures, tables and the cache."""
    workers: int = 2
    """Processes; the numbers do not depend on it."""
    docs: bool = False
    """Store pictures and tables under docs/figures and refresh the page's numbers."""


def measured(names: list[str], options: Options) -> dict[str, list[Row]]:
    """The table of every figure; jobs that figures share are done once."""
    jobs = {name: FIGURES[name].jobs(options.quick) for name in names}
    distinct = list(dict.fromkeys(job for some in jobs.values() for job in some))
    work = [(job, options.output / "cache") for job in distinct]
    results = parallel.spread(memory.rows_of, work, options.workers)
    found = {distinct[n]: rows for n, rows in tqdm(results, total=len(work), unit="job")}
    return {name: [row for job in jobs[name] for row in found[job]] for name in names}


def store(name: str, rows: list[Row], folder: Path) -> None:
    """Write a figure's CSV, and draw what it says as PNG and SVG."""
    tables.write(folder / f"{name}.csv", rows)
    figure = FIGURES[name].draw(tables.read(folder / f"{name}.csv"))
    figure.savefig(folder / f"{name}.png", dpi=130)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def main() -> None:
    options = tyro.cli(Options)
    for name in options.names:
        if name not in FIGURES:
            raise SystemExit(f"name = {name!r}: must be one of {', '.join(map(repr, FIGURES))}")
    if options.quick and options.docs:
        raise SystemExit("--docs stores numbers of full size: leave out --quick")
    names = list(dict.fromkeys(options.names or FIGURES))
    options.output.mkdir(parents=True, exist_ok=True)
    for name, rows in measured(names, options).items():
        store(name, rows, options.output)
        if options.docs:
            for suffix in ("png", "csv"):
                shutil.copy(options.output / f"{name}.{suffix}", page.FOLDER)
    if options.docs:
        page.refresh({name: figure.report for name, figure in FIGURES.items()})
    print(f"PNG, SVG and CSV in {options.output}: {', '.join(names)}")


if __name__ == "__main__":
    main()
