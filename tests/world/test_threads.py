"""Lanes shared by threads: the same bits, no more threads than this process may have."""

import copy
import multiprocessing
import os
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from test_env import same

import multispin_env  # noqa: F401 (registers the environments)
from multispin_env.world import threads

#: So many lanes that each of three threads is worth it.
LANES = 3 * threads.WORTH_A_THREAD // 20 + 5
IDS = ("DraftLength", "ModeSelection", "Joint", "DraftBandwidth")
SHORT = {"episode.horizon_s": 4.0}


def trace(name, count, steps=30, **options):
    """All that some steps of many lanes give, through autoresets."""
    envs = gym.make_vec(
        f"multispin/{name}-v0", num_envs=LANES, threads=count, overrides=SHORT, **options
    )
    envs.action_space.seed(3)
    given = [envs.reset(seed=5)]
    for _ in range(steps):
        step = envs.step(envs.action_space.sample())
        given.append(step[:2] + step[3:4] + (step[4]["time_s"], step[4].get("power_w")))
    return envs, given


@pytest.mark.parametrize("name", IDS)
def test_the_numbers_are_the_same_for_any_number_of_threads(name):
    alone, expected = trace(name, 1)
    assert len(alone.unwrapped._core._shares) == 1
    for count in (2, 3):
        envs, found = trace(name, count)
        assert len(envs.unwrapped._core._shares) == count
        assert same(expected, found)


@pytest.mark.parametrize("mode", list(AutoresetMode)[:2])
def test_threads_with_coins_feedback_and_both_autoresets(mode):
    options = {"correction": "random", "observe_acceptance": False, "autoreset_mode": mode}
    _, expected = trace("DraftLength", 1, **options)
    _, found = trace("DraftLength", 3, **options)
    assert same(expected, found)


def test_a_bad_decision_of_the_last_lane_changes_nothing():
    envs, _ = trace("DraftLength", 3, steps=3)
    other, _ = trace("DraftLength", 3, steps=3)
    actions = np.full((LANES, 20), 4)
    bad = actions.copy()
    bad[-1, -1] = 21
    with pytest.raises(ValueError, match=f"environment {LANES - 1}, device 19"):
        envs.step(bad)
    assert same(envs.step(actions), other.step(actions))


def test_copies_and_pickles_go_on_alike():
    envs, _ = trace("Joint", 2, steps=5)
    twins = [copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))]
    action = envs.action_space.sample()
    expected = [envs.step(action) for _ in range(20)]
    for twin in twins:
        assert same(expected, [twin.step(action) for _ in range(20)])


def in_a_child(count):
    _, given = trace("DraftLength", count, steps=5)
    return float(sum(np.sum(step[1]) for step in given[1:])), threads.available()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_children_play_with_threads_of_their_own(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system does not {method}")
    here, _ = in_a_child(2)  # the parent's threads run already
    with multiprocessing.get_context(method).Pool(1) as pool:
        there, available = pool.apply_async(in_a_child, (2,)).get(timeout=240)
    assert there == here
    assert available == 1  # a worker's siblings have the other cores


def test_the_default_is_what_this_process_may_use(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert threads.available() == 6
    monkeypatch.setenv("NUMBA_NUM_THREADS", "4")
    assert threads.available() == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads.available() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    assert threads.available() == 1


@pytest.mark.parametrize("cells", [1, 2, 7, 1000, 4097])
@pytest.mark.parametrize("count", [1, 2, 3, 64])
def test_shares_cover_all_cells_once(cells, count):
    ranges = threads.shares(cells, 100, count)
    covered = [cell for first, last in ranges for cell in range(first, last)]
    assert covered == list(range(cells))
    assert 1 <= len(ranges) <= count
    assert all(100 * (last - first) >= threads.WORTH_A_THREAD for first, last in ranges[1:])


def test_an_error_in_a_thread_is_raised():
    def fail(number):
        if number:
            raise RuntimeError("no more")

    threads.run(fail, [(0,), (0,)])
    with pytest.raises(RuntimeError, match="no more"):
        threads.run(fail, [(0,), (1,)])


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "two"])
def test_a_wrong_number_of_threads_is_named(bad):
    with pytest.raises(ValueError, match="threads = "):
        gym.make_vec("multispin/DraftLength-v0", num_envs=2, threads=bad)
