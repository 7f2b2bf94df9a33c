"""What N cells are made of, and what one step of them gives.

Arrays have the cells in front of the devices: per cell [N], per device [N, K]. What is many per
device is kept in one block, [rows, N, K], whose rows are named by a NamedTuple: kernels read cell n
of it as `Device(*...)` of arrays [K], Python as `Device(*block)` of arrays [N, K].
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from multispin_env.model.kernels.compiling import inner

BLOCK: Final = 16  # rounds drawn at a time


#: What kind of environment all cells are; integers.
KIND: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            "uploads",  # whether drafts are uploaded, or else corrections sent
            "rule",  # of the corrections
            "tossed",  # whether coins give the modes
            "pending",  # whether the round that is closed was drafted a step earlier
            "full",  # whether acceptance rates are observed
            "asks",  # whether another than the agent decides the lengths, after the step
            "max_draft_length",
        )
    ],
    align=True,
)

#: Constants of each cell.
CELL: Final = np.dtype(
    [
        ("bandwidth_hz", np.float64),
        ("payload_bits", np.float64),
        ("downlink_power_w", np.float64),
        ("verification_s", np.float64),
        ("horizon_s", np.float64),  # inf where rounds are counted
        ("max_rounds", np.float64),  # inf where seconds are
        ("longest_round_s", np.float64),
        ("fades", np.int64),
    ],
    align=True,
)

#: Where each cell is in its episode: seconds, rounds played, and tokens delivered.
CLOCK: Final = np.dtype(
    [("time_s", np.float64), ("round", np.int64), ("tokens", np.int64)], align=True
)


class Device(NamedTuple):
    """Constants of each device, most of them drawn at reset."""

    acceptance_rate: Any
    mean_run: Any  # 1 / -ln alpha
    token_latency_s: Any
    mean_gain: Any
    uplink_power_w: Any
    unit_snr: Any  # the full-band uplink SNR of a unit gain
    noise_device_w: Any


class Memory(NamedTuple):
    """Integers that each device keeps from round to round: a draft that waits, and feedback."""

    pending_draft: Any
    accepted_count: Any
    rejection_count: Any
    last_accepted: Any
    last_rejected: Any


class Variates(NamedTuple):
    """Standard exponential variates of a round, [K] each: the rows of a tape."""

    fading: Any  # |h|^2
    run: Any  # behind the run lengths


class State(NamedTuple):
    """N cells, and the decision for their next step."""

    kind: Any  # [1] of KIND
    cell: Any  # [N] of CELL
    clock: Any  # [N] of CLOCK
    device: Any  # [rows of Device, N, K]
    memory: Any  # [rows of Memory, N, K]
    tape: Any  # [N, 2, BLOCK, rows of Variates, K] two blocks
    coins: Any  # [N, 2, BLOCK, K] two blocks of modes; N is 0 where none are tossed
    stream: Any  # [N, 4] the random numbers that the tape is drawn from
    coin_stream: Any  # [N, 4]
    draft: Any  # [N, K] lengths to draft: now, or next if a round is pending
    chosen: Any  # [N, K] modes to use now; read under the rule GIVEN, without coins, only
    share: Any  # [N, K] bandwidth shares, or [N, 0] for the optimal allocation


# Outcomes. The field order of the four below is that of the blocks' rows.


class CellTimes(NamedTuple):
    """Seconds of a round, and its goodput."""

    latency_s: Any
    drafting_s: Any
    verification_s: Any
    communication_s: Any
    time_s: Any
    goodput: Any


class CellCounts(NamedTuple):
    """Integers of a round; the last is a flag."""

    round: Any
    tokens: Any
    emitted: Any
    bonus_tokens: Any
    correction_tokens: Any
    truncated: Any


class DeviceCounts(NamedTuple):
    """Integers of each device in a round."""

    drafted: Any
    accepted: Any
    rejected: Any
    mode: Any


class DeviceRadio(NamedTuple):
    """What each device sent with."""

    power_w: Any
    bandwidth_hz: Any


#: First row of what is observed in integers, behind the rows of `DeviceCounts`.
OBSERVED: Final = len(DeviceCounts._fields)


class Outcome(NamedTuple):
    """What one step gave, in blocks that are written in place."""

    observed: Any  # float32 [keys, N, K]: float observations
    device_float: Any  # [rows of DeviceRadio, N, K]
    device_int: Any  # [rows of DeviceCounts and integer observations, N, K]
    cell_float: Any  # [rows of CellTimes, N]
    cell_int: Any  # [rows of CellCounts, N]


@inner
def device_of(state, n):
    """The devices of cell n."""
    rows = state.device
    return Device(
        rows[0, n], rows[1, n], rows[2, n], rows[3, n], rows[4, n], rows[5, n], rows[6, n]
    )


@inner
def memory_of(state, n):
    """What the devices of cell n remember."""
    rows = state.memory
    return Memory(rows[0, n], rows[1, n], rows[2, n], rows[3, n], rows[4, n])


@inner
def counts_of(outcome, n):
    """Where the integers of cell n's devices are written."""
    rows = outcome.device_int
    return DeviceCounts(rows[0, n], rows[1, n], rows[2, n], rows[3, n])


@inner
def place_of(round_index):
    """Where a round stands in a tape: which of the two blocks, and which row there."""
    return (round_index // BLOCK) % 2, round_index % BLOCK


@inner
def variates_of(state, n, round_index):
    """The variates of a round of cell n."""
    slot, row = place_of(round_index)
    return Variates(state.tape[n, slot, row, 0], state.tape[n, slot, row, 1])


@inner
def outcome_of(blocks):
    """An outcome from its blocks in a plain tuple, as Python hands them over."""
    return Outcome(blocks[0], blocks[1], blocks[2], blocks[3], blocks[4])
