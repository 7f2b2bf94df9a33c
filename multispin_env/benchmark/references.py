"""The floor and the reference of every task, per episode: what scores are measured by."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multispin_env.benchmark.suite import Suite, files, list_suites, pinned_hashes


@dataclass(frozen=True)
class Reference:
    """Goodputs on the episodes of one task and track [tokens/s]."""

    low: NDArray[np.float64]  #: of the floor, a constant decision
    reference: NDArray[np.float64]  #: of the strongest analytical policy with this information
    low_policy: str
    reference_policy: str
    seeds: tuple[int, ...]  #: of the episodes


def load_references(
    suite: Suite, track: str = "full", path: str | Path | None = None, value: str = ""
) -> dict[str, Reference]:
    """References of all tasks of a suite.

    Args:
        suite: for the dev split of a shipped suite no path is needed.
        track: `full` or `feedback`.
        path: a file written by `scripts/references.py`, for another split or suite.
        value: of the test split; empty for dev.

    Raises:
        ValueError: no such file, a shipped file that is not what was released, or one that belongs
            to another suite or split.
    """
    if path is None:
        if value or suite.name not in list_suites():
            raise ValueError(
                "path = None: only the dev splits of shipped suites have stored references; "
                "write others with scripts/references.py"
            )
        content = (files() / f"{suite.name}.references.json").read_bytes()
        if hashlib.sha256(content).hexdigest() != pinned_hashes()[f"{suite.name}/references"]:
            raise ValueError(f"the stored references of {suite.name!r} are not the released ones")
    else:
        content = Path(path).read_bytes()
    data: dict[str, Any] = json.loads(content)
    if (data["suite_sha256"], data["value"]) != (suite.sha256, value):
        raise ValueError(
            f"the references are of suite {data['suite']!r} ({data['suite_sha256'][:12]}), value "
            f"{data['value']!r}: not of {suite.name!r} ({suite.sha256[:12]}), value {value!r}"
        )
    return {
        name: Reference(
            np.array(tracks[track]["low"]["goodput"]),
            np.array(tracks[track]["reference"]["goodput"]),
            tracks[track]["low"]["policy"],
            tracks[track]["reference"]["policy"],
            tuple(
                suite.task(name).seeds(
                    "test" if value else "dev", len(tracks[track]["low"]["goodput"]), value
                )
            ),
        )
        for name, tracks in data["tasks"].items()
    }
