"""Stable-Baselines3's algorithms, with its own policy, or one that does not care about numbering.

SB3's `MultiInputPolicy` flattens the observation: it has to learn anew for every device what holds
for all of them. :class:`EquivariantPolicy` has the :class:`~agents.networks.Encoder` in its place,
and one head for all devices; everything else is SB3's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.torch import load_model
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import MultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from agents.features import Constants, inputs
from agents.networks import WIDTH, Encoder
from baselines import Context, Policy
from multispin_env.envs.spaces import action_space, observation_space
from multispin_env.envs.wrappers import (
    deadline_action_space,
    deadline_lengths,
    flat_action_space,
    unflatten_action,
)
from multispin_env.scenario import Scenario
from multispin_env.world.control import DRAFT_LENGTH, Control


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
    """One head for the cell, and the same heads for all devices.

    Outputs are in the order of the action space's entries: `cell` numbers (0 for none), and those
    of each group for every device.
    """

    def __init__(self, num_devices: int, cell: int, groups: list[int]) -> None:
        super().__init__()
        self._shape = (num_devices, 2 * WIDTH)
        self.cell = _head(cell) if cell else None
        self.heads = nn.ModuleList(_head(size) for size in groups)

    def forward(self, latent: Tensor) -> Tensor:
        devices: Tensor = latent.unflatten(1, self._shape)
        parts = [] if self.cell is None else [self.cell(devices.mean(1))]
        return torch.cat([*parts, *(head(devices).flatten(1) for head in self.heads)], dim=1)


def _head(size: int) -> nn.Module:
    last = nn.Linear(WIDTH, size)
    nn.init.orthogonal_(last.weight, 0.01)  # begin close to uniform
    return nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.Tanh(), last)


class EquivariantPolicy(MultiInputActorCriticPolicy):
    """Actor and critic on one `EquivariantExtractor`.

    Args:
        control, scenario: of the environment; see :func:`learner`.
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
        num_devices = self._scenario.num_devices
        groups = [1, 1] if control.bandwidth else [lengths] if control.draft else [1]
        if control.draft and control.mode:
            groups = [lengths, 2]
        deadline = control == DRAFT_LENGTH and self.action_space.shape == (1 + num_devices,)
        self.action_net: Any = (
            _PerDevice(num_devices, lengths, [2])
            if deadline
            else _PerDevice(num_devices, 0, groups)
        )
        make: Any = self.optimizer_class
        self.optimizer = make(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


#: Stable-Baselines3's algorithms that fit, and settings that suit these environments. The discount
#: is set by :func:`learner`. A2C's and SAC's learning rates are SB3's own.
ALGORITHMS: Final[dict[str, type[BaseAlgorithm]]] = {"PPO": PPO, "A2C": A2C, "SAC": SAC}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "PPO": {"n_steps": 16, "n_epochs": 4, "ent_coef": 1e-3},
    "A2C": {"n_steps": 16, "ent_coef": 1e-3},
    "SAC": {"buffer_size": 200_000, "learning_starts": 5_000, "gradient_steps": 8},
}


def learner(
    algorithm: str, env: Any, *, equivariant: bool = True, seed: int | None = None, **options: Any
) -> Any:
    """One of Stable-Baselines3's algorithms for an environment of :func:`agents.make_vec_env`.

    The discount is 0, because decisions have no consequence beyond their round. In Joint lengths
    are rewarded one step later, with the round that they draft; there it is 0.5.

    Args:
        algorithm: `PPO`, `A2C`, or `SAC` (DraftBandwidth only).
        env: SB3's kind of environment. Lanes may have scenarios of their own, which differ in what
            is observed (such as power) only, if `equivariant`.
        equivariant: :class:`EquivariantPolicy`, not for SAC; otherwise SB3's `MultiInputPolicy`.
        seed: of the learner.
        options: of the algorithm, instead of the defaults here.

    Raises:
        ValueError: no such algorithm, or it does not fit the environment or the policy.
    """
    if algorithm not in ALGORITHMS:
        names = ", ".join(map(repr, ALGORITHMS))
        raise ValueError(f"algorithm = {algorithm!r}: must be one of {names}")
    control, scenarios = env.get_attr("control")[0], env.get_attr("scenario")
    if algorithm == "SAC" and (equivariant or not control.bandwidth):
        raise ValueError(
            "algorithm = 'SAC': needs a box of actions (DraftBandwidth) and equivariant=False"
        )
    settings: dict[str, Any] = SETTINGS[algorithm] | {
        "gamma": 0.5 if control.draft and control.mode else 0.0,
        "seed": seed,
        "device": "cpu",
    }
    if algorithm == "PPO":
        settings["batch_size"] = 4 * env.num_envs
        settings["learning_rate"] = 1e-3 if equivariant else 3e-4
    policy: Any = "MultiInputPolicy"
    if equivariant:
        _check_same_constants(scenarios)
        policy = EquivariantPolicy
        settings["policy_kwargs"] = {"control": control, "scenario": scenarios[0]}
    return ALGORITHMS[algorithm](policy, env, **settings | options)


def _check_same_constants(scenarios: Sequence[Scenario]) -> None:
    """What :class:`EquivariantExtractor` takes for given must be the same in all lanes."""
    for n, scenario in enumerate(scenarios):
        pairs = zip(astuple(Constants.of(scenarios[:1])), astuple(Constants.of([scenario])))
        if any(not np.allclose(a, b, rtol=1e-6) for a, b in pairs):
            raise ValueError(
                f"lane {n} differs from lane 0 in what is not observed (payload, verification or "
                "the ratio of downlink to uplink): must be equal for an equivariant policy"
            )


class SB3Policy(Policy):
    """The deterministic actions of a policy that Stable-Baselines3 has trained.

    Args:
        context: the environment.
        policy: SB3's.
        deadline: its actions are those of :class:`multispin_env.envs.wrappers.DeadlineAction`.
    """

    def __init__(self, context: Context, policy: Any, deadline: bool) -> None:
        super().__init__(context)
        self.policy, self._deadline = policy, deadline

    @classmethod
    def load(cls, path: Path, card: Mapping[str, Any], context: Context) -> SB3Policy:
        """The policy of a file of weights.

        Args:
            path: safetensors.
            card: `algorithm`, `equivariant` and `deadline` of the training.
            context: the environment that it shall control.

        Raises:
            ValueError: weights of another kind of policy, or of cells of another size.
        """
        for key in ("algorithm", "equivariant", "deadline"):
            if key not in card:
                raise ValueError(f"path = {path}: its card must have {key!r}")
        kind: Any = EquivariantPolicy
        options: dict[str, Any] = {"control": context.control, "scenario": context.scenario}
        if not card["equivariant"]:
            kind = ALGORITHMS[card["algorithm"]].policy_aliases["MultiInputPolicy"]
            options = {}
        shape = context.scenario.num_devices, context.scenario.max_draft_length
        actions: spaces.Space[Any] = action_space(context.control, *shape)
        if context.control.bandwidth:
            actions = flat_action_space(actions)
        elif card["deadline"]:
            actions = deadline_action_space(actions)
        observations = observation_space(context.control, *shape, context.informed)
        policy = kind(observations, actions, lambda _: 0.0, **options)
        try:
            load_model(policy, path)
        except (RuntimeError, SafetensorError) as error:
            raise ValueError(
                f"path = {path}: does not hold weights of a policy for {context.control.id} with "
                f"{shape[0]} devices: {error}"
            ) from error
        return cls(context, policy, card["deadline"])

    def act(self, observation: Mapping[str, Any]) -> Any:
        """Decisions for every observation of the batch."""
        actions, _ = self.policy.predict(dict(observation), deterministic=True)
        if self._deadline:
            longest = self.scenario.max_draft_length
            return deadline_lengths(actions, observation["token_latency_s"], longest)
        return unflatten_action(actions, self._space) if self.control.bandwidth else actions
