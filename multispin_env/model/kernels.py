"""The hot loops, compiled by numba. Plain loops over devices that read like the papers.

They work on the devices of *one* cell, 1-D arrays of length K, and are called either by the batched
functions of :mod:`~multispin_env.model.correction` and :mod:`~multispin_env.model.upload` or by
the round loop of :mod:`multispin_env.round`. All compiled code that calls other compiled code
stands in this one file, because numba's cache only notices changes of the file it compiles.

Signal-to-noise ratios are *full-band*: the ratio a device would have if it used the whole
bandwidth B. With r devices sharing the band equally, each has B/r and r times that ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np

from multispin_env.model.latency import MAX_ROUND_S

# Rules that choose the mode of each rejected device.
OPTIMAL: Final = 0  # Lemma 2
UPLINK: Final = 1  # every device uploads its draft distribution
DOWNLINK: Final = 2  # the server sends every target distribution
GIVEN: Final = 3  # the caller gives the modes (an agent's action, or random coins)

LN2: Final = float(np.log(2.0))

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile with numba, cached on disk; division by zero gives inf, as in numpy."""
    try:
        result = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to write the cache to, for example a read-only installation
        result = numba.njit(error_model="numpy")(function)
    return cast("_Function", result)


# ---- correction protocol (paper B) -----------------------------------------------------------


@compiled
def optimal_level(uplink_snr, downlink_cost_w, downlink_power_w, members, count):
    """The largest full-band SNR that all rejected devices can have at once (Lemmas 1 and 2).

    Think of water filling. To reach the level eta, the devices whose uplink is worse,
    uplink_snr < eta, must be served on the downlink, and each costs eta * downlink_cost_w. So

        eta* = sup { eta : eta * sum of costs over {uplink_snr < eta} <= downlink power }
             = max over m of min( uplink_snr of the (m+1)-th worst, power / cost of the m worst ).

    The left side grows with eta, so a quickselect finds the crossing without sorting: expected
    time is linear in the number of devices.

    Args:
        uplink_snr, downlink_cost_w: [K], any order.
        members: [K] workspace whose first `count` entries are the rejected devices; reordered.
        count: how many devices are rejected, at least 1.
    """
    low, high = 0, count  # members[:low] must go down, members[high:] can stay up
    level = 0.0  # best feasible uplink_snr so far
    cost = 0.0  # downlink cost of members[:low]
    while low < high:
        pivot = uplink_snr[members[(low + high) // 2]]
        # Three-way partition of members[low:high]: worse than the pivot, equal, better.
        less, i, more = low, low, high
        cost_less, cost_equal = 0.0, 0.0
        while i < more:
            k = members[i]
            if uplink_snr[k] < pivot:
                members[i], members[less] = members[less], k
                cost_less += downlink_cost_w[k]
                less += 1
                i += 1
            elif uplink_snr[k] > pivot:
                more -= 1
                members[i], members[more] = members[more], k
            else:
                cost_equal += downlink_cost_w[k]
                i += 1
        if pivot * (cost + cost_less) <= downlink_power_w:
            level = pivot
            cost += cost_less + cost_equal
            low = more
        else:
            high = less
    # Either the pivot device limits the round from the uplink, or all of members[:low] go down.
    return max(level, downlink_power_w / cost)


@compiled
def correct(
    rule,
    rejected,
    chosen,
    uplink_snr,
    downlink_cost_w,
    uplink_power_w,
    downlink_power_w,
    payload_bits,
    bandwidth_hz,
    mode,
    power_w,
    members,
):
    """Modes, powers and latency of the corrections of one round, with equal bandwidth.

    Args:
        rule: OPTIMAL, UPLINK, DOWNLINK or GIVEN.
        rejected: [K] 1 where the draft was rejected.
        chosen: [K] 1 for downlink; read under GIVEN only.
        uplink_snr, downlink_cost_w: [K] full-band SNR at full uplink power; downlink power that
            gives a full-band SNR of 1.
        uplink_power_w, downlink_power_w: [K] and the server's budget.
        mode, power_w, members: [K] outputs (mode 0 uplink, 1 downlink, -1 silent) and workspace.

    Returns:
        Seconds until the slowest correction has arrived: 0 if nothing was rejected, inf if a
        device cannot be reached.
    """
    num_devices = rejected.shape[0]
    count = 0
    for k in range(num_devices):
        mode[k] = -1
        power_w[k] = 0.0
        if rejected[k]:
            members[count] = k
            count += 1
    if count == 0:
        return 0.0

    threshold = 0.0  # UPLINK: nobody is below it
    if rule == OPTIMAL:
        threshold = optimal_level(uplink_snr, downlink_cost_w, downlink_power_w, members, count)
    elif rule == DOWNLINK:
        threshold = np.inf

    level = np.inf  # of the weakest device
    cost, num_down = 0.0, 0
    for i in range(count):
        k = members[i]
        down = chosen[k] == 1 if rule == GIVEN else uplink_snr[k] < threshold
        # Under DOWNLINK an infinite uplink ratio is not below the threshold, but goes down too.
        if down or rule == DOWNLINK:
            mode[k] = 1
            cost += downlink_cost_w[k]
            num_down += 1
        else:
            mode[k] = 0
            power_w[k] = uplink_power_w[k]
            level = min(level, uplink_snr[k])
    if num_down > 0:
        level = min(level, downlink_power_w / cost)
        for i in range(count):
            k = members[i]
            if mode[k] == 1:  # Lemma 1: shares that equalise the delay, the whole budget used
                share = downlink_cost_w[k] / cost if cost < np.inf else 1.0 / num_down
                power_w[k] = downlink_power_w * share
    return payload_bits * count * LN2 / (bandwidth_hz * np.log1p(level * count))


# ---- upload protocol (paper A) ---------------------------------------------------------------


@compiled
def equalised_latency(draft_length, token_latency_s, work_hz_s, bandwidth_hz):
    """The least time in which all devices can draft and upload (Lemma 3, A-32).

    With d_k = L_k T_k seconds of drafting and w_k = L_k Q / r_k Hz s of upload work, bandwidth
    w_k / (phi - d_k) lets device k finish at phi. The least phi is the root of

        F(phi) = sum_k w_k / (phi - d_k) = B,    phi > max d_k.

    1/F is a parallel sum of lines, hence concave and increasing: Newton's method on it, started
    below the root, rises to the root without ever passing it. The unknown is y = phi - max d,
    which keeps all digits when the upload is short.

    Args:
        draft_length, token_latency_s: [K].
        work_hz_s: [K] w_k, read where the draft length is positive; inf for a dead channel.

    Returns:
        (max d, y), so that phi is their sum; (0, 0) if nobody drafts, y = inf with a dead channel.
    """
    num_devices = draft_length.shape[0]
    longest = 0.0
    for k in range(num_devices):
        if draft_length[k] > 0:
            longest = max(longest, draft_length[k] * token_latency_s[k])
    y = 0.0
    for k in range(num_devices):
        if draft_length[k] > 0:
            if work_hz_s[k] == np.inf:
                return longest, np.inf
            slack = longest - draft_length[k] * token_latency_s[k]
            y = max(y, work_hz_s[k] / bandwidth_hz - slack)  # one device's need: a lower bound
    if y == 0.0:
        return longest, 0.0
    for _ in range(100):
        total, slope = 0.0, 0.0
        for k in range(num_devices):
            if draft_length[k] > 0:
                gap = (longest - draft_length[k] * token_latency_s[k]) + y
                total += work_hz_s[k] / gap
                slope += work_hz_s[k] / gap / gap
        step = total * (total / bandwidth_hz - 1.0) / slope
        if step <= 1e-15 * y:
            break
        y += step
    return longest, y


@compiled
def upload(given, draft_length, share, token_latency_s, work_hz_s, bandwidth_hz, allocated_hz):
    """Bandwidths and latency of drafting and uploading in one round.

    Args:
        given: 0 for the optimal allocation (Lemma 3), 1 to split the band by `share`.
        draft_length, token_latency_s, work_hz_s: [K]; see :func:`equalised_latency`.
        share: [K] nonnegative weights, normalised over the devices that draft; all zero there
            means equal. Read under `given` only.
        allocated_hz: [K] output: bandwidth of each device, 0 where nothing is sent.

    Returns:
        Seconds (A-26): 0 if nobody drafts, inf if a device that drafts cannot finish.
    """
    num_devices = draft_length.shape[0]
    total, count = 0.0, 0
    for k in range(num_devices):
        allocated_hz[k] = 0.0
        if draft_length[k] > 0:
            count += 1
            if given:
                total += share[k]
    if count == 0:
        return 0.0

    if not given:
        longest, y = equalised_latency(draft_length, token_latency_s, work_hz_s, bandwidth_hz)
        if 0.0 < y < np.inf:
            for k in range(num_devices):
                if draft_length[k] > 0:
                    gap = (longest - draft_length[k] * token_latency_s[k]) + y
                    allocated_hz[k] = work_hz_s[k] / gap
            return longest + y
    # Shares, equal ones where none are given (or where no split helps: the round never ends).
    latency = 0.0
    for k in range(num_devices):
        if draft_length[k] > 0:
            fraction = share[k] / total if given and total > 0.0 else 1.0 / count
            allocated_hz[k] = bandwidth_hz * fraction
            latency = max(
                latency, draft_length[k] * token_latency_s[k] + work_hz_s[k] / allocated_hz[k]
            )
    return latency


# ---- batches of rounds -----------------------------------------------------------------------


@compiled
def correct_batch(
    rule,
    rejected,
    chosen,
    uplink_snr,
    downlink_cost_w,
    uplink_power_w,
    downlink_power_w,
    payload_bits,
    bandwidth_hz,
    mode,
    power_w,
    latency_s,
):
    """:func:`correct` for M independent rounds: arrays [M, K], budgets and outputs [M]."""
    members = np.empty(rejected.shape[1], np.int64)
    for m in range(rejected.shape[0]):
        latency_s[m] = correct(
            rule,
            rejected[m],
            chosen[m],
            uplink_snr[m],
            downlink_cost_w[m],
            uplink_power_w[m],
            downlink_power_w[m],
            payload_bits[m],
            bandwidth_hz[m],
            mode[m],
            power_w[m],
            members,
        )


@compiled
def upload_batch(
    given, draft_length, share, token_latency_s, work_hz_s, bandwidth_hz, allocated_hz, latency_s
):
    """:func:`upload` for M independent rounds: arrays [M, K], bandwidth and latency [M]."""
    for m in range(draft_length.shape[0]):
        latency_s[m] = upload(
            given,
            draft_length[m],
            share[m],
            token_latency_s[m],
            work_hz_s[m],
            bandwidth_hz[m],
            allocated_hz[m],
        )


@compiled
def mean_correction_latency(
    rule,
    run_length,
    chosen,
    draft_length,
    uplink_snr,
    downlink_cost_w,
    uplink_power_w,
    downlink_power_w,
    payload_bits,
    bandwidth_hz,
):
    """Sample average of the correction latency of one draft decision (paper B, section V-B).

    Args:
        run_length, chosen: [S, K] samples of the run lengths, and of the modes (under GIVEN).
        draft_length: [K] the decision; the rest as in :func:`correct`.
    """
    num_samples, num_devices = run_length.shape
    rejected = np.empty(num_devices, np.int64)
    mode = np.empty(num_devices, np.int64)
    power_w = np.empty(num_devices)
    members = np.empty(num_devices, np.int64)
    total = 0.0
    for s in range(num_samples):
        for k in range(num_devices):
            rejected[k] = 1 if run_length[s, k] < draft_length[k] else 0
        total += correct(
            rule,
            rejected,
            chosen[s],
            uplink_snr,
            downlink_cost_w,
            uplink_power_w,
            downlink_power_w,
            payload_bits,
            bandwidth_hz,
            mode,
            power_w,
            members,
        )
    return total / num_samples


# ---- one step of N cells ---------------------------------------------------------------------

BLOCK: Final = 16  # rounds drawn at a time

# Columns of `cell` [N, ...]: constants of each cell.
BANDWIDTH_HZ, PAYLOAD_BITS, DOWNLINK_POWER_W, VERIFICATION_S, HORIZON_S, MAX_ROUNDS, FADES = range(
    7
)
# Rows of `device` [N, ..., K]: constants of each device, drawn at reset. The last two are the
# full-band uplink SNR of a unit gain, and the noise that the downlink has to overcome.
(
    ACCEPTANCE_RATE,
    EXPONENTIAL_RATE,
    TOKEN_LATENCY_S,
    MEAN_GAIN,
    UPLINK_POWER_W,
    UNIT_SNR,
    NOISE_DEVICE_W,
) = range(7)
# Columns of `counter` [N, ...].
ROUND, EPISODE_TOKENS, BLOCKS = range(3)
# Rows of `memory` [N, ..., K]: the drafts waiting to be corrected, and the acceptance feedback.
PENDING_DRAFT, ACCEPTED_COUNT, REJECTION_COUNT, LAST_ACCEPTED, LAST_REJECTED = range(5)
# Rows of the outputs: per cell [..., N] and per device [..., N, K].
LATENCY_S, DRAFTING_S, VERIFYING_S, COMMUNICATION_S, TIME_S, GOODPUT = range(6)
ROUND_INDEX, TOKENS, EMITTED, BONUS_TOKENS, CORRECTION_TOKENS, TRUNCATED = range(6)
DRAFTED, ACCEPTED, REJECTED, MODE = range(4)
POWER_W, ALLOCATED_HZ = range(2)


@compiled
def gain_of(tape, device, fades, n, r, k):
    """Channel gain of device k in round r: mean gain times |h|^2 ~ Exp(1) (or 1, no fading)."""
    fading = tape[n, (r // BLOCK) % 2, 0, r % BLOCK, k] if fades else 1.0
    return device[n, MEAN_GAIN, k] * fading


@compiled
def accepted_of(tape, device, n, r, k, draft_length):
    """Accepted tokens of device k in round r: min(G, gamma), with G = floor(E / -ln alpha).

    :func:`multispin_env.model.acceptance.run_length` derives G.
    """
    rate = device[n, EXPONENTIAL_RATE, k]
    if rate == 0.0:  # acceptance rate 1
        return draft_length
    run = np.floor(tape[n, (r // BLOCK) % 2, 1, r % BLOCK, k] / rate)
    return draft_length if run >= draft_length else np.int64(run)


@compiled
def decibel(snr):
    """:func:`multispin_env.model.channel.snr_db` of one number."""
    return 10.0 * np.log10(min(max(snr, 1e-30), 1e30))


@compiled
def observe(pending, full, cell, device, tape, counter, memory, n, obs_float, obs_int):
    """Write cell n's observation of the round that comes next (or is pending).

    Row order, shared with :mod:`multispin_env.spaces`. Floats: snr_db, token_latency_s, then
    next_snr_db if `pending`, then acceptance_rate if `full`. Integers: draft_length and rejected
    if `pending`; without `full` then accepted_count, rejection_count, accepted, and rejected
    where it is not there yet.
    """
    r = counter[n, ROUND]
    fades = cell[n, FADES]
    for k in range(device.shape[2]):
        row = 2
        obs_float[0, n, k] = decibel(device[n, UNIT_SNR, k] * gain_of(tape, device, fades, n, r, k))
        obs_float[1, n, k] = device[n, TOKEN_LATENCY_S, k]
        if pending:
            obs_float[2, n, k] = decibel(
                device[n, UNIT_SNR, k] * gain_of(tape, device, fades, n, r + 1, k)
            )
            row = 3
        if full:
            obs_float[row, n, k] = device[n, ACCEPTANCE_RATE, k]

        accepted, rejected = memory[n, LAST_ACCEPTED, k], memory[n, LAST_REJECTED, k]
        row = 0
        if pending:
            draft_length = memory[n, PENDING_DRAFT, k]
            accepted = accepted_of(tape, device, n, r, k, draft_length)
            rejected = 1 if accepted < draft_length else 0
            obs_int[0, n, k] = draft_length
            obs_int[1, n, k] = rejected
            row = 2
        if not full:
            obs_int[row, n, k] = memory[n, ACCEPTED_COUNT, k]
            obs_int[row + 1, n, k] = memory[n, REJECTION_COUNT, k]
            obs_int[row + 2, n, k] = accepted
            if not pending:
                obs_int[row + 3, n, k] = rejected


@compiled
def observe_cells(pending, full, cell, device, tape, counter, memory, cells, obs_float, obs_int):
    """:func:`observe` for the listed cells."""
    for n in cells:
        observe(pending, full, cell, device, tape, counter, memory, n, obs_float, obs_int)


@compiled
def find_invalid(given, max_draft_length, draft, chosen, share, idle):
    """Index of the first bad entry of a decision, -1 if it is sound.

    The index counts through [draft, chosen, share] of cell 0, then of cell 1, ...
    """
    num_cells, num_devices = draft.shape
    for n in range(num_cells):
        if idle[n]:
            continue
        for k in range(num_devices):
            if draft[n, k] < 0 or draft[n, k] > max_draft_length:
                return 3 * num_devices * n + k
            if given and not (chosen[n, k] == 0 or chosen[n, k] == 1):
                return 3 * num_devices * n + num_devices + k
        for k in range(share.shape[1]):
            if not (share[n, k] >= 0.0 and share[n, k] <= 1.0):
                return 3 * num_devices * n + 2 * num_devices + k
    return -1


@compiled
def verify(cell, device, tape, n, r, draft, uplink_snr, gains, drafted, accepted, rejected):
    """Draft and verify round r of cell n.

    Args:
        draft: [K] lengths.
        uplink_snr, gains, drafted, accepted, rejected: [K] outputs.

    Returns:
        Drafting latency [s], number of accepted tokens, number of rejected drafts.
    """
    drafting_s, num_accepted, num_rejected = 0.0, 0, 0
    for k in range(draft.shape[0]):
        gains[k] = gain_of(tape, device, cell[n, FADES], n, r, k)
        uplink_snr[k] = device[n, UNIT_SNR, k] * gains[k]
        drafted[k] = draft[k]
        accepted[k] = accepted_of(tape, device, n, r, k, draft[k])
        rejected[k] = 1 if accepted[k] < draft[k] else 0
        num_accepted += accepted[k]
        num_rejected += rejected[k]
        drafting_s = max(drafting_s, draft[k] * device[n, TOKEN_LATENCY_S, k])
    return drafting_s, num_accepted, num_rejected


@compiled
def send_corrections(
    rule, cell, device, n, num_rejected, chosen, uplink_snr, gains, rejected, mode, power_w,
    band_hz, cost_w, members,
):  # fmt: skip
    """Correction protocol: send what was rejected in cell n; see :func:`correct`.

    Fills `mode`, `power_w` and `band_hz`; returns the communication latency [s].
    """
    for k in range(gains.shape[0]):
        cost_w[k] = device[n, NOISE_DEVICE_W, k] / gains[k]
        band_hz[k] = cell[n, BANDWIDTH_HZ] / num_rejected if rejected[k] else 0.0
    return correct(
        rule,
        rejected,
        chosen,
        uplink_snr,
        cost_w,
        device[n, UPLINK_POWER_W],
        cell[n, DOWNLINK_POWER_W],
        cell[n, PAYLOAD_BITS],
        cell[n, BANDWIDTH_HZ],
        mode,
        power_w,
        members,
    )


@compiled
def send_drafts(
    cell, device, n, drafting_s, share, uplink_snr, drafted, mode, power_w, band_hz, work_hz_s
):
    """Upload protocol: send all drafts of cell n; see :func:`upload`.

    Fills `mode`, `power_w` and `band_hz`; returns how long uploads go on after the last device
    has drafted [s].
    """
    for k in range(drafted.shape[0]):
        sends = drafted[k] > 0
        efficiency = np.log1p(uplink_snr[k]) / LN2
        work_hz_s[k] = drafted[k] * cell[n, PAYLOAD_BITS] / efficiency if sends else 0.0
        mode[k] = 0 if sends else -1
        power_w[k] = device[n, UPLINK_POWER_W, k] if sends else 0.0
    token_latency_s = device[n, TOKEN_LATENCY_S]
    band = cell[n, BANDWIDTH_HZ]
    ready_s = upload(share.shape[0], drafted, share, token_latency_s, work_hz_s, band, band_hz)
    return ready_s - drafting_s


@compiled
def play(
    uploads,
    rule,
    tossed,
    pending,
    full,
    max_draft_length,
    cell,
    device,
    tape,
    coins,
    time_s,
    counter,
    memory,
    draft,
    chosen,
    share,
    idle,
    obs_float,
    obs_int,
    device_float,
    device_int,
    cell_float,
    cell_int,
):
    """Play one round in each of N cells, advance their clocks, observe what comes next.

    The round itself is a pure function of the tape, the round index and the decision; around it
    `time_s`, `counter` and `memory` are updated in place. The whole decision is checked before
    anything changes.

    Args:
        uploads, rule, tossed, pending, full, max_draft_length: what kind of environment: upload
            protocol, correction rule, modes by the coins of the tape, whether the round that is
            closed was drafted a step earlier, whether acceptance rates are observed.
        cell, device: constants, see the column and row names above.
        tape, coins: [N, 2, 2, BLOCK, K] exponential variates of two consecutive blocks (gains,
            run lengths), and [N, 2, BLOCK, K] coins.
        time_s, counter, memory: state.
        draft, chosen: [N, K] lengths to draft (now, or next if `pending`) and modes to use now.
        share: [N, K] bandwidth shares, or [N, 0] for the optimal allocation.
        idle: [N] true for cells that sit out.
        obs_float, ..., cell_int: outputs, see the row names above.

    Returns:
        How many cells need their next block of the tape before the next step (:func:`find_due`
        lists them), or -1 - i with i as in :func:`find_invalid`.
    """
    num_cells, num_devices = draft.shape
    given = rule == GIVEN and not tossed
    bad = find_invalid(given, max_draft_length, draft, chosen, share, idle)
    if bad >= 0:
        return -1 - bad

    gains = np.empty(num_devices)
    uplink_snr = np.empty(num_devices)
    workspace = np.empty(num_devices)
    members = np.empty(num_devices, np.int64)
    due = 0
    for n in range(num_cells):
        if idle[n]:
            cell_float[:, n] = 0.0
            cell_int[:, n] = 0
            device_float[:, n] = 0.0
            device_int[:, n] = 0
            continue
        r = counter[n, ROUND]
        power_w, band_hz = device_float[POWER_W, n], device_float[ALLOCATED_HZ, n]
        drafted, accepted = device_int[DRAFTED, n], device_int[ACCEPTED, n]
        rejected, mode = device_int[REJECTED, n], device_int[MODE, n]

        lengths = memory[n, PENDING_DRAFT] if pending else draft[n]
        drafting_s, num_accepted, num_rejected = verify(
            cell, device, tape, n, r, lengths, uplink_snr, gains, drafted, accepted, rejected
        )
        if uploads:
            communication_s = send_drafts(
                cell, device, n, drafting_s, share[n], uplink_snr, drafted, mode, power_w, band_hz,
                workspace,
            )  # fmt: skip
        else:
            modes = coins[n, (r // BLOCK) % 2, r % BLOCK] if tossed else chosen[n]
            communication_s = send_corrections(
                rule, cell, device, n, num_rejected, modes, uplink_snr, gains, rejected, mode,
                power_w, band_hz, workspace, members,
            )  # fmt: skip

        # Account. A round that ends after the horizon delivers nothing and is charged up to it.
        verifying_s = cell[n, VERIFICATION_S]
        communication_s = min(communication_s, MAX_ROUND_S - drafting_s - verifying_s)
        latency_s = drafting_s + verifying_s + communication_s
        horizon_s = cell[n, HORIZON_S]
        end_s = time_s[n] + latency_s
        truncated = end_s >= horizon_s or r + 1 >= cell[n, MAX_ROUNDS]
        emitted = num_accepted + num_devices
        tokens = emitted
        if end_s > horizon_s:
            tokens = 0
            latency_s = horizon_s - time_s[n]
            end_s = horizon_s
        else:
            for k in range(num_devices):
                memory[n, ACCEPTED_COUNT, k] += accepted[k]
                memory[n, REJECTION_COUNT, k] += rejected[k]
                memory[n, LAST_ACCEPTED, k] = accepted[k]
                memory[n, LAST_REJECTED, k] = rejected[k]
        if pending:
            memory[n, PENDING_DRAFT] = draft[n]
        time_s[n] = end_s
        counter[n, ROUND] = r + 1
        counter[n, EPISODE_TOKENS] += tokens

        cell_float[LATENCY_S, n] = latency_s
        cell_float[DRAFTING_S, n] = drafting_s
        cell_float[VERIFYING_S, n] = verifying_s
        cell_float[COMMUNICATION_S, n] = communication_s
        cell_float[TIME_S, n] = end_s
        cell_float[GOODPUT, n] = tokens / latency_s
        cell_int[ROUND_INDEX, n] = r
        cell_int[TOKENS, n] = tokens
        cell_int[EMITTED, n] = emitted
        cell_int[BONUS_TOKENS, n] = num_devices - num_rejected
        cell_int[CORRECTION_TOKENS, n] = num_rejected
        cell_int[TRUNCATED, n] = truncated
        observe(pending, full, cell, device, tape, counter, memory, n, obs_float, obs_int)
        due += needs_block(pending, counter, n)
    return due


@compiled
def needs_block(pending, counter, n):
    """1 if the next step of cell n shows a round whose block is not drawn yet, else 0."""
    last_shown = counter[n, ROUND] + 1 + pending
    return 1 if last_shown // BLOCK >= counter[n, BLOCKS] else 0


@compiled
def find_due(pending, counter, idle, due):
    """List the cells that need their next block in `due`; returns how many."""
    count = 0
    for n in range(counter.shape[0]):
        if not idle[n] and needs_block(pending, counter, n):
            due[count] = n
            count += 1
    return count
