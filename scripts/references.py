"""Write the floor and the reference of every task of a suite, per episode.

    python scripts/references.py core-2026 --output core-2026.references.json
    python scripts/references.py core-2026 --value SECRET --output test.json   # the test split
    python scripts/references.py core-2026 --check --task draft-qwen2.5-20dbm-r4

Both are chosen on training episodes: the floor is the best constant decision (one draft length for
all; in ModeSelection one mode for all), the reference is the strongest analytical policy with the
same information: ours, unless another one is significantly better. Then both play the episodes of
the split. The files of the shipped suites were written by this script, and their hashes are pinned
beside the suites. `--check` has the stored policies play these episodes again with the Python and
the libraries at hand: their goodputs must be the stored ones, to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from tqdm import tqdm

import baselines
from command_line import check_folder_of, one_line_errors
from multispin_env import benchmark, parallel
from multispin_env.benchmark import TRACKS, Suite, Task, statistics
from multispin_env.benchmark.references import Reference
from multispin_env.world.control import MODE_SELECTION

FLOOR_EPISODES, REFERENCE_EPISODES = 32, 16
STRONGEST = ("deadline", "exact", "optimal_modes")


@dataclass
class Options:
    """Write the references of a suite, or check the stored ones."""

    suite: Annotated[str, tyro.conf.Positional]
    """A shipped suite, or a TOML file."""
    output: Path | None = None
    """The JSON file to write."""
    check: bool = False
    """Write nothing: compare with the stored references of a shipped suite."""
    task: list[str] = field(default_factory=list)
    """Tasks to check; all if empty."""
    value: str = ""
    """Of the test split; the dev split if empty."""
    workers: int = 2
    """Processes of this machine."""
    backend: parallel.Backend = "loky"
    """loky on this machine, ray on a cluster (docs/benchmark.md)."""


def named(name: str, **options: Any) -> Callable[[Any], Any]:
    return lambda env: baselines.make(name, env, **options)


def floors(task: Task) -> dict[str, Callable[[Any], Any]]:
    """Constant decisions by their description."""
    if task.control == MODE_SELECTION:
        return {name: named(name) for name in ("all_uplink", "all_downlink")}
    lengths = range(task.scenario.max_draft_length + 1)
    return {f"fixed, draft_length={n}": named("fixed", draft_length=n) for n in lengths}


def candidates(task: Task) -> dict[str, Callable[[Any], Any]]:
    """Analytical policies by name, the one that is the strongest round by round first.

    Without `thorough`, which came after the references of the suites.
    """
    names = set(baselines.names(task.make())) - {"fixed", "random", "all_uplink", "all_downlink"}
    names = {name for name in names if not name.startswith("thorough")}
    ordered = sorted(names, key=lambda name: (name not in STRONGEST, name))
    return {name: named(name) for name in ordered}


def mean_goodputs(
    policies: dict[str, Callable[[Any], Any]], task: Task, track: str, episodes: int
) -> dict[str, Any]:
    """Goodputs of the same training episodes by policy."""
    return {
        name: benchmark.evaluate(
            factory, task, episodes, track=track, split="train", expected=False
        ).goodputs
        for name, factory in policies.items()
    }


def floor(task: Task, track: str) -> tuple[str, Callable[[Any], Any]]:
    """The best constant decision."""
    policies = floors(task)
    found = mean_goodputs(policies, task, track, FLOOR_EPISODES)
    name = max(found, key=lambda key: found[key].mean())
    return name, policies[name]


def strongest(task: Task, track: str) -> tuple[str, Callable[[Any], Any]]:
    """The first candidate, unless another one is significantly better."""
    policies = candidates(task)
    found = mean_goodputs(policies, task, track, REFERENCE_EPISODES)
    leader, *others = found
    for name in others:
        if statistics.paired_difference(found[name], found[leader]).interval[0] > 0.0:
            leader = name
    return leader, policies[leader]


def references(task: Task, track: str, value: str) -> dict[str, Any]:
    """Floor and reference of one task and track."""
    split = "test" if value else "dev"
    result = {}
    for kind, choose in (("low", floor), ("reference", strongest)):
        name, factory = choose(task, track)
        played = benchmark.evaluate(
            factory, task, track=track, split=split, value=value, expected=False
        )
        result[kind] = {"policy": name, "goodput": played.goodputs.tolist()}
    return result


def differences(task: Task, track: str, stored: Reference) -> list[str]:
    """What differs from the stored reference of a task and track where its policies play again."""
    policies = floors(task) | candidates(task)
    found = []
    for name, goodputs in (
        (stored.low_policy, stored.low),
        (stored.reference_policy, stored.reference),
    ):
        played = benchmark.evaluate(policies[name], task, track=track, expected=False).goodputs
        if differing := np.count_nonzero(played != goodputs):
            worst = np.max(np.abs(played - goodputs))
            found.append(f"{name}: {differing} of {goodputs.size} episodes, by up to {worst:.3g}")
    return found


def check(suite: Suite, options: Options) -> None:
    """Compare the stored references of some tasks with what is played here.

    Raises:
        ValueError: no such task, a test split, or a suite without stored references.
    """
    tasks = [suite.task(name) for name in options.task] or list(suite.tasks)
    jobs = [
        (task, track, benchmark.load_references(suite, track, value=options.value)[task.name])
        for task in tasks
        for track in TRACKS
    ]
    wrong = 0
    for number, found in parallel.spread(differences, jobs, options.workers, options.backend):
        task, track, _ = jobs[number]
        wrong += bool(found)
        print(f"{task.name}, {track}: {'; '.join(found) or 'equal'}", flush=True)
    if wrong:
        raise SystemExit(f"{wrong} of {len(jobs)} stored references differ")
    print(f"all {len(jobs)} stored references are equal to the last bit")


def write(suite: Suite, output: Path, options: Options) -> None:
    jobs = [(task, track, options.value) for task in suite.tasks for track in TRACKS]
    found = parallel.spread(references, jobs, options.workers, options.backend)
    tasks: dict[str, dict[str, Any]] = {task.name: dict.fromkeys(TRACKS) for task in suite.tasks}
    for number, result in tqdm(found, total=len(jobs), unit="task"):
        task, track, _ = jobs[number]
        tasks[task.name][track] = result
        means = {kind: np.mean(result[kind]["goodput"]) for kind in result}
        tqdm.write(
            f"{task.name}, {track}: {result['low']['policy']} {means['low']:.1f}, "
            f"{result['reference']['policy']} {means['reference']:.1f} tokens/s"
        )
    content = {
        "suite": suite.name,
        "suite_sha256": suite.sha256,
        "value": options.value,
        "tasks": tasks,
    }
    output.write_text(json.dumps(content, indent=1) + "\n", "utf8")


def main() -> None:
    options = tyro.cli(Options)
    if (options.output is None) != options.check:
        raise SystemExit("either --output FILE or --check is needed")
    if options.task and not options.check:
        raise SystemExit(f"--task = {options.task}: only with --check; a file has all tasks")
    check_folder_of(options.output)
    with one_line_errors():
        suite = benchmark.load(options.suite)
        if options.output is None:
            check(suite, options)
        else:
            write(suite, options.output, options)


if __name__ == "__main__":
    main()
