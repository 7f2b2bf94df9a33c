"""The leaderboard as one HTML file: it needs no network and nothing beside it."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
from gymnasium.error import DependencyNotInstalled

from multispin_env.benchmark import charts, report, statistics
from multispin_env.benchmark.charts import Series
from multispin_env.benchmark.entry import (
    MAX_DECISION_MS,
    MAX_TRAINING_ROUNDS,
    TRAINING_SEEDS,
)
from multispin_env.benchmark.margins import cumulative_regret
from multispin_env.benchmark.references import Reference
from multispin_env.benchmark.report import Line, Report, Standing, TaskRow
from multispin_env.benchmark.results import Plan
from multispin_env.benchmark.statistics import Estimate, TaskRuns
from multispin_env.benchmark.suite import Suite, Task
from multispin_env.solvers import reference_goodput

RULES: Final = {
    "analytical": "no training",
    "learned-closed": f"at most {MAX_TRAINING_ROUNDS:,} training rounds, {TRAINING_SEEDS} training "
    f"seeds, at most {MAX_DECISION_MS:g} ms a decision on one core",
    "open": "anything else, said in the description",
}
STATUSES: Final = {
    "verified": "the actions were replayed, and the policy was rerun from its files",
    "replayed": "the actions were replayed, and give these numbers; the policy was not rerun",
    "self-reported": "nobody has checked these numbers",
}
#: Points of a curve of regret.
POINTS: Final = 31


@dataclass(frozen=True)
class Policy:
    """What the page says of a policy."""

    number: int  #: on the page, from 0
    line: Line
    tasks: int  #: played
    standing: Standing | None  #: if it has a place on the whole suite
    rows: tuple[TaskRow, ...]  #: in the suite's order

    @property
    def series(self) -> Series:
        """How it looks in charts."""
        return Series(self.number)

    @property
    def declared_ms(self) -> float:
        """Declared time of a decision."""
        return self.line.results[0].plan.decision_time_ms

    @property
    def measured_ms(self) -> float | None:
        """Measured time of a decision, mean over tasks."""
        times = [row.decision_ms for row in self.rows if not np.isnan(row.decision_ms)]
        return float(np.mean(times)) if times else None

    @property
    def commands(self) -> list[str]:
        """What reproduces its results: an entry's verification, and each run's evaluation."""
        plans = [results.plan for results in self.line.results]
        if self.line.entry is None or self.line.folder is None:
            return [evaluate_command(plan, "runs/again") for plan in plans if plan.episodes is None]
        given = self.line.folder
        folder = Path("ENTRIES", given.name) if given.is_absolute() else given
        verify = shlex.join(["python", "scripts/leaderboard.py", "verify", folder.as_posix()])
        outputs = [f"runs/{folder.name}-{run}" for run in self.line.entry.runs]
        return [verify, *(evaluate_command(*pair, folder) for pair in zip(plans, outputs))]

    @property
    def sha256(self) -> str:
        """Of the entry's entry.toml, which has those of all its other files; empty if none."""
        folder = self.line.folder
        return (
            ""
            if folder is None
            else hashlib.sha256((folder / "entry.toml").read_bytes()).hexdigest()
        )


@dataclass(frozen=True)
class TaskPage:
    """What the page says of a task."""

    task: Task
    reference: Reference
    rows: tuple[tuple[Policy, TaskRow], ...]  #: the best first
    best: Policy | None  #: the strongest analytical policy here
    regret: str = ""  #: chart of the others' regret against it
    regrets: tuple[tuple[Policy, Estimate], ...] = ()  #: at the end [tokens]

    @property
    def price(self) -> float:
        """Of a second [tokens/s]."""
        return reference_goodput(self.task.scenario)


def evaluate_command(plan: Plan, output: str, folder: Path = Path()) -> str:
    """The command that carries out a plan; a policy's file is looked for in `folder`."""
    source, _, function = plan.policy.rpartition(":")
    local = source.endswith(".py")
    words = ["python", "scripts/leaderboard.py", "evaluate"]
    words.append(f"{(folder / source).as_posix()}:{function}" if local else plan.policy)
    words += ["--suite", plan.suite, "--track", plan.track, "--split", plan.split]
    words += ["--value", plan.value] if plan.value else []
    words += ["--decision-time-ms", repr(plan.decision_time_ms)]
    options = [f"{key}={_word(value)}" for key, value in plan.options.items()]
    words += ["--option", *options] if options else []
    words += ["--task", *plan.tasks] if plan.tasks else []
    return shlex.join([*words, "--output", output])


def _word(value: Any) -> str:
    """A value as the command line reads it: text as it is unless it is JSON of something else."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except json.JSONDecodeError:
            return value
    return json.dumps(value)


def write(
    folder: str | Path, lines: Sequence[Line], suite: Suite, references: Mapping[str, Reference]
) -> Report:
    """Rank policies and write leaderboard.html, leaderboard.md and leaderboard.csv.

    Args:
        folder: made if needed.
        lines, suite, references: see :func:`html`.
    """
    folder = Path(folder)
    tables = report.build(lines, references)
    text = html(tables, lines, suite, references)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "leaderboard.html").write_text(text, "utf8")
    (folder / "leaderboard.md").write_text(report.markdown(tables), "utf8")
    (folder / "leaderboard.csv").write_text(report.table_csv(tables), "utf8")
    return tables


def html(
    tables: Report, lines: Sequence[Line], suite: Suite, references: Mapping[str, Reference]
) -> str:
    """The page.

    Args:
        tables: of these lines; see :func:`multispin_env.benchmark.report.build`.
        lines: at least one; those that were rejected are left out.
        suite: which they played.
        references: of its tasks.

    Raises:
        DependencyNotInstalled: Jinja2 or matplotlib is missing.
    """
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise DependencyNotInstalled(
            'the page needs Jinja2: pip install "multispin-env[render]"'
        ) from error
    policies = _policies(tables, lines, suite)
    pages = [_task_page(suite.task(name), references[name], policies) for name in references]
    script, style = _file("leaderboard.js"), _file("leaderboard.css")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"number": _number, "times": _time}
    plan = lines[0].results[0].plan
    shown = {
        "suite": suite,
        "plan": plan,
        "episodes": _span(
            [
                len(r.column(row.task, "seed"))
                for p in policies
                for r in p.line.results
                for row in p.rows
            ]
        ),
        "policies": policies,
        "tasks": pages,
        "rules": RULES,
        "statuses": STATUSES,
        "axis": _axis(policies),
        "heat": _heat(policies, pages),
        "ratios": _ratios(policies, pages),
        "times": _times(policies),
        "script": Markup(script),
        "style": Markup(style),
        "script_sha256": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return environment.get_template("leaderboard.html").render(shown)


def _file(name: str) -> str:
    return (resources.files("multispin_env.benchmark") / "templates" / name).read_text("utf8")


def _policies(tables: Report, lines: Sequence[Line], suite: Suite) -> list[Policy]:
    """The ranked ones first, then those that cover most tasks."""
    standings = {standing.line.name: standing for standing in tables.standings}
    rows = {
        line.name: tuple(
            row
            for task in suite.names
            for row in tables.rows
            if row.task == task and row.name == line.name
        )
        for line in lines
        if line.status != "rejected"
    }
    place = {name: n for n, name in enumerate(standings)}
    order = sorted(rows, key=lambda name: (place.get(name, len(place)), -len(rows[name])))
    line_of = {line.name: line for line in lines}
    return [
        Policy(n, line_of[name], len(rows[name]), standings.get(name), rows[name])
        for n, name in enumerate(order)
    ]


def _task_page(task: Task, reference: Reference, policies: Sequence[Policy]) -> TaskPage:
    rows = [(p, row) for p in policies for row in p.rows if row.task == task.name]
    rows.sort(key=lambda pair: -pair[1].score.value)
    analytical = [policy for policy, _ in rows if policy.line.division == "analytical"]
    best = analytical[0] if analytical else None
    others = [policy for policy, _ in rows if policy is not best]
    if best is None or not others:
        return TaskPage(task, reference, tuple(rows), best)
    curves = [
        (p.series, *cumulative_regret(p.line.results, best.line.results, task, POINTS))
        for p in others
    ]
    chart = charts.regret(task.name, curves)
    ends = tuple((p, estimates[-1]) for p, (*_, estimates) in zip(others, curves))
    return TaskPage(task, reference, tuple(rows), best, chart, ends)


@dataclass(frozen=True)
class Chart:
    """A chart and the policies in it."""

    svg: str
    policies: tuple[Policy, ...]


def _ratios(policies: Sequence[Policy], tasks: Sequence[TaskPage]) -> Chart | None:
    """Goodputs of what is not analytical as ratios to the references'."""
    learned = tuple(policy for policy in policies if policy.line.division != "analytical")
    if not learned:
        return None
    found = [(p.series, [_ratio(p, t.task, t.reference) for t in tasks]) for p in learned]
    return Chart(charts.ratios([t.task.name for t in tasks], found), learned)


def _ratio(policy: Policy, task: Task, reference: Reference) -> Estimate | None:
    """Its goodput over the reference's: a score whose floor is nothing."""
    if not policy.line.covers(task.name):
        return None
    runs = policy.line.runs_on(task.name, reference)
    bare = TaskRuns(runs.goodput, np.zeros_like(runs.low), runs.reference)
    return statistics.mean_over_runs(bare.contributions)


def _times(policies: Sequence[Policy]) -> Chart | None:
    """Scores against times, of ranked policies whose time is known."""
    shown, found = [], []
    for policy in policies:
        time = policy.measured_ms or policy.declared_ms
        if policy.standing is not None and time > 0.0:
            standing, measured = policy.standing, policy.measured_ms is not None
            shown.append(policy)
            found.append((policy.series, standing.score, standing.interval, time, measured))
    return Chart(charts.score_against_time(found), tuple(shown)) if found else None


@dataclass(frozen=True)
class Heat:
    """Scores by task and policy with the colours of their cells."""

    rows: list[tuple[TaskPage, list[tuple[Policy, float | None, str, str]]]]
    high: float  #: end of the scale
    steps: list[str]  #: colours of the scale


def _heat(policies: Sequence[Policy], tasks: Sequence[TaskPage]) -> Heat:
    found = {(r.task, r.name): r.score.value for policy in policies for r in policy.rows}
    high = max(1.0, *found.values())
    shades = dict(zip(found, charts.colours(np.array([*found.values()]), high)))
    rows = []
    for page in tasks:
        keys = [(policy, (page.task.name, policy.line.name)) for policy in policies]
        cells = [(p, found.get(key), *shades.get(key, ("", ""))) for p, key in keys]
        rows.append((page, cells))
    return Heat(rows, high, [c for c, _ in charts.colours(np.linspace(0.0, high, 9), high)])


def _axis(policies: Sequence[Policy]) -> tuple[float, float]:
    """Ends of the axis of scores that intervals are drawn on."""
    ranked = [policy.standing for policy in policies if policy.standing is not None]
    low = min([0.0, *(s.interval[0] for s in ranked), *(s.score for s in ranked)])
    high = max([1.0, *(s.interval[1] for s in ranked), *(s.score for s in ranked)])
    margin = 0.03 * (high - low)
    return low - margin, high + margin


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def _number(value: float, digits: int) -> str:
    """With thousands set off, and a minus as it is printed."""
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _time(value: float) -> str:
    """Milliseconds with three significant digits."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"
