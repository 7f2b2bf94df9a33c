"""Leave-one-out policy gradient on common tapes, through the vector environment.

Nothing random in these environments depends on an action. So M lanes with the same seed meet the
same round whatever they do, and M joint decisions for one state can be compared on one outcome: a
decision's advantage is its reward less the mean reward of the others (REINFORCE with a
leave-one-out baseline). Rewards are tokens - price * latency at the scenario's reference goodput,
credited at once: the discount is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
import numpy as np
import torch

from agents.checkpoint import Checkpoint
from agents.features import Reader
from agents.networks import Network
from multispin_env.scenario import Scenario
from multispin_env.solvers import reference_goodput
from multispin_env.solvers.problems import check_integer

#: Rounds after which all lanes start new episodes.
EPISODE_ROUNDS: Final = 16


@dataclass(frozen=True)
class Progress:
    """One update."""

    update: int
    rounds: int  #: played so far, all lanes
    reward: float  #: mean over decisions [tokens]
    goodput: float  #: tokens over seconds of all lanes [tokens/s]
    entropy: float  #: mean of the decisions' entropies [nats]


def train(
    network: Network,
    scenarios: Sequence[Scenario],
    *,
    updates: int,
    groups: int = 64,
    decisions: int = 16,
    learning_rate: float = 1e-3,
    entropy: float = 0.02,
    clip: float = 10.0,
    longest_round_s: float = 5.0,
    seed: int = 0,
    checkpoint: Path | None = None,
) -> Iterator[Progress]:
    """Train draft lengths (corrections) in place; yields after every update.

    Args:
        network: with a head for draft lengths.
        scenarios: shared out over the groups in turn; equal numbers of devices.
        updates: gradient steps, one a round of all lanes.
        groups: states in a step.
        decisions: M, joint decisions that are compared in each state.
        learning_rate: falls to 0 along a cosine.
        entropy: weight of the entropy bonus, which falls to 0 linearly.
        clip: advantages are clipped at this many times their mean magnitude. A tight clip would
            hide that drafting on a faded device costs hundreds of tokens.
        longest_round_s: rounds are charged this long at most.
        seed: of episodes, decisions and the order of everything.
        checkpoint: a file to go on from, written at ends of episodes.
    """
    check_integer("decisions", decisions, 2)
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    mine = [scenarios[i % len(scenarios)] for i in range(groups)]
    prices = np.array([reference_goodput(s) for s in mine])[:, None]
    envs = _lanes(mine, decisions)
    reader = Reader(mine)
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
    key = f"gradient {updates} {groups} {decisions} {learning_rate} {entropy} {clip} {seed}"
    saved = Checkpoint(checkpoint, key, network, optimiser, schedule, generator)
    numbers = saved.restore()
    first, scale = int(numbers.get("update", 0)), float(numbers.get("scale", 10.0))
    observation: dict[str, Any] = {}
    over = True
    for update in range(first + 1, updates + 1):
        if over:
            if update > first + 1:
                saved.save(update=update - 1, scale=scale)
            seeds = generator.integers(0, 2**48, groups)
            every = np.repeat(seeds, decisions).tolist()
            observation, _ = envs.reset(seed=every)  # type: ignore[arg-type]
        given = reader.drafting({key: rows[::decisions] for key, rows in observation.items()})
        encoded = network.encode(given)
        lengths, log_probability, uncertainty = network.head.sample(encoded, given, decisions)
        actions = lengths.transpose(0, 1).reshape(groups * decisions, -1).numpy()
        observation, _, _, truncated, infos = envs.step(actions)
        over = bool(truncated.any())
        tokens = infos["emitted"].reshape(groups, decisions)
        latency_s = infos["latency_s"].reshape(groups, decisions)
        reward = tokens - prices * np.minimum(latency_s, longest_round_s)
        others = (reward.sum(1, keepdims=True) - reward) / (decisions - 1)
        advantage = reward - others
        scale = 0.99 * scale + 0.01 * float(np.abs(advantage).mean())
        advantage = np.clip(advantage / scale, -clip, clip)
        weight = torch.from_numpy(advantage.T.astype(np.float32))
        bonus = entropy * (1.0 - update / updates)
        loss = -(weight * log_probability).mean() - bonus * uncertainty.mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        goodput = float(tokens.sum() / latency_s.sum())
        played = update * groups * decisions
        spread = float(uncertainty.detach().mean())
        yield Progress(update, played, float(reward.mean()), goodput, spread)


def _lanes(scenarios: Sequence[Scenario], decisions: int) -> gym.vector.VectorEnv[Any, Any, Any]:
    """`decisions` lanes for each scenario; all episodes end together, after 16 rounds."""
    short = [Scenario.load(scenario, {"episode.rounds": EPISODE_ROUNDS}) for scenario in scenarios]
    return gym.make_vec(
        "multispin/DraftLength-v0",
        num_envs=len(short) * decisions,
        scenario=[scenario for scenario in short for _ in range(decisions)],
        reward="tokens",
        autoreset_mode="DISABLED",
    )
