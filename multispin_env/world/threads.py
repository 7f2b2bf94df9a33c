"""Cells shared out over threads of this process, in compiled code without Python's lock."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

#: Devices (cells times K) that are worth waking up another thread for.
WORTH_A_THREAD: Final = 4000

_pool: ThreadPoolExecutor | None = None


def available() -> int:
    """How many threads are used unless told otherwise: the cores that are this process's own.

    Those it may run on, but no more than `OMP_NUM_THREADS` or `NUMBA_NUM_THREADS` allow: joblib and
    Ray set them for their workers. In a child of :mod:`multiprocessing` (a worker of
    `AsyncVectorEnv`, `SubprocVecEnv` or a data loader) it is one, for its siblings have the others.
    """
    if multiprocessing.parent_process() is not None:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limits = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")]
    return max(1, min(cores or 1, *(int(limit) for limit in limits if limit.isdigit()), 1024))


def shares(num_cells: int, num_devices: int, threads: int) -> list[tuple[int, int]]:
    """Ranges of cells, one for each thread that is worth it; they cover all cells."""
    worthwhile = num_cells * num_devices // WORTH_A_THREAD
    count = max(1, min(threads, worthwhile, num_cells))
    borders = [num_cells * i // count for i in range(count + 1)]
    return list(itertools.pairwise(borders))


def run(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> None:
    """Call a function for every job, the first in this thread; returns when all are done."""
    futures: list[Future[Any]] = [_threads().submit(function, *job) for job in jobs[1:]]
    try:
        function(*jobs[0])
    finally:
        for future in futures:
            future.result()


def _threads() -> ThreadPoolExecutor:
    """The threads of this process; they are started when there is work for them."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="multispin")
    return _pool


def _forget() -> None:
    """A forked child has the pool, but none of its threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
