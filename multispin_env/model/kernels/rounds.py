"""One round of N cells: what is drafted, verified and sent, and what it is charged."""

from __future__ import annotations

import numpy as np

from multispin_env.model.kernels import corrections
from multispin_env.model.kernels.compiling import inner, lean, spliced, threaded
from multispin_env.model.kernels.logarithms import LN2, natural_log1p
from multispin_env.model.kernels.observing import observe_cell, read_channel, read_runs
from multispin_env.model.kernels.state import (
    OBSERVED,
    CellCounts,
    CellTimes,
    DeviceRadio,
    counts_of,
    device_of,
    memory_of,
    outcome_of,
    place_of,
    variates_of,
)
from multispin_env.model.kernels.tapes import draw_if_due
from multispin_env.model.kernels.uploads import Drafts, upload

#: Rows [K] of memory to overwrite that :func:`play` needs.
WORKSPACE = 7


@lean
def find_invalid(state, idle):
    """Index of the first bad entry of a decision, -1 if it is sound.

    The index counts through [draft, chosen, share] of cell 0, then of cell 1, ...
    """
    kind, draft, chosen, share = state.kind[0], state.draft, state.chosen, state.share
    num_cells, num_devices = draft.shape
    given = kind["rule"] == corrections.GIVEN and not kind["tossed"]
    max_draft_length = kind["max_draft_length"]
    for n in range(num_cells):
        if idle[n]:
            continue
        sound = True  # looked for without an early exit, so that the loop can be vectorised
        for k in range(num_devices):
            sound &= 0 <= draft[n, k] <= max_draft_length
        if given:
            for k in range(num_devices):
                sound &= 0 <= chosen[n, k] <= 1
        for k in range(share.shape[1]):
            sound &= 0.0 <= share[n, k] <= 1.0
        if sound:
            continue
        for k in range(num_devices):
            if not 0 <= draft[n, k] <= max_draft_length:
                return 3 * num_devices * n + k
        for k in range(num_devices):
            if given and not 0 <= chosen[n, k] <= 1:
                return 3 * num_devices * n + num_devices + k
        for k in range(share.shape[1]):
            if not 0.0 <= share[n, k] <= 1.0:
                return 3 * num_devices * n + 2 * num_devices + k
    return -1


@inner
def verify(device, exponential, draft, counts, run):
    """Draft and verify a round: a device accepts min(G, gamma) of its gamma tokens.

    Args:
        device: of the cell.
        exponential: [K] variates behind the run lengths G.
        draft: [K] lengths gamma.
        counts: `drafted`, `accepted` and `rejected` are outputs.
        run: [K] overwritten.

    Returns:
        Seconds until the last device has drafted.
    """
    drafted, accepted, rejected = counts.drafted, counts.accepted, counts.rejected
    token_latency_s = device.token_latency_s
    num_devices = draft.shape[0]
    read_runs(device, exponential, run)
    for k in range(num_devices):
        drafted[k] = draft[k]
    for k in range(num_devices):
        accepted[k] = np.int64(run[k]) if run[k] < drafted[k] else drafted[k]
    for k in range(num_devices):
        rejected[k] = 1 if run[k] < drafted[k] else 0
    longest = 0.0
    for k in range(num_devices):
        longest = max(longest, drafted[k] * token_latency_s[k])
    return longest


@inner
def send_corrections(rule, modes, cell, device, counts, radio, workspace):
    """Correction protocol: costs, modes, powers and bandwidths of a round.

    Args:
        rule: of the corrections.
        modes: [K] read under the rule GIVEN.
        cell, device: of the round.
        counts: `rejected` is read, `mode` an output.
        radio: outputs.
        workspace: its gains and SNRs [4], [5] are read, the rest overwritten.

    Returns:
        Seconds until the slowest has arrived.
    """
    rejected, band_hz = counts.rejected, radio.bandwidth_hz
    gain, cost_w, noise_w = workspace[4], workspace[6], device.noise_device_w
    num_devices = rejected.shape[0]
    count = 0
    for k in range(num_devices):
        cost_w[k] = noise_w[k] / gain[k]
        count += rejected[k]
    each_hz = cell["bandwidth_hz"] / count if count > 0 else 0.0
    for k in range(num_devices):
        band_hz[k] = each_hz * rejected[k]
    link = corrections.Link(
        workspace[5],
        cost_w,
        device.uplink_power_w,
        cell["downlink_power_w"],
        cell["payload_bits"],
        cell["bandwidth_hz"],
    )
    return corrections.correct(
        rule, rejected, modes, link, counts.mode, radio.power_w, workspace[:4]
    )


@inner
def send_drafts(share, cell, device, counts, radio, workspace):
    """Upload protocol: work, powers and bandwidths of a round.

    Args: as :func:`send_corrections`; `share` [K] splits the band, [0] leaves it to Lemma 3.

    Returns:
        Seconds until the slowest has arrived, drafting included.
    """
    drafted, mode, power_w = counts.drafted, counts.mode, radio.power_w
    uplink_snr, work_hz_s, uplink_power_w = workspace[5], workspace[6], device.uplink_power_w
    num_devices = drafted.shape[0]
    bits = cell["payload_bits"]
    for k in range(num_devices):
        efficiency = natural_log1p(uplink_snr[k]) / LN2
        work_hz_s[k] = drafted[k] * bits / efficiency if drafted[k] > 0 else 0.0
    for k in range(num_devices):
        mode[k] = 0 if drafted[k] > 0 else -1
    for k in range(num_devices):
        power_w[k] = uplink_power_w[k] if drafted[k] > 0 else 0.0
    drafts = Drafts(drafted, device.token_latency_s, work_hz_s, share, cell["bandwidth_hz"])
    return upload(share.shape[0] > 0, drafts, radio.bandwidth_hz, workspace[:4])


@inner
def account(state, n, counts, drafting_s, communication_s, outcome):
    """Charge the round, deliver its tokens, and move the clock of cell n.

    A round that ends after the horizon delivers nothing and is charged up to it.
    """
    cell, clock = state.cell[n], state.clock[n]
    accepted, rejected = counts.accepted, counts.rejected
    num_devices = accepted.shape[0]
    num_accepted, num_rejected = 0, 0
    for k in range(num_devices):
        num_accepted += accepted[k]
        num_rejected += rejected[k]
    emitted = num_accepted + num_devices

    computing_s = drafting_s + cell["verification_s"]
    communication_s = min(communication_s, cell["longest_round_s"] - computing_s)
    latency_s = computing_s + communication_s
    horizon_s, start_s = cell["horizon_s"], clock["time_s"]
    end_s = start_s + latency_s
    truncated = end_s >= horizon_s or clock["round"] + 1 >= cell["max_rounds"]
    tokens = emitted
    if end_s > horizon_s:
        tokens = 0
        latency_s = horizon_s - start_s
        end_s = horizon_s
    elif not state.kind[0]["full"]:  # feedback is kept for those who see it
        memory = memory_of(state, n)
        for k in range(num_devices):
            memory.accepted_count[k] += accepted[k]
            memory.rejection_count[k] += rejected[k]
            memory.last_accepted[k] = accepted[k]
            memory.last_rejected[k] = rejected[k]

    times = CellTimes(
        latency_s, drafting_s, cell["verification_s"], communication_s, end_s, tokens / latency_s
    )
    numbers = CellCounts(
        clock["round"],
        tokens,
        emitted,
        num_devices - num_rejected,
        num_rejected,
        np.int64(truncated),
    )
    for row in range(len(times)):
        outcome.cell_float[row, n] = times[row]
    for row in range(len(numbers)):
        outcome.cell_int[row, n] = numbers[row]
    clock["time_s"] = end_s
    clock["round"] += 1
    clock["tokens"] += tokens


@spliced
def play_cell(state, n, idle, outcome, workspace):
    """Play one round in cell n, unless it is idle; see :func:`play`."""
    if idle:
        outcome.device_float[:, n], outcome.device_int[:OBSERVED, n] = 0.0, 0
        outcome.cell_float[:, n], outcome.cell_int[:, n] = 0.0, 0
        return
    kind, cell = state.kind[0], state.cell[n]
    device, counts = device_of(state, n), counts_of(outcome, n)
    radio = DeviceRadio(outcome.device_float[0, n], outcome.device_float[1, n])
    round_index = state.clock[n]["round"]
    variates = variates_of(state, n, round_index)
    lengths = memory_of(state, n).pending_draft if kind["pending"] else state.draft[n]

    read_channel(cell, device, variates.fading, workspace[4], workspace[5])
    drafting_s = verify(device, variates.run, lengths, counts, workspace[0])
    if kind["uploads"]:
        finished_s = send_drafts(state.share[n], cell, device, counts, radio, workspace)
        communication_s = finished_s - drafting_s
    else:
        slot, row = place_of(round_index)
        modes = state.coins[n, slot, row] if kind["tossed"] else state.chosen[n]
        communication_s = send_corrections(
            kind["rule"], modes, cell, device, counts, radio, workspace
        )
    account(state, n, counts, drafting_s, communication_s, outcome)
    if kind["pending"]:
        pending_draft = memory_of(state, n).pending_draft
        for k in range(lengths.shape[0]):
            pending_draft[k] = state.draft[n, k]
    observe_cell(
        state, n, kind["pending"], outcome.observed, outcome.device_int[OBSERVED:], workspace
    )
    if not kind["asks"]:
        draw_if_due(state, n)


@lean
def play(state, idle, blocks, workspace):
    """Play one round in each of N cells, advance their clocks, observe what comes next.

    The round itself is a pure function of the tape, the round index and the decision; around it
    the clocks and the memory are updated in place. The whole decision is checked before anything
    changes. At last the cells draw the next block of their tapes where the next step shows it; but
    where the lengths are decided outside, only :func:`.draw_due` does, after that has succeeded.

    Args:
        state: the cells, and the decision.
        idle: [N] true for cells that sit out; their observation is not written, all else is 0.
        blocks: outputs, the blocks of an `Outcome`.
        workspace: [WORKSPACE, K] overwritten.

    Returns:
        -1, or an index as in :func:`find_invalid`.
    """
    bad = find_invalid(state, idle)
    if bad < 0:
        outcome = outcome_of(blocks)
        for n in range(idle.shape[0]):
            play_cell(state, n, idle[n], outcome, workspace)
    return bad


@threaded
def play_share(state, idle, blocks, workspace, first, last):
    """:func:`play` in the cells first, ..., last - 1; the decision has been checked."""
    outcome = outcome_of(blocks)
    for n in range(first, last):
        play_cell(state, n, idle[n], outcome, workspace)
