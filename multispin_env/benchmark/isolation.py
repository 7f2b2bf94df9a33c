"""A policy in a process of its own, which sees observations and nothing else.

The parent keeps the environment, its seeds and the clock; the child makes the policy and answers
with actions. Messages are arrays of numbers behind a JSON header, never pickles: the child's code
is not trusted. For POSIX systems.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from multispin_env.benchmark.results import load_factory
from multispin_env.benchmark.rollout import PolicyError, decide, make_policy, policy_seed
from multispin_env.benchmark.suite import Task, load

#: A child that takes longer for an answer is stopped [s].
PATIENCE_S: Final = 120.0
_MOST_BYTES: Final = 2**26
#: What a child that is gone, or does not keep to the format, can cause here.
_BAD_ANSWERS: Final = (
    *(OSError, EOFError, ValueError, LookupError),
    *(TypeError, AttributeError, RecursionError),
)
Arrays = dict[str, NDArray[Any]]


#: Decisions are timed on one core: what libraries are told of their threads by.
THREADS: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


class IsolatedPolicy:
    """The parent's side: makes policies in a child process and passes on what they decide.

    Use as a context manager.

    Args:
        folder: holds the policy's file; None for an installed module.
        policy, options: see :class:`multispin_env.benchmark.Plan`.
        suite: name or path.
        track: `full` or `feedback`.
    """

    def __init__(
        self, folder: Path, policy: str, options: Mapping[str, Any], suite: str, track: str
    ) -> None:
        self._nowhere = tempfile.TemporaryDirectory()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed on exit
        self._child = subprocess.Popen(
            # -P and an empty working directory: the entry's files hide no module.
            [sys.executable, "-P", "-m", __name__],
            cwd=self._nowhere.name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=os.environ | dict.fromkeys(THREADS, "1"),
            start_new_session=True,
        )
        start = {"folder": str(folder), "policy": policy, "options": options}
        self._ask(start | {"suite": suite, "track": track})

    def __enter__(self) -> IsolatedPolicy:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._words.close()
        self._nowhere.cleanup()

    def start(self, task: Task, seed: int) -> IsolatedPolicy:
        """A new policy for an episode; the child never learns the episode's seed."""
        self._ask({"task": task.name, "policy_seed": policy_seed(seed)})
        return self

    def predict(
        self, observation: Mapping[str, NDArray[Any]], episode_start: Any = None, **_: Any
    ) -> tuple[Any, None]:
        """The child's action. The policy's state stays in the child."""
        answer = self._ask({"start": bool(np.all(episode_start))}, dict(observation))
        return answer.get("action", answer), None

    def _ask(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Arrays:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            _send(self._child.stdin, header, arrays or {})
            answer, found = _receive(self._child.stdout, PATIENCE_S)
        except _BAD_ANSWERS as error:
            raise PolicyError(f"the policy's process failed: {self._last_words(error)}") from error
        if "error" in answer:
            raise PolicyError(str(answer["error"]))
        return found

    def _stop(self) -> None:
        """End the child, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.communicate()

    def _last_words(self, error: Exception) -> str:
        self._stop()
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"{type(error).__name__}: {error}"


def _send(pipe: BinaryIO | Any, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    parts = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
    shapes = [[key, part.dtype.str, list(part.shape)] for key, part in parts.items()]
    text = json.dumps({**header, "arrays": shapes}).encode()
    body = b"".join(part.tobytes() for part in parts.values())
    pipe.write(struct.pack("<II", len(text), len(body)) + text + body)
    pipe.flush()


def _receive(
    pipe: BinaryIO | Any, patience_s: float | None = None
) -> tuple[dict[str, Any], Arrays]:
    sizes = struct.unpack("<II", _read(pipe, 8, patience_s))
    if sum(sizes) > _MOST_BYTES:
        raise ValueError("an answer is too large")
    header = json.loads(_read(pipe, sizes[0], patience_s))
    body = _read(pipe, sizes[1], patience_s)
    arrays, place = {}, 0
    for key, kind, shape in header.pop("arrays"):
        dtype = np.dtype(kind)
        if dtype.kind not in "iufb":
            raise ValueError(f"dtype {dtype} of {key!r}: must be numbers")
        count = int(np.prod(shape, dtype=np.int64))
        arrays[key] = np.frombuffer(body, dtype, count, place).reshape(shape).copy()
        place += count * dtype.itemsize
    return header, arrays


def _read(pipe: BinaryIO | Any, size: int, patience_s: float | None) -> bytes:
    """Exactly `size` bytes, straight from the file descriptor."""
    descriptor, parts, missing = pipe.fileno(), [], size
    end = None if patience_s is None else time.monotonic() + patience_s
    while missing:
        left = None if end is None else max(end - time.monotonic(), 0.0)
        if not select.select([descriptor], [], [], left)[0]:
            raise OSError(f"no answer within {patience_s} s")
        part = os.read(descriptor, missing)
        if not part:
            raise EOFError("it ended")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


class _PackagesOfTheClone:
    """Finds the packages that lie beside `multispin_env`, and no other file there."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name in ("baselines", "agents"):
            return PathFinder.find_spec(name, [str(self._root)], target)
        return None


def _hide_the_clone() -> None:
    """Leave the packages of a clone importable, but nothing else that lies in it."""
    root = Path(__file__).resolve().parents[2]
    if root.name != "site-packages":
        sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != root]
        sys.meta_path.append(_PackagesOfTheClone(root))


def _serve(source: BinaryIO, sink: BinaryIO) -> None:
    """The child's side: answer until the parent is gone."""
    start, _ = _receive(source)
    factory, policy, state = None, None, None
    _send(sink, {}, {})
    while True:
        try:
            request, observation = _receive(source)
        except EOFError:
            return
        answer: Arrays = {}
        problem: dict[str, str] = {}
        try:
            if factory is None:
                factory = load_factory(start["policy"], start["options"], Path(start["folder"]))
            if "task" in request:
                task = load(start["suite"]).task(request["task"])
                env = task.make(start["track"])
                policy = make_policy(factory, env, task, request["policy_seed"])
                state = None
            else:
                begins = np.array([request["start"]])
                action, state = decide(policy, observation, state, begins)
                answer = action if isinstance(action, dict) else {"action": np.asarray(action)}
        except Exception as error:
            problem = {"error": f"{error}"}
        _send(sink, problem, answer)


def _main() -> None:
    # What the policy prints goes to the error stream, not between the messages.
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _hide_the_clone()
    _serve(source, sink)


if __name__ == "__main__":
    _main()
