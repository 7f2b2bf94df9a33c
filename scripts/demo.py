"""Play every analytical policy and the shipped agent on the suite `quick`; write the leaderboard.

    python scripts/demo.py                 # 32 episodes a task, a minute or two on two cores
    python scripts/demo.py --episodes 8    # faster, wider intervals

All policies of a task play the same episodes (same devices, fading and acceptances: common random
numbers). Intervals are 95 % over episodes. A score of 0 is the best constant decision, 1 the
strongest analytical policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from tqdm import tqdm

import agents
import baselines
import multispin_env
from multispin_env import benchmark
from multispin_env.benchmark import Evaluation, Plan, Reference, Results, Task, page, statistics
from multispin_env.benchmark.report import Line
from multispin_env.parallel import spread


@dataclass
class Options:
    """Compare the policies."""

    episodes: int = 32
    """Episodes of each task."""
    output: Path = Path("outputs")
    """Folder for the picture and the page."""
    workers: int = 2
    """Processes."""


def played(task: Task, name: str, episodes: int) -> Evaluation:
    torch.set_num_threads(1)
    make = agents.load if name in agents.list_agents() else baselines.make
    return benchmark.evaluate(lambda env: make(name, env), task, episodes)


def table(task: Task, found: dict[str, Evaluation], reference: Reference, episodes: int) -> str:
    """One task's policies, the best first."""
    low, high = reference.low[:episodes], reference.reference[:episodes]
    lines = [
        f"\n{task.name}: {task.control.id}, {task.scenario.num_devices} devices, "
        f"{task.scenario.episode.horizon_s:g} s",
        f"{'policy':<20}{'score':>16}{'goodput [tokens/s]':>22}{'a decision [ms]':>18}",
    ]
    for name, evaluation in sorted(found.items(), key=lambda item: -item[1].goodput):
        score = statistics.score(evaluation.goodputs, low, high).estimate
        mean = statistics.mean_interval(evaluation.goodputs)
        decision_ms = 1e3 * sum(e.decision_s for e in evaluation.episodes) / episodes
        lines.append(
            f"{name:<20}{score.value:>8.3f} ± {score.half_width:.3f}"
            f"{mean.value:>14.1f} ± {mean.half_width:5.1f}{decision_ms:>18.2f}"
        )
    return "\n".join(lines)


def picture(results: dict[str, dict[str, Evaluation]], path: Path) -> None:
    """Goodput of every policy with its interval, a panel a task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 6), layout="constrained")
    for axis, (task, found) in zip(axes.flat, results.items()):
        names = sorted(found, key=lambda name: found[name].goodput)
        for y, name in enumerate(names):
            mean = statistics.mean_interval(found[name].goodputs)
            axis.errorbar(mean.value, y, xerr=mean.half_width, fmt="o", color="#0072B2", capsize=3)
        axis.set(yticks=range(len(names)), yticklabels=names, title=task, xlim=(0, None))
        axis.grid(axis="x", alpha=0.3)
    for axis in axes[-1]:
        axis.set(xlabel="goodput [tokens/s], 95 % interval over episodes")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def line(name: str, found: list[Evaluation], episodes: int) -> Line:
    """A policy with what it has played, for the leaderboard."""
    learned = name in agents.list_agents()
    function = "agents:load" if learned else "baselines:make"
    tasks = tuple(evaluation.task for evaluation in found)
    every = episodes == benchmark.load("quick").dev_episodes
    plan = Plan(
        "quick", function, {"name": name}, tasks=tasks, episodes=None if every else episodes
    )
    results = Results.of_evaluations(plan, found)
    return Line(name, "open" if learned else "analytical", "self-reported", [results])


def main() -> None:
    options = tyro.cli(Options)
    suite = benchmark.load("quick")
    if not 2 <= options.episodes <= suite.dev_episodes:
        raise SystemExit(f"--episodes = {options.episodes}: must be in [2, {suite.dev_episodes}]")
    print(f"Multi-SPIN Gym {multispin_env.__version__}: suite quick, {options.episodes} episodes")
    jobs = [
        (task, name, options.episodes)
        for task in suite.tasks
        for name in [*baselines.names(task.make()), "distilled"]
    ]
    found = dict(tqdm(spread(played, jobs, options.workers), total=len(jobs), unit="policy"))
    results: dict[str, dict[str, Evaluation]] = {task.name: {} for task in suite.tasks}
    for number, (task, name, _) in enumerate(jobs):
        results[task.name][name] = found[number]
    references = benchmark.load_references(suite)
    for task in suite.tasks:
        print(table(task, results[task.name], references[task.name], options.episodes))
    path = options.output / "demo.png"
    picture(results, path)
    lines = [
        line(name, [found[name] for found in results.values() if name in found], options.episodes)
        for name in dict.fromkeys(name for _, name, _ in jobs)
    ]
    page.write(options.output, lines, suite, references)
    print(f"\nThe picture is in {path}; `scripts/leaderboard.py` plays policies of your own")
    print(f"Page: {options.output / 'leaderboard.html'}")


if __name__ == "__main__":
    main()
