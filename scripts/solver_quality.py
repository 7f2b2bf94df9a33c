"""How far every solver is from the optimum, and how long it takes, on random rounds.

    python scripts/solver_quality.py                 # tables, CSV and picture under outputs/
    python scripts/solver_quality.py --quick         # a smoke run
    python scripts/solver_quality.py --output docs   # refreshes docs/optimality.md; minutes

Corrections: losses against the certified optimum of the same sample average (branch and bound on
128 quasi-random outcomes), in rounds of the scenarios and in hard ones, whose devices are very
unequal, and in small rounds against the true optimum (every decision, exactly).
Uploads: against the upper bound that comes with `exact`.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from tqdm import tqdm

from multispin_env import Scenario, solvers
from multispin_env.benchmark.report import put_between
from multispin_env.solvers import CorrectionProblem, UploadProblem
from multispin_env.solvers.problems import draw

SAMPLES = 128
CORRECTION: dict[str, Callable[[Any], Any]] = {
    "deadline": solvers.deadline,
    "greedy": lambda p: solvers.greedy(p, samples=SAMPLES),
    "uniform": lambda p: solvers.uniform(p, samples=SAMPLES),
    "computation_only": lambda p: solvers.computation_only(p, samples=SAMPLES),
}
SMALL: dict[str, Callable[[Any], Any]] = {
    "deadline, 128 outcomes": solvers.deadline,
    "deadline, 1,024 outcomes": lambda p: solvers.deadline(p, samples=1024),
    "greedy, 1,000 outcomes": solvers.greedy,
    "greedy, exact expectation": lambda p: solvers.greedy(p, exact=True),
    "uniform, exact expectation": lambda p: solvers.uniform(p, exact=True),
}
UPLOAD: dict[str, Callable[[Any], Any]] = {
    "exact": solvers.exact,
    "heterogeneous": solvers.heterogeneous,
    "heterogeneous, linear grid": lambda u: solvers.heterogeneous(u, spacing="linear"),
    "uniform_bandwidth": solvers.uniform_bandwidth,
    "homogeneous": solvers.homogeneous,
    "fixed, 8 tokens": solvers.fixed,
}
TABLES = ("correction", "hard", "small", "upload")
RULES = ("optimal", "uplink", "downlink", "random")
COLUMNS = ("table", "setting", "solver", "rounds", "mean_loss_%", "worst_loss_%", "ms")
Row = dict[str, Any]


@dataclass
class Options:
    """Loss and time of every solver."""

    quick: bool = False
    """A smoke run with two rounds a setting."""
    output: Path = Path("outputs")
    """Folder for optimality.csv and optimality.png; tables go into its optimality.md, if there."""


@dataclass(frozen=True)
class Setting:
    """Random rounds, and what their solvers are measured by."""

    table: str
    name: str
    draw: Callable[[np.random.Generator], CorrectionProblem | UploadProblem]
    rounds: int
    solvers: dict[str, Callable[[Any], Any]]
    optimum: Callable[[Any], float]
    value: Callable[[Any, Any], float]


def settings(quick: bool) -> Iterator[Setting]:
    """All of them: 12 of corrections, 8 of hard and 4 of small corrections, 6 of uploads."""
    for table in ("correction", "small"):
        sizes = (5, 20) if quick else (5, 20, 60)
        for num_devices in sizes if table == "correction" else (4,):
            for power_dbm in (10, 20):
                for ratio in (4, 16):
                    overrides = {
                        "num_devices": num_devices,
                        "radio.uplink_power_dbm": power_dbm,
                        "radio.downlink_power_ratio": ratio,
                    }
                    if table == "small":
                        overrides["max_draft_length"] = 8
                    yield Setting(
                        table,
                        f"K = {num_devices}, {power_dbm} dBm, ratio {ratio}",
                        from_scenario("qwen2.5", overrides),
                        2 if quick else (8 if num_devices == 60 else 48),
                        CORRECTION if table == "correction" else SMALL,
                        certified if table == "correction" else true_optimum,
                        sampled if table == "correction" else expected,
                    )
    for fewest, most in ((2, 8), (9, 12)):
        for rule in RULES:
            yield Setting(
                "hard",
                f"K = {fewest} to {most}, {rule}",
                partial(hard_round, fewest=fewest, most=most),
                2 if quick else 48,
                {
                    "thorough": partial(solvers.thorough, rule=rule),
                    "deadline": partial(solvers.deadline, rule=rule),
                    "greedy": partial(solvers.greedy, rule=rule, samples=SAMPLES),
                },
                partial(certified, rule=rule),
                sampled,
            )
    for scenario in ("llama2", "qwen3.5"):
        for megahertz in (5, 10, 20):
            yield Setting(
                "upload",
                f"{scenario}, K = 20, {megahertz} MHz",
                from_scenario(scenario, {"radio.bandwidth_hz": megahertz * 1e6}),
                2 if quick else 48,
                UPLOAD,
                lambda u: solvers.exact(u).upper_bound,
                lambda u, decision: decision.goodput,
            )


def from_scenario(
    name: str, overrides: dict[str, Any]
) -> Callable[[np.random.Generator], CorrectionProblem | UploadProblem]:
    """Fresh devices and fading; in uploads at least one token, as in paper A."""
    return partial(draw, Scenario.load(name, overrides), min_draft_length=1)


def hard_round(generator: np.random.Generator, fewest: int, most: int) -> CorrectionProblem:
    """Rates near 0 and 1, speeds and channels that differ by powers of ten, dead links."""
    k = int(generator.integers(fewest, most + 1))
    extreme, dead = generator.random(k) < 0.4, generator.random(k) < generator.choice([0, 0.25])
    unequal = 10.0 ** generator.uniform(-3.0, -0.5, k)
    alike = generator.uniform(0.016, 0.025, k)
    gain = 10.0 ** generator.uniform(-14.5, -11.0, k) * generator.exponential(size=k)
    return CorrectionProblem(
        acceptance_rate=np.where(
            extreme, generator.choice([0.01, 0.999], k), generator.uniform(0.3, 0.99, k)
        ),
        token_latency_s=unequal if generator.random() < 0.6 else alike,
        channel_gain=np.where(dead, generator.choice([0.0, 1e-30], k), gain),
        uplink_power_w=generator.choice([0.01, 0.1]),
        downlink_power_w=generator.choice([0.04, 0.4, 1.6]),
        payload_bits=34816,
        bandwidth_hz=1e7,
        noise_server_w_hz=1.26e-20,
        noise_device_w_hz=2e-20,
        verification_s=generator.choice([0.02, 0.07, 0.3]),
        max_draft_length=int(generator.integers(1, 41)),
    )


def certified(problem: CorrectionProblem, rule: str = "optimal") -> float:
    return solvers.branch_and_bound(problem, rule, samples=SAMPLES).goodput


def true_optimum(problem: CorrectionProblem) -> float:
    return solvers.exhaustive(problem).goodput


def sampled(problem: CorrectionProblem, decision: Any) -> float:
    """Every solver of these tables averages over the same outcomes."""
    return decision.goodput


def expected(problem: CorrectionProblem, decision: Any) -> float:
    return problem.goodput(decision.draft_length, exact=True)


def rounds_of(setting: Setting) -> Iterator[CorrectionProblem | UploadProblem]:
    """The same in every run."""
    generator = np.random.default_rng(20260604)
    for _ in range(setting.rounds):
        yield setting.draw(generator)


def measure(setting: Setting) -> tuple[list[Row], dict[str, list[float]]]:
    """A row for each solver, and the losses of all rounds [%]."""
    losses: dict[str, list[float]] = {name: [] for name in setting.solvers}
    seconds = dict.fromkeys(setting.solvers, 0.0)
    first = next(rounds_of(setting))
    for solve in setting.solvers.values():
        solve(first)  # compiled, and the outcomes drawn
    for problem in rounds_of(setting):
        optimum = setting.optimum(problem)
        for name, solve in setting.solvers.items():
            start = time.perf_counter()
            decision = solve(problem)
            seconds[name] += time.perf_counter() - start
            losses[name].append(100.0 * (1.0 - setting.value(problem, decision) / optimum))
    rows = [
        dict(
            zip(
                COLUMNS,
                (
                    setting.table,
                    setting.name,
                    name,
                    setting.rounds,
                    f"{np.mean(losses[name]) + 5e-10:.3f}",  # no -0.000
                    f"{np.max(losses[name]):.2f}",
                    f"{1e3 * seconds[name] / setting.rounds:.2f}",
                ),
            )
        )
        for name in setting.solvers
    ]
    return rows, losses


def markdown(rows: list[Row], table: str) -> str:
    """One table: a row a setting, a column a solver: mean (worst) loss; then the mean times."""
    rows = [row for row in rows if row["table"] == table]
    names = list(dict.fromkeys(row["solver"] for row in rows))
    lines = [
        "| loss [%], mean (worst) | rounds | " + " | ".join(names) + " |",
        "| --- | --- |" + " --- |" * len(names),
    ]
    for setting in dict.fromkeys(row["setting"] for row in rows):
        cells = {row["solver"]: row for row in rows if row["setting"] == setting}
        values = [f"{cells[n]['mean_loss_%']} ({cells[n]['worst_loss_%']})" for n in names]
        lines.append(f"| {setting} | {cells[names[0]]['rounds']} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def times(rows: list[Row]) -> str:
    """Milliseconds a decision of every solver at K = 20, a range over the settings."""
    lines = ["| solver, K = 20 | ms a decision |", "| --- | --- |"]
    at_20 = [row for row in rows if "K = 20" in row["setting"]]
    for name in dict.fromkeys(row["solver"] for row in at_20):
        values = [float(row["ms"]) for row in at_20 if row["solver"] == name]
        lines.append(f"| {name} | {min(values):.2f} to {max(values):.2f} |")
    return "\n".join(lines)


def picture(losses: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Losses of all rounds with 20 devices: a dot a round, a bar for the mean."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels = {
        "Corrections: loss against the certified optimum": {
            "10 dBm": ("K = 20, 10 dBm", "#D55E00"),
            "20 dBm": ("K = 20, 20 dBm", "#0072B2"),
        },
        "Uploads: loss against the upper bound": {
            "llama2": ("llama2", "#009E73"),
            "qwen3.5": ("qwen3.5", "#CC79A7"),
        },
    }
    generator = np.random.default_rng(0)
    figure, axes = plt.subplots(2, 1, figsize=(8, 6.5), layout="constrained")
    for axis, (title, groups) in zip(axes, panels.items()):
        solver_names: list[str] = []
        for offset, (label, (prefix, colour)) in zip((-0.18, 0.18), groups.items()):
            chosen = [found for name, found in losses.items() if name.startswith(prefix)]
            solver_names = list(chosen[0])
            for y, name in enumerate(solver_names):
                values = np.concatenate([found[name] for found in chosen])
                shown = np.maximum(values, 1e-3)
                height = y + offset + generator.uniform(-0.1, 0.1, len(shown))
                axis.plot(shown, height, ".", color=colour, alpha=0.3, markersize=4)
                axis.plot(
                    max(values.mean(), 1e-3),
                    y + offset,
                    "|",
                    color="black",
                    markersize=16,
                    markeredgewidth=2,
                )
            axis.plot([], [], ".", color=colour, label=label)
        axis.plot([], [], "|", color="black", markersize=10, markeredgewidth=2, label="mean")
        axis.set(
            xscale="log",
            xlabel="loss [%]; below 0.001 drawn there",
            title=title,
            yticks=range(len(solver_names)),
            yticklabels=solver_names,
        )
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.3)
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, dpi=130)


def refresh(page: Path, rows: list[Row]) -> None:
    """Put the tables between the page's markers."""
    text = page.read_text()
    tables = {name: markdown(rows, name) for name in TABLES}
    for name, table in (tables | {"times": times(rows)}).items():
        text = put_between(text, name, table)
    page.write_text(text)


def main() -> None:
    options = tyro.cli(Options)
    options.output.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    losses = {}
    for setting in tqdm(list(settings(options.quick)), unit="setting"):
        found, losses[setting.name] = measure(setting)
        rows.extend(found)
    for name in TABLES:
        print(f"\n{markdown(rows, name)}")
    print(f"\n{times(rows)}")
    with (options.output / "optimality.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    picture(losses, options.output / "optimality.png")
    page = options.output / "optimality.md"
    if page.exists():
        refresh(page, rows)
    print(f"\nCSV and picture: {options.output}/optimality.csv, optimality.png")


if __name__ == "__main__":
    main()
