"""Is an entry what it says? Replay its actions, and rerun its policy from the files alone."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from multispin_env.benchmark.entry import MAX_DECISION_MS, PLAIN_FILES, Entry, hash_files, load_run
from multispin_env.benchmark.isolation import IsolatedPolicy
from multispin_env.benchmark.results import COLUMNS, Results, episode_row
from multispin_env.benchmark.rollout import Episode, Factory, PolicyError, play, play_episode
from multispin_env.benchmark.statistics import Estimate, adjusted_difference, holm
from multispin_env.benchmark.suite import Task

#: Relative difference of replayed numbers that passes for rounding.
TOLERANCE: Final = 1e-9
#: Difference of a rerun bandwidth share that passes for rounding.
SHARE_TOLERANCE: Final = 1e-5

#: Episodes of each task that only the verifier knows, and when they tell against a policy: low, as
#: the stated ones are the same for all entries, and no entry should be rejected by chance.
FRESH_EPISODES: Final = 32
FRESH_LEVEL: Final = 1e-4
#: How much slower a decision may be here than declared, and what the pipe adds [ms].
TIME_SLACK: Final = 3.0
PIPE_MS: Final = 1.0

#: What reading a hostile file of results may raise.
UNREADABLE: Final = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    zipfile.BadZipFile,
)

VERIFIED, REPLAYED, REJECTED = "verified", "replayed", "rejected"


@dataclass(frozen=True)
class Verification:
    """The outcome: `verified` (replayed and rerun), `replayed` (not rerun) or `rejected`."""

    status: str
    reason: str  #: of a rejection, else empty
    entry_sha256: str  #: of entry.toml, which has the hashes of all other files
    decision_ms: float | None  #: as measured in the rerun

    def save(self, folder: str | Path) -> None:
        """Write the outcome to verifications.json, beside the entry's folder, not inside."""
        folder = Path(folder).resolve()
        stored = _stored(folder) | {folder.name: asdict(self)}
        text = json.dumps(stored, indent=2, sort_keys=True) + "\n"
        (folder.parent / "verifications.json").write_text(text, "utf8")

    @classmethod
    def load(cls, folder: str | Path) -> Verification | None:
        """The stored outcome; None if there is none, or a file of the entry has changed since."""
        folder = Path(folder).resolve()
        outcome = _stored(folder).get(folder.name)
        if outcome is None or outcome["entry_sha256"] != _entry_hash(folder):
            return None
        try:
            unchanged = hash_files(folder) == Entry.load(folder).files
        except ValueError:
            unchanged = False
        return cls(**outcome) if unchanged or outcome["status"] == REJECTED else None


def _stored(folder: Path) -> dict[str, Any]:
    path = folder.parent / "verifications.json"
    found: dict[str, Any] = json.loads(path.read_text("utf8")) if path.is_file() else {}
    return found


class RejectionError(Exception):
    """The entry does not hold what it says; the message is the reason."""


def verify(
    folder: str | Path,
    companion: Factory | None,
    *,
    trust_pickles: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> Verification:
    """Check an entry from its files, and note the outcome in verifications.json beside its folder.

    1. The rules: entry.toml, the suite's hash, the hash of every file, no pickles.
    2. Replay: the stored actions are played, and every number must follow.
    3. Rerun: the policy is made again in a process of its own, from a copy of the entry's files
       without its results. It is sent observations and answers with actions, which must be the
       stored ones; environment, seeds and clock stay here. Then it plays fresh episodes: it must
       not play the stated ones better than those, beside what a companion makes of both. This runs
       the entry's code: do it where that is safe.

    Args:
        folder: of the entry.
        companion: `make(env) -> policy` of an honest policy for all tasks, the stronger the better.
            How well episodes go for it tells lucky ones from known ones. None: the third step is
            left out, and the entry is at most `replayed`.
        trust_pickles: accept files that run code when they are loaded.
        progress: called with what is done next, and what the rerun finds on each task.

    Raises:
        ValueError: the folder holds no entry.
    """
    folder = Path(folder)
    if not (folder / "entry.toml").is_file():
        raise ValueError(f"folder = {folder}: holds no entry.toml")
    decision_ms = None
    try:
        progress("rules")
        entry = _check_rules(folder, trust_pickles)
        results = _check_runs(folder, entry)
        for run, stated in results.items():
            progress(f"replay of {run}")
            replay(entry, run, stated)
        if companion is not None:
            times = []
            beside = _Companion(companion, entry)
            for run, stated in results.items():
                progress(f"rerun of {run}")
                times.append(_rerun(folder, entry, run, stated, beside, progress))
            decision_ms = float(np.mean(times))
            _check_time(entry, decision_ms)
    except RejectionError as rejection:
        outcome = Verification(REJECTED, str(rejection), _entry_hash(folder), None)
    else:
        status = REPLAYED if companion is None else VERIFIED
        outcome = Verification(status, "", _entry_hash(folder), decision_ms)
    outcome.save(folder)
    return outcome


def _entry_hash(folder: Path) -> str:
    return hashlib.sha256((folder / "entry.toml").read_bytes()).hexdigest()


def _check_time(entry: Entry, decision_ms: float) -> None:
    """Machines differ: a declared time is doubted when it is passed by far."""
    limits = [entry.decision_time_ms]
    limits += [MAX_DECISION_MS] if entry.division == "learned-closed" else []
    if decision_ms > TIME_SLACK * min(limits) + PIPE_MS:
        raise RejectionError(
            f"a decision took {decision_ms:.2f} ms here, declared are {entry.decision_time_ms} ms"
        )


def _check_rules(folder: Path, trust_pickles: bool) -> Entry:
    try:
        entry = Entry.load(folder)
        entry.load_suite()
        for task in entry.chosen_tasks():
            task.seeds(entry.split, None, entry.value)
        present = hash_files(folder)
    except ValueError as error:
        raise RejectionError(str(error)) from error
    for name in sorted({*present, *entry.files}):
        if name not in present:
            raise RejectionError(f"{name} is missing")
        if name not in entry.files:
            raise RejectionError(f"{name} is not listed in entry.toml")
        if present[name] != entry.files[name]:
            raise RejectionError(f"{name} has changed: its SHA-256 is not that of entry.toml")
        if Path(name).suffix.lower() not in PLAIN_FILES and not trust_pickles:
            raise RejectionError(
                f"{name} may run code when it is loaded: ship safetensors or ONNX, or let the "
                "verifier trust it"
            )
    source = entry.policy.rpartition(":")[0]
    needed = [f"{run}/{name}" for run in entry.runs for name in ("episodes.csv", "actions.npz")]
    for name in [*needed, *([source] if source.endswith(".py") else [])]:
        if name not in entry.files:
            raise RejectionError(f"{name} is missing")
    return entry


def _check_runs(folder: Path, entry: Entry) -> dict[str, Results]:
    """Every run's results, which are whole; training seeds differ."""
    found, seen = {}, set()
    for run in entry.runs:
        try:
            stated = load_run(folder, entry, run)
            stated.check_complete()
        except UNREADABLE as error:
            raise RejectionError(f"{run}: {error}") from error
        digest = hashlib.sha256()
        for name in sorted(stated.actions):
            digest.update(name.encode() + np.ascontiguousarray(stated.actions[name]).tobytes())
        if entry.division == "learned-closed" and digest.digest() in seen:
            raise RejectionError("runs: two have the same actions, but must be training seeds")
        seen.add(digest.digest())
        found[run] = stated
    return found


class _Playback:
    """A policy that plays stored actions."""

    def __init__(self, actions: dict[str, NDArray[Any]]) -> None:
        self._actions = {
            key: value for key, value in actions.items() if key not in ("emitted", "latency_s")
        }
        self._next = 0

    def predict(self, observation: Any, state: Any = None, **_: Any) -> tuple[Any, Any]:
        number = self._next
        self._next += 1
        if any(number >= len(array) for array in self._actions.values()):
            raise ValueError(f"actions end after {number} rounds, but the episode goes on")
        row = {
            key: array[number].astype(np.float32 if key == "bandwidth" else np.int64)
            for key, array in self._actions.items()
        }
        return row.get("action", row), state


def replay(entry: Entry, run: str, stated: Results) -> None:
    """Play a run's stored actions and compare every number; the results are checked to be whole.

    Raises:
        RejectionError: a number does not follow from the actions.
    """
    rows = iter(stated.rows)
    for task in entry.chosen_tasks():
        env = task.make(entry.track)
        stored = stated.episode_actions(task.name)
        seeds = task.seeds(entry.split, None, entry.value)
        for number, (seed, actions) in enumerate(zip(seeds, stored, strict=True)):
            where = f"{run}, {task.name}, episode {number}"
            try:
                episode = play_episode(env, _Playback(actions), task, seed)
            except PolicyError as error:
                raise RejectionError(f"{where}: {error}") from error
            _compare(where, task, number, episode, next(rows), actions, entry.decision_time_ms)


def _compare(
    where: str,
    task: Task,
    number: int,
    episode: Episode,
    stated: dict[str, str],
    actions: dict[str, NDArray[Any]],
    decision_time_ms: float,
) -> None:
    found = dict(zip(COLUMNS, episode_row(task, number, episode, decision_time_ms)))
    for key, value in found.items():
        told = stated.get(key) or ""
        if told != value and not (key.endswith("goodput") and _close(told, value)):
            raise RejectionError(f"{where}: {key} is stated as {told}, replayed as {value}")
    for key in ("emitted", "latency_s"):
        mine = getattr(episode, key)
        if len(mine) != len(actions[key]) or not np.allclose(
            mine, actions[key], rtol=TOLERANCE, atol=0.0
        ):
            raise RejectionError(f"{where}: {key} of a round does not follow from the actions")


def _close(told: str, value: str) -> bool:
    try:
        return bool(abs(float(told) - float(value)) <= TOLERANCE * abs(float(value)))
    except ValueError:
        return False


class _Companion:
    """An honest policy, and what it gets in the episodes of an entry [tokens/s]."""

    def __init__(self, factory: Factory, entry: Entry) -> None:
        self._factory, self._entry = factory, entry
        self._stated: dict[str, list[float]] = {}

    def stated(self, task: Task) -> list[float]:
        """In the stated episodes, which are the same in all runs."""
        if task.name not in self._stated:
            seeds = task.seeds(self._entry.split, None, self._entry.value)
            self._stated[task.name] = self.goodputs(task, seeds)
        return self._stated[task.name]

    def goodputs(self, task: Task, seeds: Sequence[int]) -> list[float]:
        """In the episodes of given seeds."""
        played = play(self._factory, task, seeds, self._entry.track, expected=False)
        return [episode.goodput for episode in played]


def _rerun(
    folder: Path,
    entry: Entry,
    run: str,
    stated: Results,
    beside: _Companion,
    progress: Callable[[str], None],
) -> float:
    """Rerun a policy apart from everything else; returns the measured time of a decision [ms]."""
    seconds: list[float] = []
    fresh_seconds: list[float] = []
    doubts: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        for file in entry.files:
            if file.split("/")[0] not in entry.runs:  # the policy must not see its own answers
                copy = Path(name) / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / file, copy)
        with _isolated(Path(name), entry, run) as policy:
            for task in entry.chosen_tasks():
                env = task.make(entry.track)
                seeds = task.seeds(entry.split, None, entry.value)
                stored = stated.episode_actions(task.name)
                for number, (seed, actions) in enumerate(zip(seeds, stored, strict=True)):
                    where = f"{run}, {task.name}, episode {number}"
                    episode = _play_apart(policy, env, task, seed, where)
                    seconds.append(episode.decision_s)
                    for key, array in episode.actions.items():
                        if key not in actions or not _same_actions(array, actions[key]):
                            raise RejectionError(
                                f"{where}: the rerun policy acts otherwise. One that tosses coins "
                                "needs a method seed(int), and must draw from that seed alone"
                            )
                secret = [secrets.randbelow(2**48) for _ in range(FRESH_EPISODES)]
                fresh = [
                    _play_apart(policy, env, task, seed, f"{run}, {task.name}, a fresh episode")
                    for seed in secret
                ]
                fresh_seconds += [episode.decision_s for episode in fresh]
                told = stated.column(task.name, "goodput")
                difference = adjusted_difference(
                    told,
                    [episode.goodput for episode in fresh],
                    beside.stated(task),
                    beside.goodputs(task, secret),
                )
                doubts[task.name] = _known_beforehand(difference, float(told.mean()))
                better, error = (
                    100.0 * x / told.mean() for x in (difference.value, difference.half_width)
                )
                progress(
                    f"{task.name}: stated episodes are played {better:+.2f} ± {error:.2f} % better "
                    "than fresh ones"
                )
    together = float(stats.combine_pvalues(list(doubts.values()), "stouffer").pvalue)
    for name, p in [*zip(doubts, holm(list(doubts.values()))), ("all tasks together", together)]:
        if p < FRESH_LEVEL:
            raise RejectionError(
                f"{run}, {name}: the stated episodes are played better than fresh ones "
                f"(p = {p:.1g}): the policy seems to know them"
            )
    return 1e3 * max(float(np.mean(seconds)), float(np.mean(fresh_seconds)))


def _isolated(folder: Path, entry: Entry, run: str) -> IsolatedPolicy:
    try:
        return IsolatedPolicy(
            folder, entry.policy, entry.runs[run], _absolute(entry.suite), entry.track
        )
    except (PolicyError, TypeError) as error:  # options that are no JSON
        raise RejectionError(f"{run}: the policy cannot be rerun: {error}") from error


def _known_beforehand(difference: Estimate, goodput: float) -> float:
    """p-value of stated episodes that are played no better than fresh ones."""
    rounding = TOLERANCE * goodput
    if difference.standard_error <= rounding:  # the companion itself, or goodputs that never vary
        return 0.5 if difference.value <= rounding else 0.0
    return float(np.clip(difference.p_above, 1e-300, 1.0 - 1e-12))


def _play_apart(
    policy: IsolatedPolicy, env: gym.Env[Any, Any], task: Task, seed: int, where: str
) -> Episode:
    try:
        return play_episode(env, policy.start(task, seed), task, seed, expected=False)
    except PolicyError as error:
        raise RejectionError(f"{where}: the policy cannot be rerun: {error}") from error


def _absolute(suite: str) -> str:
    """A suite's file, wherever it is loaded from."""
    return str(Path(suite).resolve()) if suite.endswith(".toml") else suite


def _same_actions(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind == "f":
        return bool(np.allclose(a, b, rtol=0.0, atol=SHARE_TOLERANCE))
    return bool(np.array_equal(a, b))
