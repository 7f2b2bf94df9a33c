"""Work spread over processes and over a Ray cluster: the same results, and nothing lost."""

import importlib
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from multispin_env import benchmark, parallel
from multispin_env.benchmark import Plan, PolicyError, results

CLUSTER = "needs the extra [cluster]: ray"
ROOT = Path(__file__).resolve().parent.parent
FILES = ("results.json", "episodes.csv", "actions.npz")
SUITE = """
name = "tiny"
dev_episodes = 20
[[tasks]]
name = "draft"
env = "multispin/DraftLength-v0"
scenario = "qwen2.5"
overrides = {num_devices = 4, "episode.horizon_s" = 3.0, %s}
[[tasks]]
name = "modes"
env = "multispin/ModeSelection-v0"
scenario = "qwen2.5"
overrides = {num_devices = 4, "episode.horizon_s" = 3.0, %s}
""" % (("reference_goodput = 50.0, reference_draft_length = 4",) * 2)
# Notes every episode; while a file `kill` lies beside it, the twelfth episode kills its process.
POLICY = """
import os
import signal
from pathlib import Path

import baselines

FOLDER = Path(__file__).parent


class Noting:
    def __init__(self, env):
        self.predict = baselines.portfolio("papers", env).predict

    def seed(self, own_seed):
        with (FOLDER / "log").open("a") as log:
            log.write(f"{own_seed}\\n")
        if len((FOLDER / "log").read_text().split()) >= 12:
            try:
                (FOLDER / "kill").unlink()
            except FileNotFoundError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


make = Noting
"""


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    """A token of its own, and nothing is sent to anybody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", os.urandom(32).hex())
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A suite and a policy."""
    folder = tmp_path_factory.mktemp("policy")
    (folder / "tiny.toml").write_text(SUITE)
    (folder / "noting.py").write_text(POLICY)
    return folder


@pytest.fixture(scope="module")
def plan(folder):
    return Plan(str(folder / "tiny.toml"), f"{folder}/noting.py:make")


@pytest.fixture(scope="module")
def finished(plan, tmp_path_factory):
    """Files that one process wrote."""
    folder = tmp_path_factory.mktemp("finished")
    list(benchmark.run(plan, folder))
    return contents(folder)


@pytest.fixture(scope="module")
def cluster():
    """Two workers of Ray on this machine, however little shared memory it has; the address."""
    ray = pytest.importorskip("ray", reason=CLUSTER)
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 * 2**20,
        log_to_driver=False,
        logging_level="error",
    )
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(params=["loky", "ray"])
def backend(request):
    """Each of the two; Ray with a cluster that is there."""
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return request.param


def contents(folder):
    return [(folder / name).read_bytes() for name in FILES]


def test_what_cannot_work_is_said(monkeypatch):
    with pytest.raises(ValueError, match=r"backend = 'dask': must be one of \['loky', 'ray'\]"):
        parallel.spread(abs, [(1,)], backend="dask")
    with pytest.raises(ValueError, match="workers = 0"):
        parallel.spread(abs, [(1,)], workers=0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"not installed: pip install 'multispin-env\[cluster\]'"):
        parallel.spread(abs, [(1,)], backend="ray")


def test_a_machine_without_the_project_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"has no folder .*gone: the project and the policy's"):
        parallel._there(tmp_path / "gone", abs, (1,))


def test_a_missing_cluster_is_refused_before_anything_is_written(plan, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason=CLUSTER)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ValueError, match=r"no cluster at 127\.0\.0\.1:1: start one with `ray"):
        parallel.spread(abs, [(1,)], backend="ray")
    with pytest.raises(ValueError, match="no cluster"):
        list(benchmark.run(plan, tmp_path / "x", backend="ray"))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("backend", "workers"), [("loky", 1), ("loky", 2), ("ray", 1)])
def test_every_job_is_yielded_once_with_its_number(backend, workers, request):
    if backend == "ray":
        request.getfixturevalue("cluster")
    jobs = [(number, 3) for number in range(20)]
    found = list(parallel.spread(lambda a, b: (a**b, os.getpid()), jobs, workers, backend))
    assert sorted((number, result) for number, (result, _) in found) == [
        (number, number**3) for number in range(20)
    ]
    here = {process for _, (_, process) in found} == {os.getpid()}
    assert here == (workers == 1 and backend == "loky")


def test_a_killed_worker_loses_nothing(backend, folder, plan, finished, tmp_path, monkeypatch):
    written, write = [], results._write_block

    def noted(path, block):
        written.append(path)
        write(path, block)

    monkeypatch.setattr(results, "_write_block", noted)
    (folder / "kill").touch()
    (folder / "log").write_text("")
    steps = list(benchmark.run(plan, tmp_path, workers=2, backend=backend))
    assert not (folder / "kill").exists()
    assert steps == [(done, 6) for done in range(7)] + [(6, 6)]
    assert contents(tmp_path) == finished
    assert len(written) == len(set(written)) == 6
    played = Counter((folder / "log").read_text().split())
    assert len(played) == 40
    assert max(played.values()) == 2
    if backend == "ray":  # that block only; the processes of joblib go down together
        assert 0 < played.total() - 40 <= results.BLOCK_EPISODES


def test_a_job_that_always_kills_ends_it(backend):
    def die(number):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(parallel.WorkerDiedError, match="died 4 times: out of memory"):
        list(parallel.spread(die, [(0,)], 2, backend))


def test_errors_arrive_as_they_were_raised(backend):
    def fail(number):
        raise PolicyError(f"of job {number}")

    with pytest.raises(PolicyError) as caught:
        list(parallel.spread(fail, [(5,)], 2, backend))
    assert type(caught.value) is PolicyError
    assert str(caught.value) == "of job 5"
    assert "in fail" in str(caught.value.__cause__)  # where it was raised


def test_labels_are_those_of_one_process(cluster):
    torch = pytest.importorskip("torch", reason="needs the extra [train]: torch")
    imitation = importlib.import_module("agents.imitation")
    domain = imitation.Domain(("qwen2.5",), {4: 0.5, 6: 0.5})
    found = []
    for backend in ("loky", "ray"):
        *_, (count, data) = imitation.label("modes", domain, 128, 3, workers=1, backend=backend)
        assert count == 128
        found.append(data)
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.given.device, other.given.device)
        assert torch.equal(one.decision, other.decision)


def test_the_command_finds_the_cluster_and_the_policy_beside_it(cluster, folder, monkeypatch):
    """From the folder of the policy, whose path is relative; the workers started elsewhere."""
    monkeypatch.chdir(folder)
    list(benchmark.run(Plan("tiny.toml", "noting.py:make"), "here"))
    command = (ROOT / "scripts" / "leaderboard.py", "evaluate", "noting.py:make")
    options = ("--suite", "tiny.toml", "--backend", "ray", "--output", "there")
    done = subprocess.run(
        [sys.executable, *command, *options],
        env=os.environ | {"RAY_ADDRESS": cluster, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "noting.py:make, draft: " in done.stdout
    assert contents(folder / "there") == contents(folder / "here")
