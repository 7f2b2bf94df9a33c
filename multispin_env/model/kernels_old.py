"""The hot loops, compiled by numba. Plain loops over rounds and devices that read like the papers.

The physics are functions of one round: of arrays [K], or of cell `n` of arrays [..., N, K]. Loops
over N rounds are :func:`correct_all` and :func:`upload_all` for the batched functions of
:mod:`~multispin_env.model.correction` and :mod:`~multispin_env.model.upload`, and :func:`play` for
:mod:`multispin_env.world.core`, which steps N cells at once. Outputs are arguments that are written in
place; `scratch` is memory to overwrite. Many short loops over few arrays are faster than one over
many, and selections faster than branches: LLVM vectorises them.

All compiled code stands in this one file, because numba's cache only notices changes of the file
it compiles.

Signal-to-noise ratios are *full-band*: the ratio a device would have if it used the whole
bandwidth B. With r devices sharing the band equally, each has B/r and r times that ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np

# Rules that choose the mode of each rejected device.
OPTIMAL: Final = 0  # Lemma 2
UPLINK: Final = 1  # every device uploads its draft distribution
DOWNLINK: Final = 2  # the server sends every target distribution
GIVEN: Final = 3  # the caller gives the modes (an agent's action, or random coins)

LN2: Final = float(np.log(2.0))
DB_PER_NEPER: Final = float(10.0 / np.log(10.0))  # of power; the natural logarithm is faster
ROOT_HALF_BITS: Final = int(np.sqrt(0.5).view(np.int64))

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compile(function: _Function, **options: Any) -> _Function:
    """Compile with numba, cached on disk; division by zero gives inf, as in numpy."""
    try:
        result = numba.njit(cache=True, error_model="numpy", **options)(function)
    except (RuntimeError, OSError):  # no folder to write the cache to
        result = numba.njit(error_model="numpy", **options)(function)
    return cast("_Function", result)


def compiled(function: _Function) -> _Function:
    """Compile a function."""
    return _compile(function)


def lean(function: _Function) -> _Function:
    """Compile a function that allocates nothing: inlined into its callers, no reference counts.

    Passing many arrays, and counting references to them, takes longer than the physics of a cell.
    Numba compiles no allocation, and no array as a result, under these options.
    """
    return _compile(function, forceinline=True, _nrt=False)


def machine_code(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """What a compiled function runs for arguments of these types.

    Called directly, it saves numba's look at the types of all arguments in every call. Nothing is
    checked then: arguments of another dtype, layout or number corrupt memory.
    """
    compile_for = getattr(function, "compile", None)
    if compile_for is None:  # plain Python: NUMBA_DISABLE_JIT is set, or a profiler wraps it
        return function
    return cast("Callable[..., Any]", compile_for(tuple(map(numba.typeof, arguments))))


# ---- logarithms -------------------------------------------------------------------------------


@lean
def natural_log(x):
    """The natural logarithm of a normal number, to a unit in the last place (fdlibm's method).

    x = 2^e (1 + f) with 1 + f between the roots of 1/2 and 2, and ln(1 + f) = 2 artanh(s) with
    s = f / (2 + f), whose series is fitted. Written out because LLVM vectorises loops over it, but
    none that calls the C library.
    """
    bits = np.float64(x).view(np.int64)
    exponent = (bits - ROOT_HALF_BITS) >> 52
    f = np.int64(bits - (exponent << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    high = 0.1818357216161805 + z * (0.15313837699209373 + z * 0.14798198605116586)
    low = 0.3999999999940942 + z * (0.2857142874366239 + z * (0.2222219843214978 + z * high))
    return exponent * LN2 + (f - s * (f - z * (0.6666666666666735 + z * low)))


@lean
def natural_log1p(x):
    """ln(1 + x) of x >= 0, to two units in the last place; beyond 1e300 as at 1e300."""
    x = min(x, 1e300)
    u = 1.0 + x
    return natural_log(u) - ((u - 1.0) - x) / u  # what rounding u has lost, to first order


# ---- correction protocol (paper B) -----------------------------------------------------------


@lean
def optimal_level(rejected, uplink_snr, downlink_cost_w, downlink_power_w, scratch):
    """The largest full-band SNR that all rejected devices can have at once (Lemmas 1 and 2).

    Think of water filling. To reach the level eta, the devices whose uplink is worse, snr < eta,
    must be served on the downlink, and each costs eta * cost. So

        eta* = sup { eta : eta * sum of cost over {snr < eta} <= power }
             = max over m of min( snr of the (m+1)-th worst, power / cost of the m worst ).

    The left side grows with eta. Serving everybody down, or nobody, gives a level that is surely
    reached. More than that needs those at or below it served down, which gives a level that is
    surely not passed. Among the devices between the two bounds a quickselect finds the crossing
    without sorting, in expected linear time.

    Args:
        rejected: [K] 1 where the draft was rejected.
        uplink_snr: [K] at full uplink power.
        downlink_cost_w: [K] downlink power that gives a full-band SNR of 1.
        downlink_power_w: the server's budget.
        scratch: [4, K] overwritten.

    Returns:
        The level; undefined where nothing was rejected.
    """
    num_devices = rejected.shape[0]
    all_snr, all_cost, snr, cost = scratch[0], scratch[1], scratch[2], scratch[3]
    for k in range(num_devices):  # an accepted draft is never worst, and costs nothing
        all_snr[k] = uplink_snr[k] if rejected[k] else np.inf
    for k in range(num_devices):
        all_cost[k] = downlink_cost_w[k] if rejected[k] else 0.0
    everybody, worst = 0.0, np.inf
    for k in range(num_devices):
        everybody += all_cost[k]
        worst = min(worst, all_snr[k])
    reached = max(worst, downlink_power_w / everybody)
    spent = 0.0  # on the devices that go down to pass what is reached
    for k in range(num_devices):
        spent += all_cost[k] if all_snr[k] <= reached else 0.0
    passed = downlink_power_w / spent
    high = 0  # how many are undecided: few, mostly
    for k in range(num_devices):
        if reached < all_snr[k] < passed:
            snr[high], cost[high] = all_snr[k], all_cost[k]
            high += 1

    low, best = 0, reached  # entries before `low` go down; the best feasible SNR so far
    while low < high:
        pivot = snr[(low + high) // 2]
        # Three-way partition of snr[low:high]: worse than the pivot, equal, better.
        less, i, more = low, low, high
        cost_less, cost_equal = 0.0, 0.0
        while i < more:
            here, price = snr[i], cost[i]
            if here < pivot:
                snr[i], cost[i] = snr[less], cost[less]
                snr[less], cost[less] = here, price
                cost_less += price
                less += 1
                i += 1
            elif here > pivot:
                more -= 1
                snr[i], cost[i] = snr[more], cost[more]
                snr[more], cost[more] = here, price
            else:
                cost_equal += price
                i += 1
        if pivot * (spent + cost_less) <= downlink_power_w:
            best = pivot
            spent += cost_less + cost_equal
            low = more
        else:
            high = less
    # Either the pivot device limits the round from the uplink, or all below it go down. At a
    # tie of the two, rounding must not send the pivot down as well: hence the margin.
    return max(best, downlink_power_w / spent) * (1.0 - 1e-12)


@lean
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
    scratch,
):
    """Modes, powers and latency of the corrections of a round, with equal bandwidth.

    Args:
        rule: OPTIMAL, UPLINK, DOWNLINK or GIVEN.
        rejected: [K] 1 where the draft was rejected.
        chosen: [K] 1 for downlink; read under GIVEN only.
        uplink_snr, downlink_cost_w: [K] see :func:`optimal_level`.
        uplink_power_w, downlink_power_w: [K] and the server's budget.
        payload_bits, bandwidth_hz: numbers.
        mode, power_w: [K] outputs; mode 0 is uplink, 1 downlink, -1 silent.
        scratch: [4, K] overwritten.

    Returns:
        Seconds until the slowest correction has arrived; 0 if nothing was rejected, inf if a
        device cannot be reached.
    """
    num_devices = rejected.shape[0]
    up_snr, down_cost = scratch[0], scratch[1]
    if rule == GIVEN:
        for k in range(num_devices):
            mode[k] = (1 if chosen[k] == 1 else 0) if rejected[k] == 1 else -1
    else:
        least = np.inf if rule == DOWNLINK else -1.0  # who does not reach more goes down
        if rule == OPTIMAL:
            least = optimal_level(rejected, uplink_snr, downlink_cost_w, downlink_power_w, scratch)
        for k in range(num_devices):
            down = uplink_snr[k] <= least
            mode[k] = (1 if down else 0) if rejected[k] == 1 else -1
    for k in range(num_devices):
        up_snr[k] = uplink_snr[k] if mode[k] == 0 else np.inf
    for k in range(num_devices):
        down_cost[k] = downlink_cost_w[k] if mode[k] == 1 else 0.0
    count, num_down = 0, 0
    for k in range(num_devices):
        count += rejected[k]
        num_down += 1 if mode[k] == 1 else 0
    level, cost = np.inf, 0.0  # level: of the weakest device
    for k in range(num_devices):
        level = min(level, up_snr[k])
        cost += down_cost[k]
    inverse = 0.0
    if num_down > 0:  # Lemma 1: shares that equalise the delay, all the budget
        level = min(level, downlink_power_w / cost)
        inverse = 1.0 / cost
    if cost == np.inf:  # out of reach, however the budget is shared: equally
        inverse = 1.0 / num_down
        for k in range(num_devices):
            down_cost[k] = 1.0 if mode[k] == 1 else 0.0
    for k in range(num_devices):
        down_w = downlink_power_w * (down_cost[k] * inverse)
        power_w[k] = uplink_power_w[k] if mode[k] == 0 else down_w
    if count == 0:
        return 0.0
    rate = bandwidth_hz / count * np.log1p(level * count) / LN2
    return payload_bits / rate


@lean
def correct_all(
    rule, rejected, chosen, uplink_snr, downlink_cost_w, uplink_power_w, downlink_power_w,
    payload_bits, bandwidth_hz, mode, power_w, latency_s, scratch,
):  # fmt: skip
    """:func:`correct` for N rounds: arrays [N, K] or [N], latencies as an output too."""
    for n in range(rejected.shape[0]):
        latency_s[n] = correct(
            rule, rejected[n], chosen[n], uplink_snr[n], downlink_cost_w[n], uplink_power_w[n],
            downlink_power_w[n], payload_bits[n], bandwidth_hz[n], mode[n], power_w[n], scratch,
        )  # fmt: skip


# ---- upload protocol (paper A) ---------------------------------------------------------------


@lean
def upload(
    given, draft_length, share, token_latency_s, work_hz_s, bandwidth_hz, allocated_hz, scratch,
):  # fmt: skip
    """Bandwidths and latency of drafting and uploading in a round (Lemma 3, A-31, A-32).

    With d_k = L_k T_k seconds of drafting and w_k = L_k Q / r_k Hz s of upload work, bandwidth
    w_k / (phi - d_k) lets device k finish at phi. The least phi is the root of

        F(phi) = sum_k w_k / (phi - d_k) = B,    phi > max d_k.

    1/F is a parallel sum of lines, hence concave and increasing: Newton's method on it, started
    below the root, rises to the root without ever passing it. The unknown is y = phi - max d,
    which keeps all digits when the upload is short. Below the root are w_k / B - s_k for every
    device, with s_k = max d - d_k, and sum w / B - sum w s / sum w (Jensen's inequality).

    Args:
        given: false for this optimal allocation, true to split the band by `share`.
        draft_length, token_latency_s: [K] L and T.
        share: [K] nonnegative weights, normalised over the devices that draft; all zero there
            means equal. Read under `given` only.
        work_hz_s: [K] w, 0 where nothing is drafted; inf for a dead channel.
        bandwidth_hz: B.
        allocated_hz: [K] output: bandwidth of each device, 0 where nothing is sent.
        scratch: [4, K] overwritten.

    Returns:
        Latency (A-26) [s]: 0 if nobody drafts, inf if a device that drafts cannot finish.
    """
    num_devices = draft_length.shape[0]
    drafting, slack, part, curve = scratch[0], scratch[1], scratch[2], scratch[3]
    for k in range(num_devices):
        drafting[k] = draft_length[k] * token_latency_s[k]
    longest, count = 0.0, 0
    for k in range(num_devices):
        longest = max(longest, drafting[k])
        count += 1 if draft_length[k] > 0 else 0
    if not given:
        y, work, weighted = 0.0, 0.0, 0.0
        for k in range(num_devices):
            slack[k] = longest - drafting[k]
        for k in range(num_devices):  # who does not draft has no work, so adds nothing below
            y = max(y, work_hz_s[k] / bandwidth_hz - slack[k])
            work += work_hz_s[k]
            weighted += work_hz_s[k] * slack[k]
        if 0.0 < y < np.inf:
            y = max(y, work / bandwidth_hz - weighted / work)
            for _ in range(100):
                for k in range(num_devices):
                    inverse = 1.0 / (slack[k] + y)
                    part[k] = work_hz_s[k] * inverse
                    curve[k] = part[k] * inverse
                demand, slope = 0.0, 0.0
                for k in range(num_devices):
                    demand += part[k]
                    slope += curve[k]
                step = demand * (demand / bandwidth_hz - 1.0) / slope
                if step <= 1e-15 * y:
                    break
                y += step
            for k in range(num_devices):
                allocated_hz[k] = work_hz_s[k] / (slack[k] + y)
            return longest + y
    # Shares; equal ones where none are given (or where no split helps: it never ends).
    total = 0.0
    if given:
        for k in range(num_devices):
            total += share[k] if draft_length[k] > 0 else 0.0
    for k in range(num_devices):
        fraction = share[k] / total if total > 0.0 else 1.0 / count
        allocated_hz[k] = bandwidth_hz * fraction if draft_length[k] > 0 else 0.0
    latest = 0.0
    for k in range(num_devices):
        end_s = drafting[k] + work_hz_s[k] / allocated_hz[k]
        latest = max(latest, end_s if draft_length[k] > 0 else 0.0)
    return latest


@lean
def upload_all(
    given, draft_length, share, token_latency_s, work_hz_s, bandwidth_hz, allocated_hz, latency_s,
    scratch,
):  # fmt: skip
    """:func:`upload` for N rounds: arrays [N, K] or [N], latencies as an output too."""
    for n in range(draft_length.shape[0]):
        latency_s[n] = upload(
            given, draft_length[n], share[n], token_latency_s[n], work_hz_s[n], bandwidth_hz[n],
            allocated_hz[n], scratch,
        )  # fmt: skip


# ---- solvers: upload protocol ------------------------------------------------------------------


@compiled
def fill_band(phi, alpha, token_s, work, band, low, high, lengths):
    """The best lengths for a given phi, and a bound on the tokens of any lengths.

    Adds the token with the best ratio of gain, alpha^(L+1), to additional bandwidth until the band
    is full; see :func:`multispin_env.solvers.uploads.exact`.

    Args:
        phi: time for drafting and uploading [s].
        alpha, token_s, work: [K] acceptance rates, drafting time and upload work Q / r a token.
        band, low, high: bandwidth, least and largest length.
        lengths: [K] output.

    Returns:
        Expected tokens of the relaxed problem, an upper bound; -1 if the least lengths do not fit.
    """
    num_devices = alpha.shape[0]
    used, tokens = 0.0, 0.0
    gain, need = np.empty(num_devices), np.empty(num_devices)  # of each device's next token
    for k in range(num_devices):
        lengths[k] = low
        if low > 0:
            room = phi - low * token_s[k]
            if room <= 0.0 or work[k] == np.inf:
                return -1.0
            used += low * work[k] / room
        gain[k] = 1.0  # alpha^0, the token that every device emits
        for _ in range(low):
            tokens += gain[k]
            gain[k] *= alpha[k]
        tokens += gain[k]
        gain[k] *= alpha[k]
        need[k] = more_band(phi, token_s[k], work[k], low, high)
    if used > band:
        return -1.0
    while True:
        best, best_ratio = -1, 0.0
        for k in range(num_devices):
            if need[k] < np.inf and gain[k] > best_ratio * need[k]:
                best, best_ratio = k, gain[k] / need[k]
        if best < 0:
            return tokens
        if used + need[best] > band:
            return tokens + gain[best] * (band - used) / need[best]
        used += need[best]
        tokens += gain[best]
        gain[best] *= alpha[best]
        lengths[best] += 1
        need[best] = more_band(phi, token_s[best], work[best], lengths[best], high)


@compiled
def more_band(phi, token_s, work, length, high):
    """Bandwidth that one more token needs; inf if there is no time or no length for it."""
    room = phi - (length + 1) * token_s
    if length >= high or room <= 0.0 or work == np.inf:
        return np.inf
    return (length + 1) * work / room - (length * work / (room + token_s) if length > 0 else 0.0)


@compiled
def upload_goodput(lengths, alpha, token_s, work, band, verification_s):
    """Expected goodput of lengths [K] under Lemma 3."""
    num_devices = alpha.shape[0]
    total_work, allocated = np.zeros(num_devices), np.empty(num_devices)
    tokens = 0.0
    for k in range(num_devices):
        if lengths[k] > 0:
            total_work[k] = lengths[k] * work[k]
        term = 1.0
        for _ in range(lengths[k] + 1):
            tokens += term
            term *= alpha[k]
    scratch = np.empty((4, num_devices))
    latency_s = upload(False, lengths, total_work, token_s, total_work, band, allocated, scratch)
    return tokens / (latency_s + verification_s)


@compiled
def exact_lengths(alpha, token_s, work, band, verification_s, low, high, num_deadlines):
    """The optimal lengths of one upload round, and an upper bound on any goodput.

    See :func:`multispin_env.solvers.uploads.exact`.

    Returns:
        Lengths [K] and the bound [tokens/s].
    """
    num_devices = alpha.shape[0]
    best = np.full(num_devices, low, np.int64)
    value = upload_goodput(best, alpha, token_s, work, band, verification_s)
    trial = np.empty(num_devices, np.int64)

    # The range of phi in which anything can be optimal: from one token of the quickest device (or
    # the least lengths of all) to the longest drafts of all.
    first, last = np.inf, 0.0
    for k in range(num_devices):
        if work[k] < np.inf:
            alone = token_s[k] + work[k] / band
            first = min(first, alone)
            last = max(last, high * (token_s[k] + num_devices * work[k] / band))
    if last == 0.0 or high == 0:
        return best, value

    phis = np.empty(num_deadlines)
    bounds = np.empty(num_deadlines)
    step = (last / first) ** (1.0 / (num_deadlines - 1))
    for i in range(num_deadlines):
        phis[i] = first * step**i if i < num_deadlines - 1 else last
        bounds[i] = fill_band(phis[i], alpha, token_s, work, band, low, high, trial)
        if bounds[i] > 0.0:
            goodput = upload_goodput(trial, alpha, token_s, work, band, verification_s)
            if goodput > value:
                value = goodput
                best[:] = trial

    improved = True
    while improved:
        improved = False
        for i in range(num_devices):
            for j in range(-1, num_devices):
                for sign in (-1, 1):
                    # j = -1: length i changes by one; otherwise one token moves from j to i.
                    if j == i or (j >= 0 and sign < 0):
                        continue
                    trial[:] = best
                    trial[i] += sign
                    if j >= 0:
                        trial[j] -= 1
                        if trial[j] < low:
                            continue
                    if trial[i] < low or trial[i] > high:
                        continue
                    goodput = upload_goodput(trial, alpha, token_s, work, band, verification_s)
                    if goodput > value * (1.0 + 1e-13):
                        value = goodput
                        best[:] = trial
                        improved = True

    # Nothing is drafted before `first`; between two deadlines the later one's tokens bound all.
    bound = value
    if low == 0:
        bound = max(bound, num_devices / verification_s)
    for i in range(num_deadlines - 1):
        bound = max(
            bound,
            bound_between(
                phis[i], phis[i + 1], bounds[i + 1], value, alpha, token_s, work, band,
                verification_s, low, high, trial,
            ),
        )  # fmt: skip
    return best, bound


@compiled
def bound_between(
    phi_1, phi_2, tokens_2, value, alpha, token_s, work, band, verification_s, low, high, lengths
):
    """A bound on the goodput of all rounds with phi in [phi_1, phi_2], halved until it is tight."""
    left, right = np.empty(64), np.empty(64)
    tokens = np.empty(64)
    left[0], right[0], tokens[0] = phi_1, phi_2, tokens_2
    depth, bound = 1, 0.0
    while depth > 0:
        depth -= 1
        a, b, most = left[depth], right[depth], tokens[depth]
        here = most / (a + verification_s)
        if here <= value * (1.0 + 2e-5) or b - a <= 1e-5 * b or depth > 61:
            bound = max(bound, here)
            continue
        middle = 0.5 * (a + b)
        left[depth], right[depth], tokens[depth] = middle, b, most
        depth += 1
        left[depth], right[depth] = a, middle
        tokens[depth] = fill_band(middle, alpha, token_s, work, band, low, high, lengths)
        depth += 1
    return bound


# ---- one step of N cells ---------------------------------------------------------------------

BLOCK: Final = 16  # rounds drawn at a time

# Entries of `kind`: whether drafts are uploaded, the correction rule, whether coins give the modes,
# whether the round that is closed was drafted a step earlier, whether acceptance rates are
# observed, and the longest draft.
UPLOADS, RULE, TOSSED, PENDING, FULL, MAX_DRAFT_LENGTH = range(6)
# Rows of `cell` [..., N]: constants of each cell.
BANDWIDTH_HZ, PAYLOAD_BITS, DOWNLINK_POWER_W, VERIFICATION_S, FADES = range(5)
HORIZON_S, MAX_ROUNDS, LONGEST_ROUND_S = range(5, 8)
# Rows of `device` [..., N, K]: constants of each device, most of them drawn at reset. UNIT_SNR is
# the full-band uplink SNR of a unit gain.
(
    ACCEPTANCE_RATE,
    MEAN_RUN,
    TOKEN_LATENCY_S,
    MEAN_GAIN,
    UPLINK_POWER_W,
    UNIT_SNR,
    NOISE_DEVICE_W,
) = range(7)
# Rows of a round of `tape` [N, 2, BLOCK, ..., K]: the variates behind fading and run lengths.
FADING, RUN = range(2)
# Columns of `counter` [N, ...].
ROUND, EPISODE_TOKENS = range(2)
# Rows of `memory` [..., N, K]: the drafts waiting to be corrected, and the acceptance feedback.
PENDING_DRAFT, ACCEPTED_COUNT, REJECTION_COUNT, LAST_ACCEPTED, LAST_REJECTED = range(5)
# Rows of the outputs: per cell [..., N] and per device [..., N, K].
LATENCY_S, DRAFTING_S, VERIFYING_S, COMMUNICATION_S, TIME_S, GOODPUT = range(6)
ROUND_INDEX, TOKENS, EMITTED, BONUS_TOKENS, CORRECTION_TOKENS, TRUNCATED = range(6)
DRAFTED, ACCEPTED, REJECTED, MODE = range(4)
OBSERVED: Final = 4  # first of the rows behind MODE: what is observed in integers
POWER_W, ALLOCATED_HZ = range(2)


@lean
def find_invalid(kind, draft, chosen, share, idle):
    """Index of the first bad entry of a decision, -1 if it is sound.

    The index counts through [draft, chosen, share] of cell 0, then of cell 1, ...
    """
    num_cells, num_devices = draft.shape
    given = kind[RULE] == GIVEN and not kind[TOSSED]
    max_draft_length = kind[MAX_DRAFT_LENGTH]
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


@lean
def place_of(round_index):
    """Where a round stands in `tape`: which of the two blocks, and which row there."""
    return (round_index // BLOCK) % 2, round_index % BLOCK


@lean
def read_channel(n, cell, device, fading, gain, uplink_snr):
    """Channel gains of a round, mean gain times |h|^2 ~ Exp(1), and full-band uplink SNRs, [K]."""
    mean_gain, unit_snr = device[MEAN_GAIN, n], device[UNIT_SNR, n]
    fades = cell[FADES, n] > 0.0
    for k in range(gain.shape[0]):
        gain[k] = mean_gain[k] * (fading[k] if fades else 1.0)
    for k in range(gain.shape[0]):
        uplink_snr[k] = unit_snr[k] * gain[k]


@lean
def read_runs(n, device, exponential, run):
    """Run lengths of a round before they are rounded down, [K]: E / -ln alpha with E ~ Exp(1).

    See :func:`multispin_env.model.acceptance.run_length`.
    """
    mean_run = device[MEAN_RUN, n]
    for k in range(run.shape[0]):
        run[k] = exponential[k] * mean_run[k]


@lean
def show_snr(n, cell, device, fading, snr_db, scratch):
    """The full-band uplink SNRs of a round, [K] in dB.

    As :func:`multispin_env.model.channel.snr_db` has them. `scratch` [4, K] is overwritten.
    """
    gain, snr = scratch[0], scratch[1]
    read_channel(n, cell, device, fading, gain, snr)
    for k in range(snr.shape[0]):
        snr[k] = min(max(snr[k], 1e-30), 1e30)
    for k in range(snr.shape[0]):
        snr_db[k] = DB_PER_NEPER * natural_log(snr[k])


@lean
def observe_cell(
    n, pending, full, cell, device, tape, counter, memory, obs_float, obs_int, scratch
):
    """Write what is observed of the round that comes next (or is pending) in cell n.

    Row order, shared with :mod:`multispin_env.envs.spaces`. Floats: snr_db, token_latency_s, then
    next_snr_db if `pending`, then acceptance_rate if `full`. Integers: draft_length and rejected
    if `pending`; without `full` then accepted_count, rejection_count, accepted, and rejected
    where it is not there yet.
    """
    num_devices = obs_float.shape[2]
    r = counter[n, ROUND]
    slot, row = place_of(r)
    variates = tape[n, slot, row]
    show_snr(n, cell, device, variates[FADING], obs_float[0, n], scratch)
    for k in range(num_devices):
        obs_float[1, n, k] = device[TOKEN_LATENCY_S, n, k]
    if full:
        for k in range(num_devices):
            obs_float[2 + pending, n, k] = device[ACCEPTANCE_RATE, n, k]
    if pending:
        slot, row = place_of(r + 1)
        show_snr(n, cell, device, tape[n, slot, row, FADING], obs_float[2, n], scratch)
        run = scratch[0]
        read_runs(n, device, variates[RUN], run)
        for k in range(num_devices):
            obs_int[0, n, k] = memory[PENDING_DRAFT, n, k]
        for k in range(num_devices):
            obs_int[1, n, k] = 1 if run[k] < memory[PENDING_DRAFT, n, k] else 0
        if not full:
            for k in range(num_devices):
                length = memory[PENDING_DRAFT, n, k]
                obs_int[4, n, k] = np.int64(run[k]) if run[k] < length else length
    if not full:
        for k in range(num_devices):
            obs_int[2 * pending, n, k] = memory[ACCEPTED_COUNT, n, k]
            obs_int[2 * pending + 1, n, k] = memory[REJECTION_COUNT, n, k]
            if not pending:
                obs_int[2, n, k] = memory[LAST_ACCEPTED, n, k]
                obs_int[3, n, k] = memory[LAST_REJECTED, n, k]


@lean
def observe(pending, state, idle, obs_float, obs_int, scratch):
    """Write the observations of all cells but the idle ones, see :func:`observe_cell`."""
    kind, cell, device, tape, _, _, counter, memory, _, _, _ = state
    full = kind[FULL]
    for n in range(idle.shape[0]):
        if not idle[n]:
            observe_cell(
                n, pending, full, cell, device, tape, counter, memory, obs_float, obs_int, scratch
            )


@lean
def verify(n, device, variates, draft, drafted, accepted, rejected, run):
    """Draft and verify a round of cell n: a device accepts min(G, gamma) of its gamma tokens.

    Args:
        device: see :func:`play`.
        variates: [2, K] the round's, in the tape.
        draft: [K] lengths gamma.
        drafted, accepted, rejected: [K] outputs.
        run: [K] overwritten.

    Returns:
        Seconds until the last device has drafted.
    """
    token_latency_s = device[TOKEN_LATENCY_S, n]
    num_devices = draft.shape[0]
    read_runs(n, device, variates[RUN], run)
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


@lean
def send_corrections(
    n, rule, chosen, cell, device, gain, uplink_snr, rejected, mode, power_w, band_hz, cost_w,
    scratch,
):  # fmt: skip
    """Correction protocol: costs, modes, powers and bandwidths of cell n. Returns the latency."""
    num_devices = rejected.shape[0]
    noise_w = device[NOISE_DEVICE_W, n]
    count = 0
    for k in range(num_devices):
        cost_w[k] = noise_w[k] / gain[k]
        count += rejected[k]
    each_hz = cell[BANDWIDTH_HZ, n] / count if count > 0 else 0.0
    for k in range(num_devices):
        band_hz[k] = each_hz * rejected[k]
    return correct(
        rule,
        rejected,
        chosen,
        uplink_snr,
        cost_w,
        device[UPLINK_POWER_W, n],
        cell[DOWNLINK_POWER_W, n],
        cell[PAYLOAD_BITS, n],
        cell[BANDWIDTH_HZ, n],
        mode,
        power_w,
        scratch,
    )


@lean
def send_drafts(
    n, share, cell, device, uplink_snr, drafted, mode, power_w, band_hz, work_hz_s, scratch
):
    """Upload protocol: work, powers and bandwidths of cell n. Returns the latency with drafting."""
    num_devices = drafted.shape[0]
    uplink_power_w = device[UPLINK_POWER_W, n]
    bits = cell[PAYLOAD_BITS, n]
    for k in range(num_devices):
        efficiency = natural_log1p(uplink_snr[k]) / LN2
        work_hz_s[k] = drafted[k] * bits / efficiency if drafted[k] > 0 else 0.0
    for k in range(num_devices):
        mode[k] = 0 if drafted[k] > 0 else -1
    for k in range(num_devices):
        power_w[k] = uplink_power_w[k] if drafted[k] > 0 else 0.0
    return upload(
        share.shape[0] > 0,
        drafted,
        share,
        device[TOKEN_LATENCY_S, n],
        work_hz_s,
        cell[BANDWIDTH_HZ, n],
        band_hz,
        scratch,
    )


@lean
def account(
    n, full, cell, time_s, counter, memory, accepted, rejected, drafting_s, communication_s,
    cell_float, cell_int,
):  # fmt: skip
    """Charge the round, deliver its tokens, and move the clock of cell n.

    A round that ends after the horizon delivers nothing and is charged up to it.
    """
    num_devices = accepted.shape[0]
    num_accepted, num_rejected = 0, 0
    for k in range(num_devices):
        num_accepted += accepted[k]
        num_rejected += rejected[k]
    emitted = num_accepted + num_devices

    computing_s = drafting_s + cell[VERIFICATION_S, n]
    communication_s = min(communication_s, cell[LONGEST_ROUND_S, n] - computing_s)
    latency_s = computing_s + communication_s
    horizon_s = cell[HORIZON_S, n]
    end_s = time_s[n] + latency_s
    truncated = end_s >= horizon_s or counter[n, ROUND] + 1 >= cell[MAX_ROUNDS, n]
    tokens = emitted
    if end_s > horizon_s:
        tokens = 0
        latency_s = horizon_s - time_s[n]
        end_s = horizon_s
    elif not full:  # feedback is kept for those who see it
        for k in range(num_devices):
            memory[ACCEPTED_COUNT, n, k] += accepted[k]
            memory[REJECTION_COUNT, n, k] += rejected[k]
            memory[LAST_ACCEPTED, n, k] = accepted[k]
            memory[LAST_REJECTED, n, k] = rejected[k]

    cell_float[LATENCY_S, n] = latency_s
    cell_float[DRAFTING_S, n] = drafting_s
    cell_float[VERIFYING_S, n] = cell[VERIFICATION_S, n]
    cell_float[COMMUNICATION_S, n] = communication_s
    cell_float[TIME_S, n] = end_s
    cell_float[GOODPUT, n] = tokens / latency_s
    cell_int[ROUND_INDEX, n] = counter[n, ROUND]
    cell_int[TOKENS, n] = tokens
    cell_int[EMITTED, n] = emitted
    cell_int[BONUS_TOKENS, n] = num_devices - num_rejected
    cell_int[CORRECTION_TOKENS, n] = num_rejected
    cell_int[TRUNCATED, n] = truncated
    time_s[n] = end_s
    counter[n, ROUND] += 1
    counter[n, EPISODE_TOKENS] += tokens


@lean
def play(state, idle, outcome, workspace):
    """Play one round in each of N cells, advance their clocks, observe what comes next.

    The round itself is a pure function of the tape, the round index and the decision; around it
    `time_s`, `counter` and `memory` are updated in place. The whole decision is checked before
    anything changes.

    Args:
        state: a tuple of arrays whose rows are named above.
            kind: [6] what kind of environment.
            cell, device: constants.
            tape: two consecutive blocks of exponential variates, [N, 2, BLOCK, 2, K].
            coins: as many of coins, [N, 2, BLOCK, K]; [0, ...] where none are tossed.
            time_s, counter, memory: what changes from round to round.
            draft, chosen: [N, K] lengths to draft (now, or next if the round is pending) and modes
                to use now; modes are read under the rule GIVEN, without coins, only.
            share: [N, K] bandwidth shares, or [N, 0] for the optimal allocation.
        idle: [N] true for cells that sit out; their observation is not written, all else is 0.
        outcome: a tuple of the outputs.
        workspace: [7, K] overwritten.

    Returns:
        How many cells need their next block of the tape before the next step (:func:`find_due`
        lists them), or -1 - i with i as in :func:`find_invalid`.
    """
    kind, cell, device, tape, coins, time_s, counter, memory, draft, chosen, share = state
    obs_float, device_float, device_int, cell_float, cell_int = outcome
    obs_int = device_int[OBSERVED:]
    bad = find_invalid(kind, draft, chosen, share, idle)
    if bad >= 0:
        return -1 - bad

    pending, full = kind[PENDING], kind[FULL]
    num_cells, num_devices = draft.shape
    gain, uplink_snr, cost_or_work = workspace[4], workspace[5], workspace[6]
    scratch = workspace[:4]
    due = 0
    for n in range(num_cells):
        if idle[n]:
            device_float[:, n], device_int[:OBSERVED, n] = 0.0, 0
            cell_float[:, n], cell_int[:, n] = 0.0, 0
            continue
        drafted, accepted = device_int[DRAFTED, n], device_int[ACCEPTED, n]
        rejected, mode = device_int[REJECTED, n], device_int[MODE, n]
        power_w, band_hz = device_float[POWER_W, n], device_float[ALLOCATED_HZ, n]
        slot, row = place_of(counter[n, ROUND])
        variates = tape[n, slot, row]
        lengths = memory[PENDING_DRAFT, n] if pending else draft[n]

        read_channel(n, cell, device, variates[FADING], gain, uplink_snr)
        drafting_s = verify(n, device, variates, lengths, drafted, accepted, rejected, scratch[0])
        if kind[UPLOADS]:
            finished_s = send_drafts(
                n, share[n], cell, device, uplink_snr, drafted, mode, power_w, band_hz,
                cost_or_work, scratch,
            )  # fmt: skip
            communication_s = finished_s - drafting_s
        else:
            modes = coins[n, slot, row] if kind[TOSSED] else chosen[n]
            communication_s = send_corrections(
                n, kind[RULE], modes, cell, device, gain, uplink_snr, rejected, mode, power_w,
                band_hz, cost_or_work, scratch,
            )  # fmt: skip
        account(
            n, full, cell, time_s, counter, memory, accepted, rejected, drafting_s, communication_s,
            cell_float, cell_int,
        )  # fmt: skip
        due += needs_block(pending, counter[n, ROUND])
        if pending:
            for k in range(num_devices):
                memory[PENDING_DRAFT, n, k] = draft[n, k]
        observe_cell(
            n, pending, full, cell, device, tape, counter, memory, obs_float, obs_int, scratch
        )
    return due


@lean
def needs_block(pending, round_index):
    """1 if the next step will show the first round of a block, else 0."""
    return 1 if (round_index + 1 + pending) % BLOCK == 0 else 0


@lean
def find_due(pending, counter, idle, due):
    """List the cells that need their next block in `due`."""
    count = 0
    for n in range(counter.shape[0]):
        if not idle[n] and needs_block(pending, counter[n, ROUND]):
            due[count] = n
            count += 1
