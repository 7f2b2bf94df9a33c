"""The vector environments: N cells stepped together, Gymnasium's `VectorEnv`.

Lane i of a vector environment seeded s equals the scalar environment seeded s + i, bit for bit.
No Python runs per lane, but for those that start an episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from multispin_env.envs import rewards, settings
from multispin_env.envs.rewards import Reward
from multispin_env.envs.settings import DraftPolicyLike, Overrides, ScenarioLike
from multispin_env.envs.spaces import action_space, observation_space
from multispin_env.model.sums import total
from multispin_env.scenario import Scenario
from multispin_env.world.control import (
    DRAFT_BANDWIDTH,
    DRAFT_LENGTH,
    JOINT,
    MODE_SELECTION,
    TIME_LEFT,
    Control,
)
from multispin_env.world.core import (
    CELL_FLOAT_KEYS,
    CELL_INT_KEYS,
    DEVICE_FLOAT_KEYS,
    DEVICE_INT_KEYS,
    Blocks,
    observed,
)
from multispin_env.world.tape import Tape

Observation = dict[str, NDArray[Any]]
Infos = dict[str, Any]
Seed = int | Sequence[int | None] | None


class MultiSpinVectorEnv(VectorEnv[Observation, Any, NDArray[Any]]):
    """What the four vector environments have in common.

    The arguments are those of the scalar environments, and

    * `num_envs`: how many cells.
    * `scenario`, `overrides`: one for all, or a list with one for each cell, to train over
      different physics at once (equal numbers of devices and longest drafts).
    * `autoreset_mode`: a :class:`gymnasium.vector.AutoresetMode`, its name or its value.
    * `threads`: how many share the lanes, at most; the numbers are the same for any. Default: the
      cores that are this process's own (:func:`multispin_env.world.threads.available`), one in
      worker processes. Few lanes stay in one thread, and so do those with a `draft_policy` that is
      asked.
    * `regret`: solved lane by lane, about a millisecond each.
    * a callable `reward` gets the batched info of the lanes that played (arrays [n] and [n, K])
      and returns [n]; a callable `draft_policy` gets batched observations.

    `reset` takes one seed (lane i gets seed + i), a list of seeds or None, and
    `options={"reset_mask": bool [N]}` to start episodes in some lanes only. Infos follow
    Gymnasium's convention: arrays over lanes, and for every key a mask `_key` that says which lanes
    have it.

    Attributes:
        scenarios: one for each lane; `scenario` is the first.
        prices: price of a second in each lane [tokens/s].
        correction: the rule by which corrections travel where the agent does not pick modes.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
    control: ClassVar[Control]

    def __init__(
        self,
        num_envs: int = 1,
        scenario: ScenarioLike | Sequence[ScenarioLike] | None = None,
        *,
        overrides: Overrides | Sequence[Overrides] | None = None,
        reward: Reward = "margin",
        price: float | None = None,
        observe_acceptance: bool = True,
        observe_time: bool = False,
        correction: str = "optimal",
        draft_policy: DraftPolicyLike | None = None,
        regret: bool = False,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        if max_episode_steps is not None:
            raise ValueError(
                f"max_episode_steps = {max_episode_steps!r}: episodes end as the scenario says; "
                'use overrides={"episode.rounds": ...}'
            )
        whole = isinstance(num_envs, int | np.integer) and not isinstance(num_envs, bool)
        if not whole or num_envs < 1:
            raise ValueError(f"num_envs = {num_envs!r}: must be an integer above 0")
        num_envs = int(num_envs)
        if render_mode is not None:
            raise ValueError(
                f"render_mode = {render_mode!r}: a vector environment does not render; "
                "make a scalar one with the same seed"
            )
        self.num_envs = num_envs
        self.metadata = dict(self.metadata, autoreset_mode=_autoreset_mode(autoreset_mode))
        self.scenarios: list[Scenario] = settings.load_scenarios(
            self.control, num_envs, scenario, overrides
        )
        self.scenario = self.scenarios[0]
        self.prices = settings.prices(reward, price, self.scenarios)
        self._reward = reward
        self._core = settings.make_core(
            self.control,
            self.scenarios,
            batched=True,
            correction=correction,
            observe_acceptance=observe_acceptance,
            observe_time=observe_time,
            draft_policy=draft_policy,
            regret=regret,
            threads=threads,
        )
        self.correction = correction
        shape = (self.scenario.num_devices, self.scenario.max_draft_length)
        self.single_action_space = action_space(self.control, *shape)
        horizons = [s.episode.horizon_s or 0.0 for s in self.scenarios]
        horizon_s = max(horizons) if observe_time else None
        self.single_observation_space = observation_space(
            self.control, *shape, bool(observe_acceptance), horizon_s
        )
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

        self._generators: list[np.random.Generator] = []
        self._over = np.ones(num_envs, np.bool_)  # lanes whose episode has ended
        self._started = False

    # ---- Gymnasium's interface -------------------------------------------------------------

    def reset(
        self, *, seed: Seed = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Infos]:
        """Start episodes in all lanes, or in those of `options["reset_mask"]`."""
        lanes = self._lanes_to_reset(options)
        seeds = self._seeds(seed)
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
        if not self._generators:
            self._generators = [seeding.np_random(s)[0] for s in seeds]
        else:
            for n in lanes:
                if seeds[n] is not None:
                    self._generators[n] = seeding.np_random(seeds[n])[0]
        self._start(lanes)
        self._over[lanes] = False
        self._started = True
        outcome = self._core.observe()
        infos: Infos = {}
        _add(infos, "time_s", np.zeros(self.num_envs), self._mask(lanes))
        return self._observations(outcome), infos

    def step(
        self, actions: Any
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], Infos]:
        """Play one round in every lane; see the scalar environment for what a round is.

        Raises:
            ResetNeeded: before the first reset, or (autoreset disabled) a lane's episode is over.
            ValueError: the action has a wrong shape, dtype or value; nothing has happened then.
        """
        mode = self.metadata["autoreset_mode"]
        idle = self._over.copy() if mode is AutoresetMode.NEXT_STEP else np.zeros_like(self._over)
        self._check_running(mode)
        core = self._core
        core.decide(actions)
        restarted = np.flatnonzero(idle)
        if restarted.size:
            core.check(idle)
            self._start(restarted)
        outcome = core.play(idle)
        truncated = outcome[-1][-1].astype(np.bool_)
        self._over = truncated.copy()
        infos, reward = self._infos(outcome, idle, truncated)
        if restarted.size:
            core.observe_into(outcome, ~idle)
            infos["_time_s"][:] = True  # a lane that restarts says that its time is 0
        if mode is AutoresetMode.SAME_STEP and truncated.any():
            infos = self._restart_in_step(outcome, infos, np.flatnonzero(truncated))
        terminated = np.zeros(self.num_envs, np.bool_)
        return self._observations(outcome), reward, terminated, truncated, infos

    @property
    def tapes(self) -> list[Tape]:
        """The draws of every lane's running episode, as the scalar environment's `tape`."""
        if not self._started:
            raise ResetNeeded("tapes need episodes: call reset() first")
        return [self._core.tape_of(n) for n in range(self.num_envs)]

    # ---- starting episodes -----------------------------------------------------------------

    def _start(self, lanes: NDArray[np.int64]) -> None:
        numbers = lanes.tolist()
        self._core.reset(numbers, [self._generators[n] for n in numbers])

    def _seeds(self, seed: Seed) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + n for n in range(self.num_envs)]
        if not isinstance(seed, list | tuple | np.ndarray) or len(seed) != self.num_envs:
            raise ValueError(
                f"seed = {seed!r}: must be an integer, or a list of one for each of "
                f"{self.num_envs} lanes"
            )
        for one in seed:
            if one is not None and (not isinstance(one, int | np.integer) or one < 0):
                raise ValueError(f"seed lists {one!r}: must be integers >= 0, or None")
        return [None if one is None else int(one) for one in seed]

    def _lanes_to_reset(self, options: dict[str, Any] | None) -> NDArray[np.int64]:
        everything = np.arange(self.num_envs)
        if not options:
            return everything
        if set(options) != {"reset_mask"}:
            raise ValueError(f"options = {options!r}: the only option is 'reset_mask'")
        mask = options["reset_mask"]
        if (
            not isinstance(mask, np.ndarray)
            or mask.shape != (self.num_envs,)
            or mask.dtype != np.bool_
            or not mask.any()
        ):
            raise ValueError(
                f"options['reset_mask'] = {mask!r}: must be a bool array of shape "
                f"({self.num_envs},) with at least one True"
            )
        if not self._started and not mask.all():
            raise ResetNeeded("the first reset must start all lanes: leave out 'reset_mask'")
        return everything[mask]

    def _check_running(self, mode: AutoresetMode) -> None:
        if not self._started:
            raise ResetNeeded("step() needs episodes that run: call reset() first")
        if mode is AutoresetMode.DISABLED and self._over.any():
            raise ResetNeeded(
                f"the episodes of lanes {np.flatnonzero(self._over).tolist()} are over: "
                "call reset(options={'reset_mask': ...}) first"
            )

    def _restart_in_step(self, outcome: Blocks, infos: Infos, lanes: NDArray[np.int64]) -> Infos:
        """SAME_STEP: move what the lanes' last step gave to `final_*`, and start anew."""
        final = np.full(self.num_envs, None, dtype=object)
        last = self._observations(outcome)
        for n in lanes:
            final[n] = {key: value[n].copy() for key, value in last.items()}
        mask = self._mask(lanes)
        final_info, remaining = _split(infos, mask)
        self._start(lanes)
        self._over[lanes] = False
        self._core.observe_into(outcome, ~mask)
        result: Infos = {}
        _add(result, "final_obs", final, mask)
        _add(result, "final_info", final_info, mask)
        result.update(remaining)
        _add(result, "time_s", np.where(mask, 0.0, infos["time_s"]), np.ones_like(mask))
        return result

    # ---- what a step returns ---------------------------------------------------------------

    def _observations(self, outcome: Blocks) -> Observation:
        floats, integers = observed(outcome)
        observation: Observation = dict(zip(self._core.float_keys, floats))
        observation.update(zip(self._core.integer_keys, integers))
        if self._core.observe_time:
            observation[TIME_LEFT] = self._core.time_left()
        return observation

    def _infos(
        self, outcome: Blocks, idle: NDArray[np.bool_], truncated: NDArray[np.bool_]
    ) -> tuple[Infos, NDArray[np.float64]]:
        """Infos and rewards of the lanes that played."""
        played = ~idle
        infos: Infos = {}
        if not played.any():
            _add(infos, "time_s", np.zeros(self.num_envs), np.zeros(self.num_envs, np.bool_))
            return infos, np.zeros(self.num_envs)
        _, device_float, device_int, cell_float, cell_int = outcome
        values: Infos = dict(zip(CELL_INT_KEYS, cell_int))
        values.update(zip(CELL_FLOAT_KEYS, cell_float))
        values.update(zip(DEVICE_INT_KEYS, device_int))
        values.update(zip(DEVICE_FLOAT_KEYS, device_float))
        if self._core.regret_keys:
            values.update(self._core.regrets(outcome, np.flatnonzero(played).tolist()))
        terms = self._reward_terms(values, played)
        for key, value in values.items():
            _add(infos, key, value, played)
        if truncated.any():
            _add(infos, "episode_goodput", self._core.episode_goodput(truncated), truncated)
        nested: Infos = {}
        for key, value in terms.items():
            _add(nested, key, value, played)
        _add(infos, "reward_terms", nested, played)
        return infos, np.asarray(total(terms.values()))

    def _reward_terms(self, values: Infos, played: NDArray[np.bool_]) -> rewards.Terms:
        if not callable(self._reward):
            return rewards.terms(self._reward, self.prices, values)
        shown: Mapping[str, Any] = {key: value[played] for key, value in values.items()}
        reward = np.zeros(self.num_envs)
        reward[played] = rewards.terms(self._reward, None, shown)["custom"]
        return {"custom": reward}

    def _mask(self, lanes: NDArray[np.int64]) -> NDArray[np.bool_]:
        mask = np.zeros(self.num_envs, np.bool_)
        mask[lanes] = True
        return mask


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    for member in AutoresetMode:
        if mode in (member, member.name, member.value):
            return member
    allowed = ", ".join(f"{m.name} ({m.value!r})" for m in AutoresetMode)
    raise ValueError(f"autoreset_mode = {mode!r}: must be one of {allowed}")


def _add(infos: Infos, key: str, value: Any, mask: NDArray[np.bool_]) -> None:
    """One key of Gymnasium's batched info: the values, and a mask of the lanes that have it."""
    infos[key], infos[f"_{key}"] = value, mask.copy()


def _split(infos: Infos, mask: NDArray[np.bool_]) -> tuple[Infos, Infos]:
    """Infos of the masked lanes, and of the others; keys that nobody has are left out."""
    taken: Infos = {}
    left: Infos = {}
    for key, value in infos.items():
        if key.startswith("_"):
            continue
        have = infos[f"_{key}"]
        for part, lanes in ((taken, have & mask), (left, have & ~mask)):
            if not lanes.any():
                continue
            if isinstance(value, dict):
                inside = _split(value, lanes)[0]
            else:
                inside = np.zeros_like(value)
                inside[lanes] = value[lanes]
            _add(part, key, inside, lanes)
    return taken, left


class DraftLengthVectorEnv(MultiSpinVectorEnv):
    """Cells of `multispin/DraftLength-v0`; see :class:`.DraftLengthEnv`."""

    control = DRAFT_LENGTH


class ModeSelectionVectorEnv(MultiSpinVectorEnv):
    """Cells of `multispin/ModeSelection-v0`; see :class:`.ModeSelectionEnv`."""

    control = MODE_SELECTION


class JointVectorEnv(MultiSpinVectorEnv):
    """Cells of `multispin/Joint-v0`; see :class:`.JointEnv`."""

    control = JOINT


class DraftBandwidthVectorEnv(MultiSpinVectorEnv):
    """Cells of `multispin/DraftBandwidth-v0`; see :class:`.DraftBandwidthEnv`."""

    control = DRAFT_BANDWIDTH
