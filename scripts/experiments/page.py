"""The generated parts of docs/reproduction.md: what the papers report, beside our tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.tables import Row, one, pick, read, values
from multispin_env.benchmark.report import put_between

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "reproduction.md"
FOLDER: Final = DOCS / "figures"

GOODPUT: Final = "goodput [tokens/s]"
LABELS: Final = {
    "llama2": "Llama-2",
    "qwen3.5": "Qwen3.5",
    "qwen2.5": "Qwen2.5",
    "deepseek-r1": "DeepSeek-R1",
}
#: Table I of paper A: mean and standard deviation over prompts.
REPORTED_RATES: Final = {
    "llama2": {
        "MBPP+": "0.8582 ± 0.2472",
        "GSM8K": "0.7390 ± 0.3133",
        "MT-Bench": "0.7393 ± 0.3127",
        "SQuAD": "0.7126 ± 0.3333",
    },
    "qwen3.5": {
        "MBPP+": "0.8100 ± 0.3413",
        "GSM8K": "0.9340 ± 0.2089",
        "MT-Bench": "0.9318 ± 0.2232",
        "SQuAD": "0.9650 ± 0.1538",
    },
}
#: Fig. 5's fits: T_fix and T_lin [ms].
REPORTED_FITS: Final = {"llama2": (22.68, 12.72), "qwen3.5": (75.07, 19.78)}


def refresh(reports: Mapping[str, Callable[[list[Row]], str]], page: Path = PAGE) -> None:
    """Put every figure's report between its markers, from the stored tables."""
    text = page.read_text("utf8")
    for name, report in reports.items():
        text = put_between(text, name, report(read(FOLDER / f"{name}.csv")))
    page.write_text(text, "utf8")


def shown(row: Row, digits: int = 1) -> str:
    """A number and its half-width; 0 never has a sign."""
    value = f"{row['value'] + 0.0:.{digits}f}"
    value = value.lstrip("-") if float(value) == 0 else value
    return f"{value} ± {row['half_width']:.{digits}f}" if row["half_width"] else value


def markdown(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    """A table."""
    header = list(header)
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def samples(rows: Iterable[Row], what: str) -> str:
    """How many samples are behind every estimate of a table."""
    counts = sorted({int(row["samples"]) for row in rows if row["samples"]})
    return f"{' or '.join(f'{count:,}' for count in counts)} {what}."


# ---- paper A -------------------------------------------------------------------------------------


def paper_a_table1(rows: list[Row]) -> str:
    """A line a pair and task."""
    lines = [
        (
            LABELS[pair],
            task,
            REPORTED_RATES[pair][task],
            shown(one(rows, pair=pair, task=task, quantity="preset"), 4),
            shown(one(rows, pair=pair, task=task, quantity="simulated"), 4),
        )
        for pair in values(rows, "pair")
        for task in values(pick(rows, pair=pair), "task")
    ]
    header = ("pair", "task", "reported, ± std over prompts", "preset", "simulated, ± 95 %")
    return f"{markdown(header, lines)}\n\n{samples(rows, 'rounds of 20 devices a task')}"


def paper_a_fig3(rows: list[Row]) -> str:
    """A line a reading and pair."""
    reported = {"llama2": "axis 70 to 140", "qwen3.5": "axis 80 to 200"}
    lines = []
    for reading in values(rows, "reading"):
        for pair in values(rows, "pair"):
            found = pick(rows, reading=reading, pair=pair)
            length = one(found, quantity="closed form, integer [tokens]")["value"]
            theory = pick(found, quantity="theory [tokens/s]")
            simulated = pick(found, quantity="simulated [tokens/s]")
            best = max(theory, key=lambda row: row["value"])
            inside = sum(
                abs(s["value"] - t["value"]) <= s["half_width"] + 1e-5 * t["value"]
                for s, t in zip(simulated, theory)
            )
            lines.append(
                (
                    LABELS[pair],
                    reading,
                    reported[pair],
                    shown(one(found, quantity="theta [ms]")),
                    f"{shown(one(found, quantity='closed form [tokens]'), 2)}: {length:g}",
                    f"{best['draft_length']:g}",
                    shown(one(found, quantity="goodput at the closed form [tokens/s]")),
                    shown(one(simulated, draft_length=length)),
                    f"{inside} of {len(theory)}",
                )
            )
    header = (
        "pair",
        "reading",
        "reported",
        "ϑ [ms]",
        "closed form: best integer",
        "best of 0 to 24",
        "theory there [tokens/s]",
        "simulated there",
        "points that agree",
    )
    return f"{markdown(header, lines)}\n\n{samples(rows, 'rounds a point')}"


def paper_a_fig4(rows: list[Row]) -> str:
    """A line a parameter and reading: the best integer at both ends."""
    reported = {
        "verification [ms]": "rises",
        "token latency [ms]": "falls",
        "acceptance rate": "rises; axis 4 to 14",
    }
    lines = []
    for varied, shape in reported.items():
        for reading in values(pick(rows, varied=varied), "reading"):
            found = pick(rows, varied=varied, reading=reading)
            best = pick(found, quantity="best integer [tokens]")
            real = pick(found, quantity="closed form [tokens]")
            apart = max(abs(b["value"] - r["value"]) for b, r in zip(best, real))
            lines.append(
                (
                    varied,
                    reading,
                    shape,
                    f"{best[0][varied]:g} to {best[-1][varied]:g}",
                    f"{best[0]['value']:g} to {best[-1]['value']:g}",
                    f"{real[0]['value']:.2f} to {real[-1]['value']:.2f}",
                    f"{apart:.2f}",
                )
            )
    header = (
        "varied",
        "others as in",
        "reported",
        "range",
        "best integer [tokens]",
        "closed form [tokens]",
        "largest distance",
    )
    return markdown(header, lines)


def paper_a_fig5(rows: list[Row]) -> str:
    """The line through what the environment charges."""
    lines = []
    for pair in values(rows, "pair"):
        found = pick(rows, pair=pair)
        slope, fixed = np.polyfit(
            [row["devices"] for row in found], [row["value"] for row in found], 1
        )
        reported = REPORTED_FITS[pair]
        lines.append(
            (
                LABELS[pair],
                f"{reported[0]:.2f} + {reported[1]:.2f} K",
                f"{fixed:.2f} + {slope:.2f} K",
            )
        )
    return markdown(("pair", "reported fit [ms]", "charged by the environment [ms]"), lines)


def paper_a_fig6(rows: list[Row]) -> str:
    """A line a pair and setting, the paper's first."""
    reported = {
        "llama2": ("about 31.5*", "about 58*", "about 145", "4.6", "2.5"),
        "qwen3.5": ("", "about 51*", "about 153", "", "roughly 3"),
    }
    lines: list[Any] = []
    for pair in values(rows, "pair"):
        lines.append((LABELS[pair], "reported", *reported[pair], "", ""))
        settings = dict.fromkeys((r["reading"], r["devices"]) for r in pick(rows, pair=pair))
        for reading, devices in settings:
            found = pick(rows, pair=pair, reading=reading, devices=devices, shortest=1)

            def cell(
                deployment: str, quantity: str, digits: int = 1, found: list[Row] = found
            ) -> str:
                return shown(one(found, deployment=deployment, quantity=quantity), digits)

            over = "Multi-SPIN over it"
            lines.append(
                (
                    LABELS[pair],
                    f"{reading}, K = {devices:g}" if "K" not in reading else reading,
                    cell("P2P-SPIN", GOODPUT),
                    cell("Cen-SPIN", GOODPUT),
                    cell("Multi-SPIN", GOODPUT),
                    cell("P2P-SPIN", over, 2),
                    cell("Cen-SPIN", over, 2),
                    cell("Cen-SPIN, serial", GOODPUT),
                    cell("Cen-SPIN, batched", GOODPUT),
                )
            )
    header = (
        "pair",
        "setting",
        "P2P",
        "Cen",
        "Multi",
        "Multi / P2P",
        "Multi / Cen",
        "Cen, serial drafting",
        "Cen, batched drafting",
    )
    from_0 = [
        shown(
            one(
                rows,
                pair=pair,
                reading="presets",
                devices=20,
                deployment="Multi-SPIN",
                shortest=0,
                quantity=GOODPUT,
            )
        )
        for pair in ("llama2", "qwen3.5")
    ]
    return (
        f"{markdown(header, lines)}\n\n*: the reported Multi-SPIN over the reported ratio. "
        f"Goodputs in tokens/s, lengths from 1; from 0, Multi-SPIN has {from_0[0]} and {from_0[1]} "
        f"under the presets at K = 20. {samples(rows, 'rounds a bar')}"
    )


def _scheme_columns(rows: list[Row], **keys: Any) -> list[str]:
    """One number under the presets from 1 and from 0, and read literally from 1 and from 0."""
    return [
        shown(one(rows, reading=reading, shortest=shortest, **keys))
        for reading in values(rows, "reading")
        for shortest in (1, 0)
    ]


_COLUMNS: Final = ("presets", "presets, from 0", "literal", "literal, from 0")


def paper_a_fig7(rows: list[Row]) -> str:
    """Gains at the ends of the band."""
    bands = values(rows, "band [MHz]")
    lines: list[Any] = []
    for pair in values(rows, "pair"):
        for band in (bands[0], bands[-1]):
            keys = {"pair": pair, "band [MHz]": band}
            over_fixed = {"quantity": "gain over Fixed [%]", "scheme": "Hete"}
            over_homo = {"quantity": "gain over Homo [%]", "scheme": "Uni-BW"}
            gain = "about 88" if band == bands[0] else "smaller"
            name = f"{LABELS[pair]}, {band:g} MHz"
            lines.append(
                (name, "Hete over Fixed", gain, *_scheme_columns(rows, **keys, **over_fixed))
            )
            lines.append(
                (name, "Uni-BW over Homo", "above 0", *_scheme_columns(rows, **keys, **over_homo))
            )
            goodput = _scheme_columns(rows, scheme="Hete", quantity=GOODPUT, **keys)
            lines.append((name, "Hete [tokens/s]", "axis 100 to 240", *goodput))
    header = ("pair and band", "gain [%] or goodput", "reported", *_COLUMNS)
    return f"{markdown(header, lines)}\n\n{samples(rows, 'rounds a point')}"


def paper_a_fig8(rows: list[Row]) -> str:
    """Gains and Fixed's goodput over the number of devices."""
    sizes = values(rows, "devices")
    reported = {
        ("llama2", sizes[-1]): "about 67",
        ("qwen3.5", sizes[-1]): "over 80",
        ("llama2", sizes[1]): "about 21 (small scale)",
        ("qwen3.5", sizes[1]): "about 29 (small scale)",
    }
    lines: list[Any] = []
    for pair in values(rows, "pair"):
        for k in sizes:
            keys = {"pair": pair, "devices": k, "quantity": "gain over Fixed [%]"}
            lines.append(
                (
                    f"{LABELS[pair]}, K = {k:g}",
                    "Hete over Fixed [%]",
                    reported.get((pair, k), ""),
                    *_scheme_columns(rows, scheme="Hete", **keys),
                )
            )
        largest = {"pair": pair, "devices": sizes[-1], "quantity": GOODPUT}
        goodput = _scheme_columns(rows, scheme="Hete", **largest)
        name = f"{LABELS[pair]}, K = {sizes[-1]:g}"
        lines.append((name, "Hete [tokens/s]", "axis 100 to 240", *goodput))
        for k in sizes[-3:]:
            keys = {"pair": pair, "devices": k, "quantity": GOODPUT}
            lines.append(
                (
                    f"{LABELS[pair]}, K = {k:g}",
                    "Fixed [tokens/s]",
                    "saturates, then falls",
                    *_scheme_columns(rows, scheme="Fixed", **keys),
                )
            )
    header = ("pair and size", "quantity", "reported", *_COLUMNS)
    return f"{markdown(header, lines)}\n\n{samples(rows, 'rounds a point')}"


# ---- paper B -------------------------------------------------------------------------------------


def paper_b_table1(rows: list[Row]) -> str:
    """A line a pair and task."""
    lines = [
        (
            LABELS[pair],
            task,
            "not legible",
            shown(one(rows, pair=pair, task=task, quantity="preset"), 4),
            shown(one(rows, pair=pair, task=task, quantity="simulated"), 4),
        )
        for pair in values(rows, "pair")
        for task in values(pick(rows, pair=pair), "task")
    ]
    header = ("pair", "task", "reported", "assumed", "simulated, ± 95 %")
    return f"{markdown(header, lines)}\n\n{samples(rows, 'rounds of 20 devices a task')}"


def _over_power(rows: list[Row], quantities: Mapping[str, tuple[str, int]], caption: str) -> str:
    """Some quantities at the lowest, the middle and the two highest downlink powers."""
    powers = values(rows, "downlink [dBm]")
    powers = [powers[0], powers[len(powers) // 2], powers[-2], powers[-1]]
    lines = []
    for pair in values(rows, "pair"):
        for uplink in values(rows, "uplink [dBm]"):
            for solver in values(rows, "solver"):
                keys = {"pair": pair, "uplink [dBm]": uplink, "solver": solver}
                for quantity, (label, digits) in quantities.items():
                    found = [
                        pick(rows, quantity=quantity, **{"downlink [dBm]": power}, **keys)
                        for power in powers
                    ]
                    cells = [shown(f[0], digits) if f else "no corrections" for f in found]
                    lines.append((LABELS[pair], f"{uplink:g}", solver, label, *cells))
    header = ("pair", "uplink [dBm]", "lengths", "", *(f"{power:g} dBm" for power in powers))
    return f"{markdown(header, lines)}\n\n{samples(rows, caption)}"


def paper_b_power(rows: list[Row]) -> str:
    """Goodput and mean length."""
    length = "mean draft length [tokens]"
    return _over_power(rows, {GOODPUT: (GOODPUT, 1), length: (length, 2)}, "rounds a point")


def paper_b_split(rows: list[Row]) -> str:
    """The share of the downlink, and what remains on the uplink."""
    quantities = {
        "downlink share": ("downlink share of corrections", 3),
        "uplink": ("uplink corrections a round", 2),
    }
    return _over_power(rows, quantities, "rounds a point, 16 outcomes each")


def paper_b_modes(rows: list[Row]) -> str:
    """Gains of optimal modes with greedy lengths, and with ours."""
    sizes = [k for k in values(rows, "devices") if k in (5, 10, 20, 40)]
    lines = []
    for pair in values(rows, "pair"):
        for ratio in values(rows, "ratio"):
            for solver in values(rows, "solver"):
                for rule in ("uplink", "downlink", "random"):
                    keys = {"pair": pair, "ratio": ratio, "solver": solver, "rule": rule}
                    gains = [
                        shown(one(rows, quantity="gain of optimal modes [%]", devices=k, **keys))
                        for k in sizes
                    ]
                    name = rule if rule == "random" else f"all {rule}"
                    lines.append((LABELS[pair], f"{ratio:g}", solver, name, "above 0", *gains))
    header = (
        "pair",
        "ratio",
        "lengths",
        "gain of optimal modes [%] over",
        "reported",
        *(f"K = {k:g}" for k in sizes),
    )
    return f"{markdown(header, lines)}\n\n{samples(rows, 'rounds a point')}"


def paper_b_lengths(rows: list[Row]) -> str:
    """Gains of greedy on the other schemes."""
    ratios = [r for r in values(rows, "ratio") if r in (1, 4, 16, 64)]
    reported = {"uniform": "above 0", "computation_only": "above 0", "deadline": "(not in it)"}
    lines = []
    for pair in values(rows, "pair"):
        for uplink in values(rows, "uplink [dBm]"):
            for solver, sign in reported.items():
                keys = {"pair": pair, "uplink [dBm]": uplink, "solver": solver}
                gains = [
                    shown(one(rows, quantity="gain of greedy [%]", ratio=ratio, **keys), 2)
                    for ratio in ratios
                ]
                lines.append((LABELS[pair], f"{uplink:g}", solver, sign, *gains))
    header = (
        "pair",
        "uplink [dBm]",
        "gain of greedy [%] over",
        "reported",
        *(f"ratio {ratio:g}" for ratio in ratios),
    )
    return f"{markdown(header, lines)}\n\n{samples(rows, 'rounds a point')}"


# ---- ours ----------------------------------------------------------------------------------------


def regret(rows: list[Row]) -> str:
    """Losses by the worst uplink."""
    places = sorted(values(rows, "worst uplink [dB]"))
    lines: list[Any] = []
    for pair in values(rows, "pair"):
        for ratio in values(rows, "ratio"):
            found = pick(rows, pair=pair, ratio=ratio, quantity="loss of greedy [%]")
            (overall,) = (row for row in found if "worst uplink [dB]" not in row)
            cells = [pick(found, **{"worst uplink [dB]": place}) for place in places]
            lines.append(
                (
                    LABELS[pair],
                    f"{ratio:g}",
                    shown(overall, 2),
                    *(shown(cell[0], 1) if cell else "" for cell in cells),
                )
            )
    header = (
        "pair",
        "ratio",
        "loss of greedy [%], all rounds",
        *(f"{place - 2.5:g} to {place + 2.5:g} dB" for place in places),
    )
    total = int(max(row["samples"] for row in rows))
    return f"{markdown(header, lines)}\n\n{total:,} rounds a line; groups of at least 10."


def learned(rows: list[Row]) -> str:
    """Ratios to deadline."""
    cells = list(dict.fromkeys((row["devices"], row["uplink [dBm]"]) for row in rows))
    lines = []
    for devices, power in sorted(cells):
        line: list[Any] = [f"{devices:g}", f"{power:g}"]
        for pair in values(rows, "pair"):
            keys = {"pair": pair, "devices": devices, "uplink [dBm]": power}
            line.append(shown(one(rows, policy="deadline", quantity=GOODPUT, **keys)))
            for policy in ("distilled", "greedy"):
                found = one(rows, policy=policy, quantity="ratio to deadline", **keys)
                line.append(shown(found, 3))
        lines.append(line)
    header = ["K", "power [dBm]"]
    for pair in values(rows, "pair"):
        header += [f"{LABELS[pair]}: deadline [tokens/s]", "distilled / it", "greedy / it"]
    return f"{markdown(header, lines)}\n\n{samples(rows, 'episodes of 30 s a line')}"


def sensitivity(rows: list[Row]) -> str:
    """A table for the price, one for the horizon."""
    powers = values(rows, "uplink [dBm]")
    factors = values(rows, "price / reference")
    prices = [
        (
            f"{power:g}",
            *(
                shown(one(rows, **{"uplink [dBm]": power, "price / reference": factor}), 3)
                for factor in factors
            ),
        )
        for power in powers
    ]
    horizons = values(rows, "horizon [s]")
    policies = values(rows, "policy")
    scores = [
        (
            f"{power:g}",
            policy,
            *(
                shown(one(rows, policy=policy, **{"uplink [dBm]": power, "horizon [s]": seconds}))
                for seconds in horizons
            ),
        )
        for power in powers
        for policy in policies
    ]
    return "\n\n".join(
        (
            "Goodput of decisions under a price (in units of the reference goodput), over that of "
            "decisions that maximise the ratio:",
            markdown(
                ("power [dBm]", *(f"{factor:g} of the reference" for factor in factors)), prices
            ),
            "Goodput [tokens/s] by horizon:",
            markdown(("power [dBm]", "policy", *(f"{s:g} s" for s in horizons)), scores),
            samples(rows, "episodes a number"),
        )
    )
