"""Tables: policies ranked on one suite, and task by task."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from multispin_env.benchmark import statistics
from multispin_env.benchmark.entry import Entry, load_run
from multispin_env.benchmark.references import Reference
from multispin_env.benchmark.results import Results
from multispin_env.benchmark.statistics import Estimate, TaskRuns
from multispin_env.benchmark.verification import Verification


@dataclass(frozen=True)
class Line:
    """A policy that is to be in a table."""

    name: str
    division: str
    status: str  #: verified, replayed, rejected or self-reported
    results: Sequence[Results]  #: of each run (training seed)
    decision_ms: float | None = None  #: as measured by the verifier
    entry: Entry | None = None  #: unless these are results that are no entry yet
    folder: Path | None = None  #: of the entry

    @classmethod
    def of_entry(cls, folder: str | Path) -> Line:
        """An entry; its status is what the verifier left, if it has not changed since.

        Raises:
            ValueError: its results are not those of its tasks.
        """
        entry = Entry.load(folder)
        found = Verification.load(folder)
        results = [load_run(folder, entry, run) for run in entry.runs]
        status = "self-reported" if found is None else found.status
        for result in results if status != "rejected" else []:
            result.check_complete()
        return cls(
            entry.name,
            entry.division,
            status,
            results,
            None if found is None else found.decision_ms,
            entry,
            Path(folder),
        )

    @classmethod
    def of_results(cls, folder: str | Path, name: str, division: str = "analytical") -> Line:
        """Results that are no entry yet."""
        return cls(name, division, "self-reported", [Results.load(folder)])

    def covers(self, task: str) -> bool:
        """Whether all runs have played a task."""
        return all(any(row["task"] == task for row in r.rows) for r in self.results)

    def runs_on(self, task: str, reference: Reference) -> TaskRuns:
        """Goodputs on a task beside the floor and the reference.

        Raises:
            ValueError: the references are of other episodes.
        """
        for results in self.results:
            seeds = tuple(int(seed) for seed in results.column(task, "seed"))
            if seeds != reference.seeds[: len(seeds)] or len(seeds) < 2:
                raise ValueError(f"{self.name}: the references are of other episodes of {task}")
        episodes = len(seeds)
        goodput = np.stack([r.column(task, "goodput") for r in self.results])
        return TaskRuns(goodput, reference.low[:episodes], reference.reference[:episodes])


@dataclass(frozen=True)
class TaskRow:
    """A policy on one task, means over runs and episodes; goodputs in tokens/s."""

    task: str
    name: str
    division: str
    status: str
    score: Estimate
    goodput: Estimate
    charged: float  #: with the declared decision time in simulated time
    expected: float  #: per round, in expectation over acceptances
    decision_ms: float  #: as measured; nan where it was not


@dataclass(frozen=True)
class Standing:
    """A policy's place on the whole suite."""

    rank: int
    line: Line
    score: float  #: interquartile mean over tasks and runs
    interval: tuple[float, float]
    improvement: float  #: probability that it is better than the reference on an episode


@dataclass(frozen=True)
class Report:
    """All that the tables show."""

    standings: list[Standing]  #: of the policies that cover all tasks, the best first
    rows: list[TaskRow]  #: task by task, the best first


def build(lines: Sequence[Line], references: Mapping[str, Reference]) -> Report:
    """Rank policies of one suite and track.

    Args:
        lines: at least one; those that were rejected are left out.
        references: see :func:`multispin_env.benchmark.load_references`.

    Raises:
        ValueError: two policies have the same name.
    """
    lines = [line for line in lines if line.status != "rejected"]
    names = [line.name for line in lines]
    if len(set(names)) < len(names):
        raise ValueError(f"names = {names}: must differ")
    rows = []
    for task, reference in references.items():
        here = [_task_row(line, task, reference) for line in lines if line.covers(task)]
        rows.extend(sorted(here, key=lambda row: -row.score.value))
    complete = [line for line in lines if all(map(line.covers, references))]
    return Report(_standings(complete, references), rows)


def _task_row(line: Line, task: str, reference: Reference) -> TaskRow:
    runs = line.runs_on(task, reference)
    measured = [r.decision_ms[task] for r in line.results if task in r.decision_ms]
    measured += [] if line.decision_ms is None else [line.decision_ms]
    return TaskRow(
        task,
        line.name,
        line.division,
        line.status,
        statistics.mean_over_runs(runs.contributions),
        statistics.mean_over_runs(runs.goodput),
        float(np.mean([r.column(task, "charged_goodput") for r in line.results])),
        float(np.mean([r.column(task, "expected_goodput") for r in line.results])),
        float(np.mean(measured)) if measured else float("nan"),
    )


def _standings(lines: Sequence[Line], references: Mapping[str, Reference]) -> list[Standing]:
    if not lines:
        return []
    runs = {
        line.name: [line.runs_on(task, reference) for task, reference in references.items()]
        for line in lines
    }
    resampled = statistics.bootstrap_scores(runs)
    rank = statistics.ranks(resampled)
    strongest = [
        TaskRuns(task.reference[None], task.low, task.reference) for task in runs[lines[0].name]
    ]
    standings = [
        Standing(
            rank[line.name],
            line,
            statistics.interquartile_mean(
                np.concatenate([[s.estimate.value for s in t.scores] for t in runs[line.name]])
            ),
            statistics.percentile_interval(resampled[line.name]),
            statistics.probability_of_improvement(runs[line.name], strongest),
        )
        for line in lines
    ]
    return sorted(standings, key=lambda s: (s.rank, -s.score))


def standings(report: Report) -> str:
    """The ranking as a Markdown table."""
    lines = [
        "| rank | policy | division | status | score [95 %] | better than the reference |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {s.rank} | {s.line.name} | {s.line.division} | {s.line.status} | {s.score:.3f} "
        f"[{s.interval[0]:.3f}, {s.interval[1]:.3f}] | {100 * s.improvement:.0f} % |"
        for s in report.standings
    ]
    return "\n".join(lines)


def side_by_side(report: Report, tasks: Sequence[str]) -> str:
    """Policies that have played all of some tasks, as a Markdown table: tokens/s and score."""
    names = dict.fromkeys(row.name for row in report.rows if row.task == tasks[0])
    found = {(row.task, row.name): row for row in report.rows}
    lines = [
        f"| policy | division | {' | '.join(f'{task}, tokens/s (score)' for task in tasks)} |",
        "| --- | --- |" + " --- |" * len(tasks),
    ]
    for name in names:
        rows = [found[task, name] for task in tasks if (task, name) in found]
        if len(rows) == len(tasks):
            cells = [
                f"{row.goodput.value:.1f} ± {row.goodput.half_width:.1f} ({row.score.value:.3f})"
                for row in rows
            ]
            lines.append(f"| {name} | {rows[0].division} | {' | '.join(cells)} |")
    return "\n".join(lines)


def put_between(text: str, name: str, made: str) -> str:
    """A page's text with something else between `<!-- name -->` and `<!-- end name -->`."""
    start, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    head, rest = text.split(start)
    return f"{head}{start}\n\n{made}\n\n{end}{rest.split(end)[1]}"


def markdown(report: Report) -> str:
    """All tables as Markdown."""
    parts = [standings(report)] if report.standings else []
    for task in dict.fromkeys(row.task for row in report.rows):
        lines = [
            f"**{task}**\n",
            "| policy | score | tokens/s | charged | expected a round | ms a decision |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {row.name} | {row.score.value:.3f} ± {row.score.half_width:.3f} "
            f"| {row.goodput.value:.1f} ± {row.goodput.half_width:.1f} | {row.charged:.1f} "
            f"| {row.expected:.1f} | {_number(row.decision_ms)} |"
            for row in report.rows
            if row.task == task
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


CSV_COLUMNS: Final = (
    *("task", "policy", "division", "status", "score", "score_half_width"),
    *("goodput", "goodput_half_width", "charged_goodput", "expected_goodput", "decision_ms"),
)


def table_csv(report: Report) -> str:
    """The rows task by task as CSV; goodputs in tokens/s, half-widths of 95 % intervals."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in report.rows:
        numbers = (
            row.score.value,
            row.score.half_width,
            row.goodput.value,
            row.goodput.half_width,
            row.charged,
            row.expected,
            row.decision_ms,
        )
        told = (row.task, row.name, row.division, row.status)
        writer.writerow([*told, *(f"{number:.6g}" for number in numbers)])
    return text.getvalue()


def compare(first: Line, second: Line) -> list[tuple[str, Estimate, float]]:
    """Goodput of the first less that of the second on every common task [tokens/s].

    Paired episode by episode, means over runs.

    Returns:
        Task, difference with its interval, and Holm's adjusted p-value over the tasks.

    Raises:
        ValueError: they have no task in common, or played different episodes.
    """
    plans = [line.results[0].plan for line in (first, second)]
    for key in ("suite", "track", "split", "value"):
        if getattr(plans[0], key) != getattr(plans[1], key):
            raise ValueError(
                f"{first.name} and {second.name} differ in {key}: {getattr(plans[0], key)!r} and "
                f"{getattr(plans[1], key)!r}"
            )
    tasks = list(dict.fromkeys(row["task"] for row in first.results[0].rows))
    tasks = [task for task in tasks if first.covers(task) and second.covers(task)]
    if not tasks:
        raise ValueError(f"{first.name} and {second.name} have no task in common")
    found = []
    for task in tasks:
        seeds = {tuple(r.column(task, "seed")) for r in (*first.results, *second.results)}
        if len(seeds) > 1:
            raise ValueError(f"{first.name} and {second.name} played other episodes of {task}")
        a, b = (
            np.stack([r.column(task, "goodput") for r in line.results]) for line in (first, second)
        )
        found.append((task, statistics.mean_over_runs(a, b)))
    adjusted = statistics.holm([estimate.p_value for _, estimate in found])
    return [(task, estimate, float(p)) for (task, estimate), p in zip(found, adjusted)]
