"""Regret over rounds: what a policy has missed so far, against another one on the same episodes.

Round i of an episode has the same channel and the same run lengths whatever was decided before, so
that two policies can be compared round by round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multispin_env.benchmark import statistics
from multispin_env.benchmark.results import Results
from multispin_env.benchmark.statistics import Estimate
from multispin_env.benchmark.suite import Task
from multispin_env.solvers import reference_goodput

Floats = NDArray[np.float64]


def margins(results: Results, task: Task) -> list[Floats]:
    """The margin of every round of every episode, [episodes] of [rounds] [tokens].

    tokens - price * seconds, with the task's reference goodput as price: the environments' reward
    `margin`. As there, a round that the horizon cuts delivers nothing and takes until the horizon.
    """
    price, horizon_s = reference_goodput(task.scenario), task.scenario.episode.horizon_s
    found = []
    for episode in results.episode_actions(task.name):
        emitted, latency_s = episode["emitted"].astype(np.float64), episode["latency_s"]
        if horizon_s is not None:
            ends = np.cumsum(latency_s)
            emitted = np.where(ends <= horizon_s, emitted, 0.0)
            latency_s = np.minimum(latency_s, horizon_s - (ends - latency_s))
        found.append(emitted - price * latency_s)
    return found


def cumulative_regret(
    policy: Sequence[Results], best: Sequence[Results], task: Task, points: int | None = None
) -> tuple[NDArray[np.int64], list[Estimate]]:
    """Margins of the best policy less those of another one, summed over the first rounds [tokens].

    Paired episode by episode and averaged over episodes and runs. An episode that is over adds
    nothing, so that after the last round it is (goodput of the best - goodput) * horizon.

    Args:
        policy, best: the runs of each; the episodes that both have played are compared.
        task: of the suite.
        points: at how many numbers of rounds to find it, evenly spread; at all of them if None.

    Returns:
        Numbers of rounds, from 0 to the longest episode's, and the regret after as many.
    """
    played = [[margins(results, task) for results in runs] for runs in (best, policy)]
    every = [run for runs in played for run in runs]
    episodes = min(map(len, every))
    longest = max(len(episode) for run in every for episode in run[:episodes])
    sums = np.zeros((len(every), episodes, longest + 1))
    for run, total in zip(every, sums):
        for episode, row in zip(run, total):
            row[1 : len(episode) + 1] = np.cumsum(episode)
            row[len(episode) + 1 :] = row[len(episode)]
    rounds = np.arange(longest + 1)
    if points is not None and points < rounds.size:
        rounds = np.unique(np.linspace(0, longest, points).round().astype(np.int64))
    count = len(best)
    return rounds, [
        statistics.mean_over_runs(sums[:count, :, r], sums[count:, :, r]) for r in rounds
    ]
