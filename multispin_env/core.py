"""N cells of one kind, played together: the common ground of both environment shells.

:class:`Core` owns the state (devices, tape, clocks, pending drafts) as arrays with the cells in
front and hands it to :func:`multispin_env.model.kernels.play`, where the physics is. The scalar
environment is the case N = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multispin_env import tape
from multispin_env.model import kernels
from multispin_env.model.acceptance import exponential_rate
from multispin_env.model.correction import RULES
from multispin_env.scenario import Scenario
from multispin_env.spaces import DRAFT_LENGTH, Control, float_keys, integer_keys

Observation = dict[str, NDArray[Any]]
#: Draft lengths [N, K] of the round that an observation (of DraftLength's kind) shows.
DraftPolicy = Callable[[Observation], Any]

CELL_FLOAT_KEYS: Final = (
    "latency_s",
    "drafting_s",
    "verification_s",
    "communication_s",
    "time_s",
    "goodput",
)
CELL_INT_KEYS: Final = ("round", "tokens", "emitted", "bonus_tokens", "correction_tokens")
DEVICE_FLOAT_KEYS: Final = ("channel_gain", "power_w", "bandwidth_hz")
DEVICE_INT_KEYS: Final = ("drafted", "accepted", "rejected", "mode")


@dataclass
class Decision:
    """What is decided for one step, arrays [N, K] of int64 (shares: float64, or [N, 0])."""

    draft: NDArray[np.int64]
    chosen: NDArray[np.int64]
    share: NDArray[np.float64]


class Outcome:
    """What one step gave, as freshly allocated blocks; rows are named by the key tuples above."""

    __slots__ = ("cell_float", "cell_int", "device_float", "device_int", "obs_float", "obs_int")

    def __init__(self, num_floats: int, num_ints: int, num_cells: int, num_devices: int) -> None:
        self.obs_float = np.empty((num_floats, num_cells, num_devices), np.float32)
        self.obs_int = np.empty((num_ints, num_cells, num_devices), np.int64)
        self.device_float = np.empty((3, num_cells, num_devices))
        self.device_int = np.empty((4, num_cells, num_devices), np.int64)
        self.cell_float = np.empty((6, num_cells))
        self.cell_int = np.empty((6, num_cells), np.int64)


class Core:
    """State and dynamics of N cells.

    Args:
        control: the kind of environment.
        scenarios: one scenario a cell; they agree in protocol, devices and longest draft.
        correction: the rule that picks modes where the agent does not.
        observe_acceptance: show acceptance rates, or feedback in their place.
        draft_policy: decides the lengths where the agent does not, batched; None elsewhere.
        first_draft: lengths of round 0, [N, K], where a round is pending and no policy drafts it.
    """

    def __init__(
        self,
        control: Control,
        scenarios: Sequence[Scenario],
        *,
        correction: str = "optimal",
        observe_acceptance: bool = True,
        draft_policy: DraftPolicy | None = None,
        first_draft: NDArray[np.int64] | None = None,
    ) -> None:
        first = scenarios[0]
        self.control = control
        self.scenarios = list(scenarios)
        self.num_cells = len(scenarios)
        self.num_devices = first.num_devices
        self.max_draft_length = first.max_draft_length
        self.draft_policy = draft_policy
        self.first_draft = first_draft
        self.float_keys = float_keys(control, observe_acceptance)
        self.integer_keys = integer_keys(control, observe_acceptance)

        self._pending = int(control.pending)
        self._full = int(observe_acceptance)
        self._tossed = correction == "random"
        self._rule = kernels.GIVEN if control.mode else RULES[correction]
        self._uploads = first.protocol == "upload"

        n, k = self.num_cells, self.num_devices
        self._seeds: list[tape.EpisodeSeed | None] = [None] * n
        self._streams: list[np.random.Generator | None] = [None] * n
        self._coin_streams: list[np.random.Generator | None] = [None] * n
        self._cell = np.array([_cell_constants(s) for s in scenarios])
        self._device = np.zeros((n, 7, k))
        self._tape = np.zeros((n, 2, 2, kernels.BLOCK, k))
        self._coins = np.zeros((n if self._tossed else 0, 2, kernels.BLOCK, k), np.int64)
        self._time_s = np.zeros(n)
        self._counter = np.zeros((n, 3), np.int64)
        self._memory = np.zeros((n, 5, k), np.int64)
        self._due = np.zeros(n, np.int64)
        self._nobody = np.zeros(n, np.bool_)
        self._unused_int = np.zeros((n, k), np.int64)
        self._no_share = np.zeros((n, 0))

    # ---- starting episodes -----------------------------------------------------------------

    def reset(self, cells: Sequence[int], generators: Iterable[np.random.Generator]) -> None:
        """Start an episode in each of the listed cells, from that cell's generator."""
        index = np.asarray(cells, dtype=np.int64)
        uniform = np.empty((len(index), 3, self.num_devices))
        for i, (n, generator) in enumerate(zip(cells, generators, strict=True)):
            seed = tape.episode_seed(generator)
            base = tape.stream(seed, tape.BASE_STREAM)
            uniform[i] = tape.draw_uniform(base, self.num_devices)
            self._seeds[n], self._streams[n] = seed, base
            if self._tossed:
                self._coin_streams[n] = tape.stream(seed, tape.COIN_STREAM)
        self._place_devices(index, uniform)
        self._time_s[index] = 0.0
        self._counter[index] = 0
        self._memory[index] = 0
        self._draw_blocks(index)
        if self._pending:
            first = self.first_draft if self.draft_policy is None else self._ask_policy(0)
            assert first is not None
            self._memory[index, kernels.PENDING_DRAFT] = first[index]

    def _place_devices(self, index: NDArray[np.int64], uniform: NDArray[np.float64]) -> None:
        """Write the device constants of the listed cells, one scenario at a time."""
        groups: dict[int, list[int]] = {}
        for i, n in enumerate(index):
            groups.setdefault(id(self.scenarios[n]), []).append(i)
        for members in groups.values():
            cells = index[members]
            scenario = self.scenarios[cells[0]]
            drawn = tape.devices(scenario, uniform[members])
            power_w = scenario.uplink_power_w
            rows = np.zeros((len(members), 7, self.num_devices))
            rows[:, kernels.ACCEPTANCE_RATE] = drawn.acceptance_rate
            rows[:, kernels.EXPONENTIAL_RATE] = exponential_rate(drawn.acceptance_rate)
            rows[:, kernels.TOKEN_LATENCY_S] = drawn.token_latency_s
            rows[:, kernels.MEAN_GAIN] = drawn.mean_gain
            rows[:, kernels.UPLINK_POWER_W] = power_w
            rows[:, kernels.UNIT_SNR] = power_w / scenario.noise_server_w
            if not self._uploads:
                rows[:, kernels.NOISE_DEVICE_W] = scenario.noise_device_w
            self._device[cells] = rows

    def _draw_blocks(self, cells: NDArray[np.int64]) -> None:
        """Draw the next block of the tape of each listed cell."""
        for n in cells:
            slot = self._counter[n, kernels.BLOCKS] % 2
            generator = self._streams[n]
            assert generator is not None
            generator.standard_exponential(out=self._tape[n, slot])
            if self._tossed:
                coins = self._coin_streams[n]
                assert coins is not None
                self._coins[n, slot] = tape.draw_coins(coins, self.num_devices)
            self._counter[n, kernels.BLOCKS] += 1

    def started(self, cell: int) -> bool:
        """Whether a cell has ever been reset."""
        return self._seeds[cell] is not None

    def tape(self, cell: int) -> tape.Tape:
        """The tape of a cell's running episode."""
        seed = self._seeds[cell]
        assert seed is not None
        num_rounds = int(self._counter[cell, kernels.BLOCKS]) * kernels.BLOCK
        return tape.Tape(self.scenarios[cell], seed, num_rounds)

    # ---- playing ---------------------------------------------------------------------------

    def decide(self, action: Any, shape: tuple[int, ...]) -> Decision:
        """An action as a decision, its shape and types checked (its values are by the kernel).

        Args:
            action: as the environment's `step` takes it.
            shape: what stands in front of the K devices: () or (N,).

        Raises:
            ValueError: wrong keys, shape or dtype.
        """
        n, k = self.num_cells, self.num_devices
        draft, chosen, share = self._unused_int, self._unused_int, self._no_share
        if self.control.bandwidth:
            if not isinstance(action, dict) or set(action) != {"draft_length", "bandwidth"}:
                got = sorted(action) if isinstance(action, dict) else type(action).__name__
                raise ValueError(f"action = {got}: must be a dict of draft_length and bandwidth")
            draft = _integers("action['draft_length']", action["draft_length"], (*shape, k))
            share = _floats("action['bandwidth']", action["bandwidth"], (*shape, k)).reshape(n, k)
        elif self.control.draft and self.control.mode:
            both = _integers("action", action, (*shape, 2 * k)).reshape(n, 2 * k)
            draft, chosen = both[:, :k].copy(), both[:, k:].copy()
        elif self.control.mode:
            chosen = _integers("action", action, (*shape, k))
            draft = self._ask_policy(1)
        else:
            draft = _integers("action", action, (*shape, k))
        return Decision(draft.reshape(n, k), chosen.reshape(n, k), share)

    def _ask_policy(self, rounds_ahead: int) -> NDArray[np.int64]:
        """Lengths that the draft policy gives to the round to be drafted next, [N, K]."""
        assert self.draft_policy is not None
        counter = self._counter.copy()
        counter[:, kernels.ROUND] += rounds_ahead
        keys = [keys(DRAFT_LENGTH, bool(self._full)) for keys in (float_keys, integer_keys)]
        shown = [
            np.empty((len(keys[0]), self.num_cells, self.num_devices), np.float32),
            np.empty((len(keys[1]), self.num_cells, self.num_devices), np.int64),
        ]
        kernels.observe_cells(
            0,
            self._full,
            self._cell,
            self._device,
            self._tape,
            counter,
            self._memory,
            np.arange(self.num_cells),
            *shown,
        )
        observation = {
            key: row for ks, block in zip(keys, shown, strict=True) for key, row in zip(ks, block)
        }
        shape = (self.num_cells, self.num_devices)
        lengths = _integers("draft_policy's answer", self.draft_policy(observation), shape)
        self._check_values(Decision(lengths, self._unused_int, self._no_share), self._nobody)
        return lengths

    def observe(self) -> Outcome:
        """An outcome in which only the observation is filled, for all cells."""
        outcome = self._new_outcome()
        self.observe_into(outcome, np.arange(self.num_cells))
        return outcome

    def observe_into(self, outcome: Outcome, cells: NDArray[np.int64]) -> None:
        """Write the present observation of the listed cells into `outcome`."""
        kernels.observe_cells(
            self._pending,
            self._full,
            self._cell,
            self._device,
            self._tape,
            self._counter,
            self._memory,
            cells,
            outcome.obs_float,
            outcome.obs_int,
        )

    def play(self, decision: Decision, idle: NDArray[np.bool_] | None = None) -> Outcome:
        """Play one round in every cell that is not idle.

        Raises:
            ValueError: a value of the decision is out of range; nothing has changed then.
        """
        idle = self._nobody if idle is None else idle
        outcome = self._new_outcome()
        due = kernels.play(
            self._uploads,
            self._rule,
            self._tossed,
            self._pending,
            self._full,
            self.max_draft_length,
            self._cell,
            self._device,
            self._tape,
            self._coins,
            self._time_s,
            self._counter,
            self._memory,
            decision.draft,
            decision.chosen,
            decision.share,
            idle,
            outcome.obs_float,
            outcome.obs_int,
            outcome.device_float,
            outcome.device_int,
            outcome.cell_float,
            outcome.cell_int,
        )
        if due > 0:
            kernels.find_due(self._pending, self._counter, idle, self._due)
            self._draw_blocks(self._due[:due])
        elif due < 0:
            raise self._invalid(decision, -1 - due)
        return outcome

    def episode_goodput(self, cell: int) -> float:
        """Tokens delivered over seconds, so far in the cell's episode [tokens/s]."""
        return float(self._counter[cell, kernels.EPISODE_TOKENS] / self._time_s[cell])

    def time_s(self) -> NDArray[np.float64]:
        """Simulated time of each cell [s], a copy."""
        return self._time_s.copy()

    def _new_outcome(self) -> Outcome:
        return Outcome(
            len(self.float_keys), len(self.integer_keys), self.num_cells, self.num_devices
        )

    def _check_values(self, decision: Decision, idle: NDArray[np.bool_]) -> None:
        bad = kernels.find_invalid(
            False, self.max_draft_length, decision.draft, decision.chosen, decision.share, idle
        )
        if bad >= 0:
            raise self._invalid(decision, bad)

    def _invalid(self, decision: Decision, index: int) -> ValueError:
        """The error that names the entry which :func:`kernels.find_invalid` found."""
        n, column = divmod(index, 3 * self.num_devices)
        part, k = divmod(column, self.num_devices)
        array, what, allowed = (
            (decision.draft, "draft length", f"an integer in [0, {self.max_draft_length}]"),
            (decision.chosen, "mode", "0 (uplink) or 1 (downlink)"),
            (decision.share, "bandwidth share", "a number in [0, 1]"),
        )[part]
        where = f"environment {n}, device {k}" if self.num_cells > 1 else f"device {k}"
        source = "draft_policy" if part == 0 and not self.control.draft else "action"
        return ValueError(f"{source}: {what} {array[n, k]} of {where}: must be {allowed}")


def _cell_constants(scenario: Scenario) -> list[float]:
    """A row of `cell`, in the column order of the kernels."""
    correction = scenario.protocol == "correction"
    episode = scenario.episode
    return [
        scenario.radio.bandwidth_hz,
        float(scenario.payload.distribution_bits),
        scenario.downlink_power_w if correction else 0.0,
        scenario.verification_s,
        np.inf if episode.horizon_s is None else episode.horizon_s,
        np.inf if episode.rounds is None else float(episode.rounds),
        float(scenario.channel.fading == "rayleigh"),
    ]


def _integers(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """`value` as contiguous int64; raises unless it holds integers in the given shape."""
    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind not in "iub":
        raise ValueError(
            f"{name} has shape {array.shape} and dtype {array.dtype}: "
            f"must have shape {shape} and an integer dtype"
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def _floats(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """`value` as contiguous float64; raises unless it holds numbers in the given shape."""
    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind not in "iuf":
        raise ValueError(
            f"{name} has shape {array.shape} and dtype {array.dtype}: "
            f"must have shape {shape} and a numeric dtype"
        )
    return np.ascontiguousarray(array, dtype=np.float64)
