"""Entries: a policy, what it claims, and the evidence, in one folder.

An entry holds::

    entry.toml              who, what, and the SHA-256 of every other file
    policy.py, weights      what makes the policy
    NAME/episodes.csv       the results of each run (training seed)
    NAME/actions.npz
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import tomli_w

from multispin_env.benchmark import suite as suites
from multispin_env.benchmark.results import Plan, Results, read_results
from multispin_env.benchmark.suite import Suite, Task

#: What an entry may compete as; docs/benchmark.md has the rules.
DIVISIONS: Final = ("analytical", "learned-closed", "open")
#: Limits of the division learned-closed.
MAX_TRAINING_ROUNDS: Final = 1_000_000
TRAINING_SEEDS: Final = 5
MAX_DECISION_MS: Final = 10.0
#: Kinds of files that do not run code when they are loaded, and Python's own.
PLAIN_FILES: Final = frozenset(
    {".py", ".safetensors", ".onnx", ".csv", ".npz", ".json", ".toml", ".txt", ".md"}
)


@dataclass(frozen=True)
class Entry:
    """The contents of entry.toml.

    Args:
        name, authors, description: who and what; the name is at most 60 characters.
        division: `analytical` (no training), `learned-closed` (at most a million training rounds,
            five training seeds, at most 10 ms a decision on one core) or `open`.
        track: `full` information, or `feedback` of acceptances only.
        suite, suite_sha256, split, value: what was played.
        decision_time_ms: declared time of a decision on one core; it is charged.
        training_rounds: rounds of all training, of each run.
        policy: `FILE.py:FUNCTION` inside the entry, or `MODULE:FUNCTION` of an installed package.
        runs: options of the policy in each run, by the run's name (letters, digits, '_' and '-').
        tasks: what was played; all of the suite if empty. A part is shown task by task, without a
            rank.
        training: the command that trains the policy.
        files: SHA-256 of every file.
    """

    name: str
    authors: tuple[str, ...]
    division: str
    track: str
    suite: str
    suite_sha256: str
    split: str
    value: str
    decision_time_ms: float
    training_rounds: int
    policy: str
    runs: Mapping[str, Mapping[str, Any]]
    description: str = ""
    tasks: tuple[str, ...] = ()
    training: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_types()
        if not 0 < len(self.name) <= 60 or not self.name.isprintable() or "|" in self.name:
            raise ValueError(f"name = {self.name!r}: must be 1 to 60 printable characters, no '|'")
        if not self.authors:
            raise ValueError("authors is empty: must name at least one")
        suites.check_choice("division", self.division, DIVISIONS)
        suites.check_choice("track", self.track, suites.TRACKS)
        suites.check_choice("split", self.split, ("dev", "test"))
        if self.training_rounds < 0:
            raise ValueError(f"training_rounds = {self.training_rounds}: must be >= 0")
        if not 0.0 <= self.decision_time_ms < np.inf:
            raise ValueError(f"decision_time_ms = {self.decision_time_ms}: must be >= 0")
        if not self.runs:
            raise ValueError("runs is empty: must have at least one")
        for run in self.runs:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", run):
                raise ValueError(f"runs: name {run!r}: must be letters, digits, '_' and '-'")
        source = self.policy.rpartition(":")[0]
        if source.endswith(".py") and Path(source).name != source:
            raise ValueError(f"policy = {self.policy!r}: its file must lie in the entry's folder")
        self._check_division()

    def _check_types(self) -> None:
        kinds: dict[str, tuple[type, ...]] = {
            **dict.fromkeys(("name", "division", "track", "suite", "suite_sha256"), (str,)),
            **dict.fromkeys(("split", "value", "policy", "description", "training"), (str,)),
            **dict.fromkeys(("authors", "tasks"), (tuple,)),
            **dict.fromkeys(("runs", "files"), (Mapping,)),
            "decision_time_ms": (int, float),
            "training_rounds": (int,),
        }
        for key, allowed in kinds.items():
            value = getattr(self, key)
            if not isinstance(value, allowed) or isinstance(value, bool):
                names = " or ".join(kind.__name__ for kind in allowed)
                raise ValueError(f"{key} = {value!r}: must be of type {names}")
        for key in ("authors", "tasks"):
            for text in getattr(self, key):
                if not isinstance(text, str):
                    raise ValueError(f"{key} lists {text!r}: must be text")

    def _check_division(self) -> None:
        if self.division == "analytical" and self.training_rounds > 0:
            raise ValueError(
                f"training_rounds = {self.training_rounds}: must be 0 in the division analytical"
            )
        if self.division != "learned-closed":
            return
        limits = (
            ("training_rounds", self.training_rounds, MAX_TRAINING_ROUNDS),
            ("decision_time_ms", self.decision_time_ms, MAX_DECISION_MS),
        )
        for name, value, most in limits:
            if value > most:
                raise ValueError(f"{name} = {value}: must be at most {most} in learned-closed")
        if len(self.runs) != TRAINING_SEEDS:
            raise ValueError(
                f"runs = {list(self.runs)}: must be {TRAINING_SEEDS} training seeds in "
                "learned-closed"
            )

    def plan(self, run: str) -> Plan:
        """What a run has evaluated."""
        return Plan(
            self.suite,
            self.policy,
            self.runs[run],
            self.track,
            self.split,
            self.value,
            self.decision_time_ms,
            self.tasks,
        )

    def chosen_tasks(self) -> list[Task]:
        """The tasks that were played, in the suite's order.

        Raises:
            ValueError: the suite has no task of a name.
        """
        return self.plan(next(iter(self.runs))).chosen_tasks()

    def load_suite(self) -> Suite:
        """The suite.

        Raises:
            ValueError: it is not the one that the entry was evaluated on.
        """
        suite = suites.load(self.suite)
        if suite.sha256 != self.suite_sha256:
            raise ValueError(
                f"suite_sha256 = {self.suite_sha256}: suite {self.suite!r} is {suite.sha256}"
            )
        return suite

    @classmethod
    def load(cls, folder: str | Path) -> Entry:
        """Read the entry.toml of a folder.

        Raises:
            ValueError: it is missing, malformed, or against the rules of its division.
        """
        path = Path(folder) / "entry.toml"
        try:
            data = tomllib.loads(path.read_text("utf8"))
            for key in ("authors", "tasks"):
                if isinstance(data.get(key), list):
                    data[key] = tuple(data[key])
            return cls(**data)
        except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, folder: Path) -> None:
        """Write entry.toml."""
        data = asdict(self) | {"authors": list(self.authors), "tasks": list(self.tasks)}
        (folder / "entry.toml").write_text(tomli_w.dumps(data), "utf8")


def pack(
    results: Mapping[str, str | Path],
    folder: str | Path,
    *,
    name: str,
    authors: Sequence[str],
    division: str = "open",
    training_rounds: int = 0,
    description: str = "",
    training: str = "",
    attach: Sequence[str | Path] = (),
) -> Entry:
    """Make an entry of finished results.

    Args:
        results: folders of results by the name of the run; their plans may differ in the options of
            the policy only, and cover all tasks.
        folder: of the entry; must not exist.
        name, authors, division, training_rounds, description, training: see :class:`Entry`.
        attach: further files that the policy needs (weights), copied beside its file.

    Raises:
        ValueError: results that do not belong together, or a rule that is broken; nothing is
            written then.
    """
    folder = Path(folder)
    if folder.exists():
        raise ValueError(f"folder = {folder}: exists already")
    if not results:
        raise ValueError("results is empty: must name at least one folder")
    loaded = {run: Results.load(path) for run, path in results.items()}
    first = next(iter(loaded.values())).plan
    for run, result in loaded.items():
        plan = result.plan
        same = ("suite", "policy", "track", "split", "value", "decision_time_ms", "tasks")
        for key in same:
            if getattr(plan, key) != getattr(first, key):
                raise ValueError(f"run {run!r} differs in {key}: {getattr(plan, key)!r}")
        if plan.episodes is not None:
            raise ValueError(
                f"run {run!r} covers only {plan.episodes} episodes of a task: evaluate all of them"
            )
    source, _, function = first.policy.rpartition(":")
    local = source.endswith(".py")
    copies = [Path(source), *map(Path, attach)] if local else [Path(path) for path in attach]
    if len({path.name for path in copies}) < len(copies):
        raise ValueError(f"attach = {list(map(str, attach))}: names must differ")
    entry = Entry(
        name=name,
        authors=tuple(authors),
        division=division,
        track=first.track,
        suite=first.suite,
        suite_sha256=first.load_suite().sha256,
        split=first.split,
        value=first.value,
        decision_time_ms=first.decision_time_ms,
        training_rounds=training_rounds,
        policy=f"{Path(source).name}:{function}" if local else first.policy,
        runs={run: dict(result.plan.options) for run, result in loaded.items()},
        description=description,
        tasks=first.tasks,
        training=training,
    )
    for path in copies:
        if not path.is_file():
            raise ValueError(f"{path}: is no file")
    measured = max(ms for result in loaded.values() for ms in result.decision_ms.values())
    if measured > first.decision_time_ms:
        raise ValueError(
            f"decision_time_ms = {first.decision_time_ms}: a decision took {measured:.2f} ms here "
            "on the slowest task; evaluate with a declared time that holds"
        )
    folder.mkdir(parents=True)
    for path in copies:
        shutil.copy(path, folder / path.name)
    for run, source_folder in results.items():
        (folder / run).mkdir()
        for file in ("episodes.csv", "actions.npz"):
            shutil.copy(Path(source_folder) / file, folder / run / file)
    entry = Entry(**asdict(entry) | {"files": hash_files(folder)})
    entry.save(folder)
    return entry


def hash_files(folder: Path) -> dict[str, str]:
    """SHA-256 of all files of an entry but its entry.toml.

    Raises:
        ValueError: there is a link.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise ValueError(f"{name} is a link: an entry holds plain files only")
        if path.is_file() and name != "entry.toml":
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def load_run(folder: str | Path, entry: Entry, run: str) -> Results:
    """The stated results of a run."""
    path = Path(folder) / run
    return Results(entry.plan(run), *read_results(path), {})
