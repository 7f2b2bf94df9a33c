"""Presets, and training by them: imitation, policy gradient, or one after the other."""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from agents import gradient, imitation
from agents.imitation import Domain
from agents.networks import NETWORKS, Network
from agents.policy import NetworkPolicy, save
from baselines import Context
from multispin_env import benchmark
from multispin_env.benchmark import Reference, statistics
from multispin_env.scenario import Scenario

PRESETS: Final = Path(__file__).parent / "presets"


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
class Preset:
    """What is trained, on what, and how; a TOML file in agents/presets.

    Args:
        name: of a shipped one, or the path of the file.
        network: a key of :data:`agents.networks.NETWORKS`.
        agent: whose weights these are.
        tasks: of `core-2026`, whose dev episodes the result is scored on.
        domain: the scenarios to train on.
        imitation, gradient: the stages, in this order; at least one.
        sweep: what `scripts/sweep.py` varies, see :mod:`agents.tuning`.
    """

    name: str
    network: str
    agent: str
    tasks: tuple[str, ...]
    domain: Domain
    imitation: Imitation | None = None
    gradient: Gradient | None = None
    sweep: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ValueError(f"network = {self.network!r}: must be one of {list(NETWORKS)}")
        if self.imitation is None and self.gradient is None:
            raise ValueError(f"preset {self.name!r} has no stage: must have one")
        if self.gradient is not None and self.network != "draft":
            raise ValueError(f"network = {self.network!r}: the policy gradient trains 'draft' only")

    @classmethod
    def load(cls, preset: str | Path) -> Preset:
        """A shipped preset by name, or a TOML file.

        Raises:
            ValueError: no such preset, or a malformed file.
        """
        return cls.parse(preset, read(preset))

    @classmethod
    def parse(cls, preset: str | Path, content: Mapping[str, Any]) -> Preset:
        """A preset of a name and a file's content.

        Raises:
            ValueError: it is malformed.
        """
        data = dict(content)
        try:
            domain = data.pop("domain")
            sizes = {int(size): float(share) for size, share in domain["num_devices"].items()}
            ranges = {key: (low, high) for key, (low, high) in domain.get("ranges", {}).items()}
            first, second = data.pop("imitation", None), data.pop("gradient", None)
            return cls(
                name=str(preset),
                domain=Domain(tuple(domain["scenarios"]), sizes, ranges),
                tasks=tuple(data.pop("tasks")),
                imitation=None if first is None else Imitation(**first),
                gradient=None if second is None else Gradient(**second),
                **data,
            )
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

    stage: str  #: labels, imitation or gradient
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
) -> Iterator[tuple[Update, Network]]:
    """Train a network by a preset; yields after every step, with the network as it is.

    Args:
        preset: what to do.
        seed: the result is a function of it.
        checkpoints: a folder; a training that was interrupted goes on from there.
        workers, backend: who labels states, see :func:`multispin_env.parallel.spread`.
    """
    torch.manual_seed(seed)
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
            numbers = {key: float(value) for key, value in asdict(progress).items()}
            yield Update("gradient", progress.update, updates.updates, numbers), network


def gradient_scenarios(domain: Domain, count: int, seed: int) -> list[Scenario]:
    """Scenarios of the most frequent size, at most 16: each needs a price of its own."""
    generator = np.random.default_rng([seed, 1])
    size = max(domain.num_devices, key=lambda k: domain.num_devices[k])
    if not domain.ranges and len(domain.scenarios) == 1:
        return [Scenario.load(domain.scenarios[0], {"num_devices": size})]
    return [domain.draw(generator, size) for _ in range(min(count, 16))]


def factory_of(network: Network, name: str) -> Callable[[Any], NetworkPolicy]:
    """A policy factory of a single network."""
    return lambda env: NetworkPolicy(Context.of(env), {name: network})


def dev_scores(preset: Preset, network: Network) -> dict[str, dict[str, float]]:
    """Goodput of the preset's tasks on their dev episodes, beside the reference's.

    Returns:
        By task: mean goodput [tokens/s], its ratio to the reference's mean, and the half-width of
        the ratio's 95 % interval, paired by episodes.
    """
    suite = benchmark.load("core-2026")
    references = benchmark.load_references(suite)
    return {
        name: compare(
            benchmark.evaluate(
                factory_of(network, preset.network), suite.task(name), lanes=64, expected=False
            ),
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


def finish(preset: Preset, network: Network, seed: int, folder: Path) -> dict[str, Any]:
    """Score a trained network, and write weights and their card."""
    card = {
        "preset": preset.name,
        "agent": preset.agent,
        "network": preset.network,
        "seed": seed,
        "command": f"python scripts/train.py {preset.name} --seed {seed}",
        "dev": dev_scores(preset, network),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("numpy", "torch", "safetensors")},
        },
    }
    save(network, folder / f"{preset.network}.safetensors", card)
    return card
