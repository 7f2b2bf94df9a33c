"""The charts of the leaderboard page: SVG to stand inside HTML, drawn by matplotlib.

Text is text, in the page's font. Colours are the page's (CSS variables), so that a chart follows
its theme. The same numbers give the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from multispin_env.benchmark.statistics import Estimate

Floats = NDArray[np.float64]

#: Series by colour and marker (no two of 42 agree in both) and kind of line. The page defines the
#: colours --series-1 to -6.
COLOURS: Final = tuple(f"#04040{n}" for n in range(1, 7))
MARKERS: Final = ("o", "s", "^", "D", "v", "X", "P")
LINES: Final = ("-", "--", ":")
TEXT, GRID = "#010101", "#020202"
#: What stands for these colours on the page.
VARIABLES: Final = {
    TEXT: "currentColor",
    GRID: "var(--grid)",
    **{colour: f"var(--series-{n})" for n, colour in enumerate(COLOURS, 1)},
}
WIDTH: Final = 5.6  #: inches; 72 units of the drawing each
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "multispin",
    "text.parse_math": False,
    "font.size": 11.0,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
}


@dataclass(frozen=True)
class Series:
    """How a policy looks in every chart."""

    policy: int  #: its number on the page

    @property
    def colour(self) -> str:
        """As matplotlib is told."""
        return COLOURS[self.policy % len(COLOURS)]

    @property
    def variable(self) -> str:
        """The colour, on the page."""
        return VARIABLES[self.colour]

    @property
    def marker(self) -> str:
        """As matplotlib calls it."""
        return MARKERS[self.policy % len(MARKERS)]

    @property
    def line(self) -> str:
        """The kind of line, as matplotlib calls it."""
        return LINES[self.policy // len(COLOURS) % len(LINES)]

    @property
    def outline(self) -> str:
        """The marker as the points of an SVG polygon, within [-1, 1]."""
        from matplotlib.markers import MarkerStyle

        style = MarkerStyle(self.marker)
        path = style.get_path().transformed(style.get_transform())
        (points,) = path.to_polygons()
        points = points / np.abs(points).max()
        return " ".join(f"{x:.2f},{-y:.2f}" for x, y in points)


@contextmanager
def _figure(height: float) -> Iterator[tuple[Any, Any]]:
    """A figure of this height [inches] and its axes."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DependencyNotInstalled(
            'the page needs matplotlib: pip install "multispin-env[render]"'
        ) from error
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure, figure.subplots()


def ratios(tasks: Sequence[str], found: Sequence[tuple[Series, Sequence[Estimate | None]]]) -> str:
    """Goodputs as ratios to the reference's, task by task.

    Args:
        tasks: from top to bottom.
        found: of each policy its ratio on every task; None where it did not play.
    """
    title, step = 0.24, 0.1  # inches
    band = title + step * (len(found) + 0.5)
    with _figure(0.5 + band * len(tasks)) as (figure, axis):
        axis.axvline(1.0, color=TEXT, linewidth=1.0)
        for row, task in enumerate(tasks):
            if row % 2 == 0:
                axis.axhspan(row * band, (row + 1) * band, color=GRID, alpha=0.3, linewidth=0)
            place = {"transform": axis.get_yaxis_transform(), "va": "center"}
            axis.text(0.01, row * band + title / 2, task, fontweight="bold", **place)
        for n, (series, values) in enumerate(found):
            points = [
                (estimate, row * band + title + step * (n + 0.5))
                for row, estimate in enumerate(values)
                if estimate is not None
            ]
            _draw(
                axis,
                series,
                [estimate.value for estimate, _ in points],
                [y for _, y in points],
                xerr=[estimate.half_width for estimate, _ in points],
                markersize=5.0,
            )
        axis.set(ylim=(band * len(tasks), 0.0), yticks=[])
        axis.set_xlabel("goodput, as a ratio to the strongest analytical policy's")
        return _inline(figure, "ratios", "Ratios of goodputs, task by task")


def score_against_time(
    found: Sequence[tuple[Series, float, tuple[float, float], float, bool]],
) -> str:
    """Scores against decision times.

    Args:
        found: of each policy its score, interval, time of a decision [ms], and whether that was
            measured (filled marks) or only declared (hollow ones).
    """
    with _figure(3.8) as (figure, axis):
        for y in (0.0, 1.0):
            axis.axhline(y, color=TEXT, linewidth=1.0)
        for series, score, (low, high), decision_ms, measured in found:
            hollow = {} if measured else {"markerfacecolor": "none"}
            error = [[max(score - low, 0.0)], [max(high - score, 0.0)]]
            _draw(axis, series, [decision_ms], [score], yerr=error, **hollow)
        axis.set_xscale("log")
        times = [time for *_, time, _ in found]
        axis.set_xlim(min(times) / 3.0, max(times) * 3.0)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.xaxis.set_minor_formatter(lambda *_: "")
        axis.set(xlabel="time of a decision [ms]", ylabel="score")
        return _inline(figure, "times", "Scores against decision times")


def regret(task: str, found: Sequence[tuple[Series, NDArray[np.int64], Sequence[Estimate]]]) -> str:
    """Cumulative regret over rounds with 95 % bands.

    Args:
        task: its name.
        found: of each policy the numbers of rounds and the regret after them [tokens].
    """
    with _figure(3.8) as (figure, axis):
        axis.axhline(0.0, color=TEXT, linewidth=1.0)
        for n, (series, rounds, estimates) in enumerate(found):
            value = np.array([e.value for e in estimates])
            half = np.array([e.half_width for e in estimates])
            every = max(1, len(rounds) // 6)
            axis.fill_between(
                rounds, value - half, value + half, color=series.colour, alpha=0.18, linewidth=0
            ).set_gid(f"policy-{series.policy}")
            axis.plot(
                rounds,
                value,
                color=series.colour,
                linestyle=series.line,
                marker=series.marker,
                markevery=(n % every, every),
                gid=f"policy-{series.policy}",
            )
        axis.set(xlabel="rounds", ylabel="cumulative regret [tokens]", xlim=(0, None))
        name = f"Cumulative regret over the rounds of {task}"
        return _inline(figure, f"regret-{task}", name)


def _draw(axis: Any, series: Series, x: Sequence[float], y: Sequence[float], **kwargs: Any) -> None:
    """Marks with intervals, in a policy's look."""
    drawn = axis.errorbar(
        x, y, color=series.colour, fmt=series.marker, capsize=2.5, elinewidth=1.2, **kwargs
    )
    for artist in drawn.get_children():
        artist.set_gid(f"policy-{series.policy}")


def colours(values: Floats, high: float) -> list[tuple[str, str]]:
    """Background and text for numbers, from cividis over [0, high], a uniform scale."""
    import matplotlib

    shades = matplotlib.colormaps["cividis"](np.clip(values / high, 0.0, 1.0))[:, :3]
    linear = np.where(shades <= 0.04045, shades / 12.92, ((shades + 0.055) / 1.055) ** 2.4)
    light = linear @ [0.2126, 0.7152, 0.0722] > 0.18  # there black and white stand out as well
    backgrounds = [matplotlib.colors.to_hex(shade) for shade in shades]
    return [(b, "#000" if bright else "#fff") for b, bright in zip(backgrounds, light)]


SVG: Final = "http://www.w3.org/2000/svg"
HREF: Final = "{http://www.w3.org/1999/xlink}href"


def _inline(figure: Any, name: str, label: str) -> str:
    """A figure as an element of a page."""
    text = io.StringIO()
    figure.savefig(
        text,
        format="svg",
        transparent=True,
        metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
    )
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(text.getvalue())
    for element in list(root.iter()):
        _adapt(element, name)
    for definitions in root.findall(f"{{{SVG}}}defs"):
        for style in definitions.findall(f"{{{SVG}}}style"):
            definitions.remove(style)  # it would be of the whole page
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update({"viewBox": box, "role": "img", "aria-label": label})
    return ElementTree.tostring(root, encoding="unicode")


def _adapt(element: ElementTree.Element, name: str) -> None:
    """Give an element the page's colours and font, its policy, and ids of this chart's own."""
    attributes = element.attrib
    element.tail = None
    if element.tag != f"{{{SVG}}}text":
        element.text = None
    if HREF in attributes:
        attributes["href"] = f"#{name}-{attributes.pop(HREF)[1:]}"
    if "clip-path" in attributes:
        attributes["clip-path"] = attributes["clip-path"].replace("#", f"#{name}-")
    own = attributes.pop("id", "")
    if own.startswith("policy-"):
        attributes["data-policy"] = own.removeprefix("policy-")
    elif element.tag in (f"{{{SVG}}}path", f"{{{SVG}}}clipPath") and own:
        attributes["id"] = f"{name}-{own}"
    if "style" in attributes:
        style = re.sub(r"font-family: [^;]*;? ?", "", attributes["style"])
        attributes["style"] = re.sub(r"#\w{6}", lambda m: VARIABLES.get(m[0], m[0]), style)
    for key in attributes.keys() & {"d", "x", "y", "transform", "width", "height"}:
        numbers = attributes[key].replace("\n", "")
        attributes[key] = re.sub(r"\d+\.\d+", lambda m: f"{float(m[0]):.2f}", numbers)
