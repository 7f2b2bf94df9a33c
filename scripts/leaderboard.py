"""Evaluate, compare, pack, verify and rank policies on the benchmark's suites.

    python scripts/leaderboard.py suites
    python scripts/leaderboard.py evaluate my_policy.py:make --suite quick --output runs/mine
    python scripts/leaderboard.py pack runs/mine --entry entries/mine --name Mine --authors Me
    python scripts/leaderboard.py verify entries/mine
    python scripts/leaderboard.py build entries --suite quick

A policy is `FILE.py:FUNCTION` or `MODULE:FUNCTION`, called with `env=`; or the name of a baseline
(`deadline`), which is played on the tasks that it fits; or a portfolio of baselines for all tasks
(`strongest`, `papers`, `rivals`, `constant`); or a shipped agent (`distilled`). The rules are in
docs/benchmark.md.
"""

from __future__ import annotations

import importlib
import json
import traceback
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from tqdm import tqdm

import baselines
from command_line import one_line_errors
from multispin_env import benchmark, parallel
from multispin_env.benchmark import Plan, page, report
from multispin_env.benchmark.report import Line

Positional = tyro.conf.Positional


@dataclass
class Suites:
    """List the suites, their tasks and hashes."""

    def run(self) -> None:
        for name in benchmark.list_suites():
            suite = benchmark.load(name)
            print(f"{name}: {suite.description}; {suite.dev_episodes} dev episodes a task")
            print(f"  sha256 {suite.sha256}")
            for task in suite.tasks:
                episode = task.scenario.episode
                print(
                    f"  {task.name:<30} {task.control.id}, K = {task.scenario.num_devices}, "
                    f"{episode.horizon_s:g} s"
                )


@dataclass
class Evaluate:
    """Play policies on a suite; an interrupted evaluation goes on where it was."""

    policy: Annotated[tuple[str, ...], Positional]
    """FILE.py:FUNCTION, MODULE:FUNCTION, a baseline, a portfolio; `analytical` is all baselines."""
    output: Path
    """Folder for the results; of several policies, for a folder each."""
    suite: str = "core-2026"
    """A shipped suite, or a TOML file."""
    track: str = "full"
    """full, or feedback (without acceptance rates)."""
    split: str = "dev"
    """train, dev or test."""
    value: str = ""
    """Of the test split: what was published."""
    decision_time_ms: float = 0.0
    """Declared time of a decision, charged in `charged_goodput`."""
    option: tuple[str, ...] = ()
    """Options for the policy's function: KEY=VALUE, the value as JSON or a word."""
    task: tuple[str, ...] = ()
    """Only these tasks."""
    workers: int = 2
    """Processes of this machine; the numbers do not depend on it."""
    backend: parallel.Backend = "loky"
    """loky on this machine, ray on a cluster (docs/benchmark.md)."""

    def run(self) -> None:
        if not self.policy:
            raise ValueError("policy is empty: must name at least one")
        policies = self.policies()
        plans = {policy: self.plan(policy) for policy in policies}
        lines = []
        for policy, plan in plans.items():
            source, _, function = policy.rpartition(":")
            slug = f"{Path(source).stem}-{function}" if source else policy
            folder = self.output if len(policies) == 1 else self.output / slug
            evaluate(plan, folder, self.workers, self.backend)
            learned = ":" in policy or policy in shipped_agents()
            division = "open" if learned else "analytical"
            lines.append(Line.of_results(folder, policy, division))
        first = next(iter(plans.values()))
        if self.split == "dev" and self.suite in benchmark.list_suites():
            references = benchmark.load_references(first.load_suite(), self.track)
            print(report.markdown(report.build(lines, references)))
        else:
            for line in lines:
                (results,) = line.results
                for task in results.plan.chosen_tasks():
                    mean = results.column(task.name, "goodput").mean()
                    print(f"{line.name}, {task.name}: {mean:.1f} tokens/s")
        print(f"Results: {self.output}")

    def policies(self) -> list[str]:
        every = sorted({name for names in fitting(self.suite).values() for name in names})
        named = [every if policy == "analytical" else [policy] for policy in self.policy]
        return list(dict.fromkeys(policy for group in named for policy in group))

    def plan(self, policy: str) -> Plan:
        options = dict(map(parse_option, self.option))
        tasks = self.task
        if ":" not in policy:
            function, fits = named_policy(policy, self.suite)
            options, policy = {"name": policy, **options}, function
            tasks = self.task or fits
        return Plan(
            self.suite,
            policy,
            options,
            self.track,
            self.split,
            self.value,
            self.decision_time_ms,
            tuple(tasks),
        )


@lru_cache
def fitting(suite: str) -> dict[str, list[str]]:
    """Names of the baselines that fit each task of a suite."""
    return {task.name: baselines.names(task.make()) for task in benchmark.load(suite).tasks}


def named_policy(name: str, suite: str) -> tuple[str, tuple[str, ...]]:
    """The function that makes a policy of a name, and the tasks it fits; () for all."""
    if name in baselines.PORTFOLIOS:
        return "baselines:portfolio", ()
    fits = tuple(task for task, names in fitting(suite).items() if name in names)
    if fits:
        return "baselines:make", fits
    agents = shipped_agents()
    if name in agents:
        return "agents:load", ()
    known = sorted({n for names in fitting(suite).values() for n in names})
    raise ValueError(
        f"policy = {name!r}: must be FILE.py:FUNCTION, MODULE:FUNCTION, a portfolio "
        f"({', '.join(baselines.PORTFOLIOS)}), a baseline ({', '.join(known)}) or a shipped agent "
        f"({', '.join(agents)})"
    )


def shipped_agents() -> list[str]:
    """Names of the trained agents; none without torch."""
    try:
        agents = importlib.import_module("agents")
    except ImportError:
        return []
    return list(agents.list_agents())


def parse_option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key.isidentifier() or not equals:
        raise ValueError(f"option = {text!r}: must be KEY=VALUE")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def evaluate(plan: Plan, folder: Path, workers: int, backend: str) -> None:
    """Run a plan with a progress bar."""
    with tqdm(unit="block", desc=plan.options.get("name", plan.policy)) as bar:
        for done, total in benchmark.run(plan, folder, workers, backend):
            bar.total = total
            bar.update(done - bar.n)


@dataclass
class Compare:
    """Two policies on the tasks that both have played, paired episode by episode."""

    first: Annotated[Path, Positional]
    """A folder of results, or an entry."""
    second: Annotated[Path, Positional]
    """Another one."""

    def run(self) -> None:
        first, second = (load_line(folder) for folder in (self.first, self.second))
        print(f"{first.name} - {second.name} [tokens/s], 95 % interval; p by Holm over the tasks")
        for task, estimate, p in report.compare(first, second):
            print(f"{task:<32}{estimate.value:>9.2f} ± {estimate.half_width:<8.2f} p = {p:.3g}")


def load_line(folder: Path) -> Line:
    if (folder / "entry.toml").is_file():
        return Line.of_entry(folder)
    return Line.of_results(folder, folder.name)


@dataclass
class Pack:
    """Make an entry of finished results, one folder for each training seed."""

    results: Annotated[tuple[Path, ...], Positional]
    """Folders of results."""
    entry: Path
    """Folder of the entry, to be made."""
    name: str
    """Of the policy, as it will stand in the table."""
    authors: tuple[str, ...]
    """Who made it."""
    division: str = "open"
    """analytical, learned-closed or open."""
    training_rounds: int = 0
    """Rounds that each run was trained for."""
    description: str = ""
    """What the policy does and knows."""
    training: str = ""
    """The command that trains it."""
    attach: tuple[Path, ...] = ()
    """Further files that the policy's file needs, such as weights."""

    def run(self) -> None:
        entry = benchmark.pack(
            {f"run-{i}": folder for i, folder in enumerate(self.results)},
            self.entry,
            name=self.name,
            authors=self.authors,
            division=self.division,
            training_rounds=self.training_rounds,
            description=self.description,
            training=self.training,
            attach=self.attach,
        )
        print(f"{self.entry}: {entry.name}, {len(entry.files)} files")


@dataclass
class Verify:
    """Replay an entry's actions, and rerun its policy in a fresh process."""

    entry: Annotated[Path, Positional]
    """Folder of the entry."""
    replay_only: bool = False
    """Do not run the entry's code."""
    trust_pickles: bool = False
    """Accept files that run code when they are loaded."""

    def run(self) -> None:
        outcome = benchmark.verify(
            self.entry,
            None if self.replay_only else partial(baselines.portfolio, "strongest"),
            trust_pickles=self.trust_pickles,
            progress=lambda step: print(step, flush=True),
        )
        print(f"{self.entry}: {outcome.status}" + (outcome.reason and f": {outcome.reason}"))
        if outcome.decision_ms is not None:
            print(f"a decision took {outcome.decision_ms:.3f} ms here")
        if outcome.status == "rejected":
            raise SystemExit(1)


@dataclass
class Build:
    """Rank the entries of a folder: leaderboard.html, leaderboard.md and leaderboard.csv."""

    entries: Annotated[Path, Positional]
    """Folder with a folder for each entry."""
    suite: str = "core-2026"
    """Entries of other suites are left out."""
    track: str = "full"
    """Entries of the other track are left out."""
    references: Path | None = None
    """A file of scripts/references.py for the test split; else the stored ones of dev."""
    value: str = ""
    """Of the test split."""
    output: Path | None = None
    """Folder for the tables and the page; the entries' folder if left out."""

    def run(self) -> None:
        suite = benchmark.load(self.suite)
        references = benchmark.load_references(suite, self.track, self.references, self.value)
        lines: list[Line] = []
        left_out = []
        for path in sorted(self.entries.glob("*/entry.toml")):
            problem = self.add(path.parent, suite, references, lines)
            if problem:
                left_out.append(f"{path.parent.name} is left out: {problem}")
        print("\n".join(left_out))
        if not lines:
            raise ValueError(f"entries = {self.entries}: holds none of {self.suite}, {self.track}")
        output = self.output or self.entries
        tables = page.write(output, lines, suite, references)
        print(report.markdown(tables))
        print(f"Tables: {output}/leaderboard.md, leaderboard.csv")
        print(f"Page: {output}/leaderboard.html")

    def add(
        self,
        folder: Path,
        suite: benchmark.Suite,
        references: dict[str, benchmark.Reference],
        lines: list[Line],
    ) -> str:
        """Add an entry to the lines, or say why not."""
        try:
            entry = benchmark.Entry.load(folder)
            if (entry.suite_sha256, entry.track) != (suite.sha256, self.track):
                return f"is of suite {entry.suite}, track {entry.track}"
            if entry.value != self.value:
                return f"is of split {entry.split}, value {entry.value!r}"
            line = Line.of_entry(folder)
            if line.status == "rejected":
                return f"was rejected: {benchmark.Verification.load(folder).reason}"
            if line.name in [other.name for other in lines]:
                return f"another entry is called {line.name}"
            for task in entry.chosen_tasks():
                line.runs_on(task.name, references[task.name])
        except (ValueError, OSError, KeyError) as error:
            return str(error)
        lines.append(line)
        return ""


def main() -> None:
    command = tyro.extras.subcommand_cli_from_dict(
        {
            "suites": Suites,
            "evaluate": Evaluate,
            "compare": Compare,
            "pack": Pack,
            "verify": Verify,
            "build": Build,
        },
        description=__doc__,
    )
    with one_line_errors(goes_on=True):
        try:
            command.run()
        except parallel.WorkerDiedError as error:
            raise SystemExit(f"error: {error}; the same command goes on") from error
        except benchmark.PolicyError as error:
            if error.__cause__ is not None:  # the policy's own, with file and line
                traceback.print_exception(error.__cause__, chain=False)
            raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
