"""Work spread over processes of this machine (joblib), or over the machines of a Ray cluster."""

from __future__ import annotations

import importlib
import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from multispin_env.solvers.problems import check_integer

Backend = Literal["loky", "ray"]
#: How often work is done again because the process that did it died.
RETRIES: Final = 3

Result = TypeVar("Result")


class WorkerDiedError(RuntimeError):
    """Processes died again and again, as when they need more memory than there is."""

    def __init__(self) -> None:
        super().__init__(
            f"worker processes died {RETRIES + 1} times: out of memory? Try fewer workers"
        )


def check(workers: int, backend: str) -> None:
    """Whether work can be spread like that.

    Raises:
        ValueError: no worker, no such backend, or Ray without Ray or without a cluster.
    """
    check_integer("workers", workers, 1)
    if backend not in get_args(Backend):
        raise ValueError(f"backend = {backend!r}: must be one of {list(get_args(Backend))}")
    if backend == "ray":
        _connect()


def spread(
    function: Callable[..., Result],
    jobs: Sequence[tuple[Any, ...]],
    workers: int = 1,
    backend: str = "loky",
) -> Iterator[tuple[int, Result]]:
    """Call a function for every job; yields (number of the job, result) as they finish.

    What a job's process did when it died is done again, so that every job is yielded once.

    Args:
        function: pure, so that it may be called again; importable wherever it is called, or a
            plain function of a script.
        jobs: its arguments.
        workers: processes of this machine; on a cluster every free core works.
        backend: `loky`, or `ray` for the cluster that runs here or at RAY_ADDRESS.

    Raises:
        ValueError: see :func:`check`.
        WorkerDiedError: processes died more than three times.
        Exception: the first that the function raises; other jobs are given up.
    """
    check(workers, backend)
    return (
        _over_cluster(function, jobs)
        if backend == "ray"
        else _over_processes(function, jobs, workers)
    )


def _numbered(
    number: int, function: Callable[..., Result], job: tuple[Any, ...]
) -> tuple[int, Result]:
    return number, function(*job)


def _over_processes(
    function: Callable[..., Result], jobs: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[tuple[int, Result]]:
    left = dict(enumerate(jobs))
    for _ in range(1 + RETRIES):
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
        work = [joblib.delayed(_numbered)(number, function, job) for number, job in left.items()]
        found = parallel(work)
        try:
            for number, result in found:
                del left[number]
                yield number, result
        except TerminatedWorkerError:  # takes along what the other processes were doing
            continue
        return
    raise WorkerDiedError


# Plain tasks and not joblib's Ray backend (ray.util.joblib): that one cannot yield results as they
# finish, and a worker that dies ends it with an ActorDiedError.
def _over_cluster(
    function: Callable[..., Result], jobs: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Result]]:
    ray = _connect()
    errors = importlib.import_module("ray.exceptions")
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(_there)
    shared, folder = ray.put(function), Path.cwd()
    queue = iter(enumerate(jobs))
    pending: dict[Any, int] = {}
    try:
        while True:
            # A few ahead, for what runs on after an error; to cancel a task that is about to end
            # can abort this process (Ray 2.60).
            ahead = max(1, 2 * int(ray.cluster_resources().get("CPU", 1)) - len(pending))
            for number, job in itertools.islice(queue, ahead):
                pending[task.remote(folder, shared, job)] = number
            if not pending:
                return
            (done, *_), _ = ray.wait(list(pending))
            number = pending.pop(done)
            yield number, ray.get(done)
    except errors.RayTaskError as error:
        raise error.cause from error
    except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
        raise WorkerDiedError from error


def _there(folder: Path, function: Callable[..., Result], job: tuple[Any, ...]) -> Result:
    """Call a function on a machine of the cluster, in the folder of the same path."""
    if not folder.is_dir():
        raise ValueError(
            f"{socket.gethostname()} has no folder {folder}: the project and the policy's files "
            "must lie at the same path on every machine"
        )
    os.chdir(folder)
    return function(*job)


def _connect() -> Any:
    """Ray, connected to a cluster that is there."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise ValueError(
            "backend = 'ray': Ray is not installed: pip install 'multispin-env[cluster]'"
        ) from error
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        if colon:  # Ray itself would wait for minutes
            socket.create_connection((host, int(port)), timeout=10.0).close()
        ray.init(address=address or "auto", log_to_driver=False, logging_level="warning")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"backend = 'ray': there is no cluster {f'at {address}' if address else 'here'}: start "
            "one with `ray start --head`, or set RAY_ADDRESS=HOST:6379"
        ) from error
    return ray
