"""Table I of both papers: the acceptance rates of tasks, and what the environment makes of them."""

from __future__ import annotations

from collections.abc import Iterable

import gymnasium as gym
import numpy as np

import multispin_env  # noqa: F401  (registers the environments)
from experiments import tables
from experiments.tables import Job, Row, job
from multispin_env import Scenario

SEED = 20260604
DRAFT_LENGTH = 8


def acceptance_rate(pair: str, task: str) -> float:
    """A task's acceptance rate in a pair's preset."""
    (found,) = (t.acceptance_rate for t in Scenario.load(pair).tasks if t.name == task)
    assert isinstance(found, float)
    return found


def jobs(pairs: Iterable[str], quick: bool) -> list[Job]:
    """One for each task of each pair."""
    tasks = [(pair, task.name) for pair in pairs for task in Scenario.load(pair).tasks]
    rounds = 100 if quick else 1000
    return [
        job(acceptance, pair=pair, task=task, rounds=rounds, points=len(tasks), seed=SEED + n)
        for n, (pair, task) in enumerate(tasks)
    ]


def acceptance(pair: str, task: str, rounds: int, points: int, seed: int) -> list[Row]:
    """The preset's rate, and the share of verified tokens that was accepted.

    A device verifies its accepted tokens, and the rejected one if there is one. The intervals hold
    for all `points` tasks at once.
    """
    rate = acceptance_rate(pair, task)
    changes = {"tasks": {task: rate}, "episode.rounds": rounds}
    env = gym.make("multispin/DraftLength-v0", scenario=pair, overrides=changes)
    observation, _ = env.reset(seed=seed)
    action = np.full(observation["snr_db"].size, DRAFT_LENGTH)
    infos = [env.step(action)[4] for _ in range(rounds)]
    accepted = np.array([info["accepted"].sum() for info in infos])
    verified = accepted + np.array([info["rejected"].sum() for info in infos])
    keys: Row = {"pair": pair, "task": task}
    return [
        tables.exact(keys, "preset", rate),
        tables.ratio(keys, "simulated", accepted, verified, points),
    ]
