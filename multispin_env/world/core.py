"""N cells of one kind, played together: the common ground of both environment shells.

:class:`Core` owns the state (devices, tape, clocks, pending drafts) as arrays with the cells in
front and hands it to :func:`multispin_env.model.kernels.rounds.play`, where the physics is. The
scalar environment is the case N = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multispin_env.model.correction import RULES
from multispin_env.model.kernels import corrections, observing, random, rounds, tapes
from multispin_env.model.kernels.compiling import machine_code
from multispin_env.model.kernels.state import (
    BLOCK,
    CELL,
    CLOCK,
    KIND,
    OBSERVED,
    CellCounts,
    CellTimes,
    Device,
    DeviceCounts,
    DeviceRadio,
    Memory,
    State,
)
from multispin_env.model.latency import MAX_ROUND_S
from multispin_env.scenario import Scenario
from multispin_env.scenario.devices import DeviceLaw
from multispin_env.solvers.problems import Problem, pose
from multispin_env.world import tape, threads
from multispin_env.world.arrays import INTEGERS, NUMBERS, checked_array, whole_modes
from multispin_env.world.control import (
    DRAFT_LENGTH,
    TIME_LEFT,
    Control,
    float_keys,
    integer_keys,
)
from multispin_env.world.regret import regret_keys, round_regret

Observation = dict[str, NDArray[Any]]
#: Draft lengths [N, K] of the round that an observation (of DraftLength's kind) shows.
DraftPolicy = Callable[[Observation], Any]

#: Keys of a step's info: per cell, then per device.
CELL_INT_KEYS: Final = CellCounts._fields[:-1]  # the last flags truncation
CELL_FLOAT_KEYS: Final = CellTimes._fields
DEVICE_INT_KEYS: Final = DeviceCounts._fields
DEVICE_FLOAT_KEYS: Final = DeviceRadio._fields

#: The blocks of an :class:`~multispin_env.model.kernels.state.Outcome` in its order: a plain tuple,
#: because to make one of the class takes a twentieth of a step.
Blocks = tuple[
    NDArray[np.float32],
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.int64],
]
_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)
_SPLIT_KEYS: Final = frozenset(("draft_length", "bandwidth"))


class Core:
    """State and dynamics of N cells.

    Args:
        control: the kind of environment.
        scenarios: one scenario a cell; they agree in protocol, devices and longest draft.
        correction: the rule that picks modes where the agent does not.
        observe_acceptance: show acceptance rates, or feedback in their place.
        observe_time: show the time that is left; every scenario has a horizon then.
        fixed_draft: where a round is pending, [N, K]: the lengths of round 0, and of all rounds
            where neither the agent nor a draft policy decides them.
        draft_policy: decides the lengths where the agent does not, batched.
        regret: whether :meth:`regrets` is asked for.
        batched: actions have the cells in front, [N, ...]; False (N = 1): they have not, and the
            outcome's blocks per cell are written to the same memory at every step.
        num_threads: how many threads share the cells, at most.
    """

    def __init__(
        self,
        control: Control,
        scenarios: Sequence[Scenario],
        *,
        correction: str = "optimal",
        observe_acceptance: bool = True,
        observe_time: bool = False,
        fixed_draft: NDArray[np.int64] | None = None,
        draft_policy: DraftPolicy | None = None,
        regret: bool = False,
        batched: bool = True,
        num_threads: int = 1,
    ) -> None:
        first = scenarios[0]
        self.control = control
        self.scenarios = list(scenarios)
        self.num_cells = len(scenarios)
        self.num_devices = first.num_devices
        self.max_draft_length = first.max_draft_length
        self.draft_policy = draft_policy
        self.fixed_draft = fixed_draft
        self.correction = correction
        self.observe_time = observe_time
        self.regret_keys = regret_keys(control) if regret else ()
        self.float_keys = float_keys(control, observe_acceptance)
        self.integer_keys = integer_keys(control, observe_acceptance)

        n, k = self.num_cells, self.num_devices
        self._pending, self._full = control.pending, bool(observe_acceptance)
        self._tossed = correction == "random"
        kind = np.zeros(1, KIND)
        kind["uploads"] = first.protocol == "upload"
        kind["rule"] = corrections.GIVEN if control.mode else RULES[correction]
        kind["tossed"] = self._tossed
        kind["pending"] = self._pending
        kind["full"] = self._full
        kind["asks"] = draft_policy is not None
        kind["max_draft_length"] = self.max_draft_length
        blocks, one_per_coin = 2, n if self._tossed else 0
        self._state = State(
            kind=kind,
            cell=np.array([_cell_constants(s) for s in scenarios], CELL),
            clock=np.zeros(n, CLOCK),
            device=np.stack([_device_constants(s) for s in scenarios], axis=1),
            memory=np.zeros((len(Memory._fields), n, k), np.int64),
            tape=np.zeros((n, blocks, BLOCK, 2, k)),
            coins=np.zeros((one_per_coin, blocks, BLOCK, k), np.int64),
            stream=np.zeros((n, 4), np.uint64),
            coin_stream=np.zeros((one_per_coin, 4), np.uint64),
            draft=np.zeros((n, k), np.int64),
            chosen=np.zeros((n, k), np.int64),
            share=np.zeros((n, k if control.bandwidth else 0)),
        )
        self._clock = self._state.clock
        # The decision: what of it is the agent's is written by `decide`.
        self._draft, self._chosen, self._share = self._state[-3:]
        if fixed_draft is not None:
            self._draft[...] = fixed_draft
        self._seeds = np.zeros((n, 4), np.uint64)  # of the running episodes
        self._started = np.zeros(n, np.bool_)
        self._forks: list[tuple[tape.Fork, ...]] = [()] * n
        distinct = {id(s): s for s in scenarios}
        number = {key: i for i, key in enumerate(distinct)}
        self._laws = [DeviceLaw(s) for s in distinct.values()]
        self._law_of = [number[id(s)] for s in scenarios]
        self._shares = threads.shares(n, k, num_threads)
        self._workspaces = np.empty((len(self._shares), rounds.WORKSPACE, k))
        self._workspace = self._workspaces[0]
        self._play: Callable[..., int] | None = None  # compiled, or loaded, at the first step
        rows = (len(self.float_keys), len(DEVICE_FLOAT_KEYS), OBSERVED + len(self.integer_keys))
        self._shapes = [(row, n, k) for row in rows]
        self._cell_shapes = [(len(names), n) for names in (CellTimes._fields, CellCounts._fields)]
        self._cell_blocks = None if batched else self._new_cell_blocks()
        front = (n,) if batched else ()
        self._one_each, self._two_each = (*front, k), (*front, 2 * k)
        self._halves = (..., slice(k)), (..., slice(k, None))
        self._nobody = np.zeros(n, np.bool_)

    @property
    def _device(self) -> Device:
        return Device(*self._state.device)

    @property
    def _memory(self) -> Memory:
        return Memory(*self._state.memory)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_play": None}  # machine code cannot be pickled

    # ---- starting episodes -----------------------------------------------------------------

    def reset(self, cells: Sequence[int], generators: Iterable[np.random.Generator]) -> None:
        """Start an episode in each of the listed cells, from that cell's generator."""
        state, index, listed = self._state, _index(cells), np.array(cells, np.int64)
        words = np.array([tape.episode_seed(generator) for generator in generators], np.uint64)
        uniform = np.empty((len(cells), tape.DEVICE_DRAWS * self.num_devices))
        tapes.start(state, listed, words, uniform)
        for n, seed in zip(cells, words):
            self._forks[n] = ()
            if self._tossed:
                coins = tape.stream(tuple(seed.tolist()), tape.COIN_STREAM)
                state.coin_stream[n] = random.words_of(coins)
        self._seeds[index], self._started[index] = words, True
        self._place_devices(cells, uniform.reshape(len(cells), tape.DEVICE_DRAWS, -1))
        self._clock[index] = 0
        if not self._full:
            state.memory[:, index] = 0
        tapes.draw_first(state, listed)
        if self._pending:
            drafted = self.fixed_draft if self.draft_policy is None else self._ask_policy()
            assert drafted is not None
            self._memory.pending_draft[index] = drafted[index]

    def _place_devices(self, cells: Sequence[int], uniform: NDArray[np.float64]) -> None:
        """Write what is drawn about the devices of the listed cells, one law at a time."""
        members: dict[int, list[int]] = {}
        for i, n in enumerate(cells):
            members.setdefault(self._law_of[n], []).append(i)
        for law, positions in members.items():
            drawn = self._laws[law](uniform[_index(positions)])
            index, device = _index([cells[i] for i in positions]), self._device
            device.acceptance_rate[index] = drawn.acceptance_rate
            device.mean_run[index] = drawn.mean_run
            device.token_latency_s[index] = drawn.token_latency_s
            device.mean_gain[index] = drawn.mean_gain

    def started(self, cell: int) -> bool:
        """Whether a cell has ever been reset."""
        return bool(self._started[cell])

    def tape_of(self, cell: int) -> tape.Tape:
        """The tape of a cell's running episode."""
        seed = tuple(self._seeds[cell].tolist())
        num_rounds = self._blocks_drawn(cell) * BLOCK
        return tape.Tape(self.scenarios[cell], seed, num_rounds, self._forks[cell])

    def _blocks_drawn(self, cell: int) -> int:
        return tapes.blocks_drawn(int(self._pending), int(self._clock["round"][cell]))

    def fork(self, cell: int, seed: tape.EpisodeSeed) -> None:
        """Replace what the cell's observation does not tell of the tape by that of another seed."""
        r, blocks = int(self._clock["round"][cell]), self._blocks_drawn(cell)
        # Shown are the gains of this round (and the next, where a round is pending), and the
        # outcome of a pending round.
        pending, state = int(self._pending), self._state
        fork = tape.Fork(r + 1 + pending, r + pending, seed)
        base = tape.stream(seed, tape.BASE_STREAM)
        coins = tape.stream(seed, tape.COIN_STREAM)
        tape.draw_uniform(base, self.num_devices)
        other = np.empty((BLOCK, 2, self.num_devices))
        for block in range(blocks):
            tape.draw_block(base, other)
            tossed = tape.draw_coins(coins, self.num_devices)
            first, slot = block * BLOCK, block % 2
            if block < blocks - 2:
                continue  # overwritten long ago
            for row, start in ((tape.FADING, fork.fading_from), (tape.RUN, fork.run_from)):
                later = slice(max(start - first, 0), None)
                state.tape[cell, slot, later, row] = other[later, row]
            if self._tossed:
                later = slice(max(fork.run_from - first, 0), None)
                state.coins[cell, slot, later] = tossed[later]
        state.stream[cell] = random.words_of(base)
        if self._tossed:
            state.coin_stream[cell] = random.words_of(coins)
        self._forks[cell] = (*self._forks[cell], fork)

    # ---- playing ---------------------------------------------------------------------------

    def decide(self, action: Any) -> None:
        """Copy an action into the decision, whose values are checked by :meth:`play`.

        Raises:
            ValueError: wrong keys, shape or dtype; the decision stays what it was.
        """
        control = self.control
        if control.bandwidth:
            if not isinstance(action, dict) or action.keys() != _SPLIT_KEYS:
                got = sorted(action) if isinstance(action, dict) else type(action).__name__
                raise ValueError(f"action = {got}: must be a dict of draft_length and bandwidth")
            draft, share = action["draft_length"], action["bandwidth"]
            draft = checked_array("action['draft_length']", draft, self._one_each, INTEGERS)
            share = checked_array("action['bandwidth']", share, self._one_each, NUMBERS)
            self._draft[...] = draft
            self._share[...] = share
        elif control.draft and control.mode:
            both = checked_array("action", action, self._two_each, INTEGERS)
            first, second = self._halves
            self._draft[...] = both[first]
            self._chosen[...] = both[second]
        elif control.mode:
            self._chosen[...] = checked_array(
                "action", whole_modes(action), self._one_each, INTEGERS
            )
        else:
            self._draft[...] = checked_array("action", action, self._one_each, INTEGERS)

    def _ask_policy(self) -> NDArray[np.int64]:
        """Lengths [N, K] that the draft policy gives to the round which is to be drafted."""
        assert self.draft_policy is not None
        floats = float_keys(DRAFT_LENGTH, self._full)
        integers = integer_keys(DRAFT_LENGTH, self._full)
        obs_float = np.empty((len(floats), self.num_cells, self.num_devices), np.float32)
        obs_int = np.empty((len(integers), self.num_cells, self.num_devices), np.int64)
        observing.observe(self._state, self._nobody, 0, obs_float, obs_int, self._workspace)
        observation: Observation = dict(zip(floats, obs_float))
        observation.update(zip(integers, obs_int))
        if self.observe_time:
            observation[TIME_LEFT] = self.time_left()
        shape = (self.num_cells, self.num_devices)
        answer = self.draft_policy(observation)
        lengths = checked_array("draft_policy's answer", answer, shape, INTEGERS)
        wrong = np.argwhere((lengths < 0) | (lengths > self.max_draft_length))
        if wrong.size:
            raise self._out_of_range("draft_policy", "draft length", lengths, *wrong[0])
        return lengths

    def observe(self) -> Blocks:
        """An outcome in which only the observation is filled, for all cells."""
        outcome = self._new_outcome()
        self.observe_into(outcome, self._nobody)
        return outcome

    def observe_into(self, outcome: Blocks, idle: NDArray[np.bool_]) -> None:
        """Write the present observation of all cells but the idle ones into `outcome`."""
        pending = int(self._pending)
        observing.observe(self._state, idle, pending, *observed(outcome), self._workspace)

    def time_left(self) -> NDArray[np.float32]:
        """Seconds until the horizon of each cell's episode, [N, 1]."""
        left_s = self._state.cell["horizon_s"] - self._clock["time_s"]
        return np.asarray(left_s, np.float32)[:, None]

    def play(self, idle: NDArray[np.bool_] | None = None) -> Blocks:
        """Play one round, as decided, in every cell that is not idle.

        Raises:
            ValueError: a value of the decision is out of range; nothing has changed then.
            Exception: what the draft policy raises; nothing has changed then either.
        """
        idle = self._nobody if idle is None else idle
        outcome = self._new_outcome()
        if self.draft_policy is not None:
            self._play_and_ask(idle, outcome)
        elif len(self._shares) == 1:
            self._play_alone(idle, outcome)
        else:
            self.check(idle)
            self._play_together(idle, outcome)
        return outcome

    def _play_alone(self, idle: NDArray[np.bool_], outcome: Blocks) -> None:
        """Check the decision and play, in this thread."""
        if self._play is None:
            arguments = (self._state, idle, outcome, self._workspace)
            self._play = machine_code(rounds.play, *arguments)
        bad = self._play(self._state, idle, outcome, self._workspace)
        if bad >= 0:
            raise self._invalid(bad)

    def _play_together(self, idle: NDArray[np.bool_], outcome: Blocks) -> None:
        """Play with several threads, each its share of the cells; the decision is sound."""
        jobs = [
            (self._state, idle, outcome, workspace, *share)
            for workspace, share in zip(self._workspaces, self._shares)
        ]
        if self._play is None:
            self._play = machine_code(rounds.play_share, *jobs[0])
        threads.run(self._play, jobs)

    def _play_and_ask(self, idle: NDArray[np.bool_], outcome: Blocks) -> None:
        """Play in this thread, then let the draft policy decide the next round's lengths."""
        changing = (self._clock, self._state.memory)
        before = [array.copy() for array in changing]
        self._play_alone(idle, outcome)
        try:
            self._memory.pending_draft[~idle] = self._ask_policy()[~idle]
        except BaseException:  # an interrupt too
            for array, kept in zip(changing, before):
                array[...] = kept
            raise
        self.observe_into(outcome, idle)
        tapes.draw_due(self._state, idle)

    def episode_goodput(self, cells: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Tokens delivered over seconds, so far in the masked cells' episodes, 0 elsewhere, [N]."""
        goodput = np.zeros(self.num_cells)
        goodput[cells] = self._clock["tokens"][cells] / self._clock["time_s"][cells]
        return goodput

    def regrets(self, outcome: Blocks, cells: Iterable[int]) -> dict[str, NDArray[np.float64]]:
        """How far the listed cells' last decisions were from the best known, [N] (0 elsewhere)."""
        _, device_float, device_int, cell_float, cell_int = outcome
        counts, radio = DeviceCounts(*device_int[:OBSERVED]), DeviceRadio(*device_float)
        times, emitted = CellTimes(*cell_float), CellCounts(*cell_int).emitted
        found = {key: np.zeros(self.num_cells) for key in self.regret_keys}
        for n in cells:
            parts = (times.drafting_s, times.verification_s, times.communication_s)
            values = round_regret(
                self.control,
                self.correction,
                self._last_problem(n),
                counts.drafted[n],
                counts.rejected[n],
                radio.bandwidth_hz[n],
                float(emitted[n]),
                (float(parts[0][n]), float(parts[1][n]), float(parts[2][n])),
            )
            for key, value in values.items():
                found[key][n] = value
        return found

    def _last_problem(self, cell: int) -> Problem:
        """What was known at the start of the round that a cell played last."""
        r = int(self._clock["round"][cell]) - 1
        device = self._device
        gain = device.mean_gain[cell]
        if self._state.cell["fades"][cell] > 0:
            gain = gain * self._state.tape[cell, (r // BLOCK) % 2, r % BLOCK, tape.FADING]
        return pose(
            self.scenarios[cell],
            device.acceptance_rate[cell],
            device.token_latency_s[cell],
            gain,
        )

    def _new_outcome(self) -> Blocks:
        """Memory for what a step gives.

        Blocks with devices are allocated anew at every step, so that views of them can be handed
        out; those per cell only in a batched core.
        """
        observed_rows, float_rows, int_rows = self._shapes
        cell_float, cell_int = self._cell_blocks or self._new_cell_blocks()
        return (
            np.empty(observed_rows, _FLOAT32),
            np.empty(float_rows),
            np.empty(int_rows, _INT64),
            cell_float,
            cell_int,
        )

    def _new_cell_blocks(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        times, counts = self._cell_shapes
        return np.empty(times), np.empty(counts, _INT64)

    def check(self, idle: NDArray[np.bool_]) -> None:
        """Raise ValueError unless every value of the decision that cells will use is in range."""
        bad = rounds.find_invalid(self._state, idle)
        if bad >= 0:
            raise self._invalid(bad)

    def _invalid(self, index: int) -> ValueError:
        """The error that names the entry which :func:`.find_invalid` found."""
        n, column = divmod(index, 3 * self.num_devices)
        part, k = divmod(column, self.num_devices)
        name, array = (
            ("draft length", self._draft),
            ("mode", self._chosen),
            ("bandwidth share", self._share),
        )[part]
        return self._out_of_range("action", name, array, n, k)

    def _out_of_range(
        self, source: str, name: str, array: NDArray[Any], n: int, k: int
    ) -> ValueError:
        """The error that names entry [n, k] of a decision."""
        allowed = {
            "draft length": f"an integer in [0, {self.max_draft_length}]",
            "mode": "0 (uplink) or 1 (downlink)",
            "bandwidth share": "a number in [0, 1]",
        }[name]
        where = f"environment {n}, device {k}" if self.num_cells > 1 else f"device {k}"
        return ValueError(f"{source}: {name} {array[n, k]} of {where}: must be {allowed}")


def observed(outcome: Blocks) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The blocks of an outcome that hold the observation, [keys, N, K]: floats and integers."""
    return outcome[0], outcome[2][OBSERVED:]


def _index(cells: Sequence[int]) -> Any:
    """An index of the listed cells; a slice for a single one, which is much faster."""
    return slice(cells[0], cells[0] + 1) if len(cells) == 1 else cells


def _cell_constants(scenario: Scenario) -> tuple[float, ...]:
    """The constants of a cell, in the field order of `CELL`."""
    correction = scenario.protocol == "correction"
    episode = scenario.episode
    return (
        scenario.radio.bandwidth_hz,
        float(scenario.payload.distribution_bits),
        scenario.downlink_power_w if correction else 0.0,
        scenario.verification_s,
        np.inf if episode.horizon_s is None else episode.horizon_s,
        np.inf if episode.rounds is None else float(episode.rounds),
        MAX_ROUND_S,
        scenario.channel.fading == "rayleigh",
    )


def _device_constants(scenario: Scenario) -> NDArray[np.float64]:
    """The rows of `Device`, [rows, K]; those that are drawn are 0."""
    block = np.zeros((len(Device._fields), scenario.num_devices))
    rows = Device(*block)
    rows.uplink_power_w[:] = scenario.uplink_power_w
    rows.unit_snr[:] = scenario.uplink_power_w / scenario.noise_server_w
    if scenario.protocol == "correction":
        rows.noise_device_w[:] = scenario.noise_device_w
    return block
