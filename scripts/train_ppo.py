"""Train Stable-Baselines3's PPO on any id, and score it on training episodes it has not seen.

    python scripts/train_ppo.py multispin/DraftLength-v0             # one network for all devices
    python scripts/train_ppo.py multispin/DraftLength-v0 --plain     # SB3's MultiInputPolicy
    tensorboard --logdir runs/ppo

The model is saved as SB3 does, model.zip; `stable_baselines3.PPO.load` reads it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from stable_baselines3.common.evaluation import evaluate_policy

import agents
import baselines


@dataclass
class Options:
    """Train PPO."""

    env_id: Annotated[str, tyro.conf.Positional] = "multispin/DraftLength-v0"
    """The environment."""
    overrides: dict[str, float] = field(default_factory=dict)
    """Scenario fields, such as radio.uplink_power_dbm 10."""
    scenario: str | None = None
    """A preset; the environment's own if left out."""
    plain: bool = False
    """SB3's policy, which flattens the observation."""
    rounds: int = 400_000
    """Rounds to play, all lanes together."""
    lanes: int = 64
    """Cells at once."""
    seed: int = 0
    """Of the lanes and the learner."""
    episodes: int = 64
    """Episodes behind the scores."""
    output: Path = Path("runs/ppo")
    """Folder."""


def main() -> None:
    options = tyro.cli(Options)
    torch.set_num_threads(1)
    whole = {"num_devices", "max_draft_length", "reference_draft_length", "episode.rounds"}
    overrides = {k: int(v) if k in whole else v for k, v in options.overrides.items()}
    kwargs: dict[str, Any] = {"scenario": options.scenario, "overrides": overrides}
    env = agents.make_vec_env(options.env_id, options.lanes, seed=options.seed, **kwargs)
    model = agents.ppo(
        env, equivariant=not options.plain, seed=options.seed, tensorboard_log=str(options.output)
    )
    model.learn(options.rounds, progress_bar=True)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "model.zip")
    names = {"model": model} | {
        name: baselines.make(name, env)
        for name in baselines.names(env)
        if name in ("deadline", "greedy", "exact", "optimal_modes", "fixed")
    }
    scores = {}
    for name, policy in names.items():
        # Undiscounted returns of "tokens" are tokens; the same fresh episodes for all.
        fresh = agents.make_vec_env(
            options.env_id, options.episodes, seed=10_000_000, reward="tokens", **kwargs
        )
        mean, spread = evaluate_policy(policy, fresh, n_eval_episodes=options.episodes)
        horizon_s = baselines.Context.of(fresh).scenario.episode.horizon_s or float("nan")
        scores[name] = float(mean) / horizon_s
        error = 1.96 * spread / options.episodes**0.5 / horizon_s
        print(f"{name:<16}{scores[name]:>9.1f} ± {error:.1f} tokens/s")
    (options.output / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
    print(f"Model: {options.output}/model.zip")


if __name__ == "__main__":
    main()
