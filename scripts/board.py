"""Make the entries of the board that the repository carries, from nothing.

    python scripts/board.py                      # trains, evaluates, packs, verifies, builds
    python scripts/board.py --only scratch ppo   # some of the entries
    python scripts/board.py --show               # only the commands

What is there already is kept: finished trainings and evaluations under runs/board, packed and
verified entries under leaderboard. Learned entries are trained with five seeds. At the end the
tables of README.md and docs/agents.md are refreshed, once all entries are there.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import tyro

from agents.training import Preset
from multispin_env import benchmark
from multispin_env.benchmark import Verification, report
from multispin_env.benchmark.report import Line

ROOT: Final = Path(__file__).parents[1]
SUITE: Final = "core-2026"
AUTHORS: Final = "The Multi-SPIN Gym developers"
SEEDS: Final = range(5)
#: Tasks that all entries have played.
COMMON: Final = ("draft-qwen2.5-20dbm-r4", "draft-qwen2.5-10dbm-r4")

#: The policy of an entry with one file of weights for each training seed.
POLICY: Final = '''"""Weights of one training seed, which lie beside this file."""

from pathlib import Path

import agents


def make(env, weights):
    return agents.load(Path(__file__).parent / weights, env)
'''


@dataclass(frozen=True)
class Spec:
    """An entry of the board."""

    title: str
    description: str
    decision_time_ms: float
    division: str = "analytical"
    preset: str = ""  #: of a trained one; otherwise the policy is known by its name


SPECS: Final = {
    "strongest": Spec(
        "Strongest analytical",
        "deadline for draft lengths of corrections, optimal modes, exact for uploads: searches of "
        "this project that maximise every round's expected goodput. Knows the channel, the "
        "acceptance rates and the cell's constants.",
        30.0,
    ),
    "papers": Spec(
        "The papers' policies",
        "greedy draft lengths and optimal modes (paper B), heterogeneous lengths and bandwidth "
        "(paper A). Knows what the strongest analytical policies know.",
        40.0,
    ),
    "constant": Spec(
        "Constant",
        "The same draft length for everybody in every round, all corrections on the downlink, "
        "equal bandwidth.",
        1.0,
    ),
    "distilled": Spec(
        "Distilled",
        "Three permutation-equivariant networks that imitate the strongest analytical policies, "
        "trained once over many scenarios; the shipped agent.",
        5.0,
        "open",
    ),
    "finetuned": Spec(
        "Imitation, fine-tuned",
        "A permutation-equivariant network with a deadline-and-subset head: imitation of deadline, "
        "then leave-one-out policy gradient.",
        9.0,
        "learned-closed",
        "finetuned",
    ),
    "scratch": Spec(
        "Leave-one-out from scratch",
        "The same network by leave-one-out policy gradient on common tapes, without a teacher.",
        9.0,
        "learned-closed",
        "scratch",
    ),
    "ppo": Spec(
        "PPO, equivariant",
        "Stable-Baselines3's PPO with the same weights for all devices, and a common deadline and "
        "the set of drafting devices as its action.",
        9.0,
        "learned-closed",
        "ppo",
    ),
    "ppo-plain": Spec(
        "PPO, plain",
        "Stable-Baselines3's PPO as it comes: MultiInputPolicy, a length for each device.",
        9.0,
        "learned-closed",
        "ppo-plain",
    ),
}


@dataclass
class Options:
    """Make the entries of the board."""

    only: tuple[str, ...] = ()
    """Names; all of them if left out."""
    runs: Path = Path("runs/board")
    """Folder of trainings and evaluations."""
    board: Path = Path("leaderboard")
    """Folder of the board; a folder with the suite's name is made inside."""
    workers: int = 2
    """Processes."""
    show: bool = False
    """Print the commands, and do nothing."""


@dataclass(frozen=True)
class Command:
    """A script with its arguments, unless what it makes is there."""

    arguments: tuple[str, ...]
    makes: Path
    before: dict[Path, Path | str] = field(default_factory=dict)  #: files to copy or to write


def main() -> None:
    options = tyro.cli(Options)
    for name in options.only:
        if name not in SPECS:
            raise SystemExit(f"error: only = {name!r}: must be one of {', '.join(SPECS)}")
    for name in options.only or SPECS:
        for command in commands(name, SPECS[name], options):
            carry_out(command, options.show)
    board = options.board / SUITE
    carry_out(Command(("leaderboard.py", "build", str(board)), Path("-")), options.show)
    entries = [board / name / "entry.toml" for name in SPECS]
    ours = options.board.resolve() == (ROOT / "leaderboard").resolve()
    if ours and not options.show and all(path.is_file() for path in entries):
        for page, made in pages(board).items():
            page.write_text(report.put_between(page.read_text("utf8"), "board", made), "utf8")


def pages(board: Path) -> dict[Path, str]:
    """Pages that show a table of the board, and the table."""
    return {ROOT / "README.md": ranking(board), ROOT / "docs" / "agents.md": seeds(board)}


def ranking(board: Path) -> str:
    """The ranking, and the tasks that all entries have played."""
    lines = [Line.of_entry(path.parent) for path in sorted(board.glob("*/entry.toml"))]
    built = report.build(lines, benchmark.load_references(benchmark.load(SUITE)))
    return f"{report.standings(built)}\n\n{report.side_by_side(built, COMMON)}"


def seeds(board: Path) -> str:
    """What the cards of trained entries say: ratios to the reference, mean and range over seeds."""
    rows = [
        f"| entry | {' | '.join(f'{task}, mean (range over seeds)' for task in COMMON)} |",
        "| --- |" + " --- |" * len(COMMON),
    ]
    for name, spec in SPECS.items():
        if spec.preset:
            cards = [json.loads((board / name / f"{name}-{n}.json").read_text()) for n in SEEDS]
            ratios = [[card["dev"][task]["ratio"] for card in cards] for task in COMMON]
            cells = [f"{np.mean(r):.3f} ({min(r):.3f} to {max(r):.3f})" for r in ratios]
            rows.append(f"| {spec.title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def carry_out(command: Command, show: bool) -> None:
    if command.makes.exists():
        return
    print("$ python", f"scripts/{shlex.join(command.arguments)}", flush=True)
    if show:
        return
    for target, source in command.before.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes() if isinstance(source, Path) else source.encode())
    script, *rest = command.arguments
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / script), *rest])
    if done.returncode != 0:
        raise SystemExit(done.returncode)


def commands(name: str, spec: Spec, options: Options) -> list[Command]:
    """Everything that it takes to make an entry."""
    found, folder = [], options.runs / name
    entry = options.board / SUITE / name
    pack = ["leaderboard.py", "pack"]
    details = ["--name", spec.title, "--authors", AUTHORS, "--division", spec.division]
    details += ["--description", spec.description]
    if spec.preset:
        preset, suffixes = Preset.load(spec.preset), (".safetensors", ".json")
        weights = {seed: f"{name}-{seed}.safetensors" for seed in SEEDS}
        for seed in SEEDS:
            trained = options.runs / "train" / f"{spec.preset}-{seed}" / f"{preset.network}.json"
            train = ("train.py", spec.preset, "--seed", str(seed), "--output")
            train += (str(options.runs / "train"), "--workers", str(options.workers))
            found.append(Command(train, trained))
            copies: dict[Path, Path | str] = {
                (folder / weights[seed]).with_suffix(end): trained.with_suffix(end)
                for end in suffixes
            }
            copies[folder / "policy.py"] = POLICY
            results = folder / f"results-{seed}"
            played = [f"{folder}/policy.py:make", "--option", f"weights={weights[seed]}"]
            played += ["--task", *preset.tasks]
            found.append(evaluation(played, results, spec, options.workers, copies))
            pack.append(str(results))
        attached = [
            str((folder / w).with_suffix(end)) for w in weights.values() for end in suffixes
        ]
        details += ["--training-rounds", str(preset.training_rounds)]
        details += ["--training", f"python scripts/train.py {spec.preset} --seed 0"]
        details += ["--attach", *attached]
    else:
        found.append(evaluation([name], folder, spec, options.workers, {}))
        pack.append(str(folder))
    found.append(Command((*pack, "--entry", str(entry), *details), entry / "entry.toml"))
    stored = Verification.load(entry) if (entry / "entry.toml").is_file() else None
    done = stored is not None and stored.status == "verified"
    verified = entry / "entry.toml" if done else Path("-")
    found.append(Command(("leaderboard.py", "verify", str(entry)), verified))
    return found


def evaluation(
    policy: list[str],
    results: Path,
    spec: Spec,
    workers: int,
    before: dict[Path, Path | str],
) -> Command:
    """The command that plays a policy."""
    arguments = ["leaderboard.py", "evaluate", *policy, "--output", str(results)]
    arguments += ["--decision-time-ms", f"{spec.decision_time_ms:g}", "--workers", str(workers)]
    return Command(tuple(arguments), results / "episodes.csv", before)


if __name__ == "__main__":
    main()
