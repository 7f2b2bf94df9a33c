"""N cells of one kind, played together: the common ground of both environment shells.

:class:`Core` owns the state (devices, tape, clocks, pending drafts) as arrays with the cells in
front and hands it to :func:`multispin_env.model.kernels.play`, where the physics is. The scalar
environment is the case N = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multispin_env import tape
from multispin_env.devices import DeviceLaw
from multispin_env.model import kernels
from multispin_env.model.correction import RULES
from multispin_env.model.latency import MAX_ROUND_S
from multispin_env.regret import regret_keys, round_regret
from multispin_env.scenario import Scenario
from multispin_env.solvers.problems import Problem, pose
from multispin_env.spaces import DRAFT_LENGTH, Control, float_keys, integer_keys

Observation = dict[str, NDArray[Any]]
#: Draft lengths [N, K] of the round that an observation (of DraftLength's kind) shows.
DraftPolicy = Callable[[Observation], Any]

#: Keys of a step's info: per cell, then per device, in the row order of the kernels' outputs.
CELL_INT_KEYS: Final = ("round", "tokens", "emitted", "bonus_tokens", "correction_tokens")
CELL_FLOAT_KEYS: Final = (
    "latency_s",
    "drafting_s",
    "verification_s",
    "communication_s",
    "time_s",
    "goodput",
)
DEVICE_INT_KEYS: Final = ("drafted", "accepted", "rejected", "mode")
DEVICE_FLOAT_KEYS: Final = ("power_w", "bandwidth_hz")

#: What one step gave, as blocks whose rows are named by the key tuples above: float observations as
#: float32 [keys, N, K], devices as float64 [2, N, K] and int64 [4 + keys, N, K], integer
#: observations last, cells as float64 [6, N] and int64 [6, N], the last row flagging truncation.
#: Blocks with devices are allocated anew at every step, so that views of them can be handed out;
#: those per cell only in a batched core.
Outcome = tuple[
    NDArray[np.float32],
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.int64],
]
_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)
#: Kinds of dtype that are taken for lengths and modes, and for shares.
_INTEGERS: Final = "iub"
_NUMBERS: Final = "iuf"
_SPLIT_KEYS: Final = frozenset(("draft_length", "bandwidth"))


class Core:
    """State and dynamics of N cells.

    Args:
        control: the kind of environment.
        scenarios: one scenario a cell; they agree in protocol, devices and longest draft.
        correction: the rule that picks modes where the agent does not.
        observe_acceptance: show acceptance rates, or feedback in their place.
        fixed_draft: where a round is pending, [N, K]: the lengths of round 0, and of all rounds
            where neither the agent nor a draft policy decides them.
        draft_policy: decides the lengths where the agent does not, batched.
        regret: whether :meth:`regrets` is asked for.
        batched: actions have the cells in front, [N, ...]; False (N = 1): they have not, and the
            outcome's blocks per cell are written to the same memory at every step.
    """

    def __init__(
        self,
        control: Control,
        scenarios: Sequence[Scenario],
        *,
        correction: str = "optimal",
        observe_acceptance: bool = True,
        fixed_draft: NDArray[np.int64] | None = None,
        draft_policy: DraftPolicy | None = None,
        regret: bool = False,
        batched: bool = True,
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
        self.regret_keys = regret_keys(control) if regret else ()
        self.float_keys = float_keys(control, observe_acceptance)
        self.integer_keys = integer_keys(control, observe_acceptance)

        n, k = self.num_cells, self.num_devices
        self._pending = int(control.pending)
        self._full = int(observe_acceptance)
        self._tossed = correction == "random"
        self._kind = np.zeros(6, np.int64)
        self._kind[kernels.UPLOADS] = first.protocol == "upload"
        self._kind[kernels.RULE] = kernels.GIVEN if control.mode else RULES[correction]
        self._kind[kernels.TOSSED] = self._tossed
        self._kind[kernels.PENDING] = self._pending
        self._kind[kernels.FULL] = self._full
        self._kind[kernels.MAX_DRAFT_LENGTH] = self.max_draft_length

        # The decision: what of it is the agent's is written by `decide`.
        self._draft = np.zeros((n, k), np.int64)
        self._chosen = np.zeros((n, k), np.int64)
        self._share = np.zeros((n, k if control.bandwidth else 0))
        if fixed_draft is not None:
            self._draft[...] = fixed_draft
        # Constants and state.
        self._seeds: list[tape.EpisodeSeed] = [()] * n  # () before the first episode
        self._forks: list[tuple[tape.Fork, ...]] = [()] * n
        self._streams: list[np.random.Generator] = [np.random.default_rng(0)] * n
        self._blocks = [0] * n  # how many blocks of the tape are drawn
        self._coin_streams = list(self._streams)
        self._cell = np.array([_cell_constants(s) for s in scenarios]).T.copy()
        self._device = np.stack([_device_constants(s) for s in scenarios], axis=1)
        distinct = {id(s): s for s in scenarios}
        number = {key: i for i, key in enumerate(distinct)}
        self._laws = [DeviceLaw(s) for s in distinct.values()]
        self._law_of = [number[id(s)] for s in scenarios]
        self._tape = np.zeros((n, 2, kernels.BLOCK, 2, k))
        self._coins = np.zeros((n if self._tossed else 0, 2, kernels.BLOCK, k), np.int64)
        self._time_s = np.zeros(n)
        self._counter = np.zeros((n, 2), np.int64)
        self._memory = np.zeros((5, n, k), np.int64)
        self._state = (
            self._kind,
            self._cell,
            self._device,
            self._tape,
            self._coins,
            self._time_s,
            self._counter,
            self._memory,
            self._draft,
            self._chosen,
            self._share,
        )
        self._changing = (self._time_s, self._counter, self._memory)
        self._workspace = np.empty((7, k))
        self._play: Callable[..., int] | None = None  # compiled, or loaded, at the first step
        rows = (len(self.float_keys), 2, kernels.OBSERVED + len(self.integer_keys))
        self._shapes = [(row, n, k) for row in rows]
        self._cell_blocks = None if batched else (np.empty((6, n)), np.empty((6, n), np.int64))
        front = (n,) if batched else ()
        self._one_each, self._two_each = (*front, k), (*front, 2 * k)
        self._halves = (..., slice(k)), (..., slice(k, None))
        self._due = np.zeros(n, np.int64)
        self._nobody = np.zeros(n, np.bool_)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_play": None}  # machine code cannot be pickled

    # ---- starting episodes -----------------------------------------------------------------

    def reset(self, cells: Sequence[int], generators: Iterable[np.random.Generator]) -> None:
        """Start an episode in each of the listed cells, from that cell's generator."""
        uniform = np.empty((len(cells), 3, self.num_devices))
        for i, (n, generator) in enumerate(zip(cells, generators, strict=True)):
            seed = tape.episode_seed(generator)
            base = tape.stream(seed, tape.BASE_STREAM)
            uniform[i] = tape.draw_uniform(base, self.num_devices)
            self._seeds[n], self._streams[n], self._forks[n] = seed, base, ()
            self._blocks[n] = 0
            if self._tossed:
                self._coin_streams[n] = tape.stream(seed, tape.COIN_STREAM)
        self._place_devices(cells, uniform)
        index = _index(cells)
        self._time_s[index] = 0.0
        self._counter[index] = 0
        if not self._full:
            self._memory[:, index] = 0
        self._draw_blocks(cells)
        if self._pending:
            drafted = self.fixed_draft if self.draft_policy is None else self._ask_policy()
            assert drafted is not None
            self._memory[kernels.PENDING_DRAFT, index] = drafted[index]

    def _place_devices(self, cells: Sequence[int], uniform: NDArray[np.float64]) -> None:
        """Write what is drawn about the devices of the listed cells, one law at a time."""
        members: dict[int, list[int]] = {}
        for i, n in enumerate(cells):
            members.setdefault(self._law_of[n], []).append(i)
        for law, positions in members.items():
            drawn = self._laws[law](uniform[_index(positions)])
            index = _index([cells[i] for i in positions])
            self._device[kernels.ACCEPTANCE_RATE, index] = drawn.acceptance_rate
            self._device[kernels.MEAN_RUN, index] = drawn.mean_run
            self._device[kernels.TOKEN_LATENCY_S, index] = drawn.token_latency_s
            self._device[kernels.MEAN_GAIN, index] = drawn.mean_gain

    def _draw_blocks(self, cells: Sequence[int]) -> None:
        """Draw the next block of the tape of each listed cell."""
        for n in cells:
            slot = self._blocks[n] % 2
            tape.draw_block(self._streams[n], self._tape[n, slot])
            if self._tossed:
                self._coins[n, slot] = tape.draw_coins(self._coin_streams[n], self.num_devices)
            self._blocks[n] += 1

    def started(self, cell: int) -> bool:
        """Whether a cell has ever been reset."""
        return self._seeds[cell] != ()

    def tape_of(self, cell: int) -> tape.Tape:
        """The tape of a cell's running episode."""
        num_rounds = self._blocks[cell] * kernels.BLOCK
        return tape.Tape(self.scenarios[cell], self._seeds[cell], num_rounds, self._forks[cell])

    def fork(self, cell: int, seed: tape.EpisodeSeed) -> None:
        """Replace what the cell's observation does not tell of the tape by that of another seed."""
        r, blocks = int(self._counter[cell, kernels.ROUND]), self._blocks[cell]
        # Shown are the gains of this round (and the next, where a round is pending), and the
        # outcome of a pending round.
        fork = tape.Fork(r + 1 + self._pending, r + self._pending, seed)
        base = tape.stream(seed, tape.BASE_STREAM)
        coins = tape.stream(seed, tape.COIN_STREAM)
        tape.draw_uniform(base, self.num_devices)
        other = np.empty((kernels.BLOCK, 2, self.num_devices))
        for block in range(blocks):
            tape.draw_block(base, other)
            tossed = tape.draw_coins(coins, self.num_devices)
            first, slot = block * kernels.BLOCK, block % 2
            if block < blocks - 2:
                continue  # overwritten long ago
            for row, start in ((kernels.FADING, fork.fading_from), (kernels.RUN, fork.run_from)):
                rows = slice(max(start - first, 0), None)
                self._tape[cell, slot, rows, row] = other[rows, row]
            if self._tossed:
                rows = slice(max(fork.run_from - first, 0), None)
                self._coins[cell, slot, rows] = tossed[rows]
        self._streams[cell], self._coin_streams[cell] = base, coins
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
            draft = _checked("action['draft_length']", draft, self._one_each, _INTEGERS)
            share = _checked("action['bandwidth']", share, self._one_each, _NUMBERS)
            self._draft[...] = draft
            self._share[...] = share
        elif control.draft and control.mode:
            both = _checked("action", action, self._two_each, _INTEGERS)
            lengths, modes = self._halves
            self._draft[...] = both[lengths]
            self._chosen[...] = both[modes]
        elif control.mode:
            self._chosen[...] = _checked("action", _whole(action), self._one_each, _INTEGERS)
        else:
            self._draft[...] = _checked("action", action, self._one_each, _INTEGERS)

    def _ask_policy(self) -> NDArray[np.int64]:
        """Lengths [N, K] that the draft policy gives to the round which is to be drafted."""
        assert self.draft_policy is not None
        floats = float_keys(DRAFT_LENGTH, bool(self._full))
        integers = integer_keys(DRAFT_LENGTH, bool(self._full))
        obs_float = np.empty((len(floats), self.num_cells, self.num_devices), np.float32)
        obs_int = np.empty((len(integers), self.num_cells, self.num_devices), np.int64)
        kernels.observe(0, self._state, self._nobody, obs_float, obs_int, self._workspace)
        observation: Observation = dict(zip(floats, obs_float))
        observation.update(zip(integers, obs_int))
        shape = (self.num_cells, self.num_devices)
        answer = self.draft_policy(observation)
        lengths = _checked("draft_policy's answer", answer, shape, _INTEGERS)
        wrong = np.argwhere((lengths < 0) | (lengths > self.max_draft_length))
        if wrong.size:
            raise self._out_of_range("draft_policy", "draft length", lengths, *wrong[0])
        return lengths

    def observe(self) -> Outcome:
        """An outcome in which only the observation is filled, for all cells."""
        outcome = self._new_outcome()
        self.observe_into(outcome, self._nobody)
        return outcome

    def observe_into(self, outcome: Outcome, idle: NDArray[np.bool_]) -> None:
        """Write the present observation of all cells but the idle ones into `outcome`."""
        kernels.observe(self._pending, self._state, idle, *observed(outcome), self._workspace)

    def play(self, idle: NDArray[np.bool_] | None = None) -> Outcome:
        """Play one round, as decided, in every cell that is not idle.

        Raises:
            ValueError: a value of the decision is out of range; nothing has changed then.
            Exception: what the draft policy raises; nothing has changed then either.
        """
        idle = self._nobody if idle is None else idle
        outcome = self._new_outcome()
        before = [] if self.draft_policy is None else [array.copy() for array in self._changing]
        if self._play is None:
            self._play = kernels.machine_code(
                kernels.play, self._state, idle, outcome, self._workspace
            )
        due = self._play(self._state, idle, outcome, self._workspace)
        if due < 0:
            raise self._invalid(-1 - due)
        if self.draft_policy is not None:
            try:
                self._memory[kernels.PENDING_DRAFT, ~idle] = self._ask_policy()[~idle]
            except BaseException:  # an interrupt too
                for array, kept in zip(self._changing, before):
                    array[...] = kept
                raise
            self.observe_into(outcome, idle)
        if due > 0:
            kernels.find_due(self._pending, self._counter, idle, self._due)
            self._draw_blocks(self._due[:due].tolist())
        return outcome

    def episode_goodput(self, cells: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Tokens delivered over seconds, so far in the masked cells' episodes, 0 elsewhere, [N]."""
        goodput = np.zeros(self.num_cells)
        tokens = self._counter[cells, kernels.EPISODE_TOKENS]
        goodput[cells] = tokens / self._time_s[cells]
        return goodput

    def regrets(self, outcome: Outcome, cells: Iterable[int]) -> dict[str, NDArray[np.float64]]:
        """How far the listed cells' last decisions were from the best known, [N] (0 elsewhere)."""
        _, device_float, device_int, cell_float, cell_int = outcome
        found = {key: np.zeros(self.num_cells) for key in self.regret_keys}
        for n in cells:
            values = round_regret(
                self.control,
                self.correction,
                self._last_problem(n),
                device_int[kernels.DRAFTED, n],
                device_int[kernels.REJECTED, n],
                device_float[kernels.ALLOCATED_HZ, n],
                float(cell_int[kernels.EMITTED, n]),
                tuple(cell_float[kernels.DRAFTING_S : kernels.COMMUNICATION_S + 1, n].tolist()),
            )
            for key, value in values.items():
                found[key][n] = value
        return found

    def _last_problem(self, cell: int) -> Problem:
        """What was known at the start of the round that a cell played last."""
        r = int(self._counter[cell, kernels.ROUND]) - 1
        gain = self._device[kernels.MEAN_GAIN, cell]
        if self._cell[kernels.FADES, cell] > 0:
            slot, row = kernels.place_of(r)
            gain = gain * self._tape[cell, slot, row, kernels.FADING]
        return pose(
            self.scenarios[cell],
            self._device[kernels.ACCEPTANCE_RATE, cell],
            self._device[kernels.TOKEN_LATENCY_S, cell],
            gain,
        )

    def _new_outcome(self) -> Outcome:
        n = self.num_cells
        obs_float, device_float, device_int = self._shapes
        cell_float, cell_int = self._cell_blocks or (np.empty((6, n)), np.empty((6, n), _INT64))
        return (
            np.empty(obs_float, _FLOAT32),
            np.empty(device_float),
            np.empty(device_int, _INT64),
            cell_float,
            cell_int,
        )

    def check(self, idle: NDArray[np.bool_]) -> None:
        """Raise ValueError unless every value of the decision that cells will use is in range."""
        bad = kernels.find_invalid(self._kind, self._draft, self._chosen, self._share, idle)
        if bad >= 0:
            raise self._invalid(bad)

    def _invalid(self, index: int) -> ValueError:
        """The error that names the entry which :func:`kernels.find_invalid` found."""
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


def observed(outcome: Outcome) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The blocks of an outcome that hold the observation, [keys, N, K]: floats and integers."""
    return outcome[0], outcome[2][kernels.OBSERVED :]


def _index(cells: Sequence[int]) -> Any:
    """An index of the listed cells; a slice for a single one, which is much faster."""
    return slice(cells[0], cells[0] + 1) if len(cells) == 1 else cells


def _cell_constants(scenario: Scenario) -> list[float]:
    """A column of `cell`, in the row order of the kernels."""
    correction = scenario.protocol == "correction"
    episode = scenario.episode
    return [
        scenario.radio.bandwidth_hz,
        float(scenario.payload.distribution_bits),
        scenario.downlink_power_w if correction else 0.0,
        scenario.verification_s,
        float(scenario.channel.fading == "rayleigh"),
        np.inf if episode.horizon_s is None else episode.horizon_s,
        np.inf if episode.rounds is None else float(episode.rounds),
        MAX_ROUND_S,
    ]


def _device_constants(scenario: Scenario) -> NDArray[np.float64]:
    """The rows of `device` that are not drawn, [7, K]."""
    rows = np.zeros((7, scenario.num_devices))
    rows[kernels.UPLINK_POWER_W] = scenario.uplink_power_w
    rows[kernels.UNIT_SNR] = scenario.uplink_power_w / scenario.noise_server_w
    if scenario.protocol == "correction":
        rows[kernels.NOISE_DEVICE_W] = scenario.noise_device_w
    return rows


def _checked(name: str, value: Any, shape: tuple[int, ...], kinds: str) -> NDArray[Any]:
    """`value` as an array; raises unless it has the given shape and one of the kinds of dtype."""
    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind not in kinds:
        allowed = "an integer" if kinds == _INTEGERS else "a numeric"
        raise ValueError(
            f"{name} has shape {array.shape} and dtype {array.dtype}: "
            f"must have shape {shape} and {allowed} dtype"
        )
    return array


def _whole(action: Any) -> Any:
    """Modes as integers where they come as whole floats, as Stable-Baselines3's Bernoulli does."""
    array = np.asarray(action)
    if array.dtype.kind == "f" and np.all((array == 0) | (array == 1)):
        return array.astype(np.int64)
    return array
