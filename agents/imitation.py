"""Imitation of the analytical policies: states drawn over many scenarios, and a teacher's answers.

What an agent observes does not depend on what it did (only the feedback and the pending drafts do),
so states can be drawn directly and labelled once: there is no drift to correct.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.checkpoint import Checkpoint
from agents.features import Inputs, Reader
from agents.networks import Network
from multispin_env import parallel, solvers
from multispin_env.model.acceptance import run_length
from multispin_env.model.channel import snr_db
from multispin_env.model.sums import total
from multispin_env.scenario import Scenario
from multispin_env.scenario.devices import DeviceLaw
from multispin_env.solvers.problems import CorrectionProblem, UploadProblem, pose_observed

#: States that share a scenario.
STATES_PER_SCENARIO: Final = 16
CHECKPOINT_STEPS: Final = 500


@dataclass(frozen=True)
class Domain:
    """Random scenarios to train on.

    Args:
        scenarios: presets to choose from.
        num_devices: cell sizes, and the share of the states that each gets.
        ranges: dotted fields and the ends of their ranges; above 0 they are drawn uniformly in the
            logarithm, otherwise (powers in dBm) uniformly.
    """

    scenarios: Sequence[str]
    num_devices: Mapping[int, float]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def draw(self, generator: np.random.Generator, num_devices: int) -> Scenario:
        """A random scenario of a size."""
        overrides: dict[str, Any] = {"num_devices": num_devices}
        for name, (low, high) in self.ranges.items():
            if name.endswith("_dbm") or low <= 0:
                overrides[name] = float(generator.uniform(low, high))
            else:
                overrides[name] = float(np.exp(generator.uniform(np.log(low), np.log(high))))
        return Scenario.load(str(generator.choice(list(self.scenarios))), overrides)


@dataclass(frozen=True)
class Labelled:
    """States of one size, and a teacher's decisions [N, K] and slacks [N] (uploads)."""

    given: Inputs
    decision: Tensor
    slack_s: Tensor

    def rows(self, index: Any) -> Labelled:
        """Some of the states."""
        return Labelled(self.given.rows(index), self.decision[index], self.slack_s[index])


def draw_observation(
    scenario: Scenario, size: int, generator: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Independent rounds of a scenario as they would be observed [size, K]; some are pending.

    Drafts of the pending rounds are a common random length with random gaps.
    """
    k = scenario.num_devices
    devices = DeviceLaw(scenario)(generator.random((size, 3, k)))
    fading = generator.standard_exponential((size, k))
    gain = devices.mean_gain * (fading if scenario.channel.fading == "rayleigh" else 1.0)
    snr = scenario.uplink_power_w * gain / scenario.noise_server_w
    longest = generator.integers(1, scenario.max_draft_length + 1, (size, 1))
    lengths = np.where(generator.random((size, k)) < generator.random((size, 1)), longest, 0)
    run = run_length(generator.standard_exponential((size, k)), devices.acceptance_rate)
    return {
        "snr_db": np.asarray(snr_db(snr), np.float32),
        "token_latency_s": devices.token_latency_s.astype(np.float32),
        "acceptance_rate": devices.acceptance_rate.astype(np.float32),
        "rejected": (run < lengths).astype(np.int64),
    }


def teach(
    network: str, scenario: Scenario, observation: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The teacher's decisions [N, K] and slacks [N]: `deadline`, `exact`, or optimal modes."""
    decisions, slacks = [], []
    for n in range(len(observation["snr_db"])):
        problem = pose_observed(scenario, {key: rows[n] for key, rows in observation.items()})
        slack = 0.0
        if isinstance(problem, UploadProblem):
            lengths = solvers.exact(problem).draft_length
            longest_s = float(np.max(lengths * problem.token_latency_s))
            slack = float(problem.allocate(lengths).latency_s) - longest_s
            decisions.append(lengths)
        elif network == "modes":
            assert isinstance(problem, CorrectionProblem)
            sent = problem.correct(observation["rejected"][n] == 1)
            decisions.append(sent.downlink.astype(np.int64))
        else:
            decisions.append(solvers.deadline(problem).draft_length)
        slacks.append(slack)
    return np.stack(decisions).astype(np.int64), np.array(slacks)


def _labelled_chunk(network: str, domain: Domain, num_devices: int, seed: list[int]) -> Labelled:
    generator = np.random.default_rng(seed)
    scenario = domain.draw(generator, num_devices)
    observation = draw_observation(scenario, STATES_PER_SCENARIO, generator)
    decision, slack_s = teach(network, scenario, observation)
    reader = Reader([scenario])
    given = reader.correcting(observation) if network == "modes" else reader.drafting(observation)
    return Labelled(given, torch.from_numpy(decision), torch.from_numpy(slack_s).to(torch.float32))


def label(
    network: str,
    domain: Domain,
    states: int,
    seed: int,
    workers: int = 2,
    backend: str = "loky",
) -> Iterator[tuple[int, list[Labelled]]]:
    """Labelled states by cell size; yields (labelled so far, data) and last all of them.

    Args:
        network: a key of :data:`agents.networks.NETWORKS`.
        domain: what to draw from.
        states: how many in all.
        seed: the data are a function of it, however the work is spread.
        workers, backend: see :func:`multispin_env.parallel.spread`.
    """
    shares = total(domain.num_devices.values())
    jobs = [
        (network, domain, num_devices, [seed, num_devices, i])
        for num_devices, share in domain.num_devices.items()
        for i in range(max(1, round(states * share / shares / STATES_PER_SCENARIO)))
    ]
    found: dict[int, Labelled] = {}
    for number, chunk in parallel.spread(_labelled_chunk, jobs, workers, backend):
        found[number] = chunk
        yield len(found) * STATES_PER_SCENARIO, []
    chunks: dict[int, list[Labelled]] = {size: [] for size in domain.num_devices}
    for number, job in enumerate(jobs):
        chunks[job[2]].append(found[number])
    yield len(jobs) * STATES_PER_SCENARIO, [_join(parts) for parts in chunks.values()]


def _join(parts: Sequence[Labelled]) -> Labelled:
    first = parts[0].given
    given = Inputs(
        torch.cat([p.given.device for p in parts]),
        torch.cat([p.given.cell for p in parts]),
        torch.cat([p.given.token_s for p in parts]),
        torch.cat([p.given.token_upload_s for p in parts]),
        first.max_draft_length,
    )
    return Labelled(
        given, torch.cat([p.decision for p in parts]), torch.cat([p.slack_s for p in parts])
    )


def loss_of(network: Network, batch: Labelled) -> Tensor:
    """How unlikely the network finds the teacher's answers."""
    encoded = network.encode(batch.given)
    loss: Tensor = network.head.loss(encoded, batch.given, batch.decision)
    if network.share is not None:
        loss = loss + network.share.loss(encoded, batch.given, batch.decision, batch.slack_s)
    return loss


def imitate(
    network: Network,
    data: Sequence[Labelled],
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    checkpoint: Path | None = None,
) -> Iterator[tuple[int, float]]:
    """Fit a network to labelled states; yields (step, loss) after every step.

    Every batch has cells of one size, sizes in proportion to their states. The learning rate falls
    to 0 along a cosine.

    Args:
        network: is trained in place.
        data: of :func:`label`.
        steps, batch_size, learning_rate: of AdamW.
        seed: of the batches.
        checkpoint: a file to go on from, written every 500 steps.
    """
    generator = np.random.default_rng(seed)
    optimiser = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    share = np.array([len(part.given) for part in data], float)
    key = f"imitation {steps} {batch_size} {learning_rate} {seed} {share.tolist()}"
    saved = Checkpoint(checkpoint, key, network, optimiser, schedule, generator)
    for step in range(int(saved.restore().get("step", 0)) + 1, steps + 1):
        part = data[generator.choice(len(data), p=share / share.sum())]
        batch = part.rows(torch.from_numpy(generator.integers(0, len(part.given), batch_size)))
        loss = loss_of(network, batch)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % CHECKPOINT_STEPS == 0:
            saved.save(step=step)
        yield step, float(loss.detach())
