"""What experiments return: rows of a table, a number and its interval each."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from multispin_env.benchmark import statistics

#: The keys of a point (pair, scheme, ...), then `quantity`, `value`, `half_width` (95 %; 0 if the
#: number is exact) and `samples` behind it.
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A call that measures some rows. Its arguments are plain values: results are kept by them."""

    function: Callable[..., list[Row]]
    arguments: tuple[tuple[str, Any], ...]

    def __call__(self) -> list[Row]:
        """The rows."""
        return self.function(**dict(self.arguments))


def job(function: Callable[..., list[Row]], **arguments: Any) -> Job:
    """A call to be made later."""
    return Job(function, tuple(arguments.items()))


def measure(jobs: Iterable[Job]) -> list[Row]:
    """The rows of all jobs, here and now."""
    return [row for one in jobs for row in one()]


def exact(keys: Row, quantity: str, value: float) -> Row:
    """A row of a number that is not estimated."""
    return {**keys, "quantity": quantity, "value": float(value), "half_width": 0.0, "samples": 0}


def mean(keys: Row, quantity: str, values: ArrayLike, points: int = 1) -> Row:
    """A row of a mean of independent values.

    Args:
        keys: of the point.
        quantity: what is averaged, with its unit.
        values: [samples].
        points: 95 % are meant for so many intervals at once (Bonferroni).
    """
    found = statistics.mean_interval(values)
    return _row(keys, quantity, found, np.size(values), points)


def ratio(keys: Row, quantity: str, first: ArrayLike, second: ArrayLike, points: int = 1) -> Row:
    """A row of mean(first) / mean(second), paired; as :func:`mean`."""
    found = statistics.score(first, np.zeros(np.shape(second)), second).estimate
    return _row(keys, quantity, found, np.size(first), points)


def gain(keys: Row, quantity: str, first: ArrayLike, second: ArrayLike) -> Row:
    """A row of mean(first) / mean(second) - 1 in percent, paired."""
    row = ratio(keys, quantity, first, second)
    return row | {"value": 100 * (row["value"] - 1), "half_width": 100 * row["half_width"]}


def _row(keys: Row, quantity: str, found: statistics.Estimate, samples: int, points: int) -> Row:
    quantile = stats.t.ppf(1 - (1 - statistics.LEVEL) / (2 * points), found.degrees)
    return {
        **keys,
        "quantity": quantity,
        "value": found.value,
        "half_width": float(found.standard_error * quantile),
        "samples": samples,
    }


def pick(rows: Iterable[Row], **keys: Any) -> list[Row]:
    """The rows with these keys."""
    return [row for row in rows if all(row.get(key) == value for key, value in keys.items())]


def one(rows: Iterable[Row], **keys: Any) -> Row:
    """The only row with these keys."""
    found = pick(rows, **keys)
    if len(found) != 1:
        raise ValueError(f"keys = {keys}: must fit one row, not {len(found)}")
    return found[0]


def values(rows: Iterable[Row], key: str) -> list[Any]:
    """All values of a key, in the order in which they come."""
    return list(dict.fromkeys(row[key] for row in rows if key in row))


def write(path: Path, rows: list[Row]) -> None:
    """Store rows as CSV, numbers to six digits; a key that a row has not is empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    last = ["quantity", "value", "half_width", "samples"]
    with path.open("w", newline="", encoding="utf8") as file:
        writer = csv.DictWriter(
            file, [c for c in columns if c not in last] + last, lineterminator="\n"
        )
        writer.writeheader()
        for row in rows:
            writer.writerow({key: _shown(value) for key, value in row.items()})


def read(path: Path) -> list[Row]:
    """The rows of a CSV."""
    with path.open(newline="", encoding="utf8") as file:
        return [
            {key: _number(text) for key, text in row.items() if text != ""}
            for row in csv.DictReader(file)
        ]


def _shown(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
