"""The scalar environments: one cell, Gymnasium's `Env`.

Four classes, one for each thing an agent may control. They share :class:`MultiSpinEnv`, a thin
shell over :class:`multispin_env.world.core.Core`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from multispin_env.envs import rendering, rewards, settings
from multispin_env.envs.documentation import complete
from multispin_env.envs.rewards import Reward
from multispin_env.envs.settings import DraftPolicyLike, Overrides, ScenarioLike
from multispin_env.envs.spaces import action_space, observation_space
from multispin_env.model.kernels.state import OBSERVED
from multispin_env.model.sums import total
from multispin_env.scenario import Scenario
from multispin_env.solvers.problems import check_integer
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
)
from multispin_env.world.tape import Tape, episode_seed

Observation = dict[str, NDArray[Any]]

_ONLY_CELL = np.ones(1, np.bool_)
_NO_INFO: dict[str, Any] = dict.fromkeys(
    CELL_INT_KEYS + CELL_FLOAT_KEYS + DEVICE_INT_KEYS + DEVICE_FLOAT_KEYS
)


class MultiSpinEnv(gym.Env[Any, Any]):
    """What the four environments have in common; see their own docstrings.

    Attributes:
        scenario: the scenario that is played, overrides applied.
        price: price of a second in the reward "margin" [tokens/s].
        correction: the rule by which corrections travel where the agent does not pick modes.
        tape: the running episode's devices, gains and run lengths, read-only.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": ["human", "rgb_array", "ansi"],
        "render_fps": rendering.FPS,
    }
    control: ClassVar[Control]

    def __init__(
        self,
        scenario: ScenarioLike | None = None,
        *,
        overrides: Overrides | None = None,
        reward: Reward = "margin",
        price: float | None = None,
        observe_acceptance: bool = True,
        observe_time: bool = False,
        correction: str = "optimal",
        draft_policy: DraftPolicyLike | None = None,
        regret: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(
                f"render_mode = {render_mode!r}: must be None or one of "
                f"{self.metadata['render_modes']}"
            )
        self.render_mode = render_mode
        self._timeline: rendering.Timeline | None = None
        self._made_painter: rendering.Painter | None = None
        scenarios = settings.load_scenarios(self.control, 1, scenario, overrides)
        self.scenario: Scenario = scenarios[0]
        self.price = float(settings.prices(reward, price, scenarios)[0])
        self._reward = reward
        self._core = settings.make_core(
            self.control,
            scenarios,
            batched=False,
            correction=correction,
            observe_acceptance=observe_acceptance,
            observe_time=observe_time,
            draft_policy=draft_policy,
            regret=regret,
        )
        self.correction = correction
        self._rows = [(key, 0, (i, 0)) for i, key in enumerate(self._core.float_keys)]
        self._rows += [(key, 2, (OBSERVED + i, 0)) for i, key in enumerate(self._core.integer_keys)]
        self._no_observation: dict[str, Any] = dict.fromkeys(key for key, _, _ in self._rows)
        self._running = False
        shape = (self.scenario.num_devices, self.scenario.max_draft_length)
        self.action_space = action_space(self.control, *shape)
        horizon_s = self.scenario.episode.horizon_s if observe_time else None
        self.observation_space = observation_space(
            self.control, *shape, bool(observe_acceptance), horizon_s
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode: draw devices and the first rounds of the tape.

        Args:
            seed: seeds the environment's generator; None continues it.
            options: none are known; a non-empty dict raises ValueError.

        Returns:
            The observation and an info with `time_s` = 0.0.
        """
        if options:
            raise ValueError(f"options = {options!r}: this environment knows no reset options")
        super().reset(seed=seed)
        self._running = False  # until all of it has succeeded
        self._core.reset([0], [self.np_random])
        self._running = True
        observation = self._observation(self._core.observe())
        self._picture(None)
        return observation, {"time_s": 0.0}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one round; see the class docstring.

        Raises:
            ResetNeeded: before the first reset, or after the episode was truncated.
            ValueError: the action has a wrong shape, dtype or value; nothing has happened then.
        """
        if not self._running:
            raise ResetNeeded("step() needs an episode that runs: call reset() first")
        core = self._core
        core.decide(action)
        outcome = core.play()
        info, truncated = _info(outcome)
        if truncated:
            self._running = False
            info["episode_goodput"] = self._goodput_so_far()
        if core.regret_keys:
            for key, value in core.regrets(outcome, (0,)).items():
                info[key] = float(value[0])
        terms = rewards.terms(self._reward, self.price, info)
        reward: float = total(terms.values())
        info["reward_terms"] = terms
        if self.render_mode is not None:
            self._picture(info)
        return self._observation(outcome), reward, False, truncated, info

    def render(self) -> Any:
        """The round that was closed last, as a timeline with a row a device.

        Returns:
            `rgb_array`: uint8 [500, 800, 3]. `ansi`: text. `human`: None; the window is refreshed
            by every reset and step. None without a render mode.
        """
        if self.render_mode is None:
            gym.logger.warn(
                "render() needs a render mode: "
                f'gym.make("{self.control.id}", render_mode="rgb_array")'
            )
            return None
        if self._timeline is None:
            raise ResetNeeded("render() needs an episode: call reset() first")
        if self.render_mode == "ansi":
            return rendering.draw_text(self._timeline)
        if self.render_mode == "rgb_array":
            return self._painter.array(self._timeline)
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._made_painter is not None:
            self._made_painter.close()
            self._made_painter = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made_painter": None}  # a window cannot be copied

    def _goodput_so_far(self) -> float:
        return float(self._core.episode_goodput(_ONLY_CELL)[0])

    def _picture(self, info: dict[str, Any] | None) -> None:
        """Lay out the round that `info` tells of, and show it in human mode."""
        if self.render_mode is None:
            return
        goodput = 0.0 if info is None else self._goodput_so_far()
        self._timeline = rendering.timeline(self.scenario, self.tape, info, goodput)
        if self.render_mode == "human":
            self._painter.show(self._timeline)

    @property
    def _painter(self) -> rendering.Painter:
        """The painter, made when first needed."""
        if self._made_painter is None:
            self._made_painter = rendering.Painter(human=self.render_mode == "human")
        return self._made_painter

    @property
    def tape(self) -> Tape:
        """The running episode's draws, `channel_gain` and `run_length`, [rounds, K], read-only."""
        if not self._core.started(0):
            raise ResetNeeded("tape needs an episode: call reset() first")
        return self._core.tape_of(0)

    def fork(self, seed: int) -> None:
        """Give the running episode another future, one that fits all that was observed so far.

        Fading and acceptances that the present observation does not tell of are drawn anew from
        `seed`. A policy that acts on observations only acts the same before and after
        (:func:`multispin_env.benchmark.check_causal`); a planner can sample futures this way.

        Raises:
            ResetNeeded: no episode runs.
            ValueError: the seed is not an integer >= 0.
        """
        if not self._running:
            raise ResetNeeded("fork() needs an episode that runs: call reset() first")
        check_integer("seed", seed, 0)
        self._core.fork(0, episode_seed(np.random.default_rng(int(seed))))

    def _observation(self, outcome: Blocks) -> Observation:
        observation: Observation = self._no_observation.copy()
        for key, block, row in self._rows:
            observation[key] = outcome[block][row]
        if self._core.observe_time:
            observation[TIME_LEFT] = self._core.time_left()[0]
        return observation


def _info(outcome: Blocks) -> tuple[dict[str, Any], bool]:
    """The info of the only cell, and whether the episode is truncated."""
    _, floats, integers, cell_float, cell_int = outcome
    # Spelt out, rows taken one by one, in a dict that need not grow: a step is mostly this.
    info = _NO_INFO.copy()
    (
        info["round"],
        info["tokens"],
        info["emitted"],
        info["bonus_tokens"],
        info["correction_tokens"],
        truncated,
    ) = cell_int.ravel().tolist()
    (
        info["latency_s"],
        info["drafting_s"],
        info["verification_s"],
        info["communication_s"],
        info["time_s"],
        info["goodput"],
    ) = cell_float.ravel().tolist()
    info["drafted"] = integers[0, 0]
    info["accepted"] = integers[1, 0]
    info["rejected"] = integers[2, 0]
    info["mode"] = integers[3, 0]
    info["power_w"] = floats[0, 0]
    info["bandwidth_hz"] = floats[1, 0]
    return info, bool(truncated)


@complete
class DraftLengthEnv(MultiSpinEnv):
    """`multispin/DraftLength-v0`: choose how many tokens each device drafts.

    ## Description
    K devices draft tokens with a small language model; an edge server verifies all drafts with a
    large one in a single batch; what was rejected is corrected over a fading radio channel. One
    step is one such round. The agent picks the draft lengths knowing the round's channel. Longer
    drafts may deliver more tokens, but keep everybody waiting and are rejected more often.

    In the correction protocol (paper B, default scenario `qwen2.5`) the rejected devices move one
    token distribution each, on the uplink or the downlink, with modes and powers by the rule
    `correction`; they share the band equally, and the round waits for the slowest. In the upload
    protocol (paper A, `llama2`, `qwen3.5`) all drafts are uploaded before verification, the band
    split optimally (Lemma 3).

    ## Action Space
    `MultiDiscrete([max_draft_length + 1] * K)`: tokens to draft, 0..max_draft_length. A device that
    drafts 0 decodes plainly: one token, nothing to correct, nothing to send.

    ## Arguments
    * `scenario`: a name (`multispin_env.list_scenarios()`), a TOML path, a dict or a `Scenario`.
    * `overrides`: dotted scenario fields and their values: `{"radio.uplink_power_dbm": 10}`.
    * `reward`, `price`: see Rewards.
    * `observe_acceptance`: show acceptance rates (default), or feedback.
    * `observe_time`: show the time that is left of the episode.
    * `correction`: how corrections travel: "optimal" (default), "uplink", "downlink", "random".
    * `regret`: add the regret of each round to the info.
    * `render_mode`: None, "human", "rgb_array" or "ansi".

    ## Version History
    * v0: first release.
    """

    control = DRAFT_LENGTH


@complete
class ModeSelectionEnv(MultiSpinEnv):
    """`multispin/ModeSelection-v0`: choose uplink or downlink for each rejected draft.

    ## Description
    The correction protocol (paper B) with draft lengths by a fixed policy. A step starts right
    after verification: the agent sees which drafts were rejected and sends each correction on the
    uplink (the device at its full power) or the downlink (all downlink devices share the server's
    power, split by Lemma 1); the rejected devices share the band equally. The action closes the
    *pending* round, which is the reward; then the next round is drafted and verified.

    ## Action Space
    `MultiBinary(K)`: 0 uplink, 1 downlink. Entries of devices that were not rejected are ignored.
    Whole floats are taken too: Stable-Baselines3 samples this space as 0.0 and 1.0.

    ## Arguments
    * `scenario`: a name (`multispin_env.list_scenarios()`), a TOML path, a dict or a `Scenario`.
    * `overrides`: dotted scenario fields and their values: `{"radio.uplink_power_dbm": 10}`.
    * `reward`, `price`: see Rewards.
    * `observe_acceptance`: show acceptance rates (default), or feedback.
    * `observe_time`: show the time that is left of the episode.
    * `draft_policy`: an int, a list of K, the name of a solver
      (`multispin_env.solvers.DRAFT_SOLVERS`), or a callable that maps the observation of
      DraftLength-v0 to K lengths. Default: the scenario's reference length.
    * `regret`: add the regret of each round to the info.
    * `render_mode`: None, "human", "rgb_array" or "ansi".

    ## Version History
    * v0: first release.
    """

    control = MODE_SELECTION


@complete
class JointEnv(MultiSpinEnv):
    """`multispin/Joint-v0`: choose the modes of this round and the draft lengths of the next.

    ## Description
    The correction protocol (paper B), all of it. A step starts right after verification: the
    action closes the *pending* round by giving each rejected device its mode (Lemma 1 powers),
    which is the reward, and says how many tokens each device drafts in the next round. Round 0 is
    drafted at the scenario's reference length.

    ## Action Space
    `MultiDiscrete([max_draft_length + 1] * K + [2] * K)`: first the next round's draft lengths,
    then the pending round's modes, 0 uplink, 1 downlink (ignored where nothing was rejected).

    ## Arguments
    * `scenario`: a name (`multispin_env.list_scenarios()`), a TOML path, a dict or a `Scenario`.
    * `overrides`: dotted scenario fields and their values: `{"radio.uplink_power_dbm": 10}`.
    * `reward`, `price`: see Rewards.
    * `observe_acceptance`: show acceptance rates (default), or feedback.
    * `observe_time`: show the time that is left of the episode.
    * `regret`: add the regret of each round to the info.
    * `render_mode`: None, "human", "rgb_array" or "ansi".

    ## Version History
    * v0: first release.
    """

    control = JOINT


@complete
class DraftBandwidthEnv(MultiSpinEnv):
    """`multispin/DraftBandwidth-v0`: choose draft lengths and how to split the band.

    ## Description
    The upload protocol (paper A, default scenario `qwen3.5`): each device drafts and uploads its
    tokens over its own part of the band; the server verifies when the slowest has arrived.
    Bandwidth for a device with a bad channel buys everybody time; bandwidth for one whose tokens
    are accepted buys longer drafts.

    ## Action Space
    `Dict` of

    | key            | space                       | meaning                       |
    | -------------- | --------------------------- | ----------------------------- |
    | `draft_length` | `MultiDiscrete([γmax+1]*K)` | tokens to draft, 0: none sent |
    | `bandwidth`    | `Box(0, 1, (K,), float32)`  | share of the band, any scale  |

    Shares are normalised over the devices that draft; all zero there means equal; a zero share with
    a positive length is a round that never ends. `multispin_env.envs.wrappers.FlattenBandwidth`
    makes it one `Box(-1, 1, (2K,))`.

    ## Arguments
    * `scenario`: a name (`multispin_env.list_scenarios()`), a TOML path, a dict or a `Scenario`.
    * `overrides`: dotted scenario fields and their values: `{"radio.bandwidth_hz": 5e6}`.
    * `reward`, `price`: see Rewards.
    * `observe_acceptance`: show acceptance rates (default), or feedback.
    * `observe_time`: show the time that is left of the episode.
    * `regret`: add the regret of each round to the info.
    * `render_mode`: None, "human", "rgb_array" or "ansi".

    ## Version History
    * v0: first release.
    """

    control = DRAFT_BANDWIDTH
