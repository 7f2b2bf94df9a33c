"""Figures from tables, all in one style: Okabe and Ito's colours, a marker and a line a series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

import matplotlib
import numpy as np

from experiments.tables import Row, one, pick, values

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "multispin",
    "svg.fonttype": "none",
}
#: Okabe and Ito's palette without yellow, which is pale on white: colour, marker and line.
LOOKS: Final = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#000000", "D", ":"),
    ("#CC79A7", "v", (0, (5, 1, 1, 1, 1, 1))),
    ("#56B4E9", "P", (0, (1, 1))),
)
WIDTH = 7.2  # inches: a page
TITLES: Final = {
    "llama2": "TinyLlama-1.1B and Llama-2-7B",
    "qwen3.5": "Qwen3.5-0.8B and 27B",
    "qwen2.5": "Qwen2.5-0.5B and 14B",
    "deepseek-r1": "DeepSeek-R1-Distill-Qwen-1.5B and 32B",
}
GOODPUT: Final = "goodput [tokens/s]"


def grid(rows: int, columns: int, height: float = 2.7, **kwargs: Any) -> tuple[Figure, Any]:
    """Panels over the width of a page, [rows, columns]."""
    plt.rcParams.update(STYLE)
    size = (WIDTH, height * rows)
    return plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, **kwargs)


def curve(axis: Axes, rows: Sequence[Row], x: str, look: int, label: str, **kwargs: Any) -> None:
    """A series with its 95 % intervals; exact numbers have none."""
    colour, marker, line = LOOKS[look]
    style = {"color": colour, "marker": marker, "linestyle": line} | kwargs
    if not any(row["half_width"] for row in rows):
        axis.plot([row[x] for row in rows], [row["value"] for row in rows], label=label, **style)
        return
    axis.errorbar(
        [row[x] for row in rows],
        [row["value"] for row in rows],
        yerr=[row["half_width"] for row in rows],
        label=label,
        capsize=2.5,
        elinewidth=0.9,
        **style,
    )


def curves(
    axis: Axes, rows: Iterable[Row], x: str, by: str, labels: dict[str, str], **keys: Any
) -> None:
    """A series for each value of a key, in the order of the labels."""
    chosen = pick(rows, **keys)
    for look, (value, label) in enumerate(labels.items()):
        curve(axis, pick(chosen, **{by: value}), x, look, label)


def legend_below(figure: Figure, axis: Axes, columns: int) -> None:
    """One legend for all panels, under them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


# ---- paper A -------------------------------------------------------------------------------------

READING_TITLES: Final = {"presets": "presets", "K = 20 literal": "K = 20 read literally"}


def paper_a_fig3(rows: list[Row]) -> Figure:
    """A panel for each reading and pair."""
    figure, axes = grid(2, 2)
    for line, reading in zip(axes, values(rows, "reading")):
        for axis, pair in zip(line, values(rows, "pair")):
            found = pick(rows, reading=reading, pair=pair)
            theory = pick(found, quantity="theory [tokens/s]")
            simulated = pick(found, quantity="simulated [tokens/s]")
            curve(axis, theory, "draft_length", 0, "theory", marker="")
            curve(
                axis,
                simulated,
                "draft_length",
                1,
                "simulated (95 % for all points at once)",
                linestyle="",
                markersize=2,
            )
            length = one(found, quantity="closed form, integer [tokens]")["value"]
            best = one(found, quantity="goodput at the closed form [tokens/s]")["value"]
            axis.plot(
                length, best, "*", color="black", markersize=11, zorder=5, label="closed form"
            )
            axis.set(
                title=f"{TITLES[pair]}, {READING_TITLES[reading]}",
                xlabel="common draft length [tokens]",
                ylabel=GOODPUT,
                xticks=range(0, 25, 3),
            )
    legend_below(figure, axes[0, 0], 3)
    return figure


def paper_a_fig4(rows: list[Row]) -> Figure:
    """A panel for each parameter."""
    names = {
        "verification [ms]": "verification $T_{ver}$ [ms]",
        "token latency [ms]": r"token latency $\vartheta$ [ms]",
        "acceptance rate": r"acceptance rate $\alpha$",
    }
    figure, axes = grid(1, 3, height=3.0)
    for axis, (varied, label) in zip(axes[0], names.items()):
        for look, reading in enumerate(values(rows, "reading")):
            colour, _, line = LOOKS[look]
            found = pick(rows, varied=varied, reading=reading)
            real = pick(found, quantity="closed form [tokens]")
            best = pick(found, quantity="best integer [tokens]")
            x = [row[varied] for row in real]
            axis.plot(
                x,
                [row["value"] for row in real],
                color=colour,
                linestyle=line,
                label=f"closed form, {READING_TITLES[reading]}",
            )
            axis.step(
                x,
                [row["value"] for row in best],
                where="mid",
                color=colour,
                linestyle=line,
                alpha=0.45,
                label=f"best integer, {READING_TITLES[reading]}",
            )
        axis.set(xlabel=label, ylabel="optimal length [tokens]", ylim=(0, None))
    legend_below(figure, axes[0, 0], 2)
    return figure


def paper_a_fig5(rows: list[Row]) -> Figure:
    """Both pairs in one panel."""
    figure, axes = grid(1, 1, height=2.9)
    for look, pair in enumerate(values(rows, "pair")):
        curve(axes[0, 0], pick(rows, pair=pair), "devices", look, TITLES[pair])
    axes[0, 0].set(
        xlabel="batch size K [drafts]", ylabel="batched verification [ms]", ylim=(0, None)
    )
    axes[0, 0].legend(frameon=False)
    return figure


def paper_a_fig6(rows: list[Row]) -> Figure:
    """Bars, a group for each reading."""
    shown = ("P2P-SPIN", "Cen-SPIN", "Multi-SPIN")
    groups = list(dict.fromkeys((row["reading"], row["devices"]) for row in rows))
    figure, axes = grid(1, 2, height=3.1)
    for axis, pair in zip(axes[0], values(rows, "pair")):
        for look, name in enumerate(shown):
            found = [
                one(
                    rows,
                    pair=pair,
                    reading=reading,
                    devices=devices,
                    deployment=name,
                    shortest=1,
                    quantity=GOODPUT,
                )
                for reading, devices in groups
            ]
            axis.bar(
                np.arange(len(groups)) + 0.27 * (look - 1),
                [row["value"] for row in found],
                0.25,
                yerr=[row["half_width"] for row in found],
                color=LOOKS[look][0],
                hatch=("", "//", "..")[look],
                edgecolor="white",
                error_kw={"capsize": 2.5, "elinewidth": 0.9},
                label=name,
            )
        axis.set(
            title=TITLES[pair],
            ylabel=GOODPUT,
            xticks=range(len(groups)),
            xticklabels=[f"{reading},\nK = {devices:g}" for reading, devices in _short(groups)],
        )
        axis.grid(axis="x", visible=False)
    legend_below(figure, axes[0, 0], 3)
    return figure


def _short(groups: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return [("literal" if "literal" in name else name, devices) for name, devices in groups]


def _four_schemes(rows: list[Row], x: str, label: str) -> Figure:
    """A panel for each reading and pair: four schemes, and Uni-BW with lengths from 0."""
    figure, axes = grid(2, 2)
    labels = {"Hete": "Hete", "Homo": "Homo", "Uni-BW": "Uni-BW", "Fixed": "Fixed (8 tokens, B/K)"}
    for line, reading in zip(axes, values(rows, "reading")):
        for axis, pair in zip(line, values(rows, "pair")):
            found = pick(rows, pair=pair, reading=reading, quantity=GOODPUT)
            curves(axis, found, x, "scheme", labels, shortest=1)
            from_0 = pick(found, scheme="Uni-BW", shortest=0)
            curve(axis, from_0, x, 4, "Uni-BW, lengths from 0", markerfacecolor="white")
            axis.set(
                title=f"{TITLES[pair]}, {READING_TITLES[reading]}", xlabel=label, ylabel=GOODPUT
            )
    legend_below(figure, axes[0, 0], 5)
    return figure


def paper_a_fig7(rows: list[Row]) -> Figure:
    """Goodput against the band."""
    return _four_schemes(rows, "band [MHz]", "bandwidth B [MHz]")


def paper_a_fig8(rows: list[Row]) -> Figure:
    """Goodput against the number of devices."""
    return _four_schemes(rows, "devices", "devices K")


def table1(rows: list[Row]) -> Figure:
    """Acceptance rates of both pairs: the preset's, and as played."""
    figure, axes = grid(1, 2, height=2.6, sharex=True)
    for axis, pair in zip(axes[0], values(rows, "pair")):
        found = pick(rows, pair=pair)
        tasks = values(found, "task")
        preset = [one(found, task=task, quantity="preset")["value"] for task in tasks]
        simulated = [one(found, task=task, quantity="simulated") for task in tasks]
        at = np.arange(len(tasks))
        axis.plot(
            preset, at, "o", color=LOOKS[0][0], fillstyle="none", markersize=9, label="preset"
        )
        axis.errorbar(
            [row["value"] for row in simulated],
            at,
            xerr=[row["half_width"] for row in simulated],
            color=LOOKS[1][0],
            marker=LOOKS[1][1],
            linestyle="",
            markersize=2.5,
            capsize=4,
            label="simulated, 95 % for all tasks at once",
        )
        axis.set(
            title=TITLES[pair],
            xlabel="acceptance rate",
            xlim=(0.6, 1.0),
            ylim=(-0.5, len(tasks) - 0.5),
            yticks=at,
            yticklabels=tasks,
        )
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
    legend_below(figure, axes[0, 0], 2)
    return figure


# ---- paper B -------------------------------------------------------------------------------------


def _by_power_and_solver(axis: Axes, rows: list[Row], quantity: str) -> None:
    look = 0
    for uplink in values(rows, "uplink [dBm]"):
        for solver in ("greedy", "deadline"):
            found = pick(rows, quantity=quantity, solver=solver, **{"uplink [dBm]": uplink})
            label = f"{solver}, uplink {uplink:g} dBm"
            curve(axis, found, "downlink [dBm]", look, label)
            look += 1


def paper_b_power(rows: list[Row]) -> Figure:
    """Goodput above, mean draft length below."""
    figure, axes = grid(2, 2)
    quantities = {GOODPUT: GOODPUT, "mean draft length [tokens]": "mean draft length [tokens]"}
    for line, (quantity, label) in zip(axes, quantities.items()):
        for axis, pair in zip(line, values(rows, "pair")):
            _by_power_and_solver(axis, pick(rows, pair=pair), quantity)
            axis.set(title=TITLES[pair], xlabel="downlink power budget [dBm]", ylabel=label)
    legend_below(figure, axes[0, 0], 2)
    return figure


def paper_b_split(rows: list[Row]) -> Figure:
    """Corrections a round on either link, a row of panels for each uplink power."""
    figure, axes = grid(2, 2)
    for line, uplink in zip(axes, values(rows, "uplink [dBm]")):
        for axis, pair in zip(line, values(rows, "pair")):
            look = 0
            for solver in ("greedy", "deadline"):
                for link in ("uplink", "downlink"):
                    keys = {"pair": pair, "uplink [dBm]": uplink, "solver": solver}
                    found = pick(rows, quantity=link, **keys)
                    curve(axis, found, "downlink [dBm]", look, f"{link}, {solver} lengths")
                    look += 1
            axis.set(
                title=f"{TITLES[pair]},\nuplink {uplink:g} dBm",
                xlabel="downlink power budget [dBm]",
                ylabel="corrections a round",
            )
    legend_below(figure, axes[0, 0], 2)
    return figure


RULE_LABELS: Final = {
    "optimal": "optimal",
    "uplink": "all uplink",
    "downlink": "all downlink",
    "random": "random",
}


def paper_b_modes(rows: list[Row]) -> Figure:
    """Greedy lengths, a panel for each pair and ratio."""
    figure, axes = grid(2, 2)
    for line, pair in zip(axes, values(rows, "pair")):
        for axis, ratio in zip(line, values(rows, "ratio")):
            found = pick(rows, pair=pair, ratio=ratio, solver="greedy", quantity=GOODPUT)
            curves(axis, found, "devices", "rule", RULE_LABELS)
            axis.set(title=f"{TITLES[pair]},\nratio {ratio:g}", xlabel="devices K", ylabel=GOODPUT)
    legend_below(figure, axes[0, 0], 4)
    return figure


SOLVER_LABELS: Final = {
    "deadline": "deadline (ours)",
    "greedy": "greedy (paper)",
    "uniform": "optimal uniform",
    "computation_only": "computation-only",
}


def paper_b_lengths(rows: list[Row]) -> Figure:
    """A panel for each pair and uplink power."""
    figure, axes = grid(2, 2)
    for line, uplink in zip(axes, values(rows, "uplink [dBm]")):
        for axis, pair in zip(line, values(rows, "pair")):
            found = pick(rows, pair=pair, quantity=GOODPUT, **{"uplink [dBm]": uplink})
            curves(axis, found, "ratio", "solver", SOLVER_LABELS)
            axis.set_xscale("log", base=2)
            ratios = values(found, "ratio")
            axis.set(
                title=f"{TITLES[pair]},\nuplink {uplink:g} dBm",
                xlabel="downlink power / uplink power",
                ylabel=GOODPUT,
                xticks=ratios,
                xticklabels=[f"{ratio:g}" for ratio in ratios],
            )
    legend_below(figure, axes[0, 0], 4)
    return figure


# ---- ours ----------------------------------------------------------------------------------------


def regret(rows: list[Row]) -> Figure:
    """Loss by the uplink of the worst device, a panel for each ratio."""
    figure, axes = grid(1, 2, height=2.9, sharey=True)
    for axis, ratio in zip(axes[0], values(rows, "ratio")):
        for look, pair in enumerate(values(rows, "pair")):
            found = [
                row
                for row in pick(rows, ratio=ratio, pair=pair, quantity="loss of greedy [%]")
                if "worst uplink [dB]" in row
            ]
            curve(axis, found, "worst uplink [dB]", look, TITLES[pair])
        axis.set(
            title=f"ratio {ratio:g}",
            xlabel="uplink SNR of the worst device [dB]",
            ylabel="loss of greedy [%]",
        )
    legend_below(figure, axes[0, 0], 2)
    return figure


def learned(rows: list[Row]) -> Figure:
    """Ratio to deadline over K and over power, a row of panels for each pair."""
    figure, axes = grid(2, 2, sharey=True)
    labels = {"distilled": "distilled (learned)", "greedy": "greedy (paper)"}
    for line, pair in zip(axes, values(rows, "pair")):
        found = pick(rows, pair=pair, quantity="ratio to deadline")
        panels: tuple[tuple[str, str, Row], ...] = (
            ("devices", "devices K (20 dBm)", {"uplink [dBm]": 20.0}),
            ("uplink [dBm]", "uplink power [dBm] (K = 20)", {"devices": 20}),
        )
        for axis, (x, label, keys) in zip(line, panels):
            chosen = sorted(pick(found, **keys), key=itemgetter(x))
            curves(axis, chosen, x, "policy", labels)
            axis.axhline(1, color="grey", linewidth=0.8, label="deadline (analytical)")
            axis.set(title=TITLES[pair], xlabel=label, ylabel="goodput / deadline's")
    legend_below(figure, axes[0, 0], 3)
    return figure


def sensitivity(rows: list[Row]) -> Figure:
    """The price on the left, the horizon on the right."""
    figure, axes = grid(1, 2, height=3.2)
    price, horizon = axes[0]
    powers = values(rows, "uplink [dBm]")
    for look, power in enumerate(powers):
        found = pick(rows, quantity="ratio to no price", **{"uplink [dBm]": power})
        curve(price, found, "price / reference", look, f"{power:g} dBm")
    price.set_xscale("log", base=2)
    ticks = (0.25, 0.5, 1, 2, 4)
    price.set(
        xlabel="price / reference goodput",
        ylabel="goodput / that of the ratio's maximiser",
        xticks=ticks,
        xticklabels=[f"{tick:g}" for tick in ticks],
    )
    price.legend(frameon=False)
    for power in powers:
        for look, policy in enumerate(("deadline", "greedy", "4 tokens")):
            keys = {"uplink [dBm]": power, "policy": policy}
            found = pick(rows, quantity=GOODPUT, **keys)
            filled = {} if power == powers[-1] else {"markerfacecolor": "white"}
            label = f"{policy}, {power:g} dBm"
            curve(horizon, found, "horizon [s]", look, label, **filled)
    horizon.set_xscale("log")
    ticks = tuple(values(rows, "horizon [s]"))
    horizon.set(xlabel="horizon H [s]", ylabel=GOODPUT, xticks=ticks, ylim=(0, None))
    horizon.set_xticks([], minor=True)
    horizon.set_xticklabels([f"{tick:g}" for tick in ticks])
    horizon.legend(frameon=False, ncols=2, loc="lower left", fontsize=7)
    return figure
