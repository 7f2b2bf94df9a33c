"""Evaluations on disk: played in blocks of episodes that are kept, so that nothing is done twice.

A folder of results holds::

    results.json      what was evaluated: suite, split, track, policy
    episodes.csv      a row an episode
    actions.npz       every action, and the duration and tokens of every round
    timings.csv       mean time of a decision in each episode, as measured
    blocks/           what is finished so far; removed at the end

All but the timings are the same however the work was spread.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import importlib.util
import io
import itertools
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multispin_env import parallel
from multispin_env.benchmark import suite as suites
from multispin_env.benchmark.rollout import Episode, Evaluation, Factory, PolicyError, play
from multispin_env.benchmark.suite import Suite, Task

#: Episodes in a block: what an interruption costs at most.
BLOCK_EPISODES: Final = 8
COLUMNS: Final = (
    "task",
    "episode",
    "seed",
    "goodput",
    "charged_goodput",
    "expected_goodput",
    "tokens",
    "rounds",
)


@dataclass(frozen=True)
class Plan:
    """What is evaluated.

    Args:
        suite: a shipped suite or a TOML file.
        policy: `FILE.py:FUNCTION` or `MODULE:FUNCTION`, called as `FUNCTION(env=env, **options)`.
            A file finds others beside it: its folder is at the end of the import path.
        options: for the function.
        track, split, value: see :func:`multispin_env.benchmark.evaluate`.
        decision_time_ms: declared time of a decision, charged in `charged_goodput`.
        tasks: names; all of the suite if empty.
        episodes: of each task; the suite's number of dev episodes if None.
    """

    suite: str
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    track: str = "full"
    split: str = "dev"
    value: str = ""
    decision_time_ms: float = 0.0
    tasks: tuple[str, ...] = ()
    episodes: int | None = None

    def __post_init__(self) -> None:
        suites.check_choice("track", self.track, suites.TRACKS)
        if not 0.0 <= self.decision_time_ms < np.inf:
            raise ValueError(f"decision_time_ms = {self.decision_time_ms}: must be >= 0")

    def load_suite(self) -> Suite:
        """The suite."""
        return suites.load(self.suite)

    def chosen_tasks(self) -> list[Task]:
        """The tasks, in the suite's order."""
        suite = self.load_suite()
        for name in self.tasks:
            suite.task(name)
        return [task for task in suite.tasks if not self.tasks or task.name in self.tasks]

    def to_json(self) -> str:
        """What identifies the results: also the contents of the suite and of the policy's file."""
        content = asdict(self) | {"suite_sha256": self.load_suite().sha256, "policy_sha256": ""}
        path = Path(self.policy.rpartition(":")[0])
        if path.suffix == ".py" and path.is_file():
            content["policy_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        return json.dumps(content, indent=2, sort_keys=True) + "\n"


def load_factory(policy: str, options: Mapping[str, Any], folder: Path | None = None) -> Factory:
    """The factory that a plan names; a file's path is relative to `folder`.

    Raises:
        ValueError: there is no such file, module or function.
        PolicyError: the file or module raises.
    """
    source, _, function = policy.rpartition(":")
    if not source or not function.isidentifier():
        raise ValueError(f"policy = {policy!r}: must be FILE.py:FUNCTION or MODULE:FUNCTION")
    try:
        module = (
            _load_file((folder or Path()) / source)
            if source.endswith(".py")
            else (importlib.import_module(source))
        )
        found: Callable[..., Any] = getattr(module, function)
    except (ImportError, FileNotFoundError, AttributeError) as error:
        raise ValueError(f"policy = {policy!r}: {error}") from error
    except Exception as error:
        raise PolicyError(f"policy = {policy!r}: {type(error).__name__}: {error}") from error
    return lambda env: found(env=env, **options)


def _load_file(path: Path) -> Any:
    name = f"_policy_{path.stem}"  # a file called random.py hides nothing
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that its classes can be pickled
    if str(path.resolve().parent) not in sys.path:
        sys.path.append(str(path.resolve().parent))
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:  # an entry's folder gets no further files
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = bytecode
    return module


def run(
    plan: Plan, folder: str | Path, workers: int = 1, backend: str = "loky"
) -> Iterator[tuple[int, int]]:
    """Evaluate a plan into a folder, or go on with it; yields (blocks done, blocks in all).

    Args:
        plan: what to evaluate.
        folder: made if needed; one that holds another plan's results is refused.
        workers, backend: see :func:`multispin_env.parallel.spread`. Only this process writes.

    Raises:
        ValueError: the folder belongs to another plan, or to another version of the policy's file.
        WorkerDiedError: processes died again and again; what is finished is kept.
        PolicyError: the policy failed; what is finished is kept.
    """
    parallel.check(workers, backend)
    todo = _blocks(plan)
    load_factory(plan.policy, plan.options)  # fails before anything is written
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    head, identity = folder / "results.json", plan.to_json()
    if head.exists() and head.read_text("utf8") != identity:
        old, new = json.loads(head.read_text("utf8")), json.loads(identity)
        keys = [key for key in new if old.get(key) != new[key]]
        raise ValueError(
            f"{folder} holds results of something else, which differs in {', '.join(keys)}: choose "
            "another folder, or delete this one"
        )
    head.write_text(identity, "utf8")
    total = len(todo)
    if not (folder / "episodes.csv").exists():
        (folder / "blocks").mkdir(exist_ok=True)
        todo = [job for job in todo if not _block_path(folder, *job[:2]).exists()]
        yield total - len(todo), total
        jobs = [(plan, task, seeds) for task, _, seeds in todo]
        played = parallel.spread(_play_block, jobs, workers, backend)
        for done, (number, block) in enumerate(played, 1):
            _write_block(_block_path(folder, *todo[number][:2]), block)
            yield total - len(todo) + done, total
        _assemble(plan, folder)
    yield total, total


def _blocks(plan: Plan) -> list[tuple[str, int, list[int]]]:
    """Task, number of the first episode, and seeds of every block."""
    return [
        (task.name, first, seeds[first : first + BLOCK_EPISODES])
        for task in plan.chosen_tasks()
        for seeds in [task.seeds(plan.split, plan.episodes, plan.value)]
        for first in range(0, len(seeds), BLOCK_EPISODES)
    ]


def _block_path(folder: Path, task: str, first: int) -> Path:
    return folder / "blocks" / f"{task}.{first:05d}.npz"


def _play_block(plan: Plan, task: str, seeds: Sequence[int]) -> dict[str, NDArray[Any]]:
    factory = load_factory(plan.policy, plan.options)
    return pack_episodes(play(factory, plan.load_suite().task(task), seeds, plan.track))


def _write_block(path: Path, block: Mapping[str, NDArray[Any]]) -> None:
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, **block)  # type: ignore[arg-type]
    unfinished.rename(path)


def pack_episodes(episodes: Sequence[Episode]) -> dict[str, NDArray[Any]]:
    """Episodes as arrays: those over rounds one episode after the other."""
    packed: dict[str, NDArray[Any]] = {
        "seed": np.array([e.seed for e in episodes], np.int64),
        "rounds": np.array([e.rounds for e in episodes], np.int64),
        "goodput": np.array([e.goodput for e in episodes]),
        "expected_goodput": np.array([e.expected_goodput for e in episodes]),
        "tokens": np.array([e.tokens for e in episodes], np.int64),
        "decision_s": np.array([e.decision_s for e in episodes]),
        "emitted": np.concatenate([e.emitted for e in episodes]),
        "latency_s": np.concatenate([e.latency_s for e in episodes]),
    }
    for key in episodes[0].actions:
        packed[key] = np.concatenate([e.actions[key] for e in episodes])
    return packed


_PER_ROUND: Final = ("emitted", "latency_s", "action", "draft_length", "bandwidth")


def unpack_episodes(packed: Mapping[str, NDArray[Any]]) -> list[Episode]:
    """The inverse of :func:`pack_episodes`."""
    ends = np.cumsum(packed["rounds"])
    keys = [key for key in _PER_ROUND[2:] if key in packed]
    episodes = []
    for i, end in enumerate(ends):
        rows = slice(int(end - packed["rounds"][i]), int(end))
        episodes.append(
            Episode(
                int(packed["seed"][i]),
                float(packed["goodput"][i]),
                int(packed["tokens"][i]),
                packed["emitted"][rows],
                packed["latency_s"][rows],
                {key: packed[key][rows] for key in keys},
                float(packed["expected_goodput"][i]),
                float(packed["decision_s"][i]),
            )
        )
    return episodes


def _assemble(plan: Plan, folder: Path) -> None:
    """Put the blocks together."""
    arrays: dict[str, NDArray[Any]] = {}
    table, timings = io.StringIO(), io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(COLUMNS)
    times = csv.writer(timings, lineterminator="\n")
    times.writerow(("task", "episode", "decision_ms"))
    played: dict[str, list[Episode]] = {}
    for name, first, _ in _blocks(plan):
        with np.load(_block_path(folder, name, first)) as block:
            played.setdefault(name, []).extend(unpack_episodes(dict(block)))
    for task in plan.chosen_tasks():
        episodes = played[task.name]
        arrays |= _arrays(task, episodes)
        for number, episode in enumerate(episodes):
            rows.writerow(episode_row(task, number, episode, plan.decision_time_ms))
            times.writerow((task.name, number, f"{1e3 * episode.decision_s:.4f}"))
    with (folder / "actions.npz").open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    (folder / "timings.csv").write_text(timings.getvalue(), "utf8")
    (folder / "episodes.csv").write_text(table.getvalue(), "utf8")  # last: now it is complete
    shutil.rmtree(folder / "blocks")


def _arrays(task: Task, episodes: Sequence[Episode]) -> dict[str, NDArray[Any]]:
    """What actions.npz holds of a task."""
    return {
        f"{task.name}/{key}": array
        for key, array in pack_episodes(episodes).items()
        if key in _PER_ROUND or key == "rounds"
    }


def episode_row(
    task: Task, number: int, episode: Episode, decision_time_ms: float
) -> tuple[str, ...]:
    """A row of episodes.csv; floats keep all their digits."""
    charged = episode.charged_goodput(decision_time_ms / 1e3, task.scenario.episode.horizon_s)
    return (
        task.name,
        str(number),
        str(episode.seed),
        repr(episode.goodput),
        repr(charged),
        repr(episode.expected_goodput),
        str(episode.tokens),
        str(episode.rounds),
    )


@dataclass(frozen=True)
class Results:
    """A finished folder of results."""

    plan: Plan
    rows: list[dict[str, str]]  #: of episodes.csv
    actions: dict[str, NDArray[Any]]  #: of actions.npz
    decision_ms: dict[str, float]  #: mean over the episodes of a task, as measured

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """Read a folder.

        Raises:
            ValueError: it holds no finished results, or of another version of the suite.
        """
        folder = Path(folder)
        for name in ("results.json", "episodes.csv", "actions.npz"):
            if not (folder / name).is_file():
                raise ValueError(f"{folder} holds no finished results: {name} is missing")
        head = json.loads((folder / "results.json").read_text("utf8"))
        sha256 = head.pop("suite_sha256")
        head.pop("policy_sha256")
        plan = Plan(**head | {"tasks": tuple(head["tasks"])})
        if plan.load_suite().sha256 != sha256:
            raise ValueError(f"{folder} was evaluated on another suite of the name {plan.suite!r}")
        rows, actions = read_results(folder)
        times: dict[str, list[float]] = {}
        if (folder / "timings.csv").is_file():
            for row in _read(folder / "timings.csv"):
                times.setdefault(row["task"], []).append(float(row["decision_ms"]))
        means = {task: float(np.mean(values)) for task, values in times.items()}
        return cls(plan, rows, actions, means)

    @classmethod
    def of_evaluations(cls, plan: Plan, evaluations: Sequence[Evaluation]) -> Results:
        """What :func:`multispin_env.benchmark.evaluate` has played, without a folder."""
        rows = []
        actions: dict[str, NDArray[Any]] = {}
        decision_ms = {}
        for evaluation in evaluations:
            task = plan.load_suite().task(evaluation.task)
            for number, episode in enumerate(evaluation.episodes):
                cells = episode_row(task, number, episode, plan.decision_time_ms)
                rows.append(dict(zip(COLUMNS, cells)))
            actions |= _arrays(task, evaluation.episodes)
            seconds = [episode.decision_s for episode in evaluation.episodes]
            decision_ms[task.name] = 1e3 * float(np.mean(seconds))
        return cls(plan, rows, actions, decision_ms)

    def check_complete(self) -> None:
        """Whether there is one row for each episode of the plan, and nothing else.

        Raises:
            ValueError: a row is missing or not of the plan, or a task has no arrays.
        """
        planned = [
            (task.name, str(number), str(seed))
            for task in self.plan.chosen_tasks()
            for number, seed in enumerate(
                task.seeds(self.plan.split, self.plan.episodes, self.plan.value)
            )
        ]
        found = [(row.get("task"), row.get("episode"), row.get("seed")) for row in self.rows]
        for number, (told, due) in enumerate(itertools.zip_longest(found, planned)):
            if told != due:
                raise ValueError(f"episodes.csv: row {number} is {told}, must be {due}")
        tasks = {task.name for task in self.plan.chosen_tasks()}
        for name in self.actions:
            task, _, key = name.rpartition("/")
            if task not in tasks or key not in ("rounds", *_PER_ROUND):
                raise ValueError(f"actions.npz has an array {name!r}, which is not of the plan")
        for task in tasks:
            self._check_arrays(task, sum(row[0] == task for row in planned))

    def _check_arrays(self, task: str, episodes: int) -> None:
        mine = {
            key: self.actions[f"{task}/{key}"]
            for key in ("rounds", *_PER_ROUND)
            if f"{task}/{key}" in self.actions
        }
        if not {"rounds", "emitted", "latency_s"} < set(mine):
            raise ValueError(f"actions.npz lacks arrays of {task}")
        if mine["rounds"].shape != (episodes,):
            raise ValueError(f"actions.npz has {mine['rounds'].size} episodes of {task}")
        length = int(mine["rounds"].sum()) if mine["rounds"].dtype.kind in "iu" else -1
        for key, array in mine.items():
            flat = key in ("rounds", "emitted", "latency_s")
            kind = "f" if key in ("latency_s", "bandwidth") else "iu"
            short = key != "rounds" and len(np.atleast_1d(array)) != length
            if array.ndim != (1 if flat else 2) or array.dtype.kind not in kind or short:
                raise ValueError(f"actions.npz: {task}/{key} has the wrong shape or kind")

    def column(self, task: str, name: str) -> NDArray[np.float64]:
        """A column of one task's episodes."""
        return np.array([float(row[name]) for row in self.rows if row["task"] == task])

    def episode_actions(self, task: str) -> list[dict[str, NDArray[Any]]]:
        """Each episode's actions, emitted tokens and latencies, by name."""
        mine = {
            key.rpartition("/")[2]: array
            for key, array in self.actions.items()
            if key.rpartition("/")[0] == task
        }
        ends = np.cumsum(mine.pop("rounds"))
        starts = np.concatenate(([0], ends[:-1]))
        return [
            {key: array[start:end] for key, array in mine.items()}
            for start, end in zip(starts, ends)
        ]


def read_results(folder: Path) -> tuple[list[dict[str, str]], dict[str, NDArray[Any]]]:
    """Rows of episodes.csv and arrays of actions.npz."""
    with np.load(folder / "actions.npz", allow_pickle=False) as arrays:
        return _read(folder / "episodes.csv"), dict(arrays)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf8") as file:
        return list(csv.DictReader(file))
