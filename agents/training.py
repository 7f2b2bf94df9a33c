"""Presets, and training by them: imitation, policy gradient, one after the other, or SB3."""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import configure

from agents import gradient, imitation, policy
from agents.imitation import Domain
from agents.networks import NETWORKS, Network
from agents.policy import NetworkPolicy
from agents.sb3 import SB3Policy, learner
from agents.vec_env import make_vec_env
from baselines import Context, Policy
from multispin_env import benchmark
from multispin_env.benchmark import Reference, statistics
from multispin_env.scenario import Scenario
from multispin_env.solvers.problems import check_integer

PRESETS: Final = Path(__file__).parent / "presets"
#: Rounds of Stable-Baselines3 between two checkpoints.
SB3_ROUNDS: Final = 16_384
#: Training episodes behind the goodput that is shown meanwhile.
TRAIN_EPISODES: Final = 32

Trained = Network | BaseAlgorithm


@dataclass(frozen=True)
class Imitation:
    """Fitting a teacher's decisions."""

    states: int
    steps: int
    batch_size: int
    learning_rate: float


@dataclass(frozen=True)
class Gradient:
    """Leave-one-out policy gradient."""

    updates: int
    groups: int = 64
    decisions: int = 16
    learning_rate: float = 1e-3
    entropy: float = 0.02


@dataclass(frozen=True)
class SB3:
    """Learning by one of Stable-Baselines3's algorithms.

    Every lane plays one of the preset's tasks, in turn. See :func:`agents.learner` and
    :func:`agents.make_vec_env` for the options.
    """

    algorithm: str
    equivariant: bool
    rounds: int
    lanes: int = 64
    deadline: bool = False
    clip_reward: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """What is trained, on what, and how; a TOML file in agents/presets.

    Args:
        name: of a shipped one, or the path of the file.
        agent: whose weights these are.
        tasks: of `core-2026`, whose dev episodes the result is scored on.
        network: a key of :data:`agents.networks.NETWORKS`, or `sb3`.
        domain: the scenarios to train a network on; `sb3` plays the tasks.
        imitation, gradient: the stages of a network, in this order; at least one.
        sb3: the only stage of `sb3`.
        sweep: what `scripts/sweep.py` varies, see :mod:`agents.tuning`.
    """

    name: str
    agent: str
    tasks: tuple[str, ...]
    network: str = policy.SB3
    domain: Domain = field(default_factory=lambda: Domain((), {}))
    imitation: Imitation | None = None
    gradient: Gradient | None = None
    sb3: SB3 | None = None
    sweep: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.network not in (*NETWORKS, policy.SB3):
            names = [*NETWORKS, policy.SB3]
            raise ValueError(f"network = {self.network!r}: must be one of {names}")
        stages = self.imitation or self.gradient
        if bool(stages) == bool(self.sb3) or bool(self.sb3) != (self.network == policy.SB3):
            raise ValueError(
                f"preset {self.name!r}: must have a table [sb3], or a network, a domain, and "
                "[imitation], [gradient] or both"
            )
        if stages and not (self.domain.scenarios and self.domain.num_devices):
            raise ValueError(f"preset {self.name!r}: domain must have scenarios and num_devices")
        if self.sb3 is not None and "policy_kwargs" in self.sb3.options:
            raise ValueError("sb3.options has policy_kwargs: must not, weights would not load")
        if self.gradient is not None and self.network != "draft":
            raise ValueError(f"network = {self.network!r}: the policy gradient trains 'draft' only")
        if not self.tasks:
            raise ValueError("tasks is empty: must name tasks of core-2026")
        for name in self.tasks:
            benchmark.load("core-2026").task(name)

    @property
    def training_rounds(self) -> int:
        """Rounds that a training plays, each labelled state counted as one."""
        labelled = self.imitation.states if self.imitation else 0
        g = self.gradient
        played = g.updates * g.groups * g.decisions if g else 0
        return labelled + played + (self.sb3.rounds if self.sb3 else 0)

    @classmethod
    def load(cls, preset: str | Path, tasks: Sequence[str] = ()) -> Preset:
        """A shipped preset by name, or a TOML file; `tasks` instead of its own.

        Raises:
            ValueError: no such preset, or a malformed file.
        """
        content = read(preset)
        return cls.parse(preset, content | {"tasks": list(tasks)} if tasks else content)

    @classmethod
    def parse(cls, preset: str | Path, content: Mapping[str, Any]) -> Preset:
        """A preset of a name and a file's content.

        Raises:
            ValueError: it is malformed.
        """
        data = dict(content)
        try:
            stages: dict[str, Any] = {
                key: kind(**data.pop(key))
                for key, kind in (("imitation", Imitation), ("gradient", Gradient), ("sb3", SB3))
                if key in data
            }
            if "domain" in data:
                domain = data.pop("domain")
                sizes = {int(size): float(share) for size, share in domain["num_devices"].items()}
                ranges = {key: (low, high) for key, (low, high) in domain.get("ranges", {}).items()}
                stages["domain"] = Domain(tuple(domain["scenarios"]), sizes, ranges)
            return cls(name=str(preset), tasks=tuple(data.pop("tasks")), **stages, **data)
        except (KeyError, TypeError) as error:
            raise ValueError(f"preset = {str(preset)!r}: malformed: {error}") from error


def read(preset: str | Path) -> dict[str, Any]:
    """What the file of a preset holds.

    Raises:
        ValueError: no such preset, or not TOML.
    """
    shipped = PRESETS / f"{preset}.toml"
    path = shipped if shipped.is_file() else Path(preset)
    if not path.is_file():
        names = ", ".join(repr(p.stem) for p in sorted(PRESETS.glob("*.toml")))
        raise ValueError(f"preset = {str(preset)!r}: must be one of {names}, or a TOML file")
    return tomllib.loads(path.read_text("utf8"))


@dataclass(frozen=True)
class Update:
    """How far a training is: numbers to show and to log."""

    stage: str  #: labels, imitation, gradient or the algorithm's name
    step: int
    of: int
    numbers: dict[str, float]


def train(
    preset: Preset,
    seed: int,
    *,
    checkpoints: Path | None = None,
    workers: int = 2,
    backend: str = "loky",
    scores: bool = True,
) -> Iterator[tuple[Update, Trained]]:
    """Train by a preset; yields after every step, with what is trained as it is.

    Args:
        preset: what to do.
        seed: the result is a function of it.
        checkpoints: a folder; a training that was interrupted goes on from there (Stable-Baselines3
            with new episodes, SAC with an empty buffer, so that only an uninterrupted one is
            repeatable); one of another training is refused.
        workers, backend: who labels states, see :func:`multispin_env.parallel.spread`.
        scores: at every tenth of a stage the numbers have `goodput` on training episodes of the
            first task, and the `reference` of that task [tokens/s].
    """
    check_integer("seed", seed, 0)
    if checkpoints is not None:
        _claim(checkpoints, preset, seed)
    torch.manual_seed(seed)
    steps: Iterator[tuple[Update, Trained]] = (
        _train_network(preset, seed, checkpoints, workers, backend)
        if preset.sb3 is None
        else _train_sb3(preset, seed, checkpoints)
    )
    reached = ""
    for update, trained in steps:
        tenth = f"{update.stage} {10 * update.step // update.of}"
        if scores and tenth != reached and update.stage != "labels":
            reached = tenth
            update.numbers.update(_training_score(preset, trained))
        yield update, trained


def _train_network(
    preset: Preset, seed: int, checkpoints: Path | None, workers: int, backend: str
) -> Iterator[tuple[Update, Network]]:
    network = NETWORKS[preset.network]()
    files = {
        stage: None if checkpoints is None else checkpoints / f"{stage}.pt"
        for stage in ("imitation", "gradient")
    }
    if preset.imitation is not None:
        stage = preset.imitation
        data: list[imitation.Labelled] = []
        labelling = imitation.label(
            preset.network, preset.domain, stage.states, seed, workers, backend
        )
        for count, labelled in labelling:
            data = labelled
            yield Update("labels", count, stage.states, {}), network
        for step, loss in imitation.imitate(
            network,
            data,
            steps=stage.steps,
            batch_size=stage.batch_size,
            learning_rate=stage.learning_rate,
            seed=seed,
            checkpoint=files["imitation"],
        ):
            yield Update("imitation", step, stage.steps, {"loss": loss}), network
    if preset.gradient is not None:
        updates = preset.gradient
        for progress in gradient.train(
            network,
            gradient_scenarios(preset.domain, updates.groups, seed),
            seed=seed,
            checkpoint=files["gradient"],
            **asdict(updates),
        ):
            numbers = {"reward": progress.reward, "entropy": progress.entropy}
            yield Update("gradient", progress.update, updates.updates, numbers), network


def _train_sb3(
    preset: Preset, seed: int, checkpoints: Path | None
) -> Iterator[tuple[Update, BaseAlgorithm]]:
    assert preset.sb3 is not None
    stage = preset.sb3
    suite = benchmark.load("core-2026")
    tasks = [suite.task(name) for name in preset.tasks]
    kinds = {(task.control.id, repr(sorted(task.arguments.items()))) for task in tasks}
    if len(kinds) > 1:
        raise ValueError(f"tasks = {preset.tasks}: must be of one environment")
    lanes = [tasks[lane % len(tasks)].scenario for lane in range(stage.lanes)]
    env = make_vec_env(
        tasks[0].control.id,
        len(lanes),
        deadline=stage.deadline,
        clip_reward=stage.clip_reward,
        scenario=lanes,
        **tasks[0].arguments,
    )
    options = {"equivariant": stage.equivariant, "seed": seed, **stage.options}
    model: Any = learner(stage.algorithm, env, **options)
    file = None if checkpoints is None else checkpoints / "model.zip"
    if file is not None and file.is_file():
        model = type(model).load(file, env, device="cpu")
    # Lane i is seeded base + i: bases far apart, so that trainings share no episodes.
    words = np.random.SeedSequence([seed, model.num_timesteps]).generate_state(1, np.uint64)
    env.seed(int(words[0] >> 16))
    if checkpoints is not None:
        model.set_logger(configure(str(checkpoints / "log"), ["tensorboard"]))
    while model.num_timesteps < stage.rounds:
        rounds = min(SB3_ROUNDS, stage.rounds - model.num_timesteps)
        model.learn(rounds, reset_num_timesteps=False)
        if file is not None:
            model.save(file.with_suffix(".tmp.zip"))
            file.with_suffix(".tmp.zip").rename(file)
        step = min(model.num_timesteps, stage.rounds)
        yield Update(stage.algorithm, step, stage.rounds, {}), model
    yield Update(stage.algorithm, stage.rounds, stage.rounds, {}), model


def _claim(folder: Path, preset: Preset, seed: int) -> None:
    """Write down whose checkpoints are in a folder; refuse those of another training."""
    identity = json.dumps(asdict(preset) | {"seed": seed}, indent=2) + "\n"
    head = folder / "training.json"
    if head.is_file() and head.read_text("utf8") != identity:
        raise ValueError(f"{folder} is of another training: delete it, or choose a folder")
    folder.mkdir(parents=True, exist_ok=True)
    head.write_text(identity, "utf8")


def _training_score(preset: Preset, trained: Trained) -> dict[str, float]:
    """Goodput on training episodes of the first task, and its reference [tokens/s]."""
    task = benchmark.load("core-2026").task(preset.tasks[0])
    found = benchmark.evaluate(
        factory_of(preset, trained), task, TRAIN_EPISODES, split="train", lanes=32, expected=False
    )
    return {"goodput": found.goodput, "reference": task.scenario.reference_goodput or float("nan")}


def gradient_scenarios(domain: Domain, count: int, seed: int) -> list[Scenario]:
    """Scenarios of the most frequent size, at most 16: each needs a price of its own."""
    generator = np.random.default_rng([seed, 1])
    size = max(domain.num_devices, key=lambda k: domain.num_devices[k])
    if not domain.ranges and len(domain.scenarios) == 1:
        return [Scenario.load(domain.scenarios[0], {"num_devices": size})]
    return [domain.draw(generator, size) for _ in range(min(count, 16))]


def factory_of(preset: Preset, trained: Trained) -> Callable[[Any], Policy]:
    """A policy factory of what a preset has trained."""
    if isinstance(trained, Network):
        return lambda env: NetworkPolicy(Context.of(env), {preset.network: trained})
    assert preset.sb3 is not None
    deadline = preset.sb3.deadline
    return lambda env: SB3Policy(Context.of(env), trained.policy, deadline)


def dev_scores(preset: Preset, trained: Trained) -> dict[str, dict[str, float]]:
    """Goodput of the preset's tasks on their dev episodes, beside the reference's.

    Returns:
        By task: mean goodput [tokens/s], its ratio to the reference's mean, and the half-width of
        the ratio's 95 % interval, paired by episodes.
    """
    suite = benchmark.load("core-2026")
    references = benchmark.load_references(suite)
    factory = factory_of(preset, trained)
    return {
        name: compare(
            benchmark.evaluate(factory, suite.task(name), lanes=64, expected=False),
            references[name],
        )
        for name in preset.tasks
    }


def compare(found: benchmark.Evaluation, reference: Reference) -> dict[str, float]:
    """Goodput as a ratio to the reference's, see :func:`dev_scores`."""
    mean = float(reference.reference.mean())
    difference = statistics.paired_difference(found.goodputs, reference.reference)
    return {
        "goodput": found.goodput,
        "ratio": 1.0 + difference.value / mean,
        "half_width": difference.half_width / mean,
    }


def finish(
    preset: Preset, trained: Trained, seed: int, folder: Path, command: str
) -> dict[str, Any]:
    """Score what the command has trained, and write weights and their card."""
    libraries = ["numpy", "torch", "safetensors"] + ["stable-baselines3"] * bool(preset.sb3)
    card = {
        "preset": preset.name,
        "agent": preset.agent,
        "network": preset.network,
        **(_sb3_card(preset) if preset.sb3 else {}),
        "seed": seed,
        "command": command,
        "training_rounds": getattr(trained, "num_timesteps", preset.training_rounds),
        "dev": dev_scores(preset, trained),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in libraries},
        },
    }
    module = trained if isinstance(trained, Network) else trained.policy
    policy.save(module, folder / f"{preset.network}.safetensors", card)
    return card


def _sb3_card(preset: Preset) -> dict[str, Any]:
    assert preset.sb3 is not None
    stage = preset.sb3
    return {key: getattr(stage, key) for key in ("algorithm", "equivariant", "deadline")}
