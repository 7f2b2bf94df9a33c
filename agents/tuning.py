"""Sweeps over a preset's numbers: proposals by Optuna's TPE, scored on training episodes.

A preset says what may vary in a table `[sweep]`: fields of its stages, each with a range or with
choices. Nothing here sees dev episodes, so they stay fair for what is trained afterwards.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import optuna
import torch
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, TrialState

from agents import training
from agents.training import Preset, Trained
from multispin_env import benchmark, parallel
from multispin_env.solvers import reference_goodput
from multispin_env.solvers.problems import check_integer

TABLE: Final = """a table like this:

[sweep]
"gradient.learning_rate" = { low = 3e-4, high = 3e-3, log = true }
"gradient.entropy" = { choices = [0.0, 0.01, 0.02, 0.05] }"""
#: Fields of stages that a budget shortens.
LENGTHS: Final = ("states", "steps", "updates", "rounds")
#: Training episodes of each task that a trial is scored on.
EPISODES: Final = 32


def space(content: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """What may vary: Optuna's distributions by `stage.field`.

    Args:
        content: of a preset's file, see :func:`agents.training.read`. A range of two integers is
            one of integers.

    Raises:
        ValueError: no table `[sweep]`, or one that does not fit the stages.
    """
    table = content.get("sweep", {})
    if not table:
        raise ValueError(f"the preset has no search space: must have {TABLE}")
    found = {}
    for name, entry in table.items():
        stage, _, field = name.partition(".")
        if field not in content.get(stage, {}):
            raise ValueError(f"sweep, {name!r}: must be a number of a stage, as in {TABLE}")
        try:
            found[name] = _distribution(**entry)
        except (TypeError, ValueError) as error:
            raise ValueError(f"sweep, {name!r} = {entry}: {error}: must be in {TABLE}") from error
    return found


def _distribution(
    *,
    low: float | None = None,
    high: float | None = None,
    log: bool = False,
    choices: list[Any] | None = None,
) -> BaseDistribution:
    if choices is not None and low is high is None:
        return CategoricalDistribution(choices)
    if low is None or high is None or choices is not None:
        raise ValueError("needs low and high, or choices")
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=log)
    return FloatDistribution(low, high, log=log)


def varied(
    content: Mapping[str, Any], values: Mapping[str, Any], budget: float = 1.0
) -> dict[str, Any]:
    """A preset's content with other numbers, its stages shortened to a share.

    Args:
        content: of a preset's file.
        values: by `stage.field`.
        budget: share of the stages' states, steps, updates and rounds, in (0, 1].
    """
    changed = copy.deepcopy(dict(content))
    for name, value in values.items():
        stage, _, field = name.partition(".")
        changed[stage][field] = value
    for stage in changed.values():
        for field in LENGTHS if isinstance(stage, dict) else ():
            if field in stage:
                stage[field] = math.ceil(budget * stage[field])
    return changed


def score(preset: Preset, seed: int) -> float:
    """Train by a preset; the mean over its tasks of goodput / reference goodput.

    Goodputs are of 32 training episodes of each task, the same in every trial; the reference is the
    scenario's price of a second. A training that diverges scores 0.
    """
    torch.set_num_threads(1)
    trained: Trained | None = None
    try:
        for _, latest in training.train(preset, seed, workers=1, scores=False):
            trained = latest
    except ValueError as error:
        if "Expected parameter" not in str(error):  # torch refuses to draw from nan
            raise
        return 0.0
    assert trained is not None
    factory, suite = training.factory_of(preset, trained), benchmark.load("core-2026")
    ratios = []
    for task in map(suite.task, preset.tasks):
        played = benchmark.evaluate(
            factory, task, EPISODES, split="train", lanes=EPISODES, expected=False
        )
        ratios.append(played.goodput / reference_goodput(task.scenario))
    return float(np.mean(ratios))


def open_study(path: Path, plan: Mapping[str, Any]) -> optuna.Study:
    """The study in a file, made if needed.

    Raises:
        ValueError: the file is of another sweep.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(path))),
        study_name="sweep",
        direction="maximize",
        load_if_exists=True,
    )
    known = study.user_attrs.setdefault("plan", dict(plan))
    if known != plan:
        keys = [key for key in plan if known.get(key) != plan[key]]
        raise ValueError(
            f"{path} is of another sweep, which differs in {', '.join(keys)}: choose another "
            "output, or delete it"
        )
    study.set_user_attr("plan", dict(plan))
    return study


def sweep(
    preset: str | Path,
    path: Path,
    *,
    trials: int,
    seed: int = 0,
    budget: float = 1.0,
    batch: int = 4,
    workers: int = 2,
    backend: str = "loky",
) -> Iterator[optuna.Study]:
    """Try out numbers; yields the study at first and after every trial.

    Trials are proposed in batches. A proposal follows from the seed, its number and the results of
    the batches before, so the same arguments propose the same trials, however they are spread and
    however often they are interrupted. A large batch keeps more workers busy and learns later.

    Args:
        preset: a shipped one or a TOML file, with a table `[sweep]`.
        path: of the study, which an interrupted sweep goes on from.
        trials: how many in all; the first ten are random.
        seed: of the proposals, and of the training in every trial.
        budget: share of the stages' length that a trial has, in (0, 1].
        batch: trials that are proposed together.
        workers, backend: see :func:`multispin_env.parallel.spread`.

    Raises:
        ValueError: bad arguments, or `path` is of another sweep.
    """
    check_integer("trials", trials, 1)
    check_integer("batch", batch, 1)
    if not 0.0 < budget <= 1.0:
        raise ValueError(f"budget = {budget}: must be in (0, 1]")
    parallel.check(workers, backend)
    content = training.read(preset)
    Preset.parse(preset, content)
    distributions = space(content)
    plan = {"preset": content, "seed": seed, "budget": budget, "batch": batch}
    study = open_study(path, plan)
    yield study
    while waiting := _proposed(study, distributions, trials, batch, seed):
        jobs = [
            (Preset.parse(preset, varied(content, trial.params, budget)), seed) for trial in waiting
        ]
        for number, value in parallel.spread(score, jobs, workers, backend):
            study.tell(waiting[number].number, value)
            yield study


def _proposed(
    study: optuna.Study,
    distributions: dict[str, BaseDistribution],
    trials: int,
    batch: int,
    seed: int,
) -> list[FrozenTrial]:
    """Trials to be scored: what an interruption left of a batch, or the next batch."""
    waiting = study.get_trials(states=(TrialState.RUNNING,))
    for number in range(len(study.trials), trials):
        if number % batch == 0 and waiting:
            break
        own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=own_seed, constant_liar=True)
        study.ask(distributions)
        waiting = study.get_trials(states=(TrialState.RUNNING,))
    return waiting


def best(study: optuna.Study) -> list[FrozenTrial]:
    """Scored trials, the best first."""
    done = study.get_trials(states=(TrialState.COMPLETE,))
    return sorted(done, key=lambda trial: -trial.values[0])
