"""The hot loops, compiled by numba. Plain loops over devices that read like the papers.

They are called by the batched functions of :mod:`~multispin_env.model.correction` and
:mod:`~multispin_env.model.upload`, and by :mod:`multispin_env.core`, which steps N cells at once
with :func:`play`. Arrays are [N, K]; functions of one cell take its row n, because numba pays for
every view it makes. All compiled code stands in this one file, because numba's cache only notices
changes of the file it compiles.

Signal-to-noise ratios are *full-band*: the ratio a device would have if it used the whole
bandwidth B. With r devices sharing the band equally, each has B/r and r times that ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np

from multispin_env.model.channel import SNR_LIMIT_DB
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
        result = numba.njit(cache=True, error_model="numpy", forceinline=True)(function)
    except RuntimeError:  # no folder to write the cache to, for example a read-only installation
        result = numba.njit(error_model="numpy", forceinline=True)(function)
    return cast("_Function", result)


# ---- correction protocol (paper B) -----------------------------------------------------------


@compiled
def optimal_level(snr, cost_w, power_w, count):
    """The largest full-band SNR that all rejected devices can have at once (Lemmas 1 and 2).

    Think of water filling. To reach the level eta, the devices whose uplink is worse, snr < eta,
    must be served on the downlink, and each costs eta * cost_w. So

        eta* = sup { eta : eta * sum of cost_w over {snr < eta} <= power_w }
             = max over m of min( snr of the (m+1)-th worst, power_w / cost of the m worst ).

    The left side grows with eta. Serving everybody down gives a level that is surely reached;
    serving only those below it gives one that is surely not passed. Between the two bounds a
    quickselect finds the crossing without sorting, in expected linear time.

    Args:
        snr, cost_w: uplink SNR at full power, and downlink power for an SNR of 1, of the rejected
            devices: the first `count` entries, in any order; overwritten.
        power_w: downlink budget.
        count: how many devices are rejected, at least 1.
    """
    everybody = 0.0
    for i in range(count):
        everybody += cost_w[i]
    reached = power_w / everybody
    cost = 0.0  # of the devices that surely go down
    for i in range(count):
        cost += cost_w[i] if snr[i] < reached else 0.0
    passed = power_w / cost if cost > 0.0 else np.inf
    high = 0
    for i in range(count):
        if reached <= snr[i] < passed:
            snr[high], cost_w[high] = snr[i], cost_w[i]
            high += 1

    low = 0
    level = 0.0  # best feasible SNR among the undecided; their first `low` entries go down
    while low < high:
        pivot = snr[(low + high) // 2]
        # Three-way partition of snr[low:high]: worse than the pivot, equal, better.
        less, i, more = low, low, high
        cost_less, cost_equal = 0.0, 0.0
        while i < more:
            here, price = snr[i], cost_w[i]
            if here < pivot:
                snr[i], cost_w[i] = snr[less], cost_w[less]
                snr[less], cost_w[less] = here, price
                cost_less += price
                less += 1
                i += 1
            elif here > pivot:
                more -= 1
                snr[i], cost_w[i] = snr[more], cost_w[more]
                snr[more], cost_w[more] = here, price
            else:
                cost_equal += price
                i += 1
        if pivot * (cost + cost_less) <= power_w:
            level = pivot
            cost += cost_less + cost_equal
            low = more
        else:
            high = less
    # Either the pivot device limits the round from the uplink, or all below it go down.
    return max(level, power_w / cost)


@compiled
def correct(
    rule, n, rejected, chosen, uplink_snr, downlink_cost_w, uplink_power_w, downlink_power_w,
    payload_bits, bandwidth_hz, mode, power_w, snr, cost_w,
):  # fmt: skip
    """Modes, powers and latency of the corrections of one round, with equal bandwidth.

    Args:
        rule: OPTIMAL, UPLINK, DOWNLINK or GIVEN.
        n: the row of all arrays [N, K] in which the round stands.
        rejected: 1 where the draft was rejected.
        chosen: 1 for downlink; read under GIVEN only.
        uplink_snr, downlink_cost_w: full-band SNR at full uplink power; downlink power that gives
            a full-band SNR of 1.
        uplink_power_w, downlink_power_w: [N, K] and the server's budget.
        mode, power_w: outputs; mode 0 is uplink, 1 downlink, -1 silent.
        snr, cost_w: [K] workspace.

    Returns:
        Seconds until the slowest correction has arrived: 0 if nothing was rejected, inf if a
        device cannot be reached.
    """
    num_devices = rejected.shape[1]
    count = 0
    for k in range(num_devices):
        snr[count] = uplink_snr[n, k]
        cost_w[count] = downlink_cost_w[n, k]
        count += 1 if rejected[n, k] else 0
    threshold = 0.0  # below it a device goes down; UPLINK: nobody is
    if rule == OPTIMAL and count > 0:
        threshold = optimal_level(snr, cost_w, downlink_power_w, count)

    level = np.inf  # of the weakest device
    cost, num_down = 0.0, 0
    for k in range(num_devices):
        mode[n, k] = -1
        power_w[n, k] = 0.0
        if not rejected[n, k]:
            continue
        if rule == GIVEN:
            down = chosen[n, k] == 1
        else:
            down = rule == DOWNLINK or uplink_snr[n, k] < threshold
        if down:
            mode[n, k] = 1
            cost += downlink_cost_w[n, k]
            num_down += 1
        else:
            mode[n, k] = 0
            power_w[n, k] = uplink_power_w[n, k]
            level = min(level, uplink_snr[n, k])
    if count == 0:
        return 0.0
    if num_down > 0:
        level = min(level, downlink_power_w / cost)
        inverse = 1.0 / cost
        for k in range(num_devices):
            if mode[n, k] == 1:  # Lemma 1: shares that equalise the delay, the whole budget used
                share = downlink_cost_w[n, k] * inverse if cost < np.inf else 1.0 / num_down
                power_w[n, k] = downlink_power_w * share
    return payload_bits * count * LN2 / (bandwidth_hz * np.log1p(level * count))


# ---- upload protocol (paper A) ---------------------------------------------------------------


@compiled
def equalised_latency(n, draft_length, token_latency_s, work_hz_s, bandwidth_hz):
    """The least time in which all devices can draft and upload (Lemma 3, A-32).

    With d_k = L_k T_k seconds of drafting and w_k = L_k Q / r_k Hz s of upload work, bandwidth
    w_k / (phi - d_k) lets device k finish at phi. The least phi is the root of

        F(phi) = sum_k w_k / (phi - d_k) = B,    phi > max d_k.

    1/F is a parallel sum of lines, hence concave and increasing: Newton's method on it, started
    below the root, rises to the root without ever passing it. The unknown is y = phi - max d,
    which keeps all digits when the upload is short.

    Args:
        n: the row of the arrays [N, K] in which the round stands.
        draft_length, token_latency_s: L and T.
        work_hz_s: w, read where the draft length is positive; inf for a dead channel.
        bandwidth_hz: B.

    Returns:
        (max d, y), so that phi is their sum; (0, 0) if nobody drafts, y = inf with a dead channel.
    """
    num_devices = draft_length.shape[1]
    longest = 0.0
    for k in range(num_devices):
        longest = max(longest, draft_length[n, k] * token_latency_s[n, k])
    y = 0.0
    for k in range(num_devices):
        if draft_length[n, k] > 0:
            slack = longest - draft_length[n, k] * token_latency_s[n, k]
            y = max(y, work_hz_s[n, k] / bandwidth_hz - slack)  # one device's need: a lower bound
    if y == 0.0 or y == np.inf:
        return longest, y
    for _ in range(100):
        total, slope = 0.0, 0.0
        for k in range(num_devices):
            if draft_length[n, k] > 0:
                inverse = 1.0 / ((longest - draft_length[n, k] * token_latency_s[n, k]) + y)
                demand = work_hz_s[n, k] * inverse
                total += demand
                slope += demand * inverse
        step = total * (total / bandwidth_hz - 1.0) / slope
        if step <= 1e-15 * y:
            break
        y += step
    return longest, y


@compiled
def upload(
    given, n, draft_length, share, token_latency_s, work_hz_s, bandwidth_hz, allocated_hz
):  # fmt: skip
    """Bandwidths and latency of drafting and uploading in one round.

    Args:
        given: 0 for the optimal allocation (Lemma 3), 1 to split the band by `share`.
        n, draft_length, token_latency_s, work_hz_s, bandwidth_hz: see :func:`equalised_latency`.
        share: nonnegative weights, normalised over the devices that draft; all zero there means
            equal. Read under `given` only.
        allocated_hz: output: bandwidth of each device, 0 where nothing is sent.

    Returns:
        Seconds (A-26): 0 if nobody drafts, inf if a device that drafts cannot finish.
    """
    num_devices = draft_length.shape[1]
    total, count = 0.0, 0
    for k in range(num_devices):
        allocated_hz[n, k] = 0.0
        if draft_length[n, k] > 0:
            count += 1
            if given:
                total += share[n, k]
    if count == 0:
        return 0.0

    if not given:
        longest, y = equalised_latency(n, draft_length, token_latency_s, work_hz_s, bandwidth_hz)
        if 0.0 < y < np.inf:
            for k in range(num_devices):
                if draft_length[n, k] > 0:
                    gap = (longest - draft_length[n, k] * token_latency_s[n, k]) + y
                    allocated_hz[n, k] = work_hz_s[n, k] / gap
            return longest + y
    # Shares, equal ones where none are given (or where no split helps: the round never ends).
    latency = 0.0
    for k in range(num_devices):
        if draft_length[n, k] > 0:
            fraction = share[n, k] / total if given and total > 0.0 else 1.0 / count
            allocated_hz[n, k] = bandwidth_hz * fraction
            drafting = draft_length[n, k] * token_latency_s[n, k]
            latency = max(latency, drafting + work_hz_s[n, k] / allocated_hz[n, k])
    return latency


# ---- batches of rounds -----------------------------------------------------------------------


@compiled
def correct_batch(
    rule, rejected, chosen, uplink_snr, downlink_cost_w, uplink_power_w, downlink_power_w,
    payload_bits, bandwidth_hz, mode, power_w, latency_s,
):  # fmt: skip
    """:func:`correct` for M independent rounds: arrays [M, K], budgets and outputs [M]."""
    snr, cost_w = np.empty(rejected.shape[1]), np.empty(rejected.shape[1])
    for m in range(rejected.shape[0]):
        latency_s[m] = correct(
            rule, m, rejected, chosen, uplink_snr, downlink_cost_w, uplink_power_w,
            downlink_power_w[m], payload_bits[m], bandwidth_hz[m], mode, power_w, snr, cost_w,
        )  # fmt: skip


@compiled
def upload_batch(
    given, draft_length, share, token_latency_s, work_hz_s, bandwidth_hz, allocated_hz, latency_s
):
    """:func:`upload` for M independent rounds: arrays [M, K], bandwidth and latency [M]."""
    for m in range(draft_length.shape[0]):
        latency_s[m] = upload(
            given, m, draft_length, share, token_latency_s, work_hz_s, bandwidth_hz[m], allocated_hz
        )


@compiled
def mean_correction_latency(
    rule, run_length, coins, draft_length, uplink_snr, downlink_cost_w, uplink_power_w,
    downlink_power_w, payload_bits, bandwidth_hz,
):  # fmt: skip
    """Sample average of the correction latency of one draft decision (paper B, section V-B).

    Args:
        run_length, coins: [S, K] samples of the run lengths, and of the modes (under GIVEN).
        draft_length: [1, K] the decision.
        rule, uplink_snr, ...: as in :func:`correct`, arrays [1, K].
    """
    num_samples, num_devices = run_length.shape
    rejected = np.empty((1, num_devices), np.int64)
    chosen = np.empty((1, num_devices), np.int64)
    mode = np.empty((1, num_devices), np.int64)
    power_w = np.empty((1, num_devices))
    snr, cost_w = np.empty(num_devices), np.empty(num_devices)
    total = 0.0
    for s in range(num_samples):
        for k in range(num_devices):
            rejected[0, k] = 1 if run_length[s, k] < draft_length[0, k] else 0
            chosen[0, k] = coins[s, k]
        total += correct(
            rule, 0, rejected, chosen, uplink_snr, downlink_cost_w, uplink_power_w,
            downlink_power_w, payload_bits, bandwidth_hz, mode, power_w, snr, cost_w,
        )  # fmt: skip
    return total / num_samples


# ---- one step of N cells ---------------------------------------------------------------------

BLOCK: Final = 16  # rounds drawn at a time

# Columns of `cell` [N, ...]: constants of each cell.
BANDWIDTH_HZ, PAYLOAD_BITS, DOWNLINK_POWER_W, VERIFICATION_S, HORIZON_S, MAX_ROUNDS, FADES = range(
    7
)
# Rows of `device` [..., N, K]: constants of each device, most of them drawn at reset. UNIT_SNR is
# the full-band uplink SNR of a unit gain, MEAN_SNR_DB that of the mean gain.
(
    ACCEPTANCE_RATE,
    MEAN_RUN,
    TOKEN_LATENCY_S,
    MEAN_GAIN,
    UPLINK_POWER_W,
    UNIT_SNR,
    NOISE_DEVICE_W,
    MEAN_SNR_DB,
) = range(8)
# Rows of a block of `tape` [N, 2, ..., BLOCK, K]: the exponential variates behind the fading and
# the run lengths, and the fading once more in decibels.
FADING, RUN, FADING_DB = range(3)
# Columns of `counter` [N, ...].
ROUND, EPISODE_TOKENS, BLOCKS = range(3)
# Rows of `memory` [..., N, K]: the drafts waiting to be corrected, and the acceptance feedback.
PENDING_DRAFT, ACCEPTED_COUNT, REJECTION_COUNT, LAST_ACCEPTED, LAST_REJECTED = range(5)
# Rows of the outputs: per cell [..., N] and per device [..., N, K].
LATENCY_S, DRAFTING_S, VERIFYING_S, COMMUNICATION_S, TIME_S, GOODPUT = range(6)
ROUND_INDEX, TOKENS, EMITTED, BONUS_TOKENS, CORRECTION_TOKENS, TRUNCATED = range(6)
DRAFTED, ACCEPTED, REJECTED, MODE = range(4)
POWER_W, ALLOCATED_HZ = range(2)


@compiled
def gain_of(tape, mean_gain, fades, n, r, k):
    """Channel gain of device k in round r: mean gain times |h|^2 ~ Exp(1) (or 1, no fading)."""
    fading = tape[n, (r // BLOCK) % 2, FADING, r % BLOCK, k] if fades else 1.0
    return mean_gain[n, k] * fading


@compiled
def snr_db_of(tape, mean_snr_db, fades, n, r, k):
    """:func:`multispin_env.model.channel.snr_db` of device k in round r.

    A sum of logarithms: the device's, taken at reset, and the fading's, taken when the block was
    drawn. A logarithm a step would cost more than all other physics.
    """
    fading_db = tape[n, (r // BLOCK) % 2, FADING_DB, r % BLOCK, k] if fades else 0.0
    return min(max(mean_snr_db[n, k] + fading_db, -SNR_LIMIT_DB), SNR_LIMIT_DB)


@compiled
def accepted_of(tape, mean_run, n, r, k, draft_length):
    """Accepted tokens of device k in round r: min(G, gamma).

    :func:`multispin_env.model.acceptance.run_length` derives the run length G.
    """
    run = tape[n, (r // BLOCK) % 2, RUN, r % BLOCK, k] * mean_run[n, k]
    return np.int64(run) if run < draft_length else draft_length


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
    num_devices = device.shape[2]
    for k in range(num_devices):
        obs_float[0, n, k] = snr_db_of(tape, device[MEAN_SNR_DB], fades, n, r, k)
        obs_float[1, n, k] = device[TOKEN_LATENCY_S, n, k]
    row = 2
    if pending:
        for k in range(num_devices):
            obs_float[row, n, k] = snr_db_of(tape, device[MEAN_SNR_DB], fades, n, r + 1, k)
        row += 1
    if full:
        for k in range(num_devices):
            obs_float[row, n, k] = device[ACCEPTANCE_RATE, n, k]

    row = 0
    if pending:
        for k in range(num_devices):
            length = memory[PENDING_DRAFT, n, k]
            accepted = accepted_of(tape, device[MEAN_RUN], n, r, k, length)
            obs_int[0, n, k] = length
            obs_int[1, n, k] = 1 if accepted < length else 0
            if not full:
                obs_int[4, n, k] = accepted
        row = 2
    if not full:
        for k in range(num_devices):
            obs_int[row, n, k] = memory[ACCEPTED_COUNT, n, k]
            obs_int[row + 1, n, k] = memory[REJECTION_COUNT, n, k]
            if not pending:
                obs_int[row + 2, n, k] = memory[LAST_ACCEPTED, n, k]
                obs_int[row + 3, n, k] = memory[LAST_REJECTED, n, k]


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
def verify(fades, device, tape, n, r, draft, gains, uplink_snr, drafted, accepted, rejected):
    """Draft and verify round r of cell n.

    Args:
        fades, device, tape: see :func:`play`.
        draft: [N, K] lengths.
        gains, uplink_snr, drafted, accepted, rejected: [N, K] outputs.

    Returns:
        Drafting latency [s], number of accepted tokens, number of rejected drafts.
    """
    mean_gain, unit_snr, mean_run = device[MEAN_GAIN], device[UNIT_SNR], device[MEAN_RUN]
    drafting_s, num_accepted, num_rejected = 0.0, 0, 0
    for k in range(draft.shape[1]):
        gain = gain_of(tape, mean_gain, fades, n, r, k)
        length = draft[n, k]
        kept = accepted_of(tape, mean_run, n, r, k, length)
        gains[n, k] = gain
        uplink_snr[n, k] = unit_snr[n, k] * gain
        drafted[n, k] = length
        accepted[n, k] = kept
        rejected[n, k] = 1 if kept < length else 0
        num_accepted += kept
        num_rejected += 1 if kept < length else 0
        drafting_s = max(drafting_s, length * device[TOKEN_LATENCY_S, n, k])
    return drafting_s, num_accepted, num_rejected


@compiled
def prepare_corrections(n, num_rejected, bandwidth_hz, noise_w, gains, rejected, cost_w, band_hz):
    """Downlink costs, and the equal split of the band, of cell n: arrays [N, K]."""
    each_hz = bandwidth_hz / num_rejected if num_rejected > 0 else 0.0
    for k in range(gains.shape[1]):
        cost_w[n, k] = noise_w[n, k] / gains[n, k]
        band_hz[n, k] = each_hz * rejected[n, k]


@compiled
def prepare_uploads(n, token_bits, uplink_power_w, uplink_snr, drafted, work_hz_s, mode, power_w):
    """Upload work, modes and powers of cell n: arrays [N, K]."""
    for k in range(drafted.shape[1]):
        sends = drafted[n, k] > 0
        efficiency = np.log1p(uplink_snr[n, k]) / LN2
        work_hz_s[n, k] = drafted[n, k] * token_bits / efficiency if sends else 0.0
        mode[n, k] = 0 if sends else -1
        power_w[n, k] = uplink_power_w[n, k] if sends else 0.0


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
        tape, coins: [N, 2, 3, BLOCK, K] two consecutive blocks (row names above), and
            [N, 2, BLOCK, K] coins.
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
    # Views of whole arrays are taken here, once: one a cell would cost more than the physics.
    power_w, band_hz = device_float[POWER_W], device_float[ALLOCATED_HZ]
    drafted, accepted = device_int[DRAFTED], device_int[ACCEPTED]
    rejected, mode = device_int[REJECTED], device_int[MODE]
    token_latency_s, uplink_power_w = device[TOKEN_LATENCY_S], device[UPLINK_POWER_W]
    lengths = memory[PENDING_DRAFT] if pending else draft
    shape = (num_cells, num_devices)
    gains, uplink_snr, cost_or_work = np.empty(shape), np.empty(shape), np.empty(shape)
    modes = np.empty_like(chosen) if tossed else chosen
    snr, cost_w = np.empty(num_devices), np.empty(num_devices)
    due = 0
    for n in range(num_cells):
        if idle[n]:
            cell_float[:, n] = 0.0
            cell_int[:, n] = 0
            device_float[:, n] = 0.0
            device_int[:, n] = 0
            continue
        r = counter[n, ROUND]
        bandwidth_hz, payload_bits = cell[n, BANDWIDTH_HZ], cell[n, PAYLOAD_BITS]
        drafting_s, num_accepted, num_rejected = verify(
            cell[n, FADES], device, tape, n, r, lengths, gains, uplink_snr, drafted, accepted,
            rejected,
        )  # fmt: skip
        if uploads:
            prepare_uploads(
                n, payload_bits, uplink_power_w, uplink_snr, drafted, cost_or_work, mode, power_w
            )
            ready_s = upload(
                share.shape[1], n, drafted, share, token_latency_s, cost_or_work, bandwidth_hz,
                band_hz,
            )  # fmt: skip
            communication_s = ready_s - drafting_s  # what uploads add to the longest drafting
        else:
            prepare_corrections(
                n, num_rejected, bandwidth_hz, device[NOISE_DEVICE_W], gains, rejected,
                cost_or_work, band_hz,
            )  # fmt: skip
            if tossed:
                modes[n] = coins[n, (r // BLOCK) % 2, r % BLOCK]
            communication_s = correct(
                rule, n, rejected, modes, uplink_snr, cost_or_work, uplink_power_w,
                cell[n, DOWNLINK_POWER_W], payload_bits, bandwidth_hz, mode, power_w, snr, cost_w,
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
                memory[ACCEPTED_COUNT, n, k] += accepted[n, k]
                memory[REJECTION_COUNT, n, k] += rejected[n, k]
                memory[LAST_ACCEPTED, n, k] = accepted[n, k]
                memory[LAST_REJECTED, n, k] = rejected[n, k]
        if pending:
            for k in range(num_devices):
                memory[PENDING_DRAFT, n, k] = draft[n, k]
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
