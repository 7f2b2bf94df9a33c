"""Stable-Baselines3 on the native vector environments.

SB3 has a vector interface of its own; `make_vec_env` gives an environment that speaks it, without
a Python object per lane::

    env = agents.make_vec_env("multispin/DraftLength-v0", num_envs=256, seed=0)
    model = PPO("MultiInputPolicy", env)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers.vector import TransformReward
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from multispin_env.envs.wrappers import (
    deadline_action_space,
    deadline_lengths,
    flat_action_space,
    unflatten_action,
)


class SB3VecEnv(VecEnv):
    """A native vector environment as a Stable-Baselines3 `VecEnv`.

    SB3 expects that a finished lane restarts within the step, and finds its last observation in
    the info as `terminal_observation`, with `TimeLimit.truncated` set because episodes end by
    time only. Lanes that go on have an empty info.

    DraftBandwidth's Dict action, which SB3 does not know, becomes the flat box of
    :class:`multispin_env.envs.wrappers.FlattenBandwidth`.

    Args:
        env: made with `autoreset_mode="SAME_STEP"`.
        deadline: actions are those of :class:`multispin_env.envs.wrappers.DeadlineAction`.

    Raises:
        ValueError: another autoreset mode, or deadlines where they do not fit.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], deadline: bool = False) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise ValueError(f"env has autoreset mode {mode}: must be made with 'SAME_STEP'")
        self.env = env
        self.metadata = env.metadata
        self._flat = isinstance(env.single_action_space, spaces.Dict)
        action_space: spaces.Space[Any] = env.single_action_space
        if self._flat:
            action_space = flat_action_space(env.single_action_space)
        self._deadline = deadline
        if deadline:
            action_space = deadline_action_space(env.single_action_space)
        super().__init__(env.num_envs, env.single_observation_space, action_space)

    def reset(self) -> VecEnvObs:
        """Start episodes in all lanes; seeds set by `seed` are used once."""
        if any(self._options):
            raise ValueError(f"options = {self._options!r}: these environments know none")
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        observation, _ = self.env.reset(seed=seeds)  # type: ignore[arg-type]
        self._token_latency_s = observation["token_latency_s"]
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observation  # type: ignore[no-any-return]

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions for :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Play one round in every lane."""
        actions: Any = self._actions
        if self._flat:
            actions = unflatten_action(actions, self.env.single_action_space)
        if self._deadline:
            longest = self.env.unwrapped.scenario.max_draft_length  # type: ignore[attr-defined]
            actions = deadline_lengths(actions, self._token_latency_s, longest)
        observation, rewards, terminated, truncated, infos = self.env.step(actions)
        self._token_latency_s = observation["token_latency_s"]
        per_lane: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for lane in np.flatnonzero(truncated):
            per_lane[lane]["TimeLimit.truncated"] = True
            per_lane[lane]["terminal_observation"] = infos["final_obs"][lane]
            goodput = infos["final_info"]["episode_goodput"][lane]
            per_lane[lane]["episode_goodput"] = float(goodput)
        return observation, rewards.astype(np.float32), terminated | truncated, per_lane

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """Vector environments do not render."""
        return [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each lane asked for: its scenario, price or tape, or a shared one."""
        inner: Any = self.env.unwrapped
        lanes = self._get_indices(indices)
        per_lane = {"scenario": "scenarios", "price": "prices", "tape": "tapes"}
        if attr_name in per_lane:
            values = getattr(inner, per_lane[attr_name])
            return [values[lane] for lane in lanes]
        value = getattr(inner, attr_name)
        return [value for _ in lanes]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: lanes share one object."""
        raise ValueError(f"attr_name = {attr_name!r}: lanes of a native environment share it")

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Refused: there is no object per lane that could be called."""
        raise ValueError(f"method_name = {method_name!r}: lanes are not separate environments")

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Any = None
    ) -> list[bool]:
        """No lane has a wrapper of its own."""
        return [False for _ in self._get_indices(indices)]


def make_vec_env(
    env_id: str,
    num_envs: int = 1,
    seed: int | None = None,
    *,
    deadline: bool = False,
    clip_reward: float | None = None,
    **kwargs: Any,
) -> VecMonitor:
    """A monitored SB3 environment of `num_envs` native lanes.

    The counterpart of SB3's function of that name: lane i is seeded seed + i and plays the same
    episodes as the i-th environment there.

    Args:
        env_id: one of the ids of this project.
        num_envs: lanes.
        seed: of lane 0; None for a random one.
        deadline: actions of DraftLength are a common deadline and who drafts until it, see
            :class:`multispin_env.envs.wrappers.DeadlineAction`.
        clip_reward: clip rewards to +- this. A correction over a faded link may cost thousands of
            tokens in a round; learners with a critic are better off with hundreds.
        kwargs: passed to the environment.
    """
    envs = gym.make_vec(env_id, num_envs=num_envs, autoreset_mode="SAME_STEP", **kwargs)
    if clip_reward is not None:
        most = float(clip_reward)
        envs = TransformReward(envs, lambda reward: np.clip(reward, -most, most))
    adapter = SB3VecEnv(envs, deadline)
    adapter.seed(seed)
    return VecMonitor(adapter)
