"""Means over episodes, their intervals, and what may be concluded from them.

Episodes are independent, rounds are not: every mean is over episodes. Policies meet the same
episodes (common random numbers), so differences are taken episode by episode.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from multispin_env.model import sums

Floats = NDArray[np.float64]

#: Confidence of all intervals.
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error, with what gives the t interval."""

    value: float
    standard_error: float
    degrees: float  #: of freedom

    @property
    def interval(self) -> tuple[float, float]:
        """95 % t interval."""
        half = self.half_width
        return self.value - half, self.value + half

    @property
    def half_width(self) -> float:
        """Half of the interval."""
        return float(self.standard_error * stats.t.ppf(0.5 + LEVEL / 2, self.degrees))

    @property
    def p_above(self) -> float:
        """One-sided, of the hypothesis that the number is not above 0."""
        if self.standard_error == 0.0:
            return 0.5 if self.value <= 0.0 else 0.0
        return float(stats.t.sf(self.value / self.standard_error, self.degrees))

    @property
    def p_value(self) -> float:
        """Two-sided, of the hypothesis that the number is 0."""
        if self.standard_error == 0.0:
            return 1.0 if self.value == 0.0 else 0.0
        return float(2.0 * stats.t.sf(abs(self.value) / self.standard_error, self.degrees))


def mean_interval(values: ArrayLike) -> Estimate:
    """Mean over episodes.

    Raises:
        ValueError: fewer than two episodes, or one that is not finite.
    """
    array = _episodes("values", values)
    return Estimate(float(array.mean()), float(stats.sem(array)), array.size - 1)


def paired_difference(first: ArrayLike, second: ArrayLike) -> Estimate:
    """Mean of first - second over the episodes that both played.

    Raises:
        ValueError: as :func:`mean_interval`, or different numbers of episodes.
    """
    a, b = _same_episodes("first", first, "second", second)
    return mean_interval(a - b)


def adjusted_difference(
    first: ArrayLike, second: ArrayLike, first_beside: ArrayLike, second_beside: ArrayLike
) -> Estimate:
    """Mean of `first` less mean of `second`, other episodes, without the luck of these episodes.

    That luck shows in what a companion got in the same episodes, `*_beside`. Least squares of

        value = a + b beside + difference [first] + noise

    (analysis of covariance) has, for a companion that meets the same fortunes, a far smaller error
    than the plain difference, and no larger one for a companion that does not.

    Raises:
        ValueError: as :func:`paired_difference`, of either pair.
    """
    y_first, x_first = _same_episodes("values", first, "beside", first_beside)
    y_second, x_second = _same_episodes("values", second, "beside", second_beside)
    y, x = np.append(y_first, y_second), np.append(x_first, x_second)
    x = (x - x.mean()) / (x.std() or 1.0)
    design = np.column_stack([np.arange(y.size) < y_first.size, np.ones(y.size), x])
    coefficients, _, rank, _ = np.linalg.lstsq(design, y)
    residual = y - design @ coefficients
    degrees = y.size - int(rank)
    variance = float(residual @ residual) / degrees * np.linalg.pinv(design.T @ design)[0, 0]
    return Estimate(float(coefficients[0]), float(np.sqrt(variance)), degrees)


@dataclass(frozen=True)
class Score:
    """A normalised score, with each episode's influence on it."""

    estimate: Estimate
    influence: Floats  #: [episodes], of mean 0


def score(goodput: ArrayLike, low: ArrayLike, reference: ArrayLike) -> Score:
    """S = (G - G_low) / (G_ref - G_low) of mean goodputs on the same episodes.

    0 is the floor, 1 the reference; neither is a bound. By the delta method S varies as the mean of
    the influence terms::

        psi_i = ((g_i - l_i) - S (r_i - l_i)) / (G_ref - G_low),

    which knows that the three goodputs of an episode go up and down together.

    Args:
        goodput, low, reference: [episodes] of the policy, the floor and the reference.

    Raises:
        ValueError: as :func:`mean_interval`, different episodes, or a reference that is not above
            the floor.
    """
    g, l, r = (  # noqa: E741
        _episodes(name, values)
        for name, values in (("goodput", goodput), ("low", low), ("reference", reference))
    )
    if not g.size == l.size == r.size:
        raise ValueError(
            f"goodput, low and reference have {g.size}, {l.size} and {r.size} episodes: must be "
            "the same ones"
        )
    scale = float(np.mean(r - l))
    if not scale > 0.0:
        raise ValueError(f"reference - low = {scale}: must be above 0 on average")
    value = float(np.mean(g - l)) / scale
    influence = (g - l - value * (r - l)) / scale
    return Score(Estimate(value, float(stats.sem(influence)), g.size - 1), influence)


@dataclass(frozen=True)
class TaskRuns:
    """A policy's runs (training seeds) on one task, beside the floor and the reference.

    Run i is the same training seed on every task.
    """

    goodput: Floats  #: [runs, episodes]
    low: Floats  #: [episodes]
    reference: Floats  #: [episodes]

    @property
    def scores(self) -> list[Score]:
        """Score of every run."""
        return [score(run, self.low, self.reference) for run in self.goodput]

    @property
    def contributions(self) -> Floats:
        """What each episode adds to the score of each run, [runs, episodes]; means are scores."""
        return np.stack([s.estimate.value + s.influence for s in self.scores])


def mean_over_runs(first: ArrayLike, second: ArrayLike | None = None) -> Estimate:
    """Mean over runs and episodes, or the paired difference of two such means.

    The variance is that of the episodes, of the values averaged over runs, and, with several runs,
    that between runs beyond what the episodes explain: runs of a learner differ. Degrees of freedom
    by Welch and Satterthwaite.

    Args:
        first, second: [runs, episodes]; the same episodes.

    Raises:
        ValueError: as :func:`paired_difference`.
    """
    groups = [np.asarray(first, np.float64)]
    groups += [] if second is None else [np.asarray(second, np.float64)]
    means = [group.mean(axis=0) for group in groups]
    episodes = mean_interval(means[0]) if second is None else paired_difference(*means)
    total = episodes.standard_error**2
    parts = [(total, episodes.degrees)]
    for group in groups:
        count, size = group.shape
        if count > 1:
            between = float(np.var(group.mean(axis=1), ddof=1)) / count
            rest = group - group.mean(axis=0) - group.mean(axis=1, keepdims=True) + group.mean()
            explained = float(np.sum(rest**2)) / ((count - 1) * (size - 1) * size * count)
            total += max(between - explained, 0.0)
            parts.append((between, count - 1))
    pooled = sums.total(variance**2 / degrees for variance, degrees in parts)
    degrees = sums.total(variance for variance, _ in parts) ** 2 / pooled if pooled > 0.0 else 1.0
    return Estimate(episodes.value, float(np.sqrt(total)), float(degrees))


def interquartile_mean(scores: ArrayLike) -> float:
    """Mean of the middle half of the scores of all tasks and runs."""
    return float(stats.trim_mean(np.ravel(np.asarray(scores, dtype=np.float64)), 0.25))


def bootstrap_scores(
    policies: Mapping[str, Sequence[TaskRuns]], resamples: int = 4000, seed: int = 0
) -> dict[str, Floats]:
    """Resampled interquartile means of all policies, [resamples] each.

    Within each task episodes are drawn with replacement, the same ones for all policies, so that
    differences between policies can be read off as well. Of R > 1 runs, R - 1 are drawn with
    replacement (R would understate the variance), the same ones on all tasks: a run is a training
    seed.
    """
    generator = np.random.default_rng(seed)
    scores: dict[str, list[Floats]] = {name: [] for name in policies}
    # Each policy's own stream, so that adding a policy leaves the others as they were.
    chosen = {}
    for name, tasks in policies.items():
        count = len(tasks[0].goodput)
        own = np.random.default_rng([seed, *name.encode()])
        chosen[name] = own.integers(0, count, (resamples, max(1, count - 1)))
    for t in range(len(next(iter(policies.values())))):
        episodes = next(iter(policies.values()))[t].low.size
        weight = generator.multinomial(
            episodes, np.full(episodes, 1.0 / episodes), size=resamples
        ).astype(np.float64)
        for name, tasks in policies.items():
            task = tasks[t]
            scale = weight @ (task.reference - task.low)
            runs = (weight @ (task.goodput - task.low).T) / scale[:, None]
            scores[name].append(np.take_along_axis(runs, chosen[name], axis=1))
    return {
        name: np.asarray(stats.trim_mean(np.concatenate(parts, axis=1), 0.25, axis=1))
        for name, parts in scores.items()
    }


def percentile_interval(resampled: ArrayLike) -> tuple[float, float]:
    """95 % percentile interval of a bootstrap."""
    low, high = np.quantile(np.asarray(resampled), [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return float(low), float(high)


def probability_of_improvement(first: Sequence[TaskRuns], second: Sequence[TaskRuns]) -> float:
    """How often the first policy is better on an episode that both play; ties count half.

    Averaged over pairs of runs, episodes and tasks.
    """
    shares = []
    for a, b in zip(first, second, strict=True):
        difference = a.goodput[:, None, :] - b.goodput[None, :, :]
        shares.append(float(np.mean((difference > 0) + 0.5 * (difference == 0))))
    return float(np.mean(shares))


def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down adjustment: reject where the result is at most the level."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    steps = (p.size - np.arange(p.size)) * p[order]
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def ranks(resampled: Mapping[str, Floats]) -> dict[str, int]:
    """1 + how many policies are better beyond doubt: those that cannot be told apart may tie.

    Beyond doubt: the difference of the scores is significant in the bootstrap, after Holm's
    adjustment for all pairs of policies.

    Args:
        resampled: of :func:`bootstrap_scores`, by policy.
    """
    pairs = list(itertools.combinations(resampled, 2))
    differences = [resampled[a] - resampled[b] for a, b in pairs]
    adjusted = holm([bootstrap_p_value(difference) for difference in differences])
    rank = dict.fromkeys(resampled, 1)
    for (a, b), difference, p in zip(pairs, differences, adjusted):
        if p <= 1.0 - LEVEL:
            rank[b if difference.mean() > 0 else a] += 1
    return rank


def bootstrap_p_value(difference: ArrayLike) -> float:
    """Two-sided, of the hypothesis that a resampled difference is 0; never below 1 / resamples."""
    values = np.asarray(difference, np.float64)
    tail = min(float(np.mean(values <= 0.0)), float(np.mean(values >= 0.0)))
    return float(min(1.0, 2.0 * max(tail, 0.5 / values.size)))


def _episodes(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size < 2 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} = {values!r}: must be finite numbers of at least two episodes")
    return array


def _same_episodes(
    name: str, values: ArrayLike, other_name: str, others: ArrayLike
) -> tuple[Floats, Floats]:
    """Two values of each episode."""
    a, b = _episodes(name, values), _episodes(other_name, others)
    if a.size != b.size:
        raise ValueError(
            f"{name} has {a.size} episodes, {other_name} {b.size}: must be the same ones"
        )
    return a, b
