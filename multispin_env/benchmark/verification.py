"""Is an entry what it says? Replay its actions, and rerun its policy from the files alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multispin_env.benchmark.entry import PICKLES, Entry, hash_files, load_run
from multispin_env.benchmark.results import COLUMNS, episode_row, load_factory, unpack_episodes
from multispin_env.benchmark.rollout import Episode, check_causal, play_episode
from multispin_env.benchmark.suite import Task

#: Relative difference of replayed numbers that passes for rounding.
TOLERANCE: Final = 1e-9
#: Difference of a rerun bandwidth share that passes for rounding.
SHARE_TOLERANCE: Final = 1e-5

VERIFIED, REPLAYED, REJECTED = "verified", "replayed", "rejected"


@dataclass(frozen=True)
class Verification:
    """The outcome: `verified` (replayed and rerun), `replayed` (not rerun) or `rejected`."""

    status: str
    reason: str  #: of a rejection, else empty
    entry_sha256: str  #: of entry.toml, and by it of everything
    decision_ms: float | None  #: as measured in the rerun

    def save(self, folder: str | Path) -> None:
        """Write verification.json beside the entry."""
        text = json.dumps(asdict(self), indent=2) + "\n"
        (Path(folder) / "verification.json").write_text(text, "utf8")

    @classmethod
    def load(cls, folder: str | Path) -> Verification | None:
        """The stored outcome, or None if there is none or the entry has changed since."""
        path = Path(folder) / "verification.json"
        if not path.is_file():
            return None
        found = cls(**json.loads(path.read_text("utf8")))
        return found if found.entry_sha256 == _entry_hash(Path(folder)) else None


class RejectionError(Exception):
    """The entry does not hold what it says; the message is the reason."""


def verify(
    folder: str | Path,
    *,
    rerun: bool = True,
    trust_pickles: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> Verification:
    """Check an entry from its files, and write verification.json.

    1. The rules: entry.toml, the suite's hash, the hash of every file, no pickles.
    2. Replay: the stored actions are played, and every number must follow.
    3. Rerun: in a fresh process, in a copy of the entry's files, the policy is made and played
       again; its actions must be the stored ones, and it must not act on the future
       (:func:`check_causal`). This runs the entry's code: do it where that is safe.

    Args:
        folder: of the entry.
        rerun: whether to do the third step; without it the entry is at most `replayed`.
        trust_pickles: accept files that run code when they are loaded.
        progress: called with what is done next.

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
        for run in entry.runs:
            progress(f"replay of {run}")
            replay(folder, entry, run)
        if rerun:
            times = []
            for run in entry.runs:
                progress(f"rerun of {run}")
                times.append(_rerun(folder, entry, run))
            decision_ms = float(np.mean(times))
    except RejectionError as rejection:
        outcome = Verification(REJECTED, str(rejection), _entry_hash(folder), None)
    else:
        status = VERIFIED if rerun else REPLAYED
        outcome = Verification(status, "", _entry_hash(folder), decision_ms)
    outcome.save(folder)
    return outcome


def _entry_hash(folder: Path) -> str:
    return hashlib.sha256((folder / "entry.toml").read_bytes()).hexdigest()


def _check_rules(folder: Path, trust_pickles: bool) -> Entry:
    try:
        entry = Entry.load(folder)
        entry.load_suite()
    except ValueError as error:
        raise RejectionError(str(error)) from error
    present = hash_files(folder)
    for name in sorted({*present, *entry.files}):
        if name not in present:
            raise RejectionError(f"{name} is missing")
        if name not in entry.files:
            raise RejectionError(f"{name} is not listed in entry.toml")
        if present[name] != entry.files[name]:
            raise RejectionError(f"{name} has changed: its SHA-256 is not that of entry.toml")
        if Path(name).suffix in PICKLES and not trust_pickles:
            raise RejectionError(
                f"{name} may run code when it is loaded: ship safetensors or ONNX, or let the "
                "verifier trust it"
            )
    return entry


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
            raise RejectionError(f"actions end after {number} rounds, but the episode goes on")
        row = {
            key: array[number].astype(np.float32 if key == "bandwidth" else np.int64)
            for key, array in self._actions.items()
        }
        return row.get("action", row), state


def replay(folder: str | Path, entry: Entry, run: str) -> None:
    """Play a run's stored actions and compare every number.

    Raises:
        RejectionError: a number does not follow from the actions, or an episode is missing.
    """
    suite = entry.load_suite()
    try:
        stated = load_run(folder, entry, run)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise RejectionError(f"{run}: {error}") from error
    expected_rows = sum(len(task.seeds(entry.split, None, entry.value)) for task in suite.tasks)
    if len(stated.rows) != expected_rows:
        raise RejectionError(f"{run}/episodes.csv has {len(stated.rows)} rows, not {expected_rows}")
    rows = iter(stated.rows)
    for task in suite.tasks:
        env = task.make(entry.track)
        try:
            stored = stated.episode_actions(task.name)
        except (KeyError, ValueError) as error:
            raise RejectionError(f"{run}/actions.npz lacks {task.name}: {error}") from error
        seeds = task.seeds(entry.split, None, entry.value)
        if len(stored) != len(seeds):
            raise RejectionError(f"{run}/actions.npz has {len(stored)} episodes of {task.name}")
        for number, (seed, actions) in enumerate(zip(seeds, stored)):
            where = f"{run}, {task.name}, episode {number}"
            try:
                episode = play_episode(env, _Playback(actions), task, seed)
            except (ValueError, RejectionError) as error:
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


def _rerun(folder: Path, entry: Entry, run: str) -> float:
    """Rerun a policy in a fresh process; returns the measured time of a decision [ms]."""
    with tempfile.TemporaryDirectory() as name:
        copy, output = Path(name) / "entry", Path(name) / "rerun"
        output.mkdir()
        for file in ["entry.toml", *entry.files]:
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / file, copy / file)
        command = [sys.executable, "-m", __name__, str(copy), run, str(output)]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise RejectionError(f"{run}: the policy cannot be rerun: {last}")
        stated = load_run(folder, entry, run)
        times = []
        for task in entry.load_suite().tasks:
            with np.load(output / f"{task.name}.npz") as arrays:
                packed = dict(arrays)
            suspicious = packed.pop("suspicious")
            if suspicious.size:
                raise RejectionError(
                    f"{run}, {task.name}: the action in round {suspicious[0]} depends on the future"
                )
            stored = stated.episode_actions(task.name)
            for number, (episode, actions) in enumerate(zip(unpack_episodes(packed), stored)):
                times.append(episode.decision_s)
                for key, array in episode.actions.items():
                    if not _same_actions(array, actions[key]):
                        raise RejectionError(
                            f"{run}, {task.name}, episode {number}: the rerun policy acts otherwise"
                        )
    return 1e3 * float(np.mean(times))


def _same_actions(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind == "f":
        return bool(np.allclose(a, b, rtol=0.0, atol=SHARE_TOLERANCE))
    return bool(np.array_equal(a, b))


def _play_again(folder: Path, run: str) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
    """Every task's episodes, and the rounds in which the policy acts on the future."""
    from multispin_env.benchmark.results import pack_episodes
    from multispin_env.benchmark.rollout import play

    entry = Entry.load(folder)
    factory = load_factory(entry.policy, entry.runs[run], folder)
    for task in entry.load_suite().tasks:
        seeds = task.seeds(entry.split, None, entry.value)
        packed = pack_episodes(play(factory, task, seeds, entry.track, expected=False))
        suspicious = check_causal(factory, task, track=entry.track, seed=seeds[0])
        packed["suspicious"] = np.array(suspicious, np.int64)
        yield task.name, packed


def _main() -> None:
    folder, run, output = sys.argv[1:]
    for name, packed in _play_again(Path(folder), run):
        np.savez_compressed(Path(output) / f"{name}.npz", **packed)  # type: ignore[arg-type]


if __name__ == "__main__":
    _main()
