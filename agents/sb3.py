"""PPO by Stable-Baselines3: with its own policy, or with one that does not care about numbering.

SB3's `MultiInputPolicy` flattens the observation: it has to learn anew for every device what holds
for all of them. :class:`EquivariantPolicy` has the :class:`~agents.networks.Encoder` in its place,
and one head for all devices; everything else is SB3's.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.policies import MultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from agents.features import Constants, inputs
from agents.networks import WIDTH, Encoder
from baselines import Context
from multispin_env.scenario import Scenario
from multispin_env.spaces import Control


class EquivariantExtractor(BaseFeaturesExtractor):
    """Embeddings of all devices, each beside that of the cell, flattened: [N, K * 2 W].

    Args:
        observation_space: of the environment.
        scenario: its constants.
    """

    def __init__(self, observation_space: spaces.Dict, scenario: Scenario) -> None:
        super().__init__(observation_space, features_dim=scenario.num_devices * 2 * WIDTH)
        self._constants = Constants.of([scenario])
        pending = "next_snr_db" in observation_space.spaces
        self._keys = ["snr_db", "next_snr_db"] if pending else ["snr_db"]
        self.encoders = nn.ModuleList(Encoder(WIDTH // len(self._keys)) for _ in self._keys)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Embeddings of a batch of observations; of a pending round and of the next one."""
        constants = self._constants.repeat(len(observations["snr_db"]))
        rate = observations.get("acceptance_rate")
        if rate is None:  # what the feedback tells, with three tokens of doubt
            accepted = observations["accepted_count"]
            rate = (accepted + 2.0) / (accepted + observations["rejection_count"] + 3.0)
        parts = []
        for key, encoder in zip(self._keys, self.encoders):
            member = observations["rejected"] if len(self._keys) > 1 and key == "snr_db" else None
            given = inputs(
                constants, observations[key], observations["token_latency_s"], rate, member
            )
            device, cell = encoder(given)
            parts += [device, cell[:, None, :].expand(-1, device.shape[1], -1)]
        return torch.cat(parts, dim=-1).flatten(1)


class _Latent(nn.Module):
    """In place of SB3's MLP extractor: devices for the actor, their mean for the critic."""

    def __init__(self, num_devices: int) -> None:
        super().__init__()
        self._shape = (num_devices, 2 * WIDTH)
        self.latent_dim_pi, self.latent_dim_vf = num_devices * 2 * WIDTH, 2 * WIDTH

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        return features

    def forward_critic(self, features: Tensor) -> Tensor:
        devices: Tensor = features.unflatten(1, self._shape)
        return devices.mean(1)


class _PerDevice(nn.Module):
    """The same head for all devices; outputs in the order of the action space's entries."""

    def __init__(self, num_devices: int, groups: list[int]) -> None:
        super().__init__()
        self._shape = (num_devices, 2 * WIDTH)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, size))
            for size in groups
        )
        for size, head in zip(groups, self.heads):  # begin close to uniform
            for parameters in head.parameters():
                if parameters.shape == (size, WIDTH):
                    nn.init.orthogonal_(parameters, 0.01)

    def forward(self, latent: Tensor) -> Tensor:
        devices: Tensor = latent.unflatten(1, self._shape)
        return torch.cat([head(devices).flatten(1) for head in self.heads], dim=1)


class EquivariantPolicy(MultiInputActorCriticPolicy):
    """Actor and critic on one `EquivariantExtractor`.

    Args:
        control, scenario: of the environment; see :func:`ppo`.
        arguments: of SB3's `ActorCriticPolicy`.
    """

    def __init__(
        self, *arguments: Any, control: Control, scenario: Scenario, **options: Any
    ) -> None:
        self._control, self._scenario = control, scenario
        options["features_extractor_class"] = EquivariantExtractor
        options["features_extractor_kwargs"] = {"scenario": scenario}
        super().__init__(*arguments, **options)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor: Any = _Latent(self._scenario.num_devices)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        control, lengths = self._control, self._scenario.max_draft_length + 1
        groups = [1, 1] if control.bandwidth else [lengths] if control.draft else [1]
        if control.draft and control.mode:
            groups = [lengths, 2]
        self.action_net: Any = _PerDevice(self._scenario.num_devices, groups)
        make: Any = self.optimizer_class
        self.optimizer = make(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


def ppo(env: Any, *, equivariant: bool = True, seed: int | None = None, **options: Any) -> PPO:
    """PPO for an environment of :func:`agents.make_vec_env`, with settings that suit it.

    The discount is 0, because decisions have no consequence beyond their round. In Joint lengths
    are rewarded one step later, with the round that they draft; there it is 0.5.

    Args:
        env: SB3's kind of environment.
        equivariant: :class:`EquivariantPolicy`; otherwise SB3's `MultiInputPolicy`.
        seed: of the learner.
        options: of :class:`stable_baselines3.PPO`, instead of the defaults here.
    """
    context = Context.of(env)
    settings: dict[str, Any] = {
        "n_steps": 16,
        "batch_size": 16 * env.num_envs // 4 or 16,
        "n_epochs": 4,
        "gamma": 0.5 if context.control.draft and context.control.mode else 0.0,
        "learning_rate": 1e-3 if equivariant else 3e-4,
        "ent_coef": 1e-3,
        "seed": seed,
        "device": "cpu",
    }
    if not equivariant:
        return PPO("MultiInputPolicy", env, **settings | options)
    kwargs = {"control": context.control, "scenario": context.scenario}
    return PPO(EquivariantPolicy, env, policy_kwargs=kwargs, **settings | options)
