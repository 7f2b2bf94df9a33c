"""The search for the best lengths of one upload round, compiled by numba.

See :func:`multispin_env.solvers.uploads.exact` for the problem and the idea.

What is decided is decided by the same few formulas for all: :func:`ratio_of` ranks tokens and
:func:`goodput_of` values lengths. All that is faster than trying everything is a rejection that is
certain to a margin of :data:`MARGIN`, far above rounding and far below what matters: whatever lies
within the margin is valued in full.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from multispin_env.model.kernels.compiling import compiled, lean
from multispin_env.model.kernels.uploads import Drafts, upload

MARGIN: Final = 1e-12  # relative; what is rejected without a valuation is worse by more
LEAST_GAIN: Final = 1e-13  # relative improvement that makes a move worth while
TOLERANCE: Final = 2e-5  # relative distance to the best decision at which a bound is good enough
NARROWEST: Final = 1e-5  # relative width of intervals of phi that are not halved any more


class Round(NamedTuple):
    """One upload round: what its lengths are chosen for."""

    power: Any  #: [K, high + 2] alpha^n
    total: Any  #: [K, high + 2] the sum of the powers up to n, which is the tokens of length n
    token_s: Any  #: [K] drafting time a token [s]
    work: Any  #: [K] upload work Q / r a token [Hz s]; inf for a dead channel
    band: float  #: bandwidth [Hz]
    verification_s: float
    low: int  #: the least length
    high: int  #: the largest length


class Filling(NamedTuple):
    """Lengths that fill the band until some phi, and memory to find those of another phi."""

    lengths: Any  #: [K]
    following: Any  #: [K] ratio of the first token that is not drafted
    last: Any  #: [K] ratio of the last one that is
    key: Any  #: [K] what the queue is sorted by
    rank: Any  #: [K] which of equal keys comes first
    queue: Any  #: [K] devices, a binary heap


class Changes(NamedTuple):
    """What one token more or less of a device changes: see :func:`linearise`."""

    gain: Any  #: [2, K] expected tokens, of one more and one less
    demand: Any  #: [2, K] change of the demanded band
    slope: Any  #: [2, K] change of its derivative by phi


class Valuation(NamedTuple):
    """Memory to value lengths, all [K] but the last, [4, K]."""

    work: Any
    allocated: Any
    scratch: Any


@compiled
def tables(alpha, high):
    """Powers of the acceptance rates and their sums, [K, high + 2], by repeated multiplication."""
    power, total = np.ones((alpha.shape[0], high + 2)), np.ones((alpha.shape[0], high + 2))
    for k in range(alpha.shape[0]):
        for n in range(1, high + 2):
            power[k, n] = power[k, n - 1] * alpha[k]
            total[k, n] = total[k, n - 1] + power[k, n]
    return power, total


@lean
def more_band(phi, k, length, job):
    """Bandwidth that one more token needs; inf if there is no time or no length for it."""
    room = phi - (length + 1) * job.token_s[k]
    if length >= job.high or room <= 0.0 or job.work[k] == np.inf:
        return np.inf
    before = length * job.work[k] / (room + job.token_s[k]) if length > 0 else 0.0
    return (length + 1) * job.work[k] / room - before


@lean
def ratio_of(phi, k, length, job):
    """Gain per bandwidth of the token after `length`; 0 if there is none, or nothing to gain."""
    return job.power[k, length + 1] / more_band(phi, k, length, job)


@lean
def goodput_of(lengths, job, memory):
    """Expected goodput of lengths [K] under Lemma 3."""
    tokens = 0.0
    for k in range(lengths.shape[0]):
        memory.work[k] = lengths[k] * job.work[k] if lengths[k] > 0 else 0.0
        for n in range(lengths[k] + 1):
            tokens += job.power[k, n]
    drafts = Drafts(lengths, job.token_s, memory.work, memory.work, job.band)
    latency_s = upload(False, drafts, memory.allocated, memory.scratch)
    return tokens / (latency_s + job.verification_s)


@lean
def is_late(lengths, value, job):
    """Whether lengths are surely not ready in time for a goodput of `value`."""
    tokens, demand = 0.0, 0.0
    for k in range(lengths.shape[0]):
        tokens += job.total[k, lengths[k]]
    phi = tokens / value * (1.0 + MARGIN) - job.verification_s
    for k in range(lengths.shape[0]):
        if lengths[k] > 0:
            room = phi - lengths[k] * job.token_s[k]
            demand += lengths[k] * job.work[k] / room if room > 0.0 else np.inf
    return phi < 0.0 or demand > job.band * (1.0 + MARGIN)


# ---- filling the band until a given phi ----------------------------------------------------------


@lean
def sift_down(filling, start, size):
    """Move the device at place `start` of the queue down to where it belongs."""
    key, rank, queue = filling.key, filling.rank, filling.queue
    moved, place = queue[start], start
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size:
            a, b = queue[child], queue[child + 1]
            if key[b] > key[a] or (key[b] == key[a] and rank[b] < rank[a]):
                child += 1
        a = queue[child]
        if not (key[a] > key[moved] or (key[a] == key[moved] and rank[a] < rank[moved])):
            break
        queue[place] = a
        place = child
    queue[place] = moved


@lean
def rank_of(phi, k, length, ratio, job):
    """Which token comes first of those with one ratio: of the lowest device, or of the highest.

    A scan that keeps the best device passes it on to an equal one where gain > ratio * band, which
    rounding decides.
    """
    kept = job.power[k, length + 1] <= ratio * more_band(phi, k, length, job)
    return k if kept else -k


@compiled
def fill_band(phi, price, job, filling):
    """The best lengths for a given phi, and a bound on the tokens of any lengths.

    They are those of adding the token with the best ratio of gain, alpha^(L+1), to additional
    bandwidth until the band is full; see :func:`multispin_env.solvers.uploads.exact`. Each device's
    ratios fall, so the tokens with a ratio above any `price` are the first that are added. With a
    price close to the last ratio few are left to be added, or to be taken back.

    Args:
        phi: time for drafting and uploading [s].
        price: >= 0; the fastest is what this function returned for a phi nearby.
        job: the round.
        filling: its `lengths` are where the search for the tokens above the price starts, any that
            are allowed; output.

    Returns:
        tokens: expected tokens of the relaxed problem, an upper bound; -1 if the least lengths do
            not fit.
        price: the ratio of the first token that does not fit; 0 if all do.
    """
    lengths, following, last = filling.lengths, filling.following, filling.last
    num_devices = lengths.shape[0]
    used, tokens = 0.0, 0.0
    for k in range(num_devices):
        length = lengths[k]
        following[k] = ratio_of(phi, k, length, job)
        last[k] = ratio_of(phi, k, length - 1, job) if length > job.low else np.inf
        while last[k] <= price and length > job.low:
            length -= 1
            following[k] = last[k]
            last[k] = ratio_of(phi, k, length - 1, job) if length > job.low else np.inf
        while following[k] > price:
            length += 1
            last[k] = following[k]
            following[k] = ratio_of(phi, k, length, job)
        lengths[k] = length
        if length > 0:
            room = phi - length * job.token_s[k]
            used += length * job.work[k] / room if room > 0.0 else np.inf
        tokens += job.total[k, length]
    if used > job.band:
        return take_back(phi, used, tokens, job, filling)
    return add_more(phi, used, tokens, job, filling)


@lean
def add_more(phi, used, tokens, job, filling):
    """Add tokens until the band is full. Returns as :func:`fill_band`."""
    lengths, key, queue = filling.lengths, filling.key, filling.queue
    num_devices = lengths.shape[0]
    for k in range(num_devices):
        key[k], queue[k] = filling.following[k], k
        filling.rank[k] = rank_of(phi, k, lengths[k], key[k], job)
    for place in range(num_devices // 2 - 1, -1, -1):
        sift_down(filling, place, num_devices)
    while True:
        k = queue[0]
        if not key[k] > 0.0:
            return tokens, 0.0
        gain, need = job.power[k, lengths[k] + 1], more_band(phi, k, lengths[k], job)
        if used + need > job.band:
            return tokens + gain * (job.band - used) / need, key[k]
        used += need
        tokens += gain
        lengths[k] += 1
        key[k] = ratio_of(phi, k, lengths[k], job)
        filling.rank[k] = rank_of(phi, k, lengths[k], key[k], job)
        sift_down(filling, 0, num_devices)


@lean
def take_back(phi, used, tokens, job, filling):
    """Take the last tokens back until the rest fits. Returns as :func:`fill_band`."""
    lengths, key, queue = filling.lengths, filling.key, filling.queue
    num_devices = lengths.shape[0]
    for k in range(num_devices):
        key[k], queue[k] = -filling.last[k], k
        if lengths[k] > job.low:
            filling.rank[k] = -rank_of(phi, k, lengths[k] - 1, filling.last[k], job)
    for place in range(num_devices // 2 - 1, -1, -1):
        sift_down(filling, place, num_devices)
    while True:
        k = queue[0]
        if key[k] == -np.inf:
            return -1.0, -key[k]
        lengths[k] -= 1
        ratio = -key[k]
        gain, need = job.power[k, lengths[k] + 1], more_band(phi, k, lengths[k], job)
        used -= need
        tokens -= gain
        if used <= job.band:
            return tokens + gain * (job.band - used) / need, ratio
        if lengths[k] > job.low:
            key[k] = -ratio_of(phi, k, lengths[k] - 1, job)
            filling.rank[k] = -rank_of(phi, k, lengths[k] - 1, -key[k], job)
        else:
            key[k] = -np.inf
        sift_down(filling, 0, num_devices)


# ---- moves of one token --------------------------------------------------------------------------


@lean
def linearise(lengths, value, job, changes):
    """What moves of one token change, to first order in phi, for :func:`is_hopeless`.

    The goodput exceeds `value` if and only if the lengths are ready before phi* = tokens / value -
    T_ver, that is, if they demand less than the band at phi*. Demands are convex in phi, so their
    tangents bound them from below. All are taken a margin after the phi of `lengths`, and phi* as
    much later: demands fall with phi, so that rounding cannot raise them above the true ones.

    Returns:
        The demanded band, and its derivative by phi.
    """
    tokens, demand, slope = 0.0, 0.0, 0.0
    for k in range(lengths.shape[0]):
        tokens += job.total[k, lengths[k]]
    phi = tokens / value * (1.0 + MARGIN) - job.verification_s
    for k in range(lengths.shape[0]):
        length, work, token_s = lengths[k], job.work[k], job.token_s[k]
        room = phi - length * token_s
        own = length * work / room if length > 0 else 0.0
        demand += own
        slope -= own / room
        changes.gain[0, k], changes.gain[1, k] = job.power[k, length + 1], -job.power[k, length]
        more, less = room - token_s, room + token_s
        # Without room for one token more there is no tangent: such moves are valued in full.
        band = (length + 1) * work / more if more > 0.0 else -np.inf
        changes.demand[0, k] = band - own
        changes.slope[0, k] = own / room - (band / more if more > 0.0 else 0.0)
        band = (length - 1) * work / less if length > 1 else 0.0
        changes.demand[1, k] = band - own
        changes.slope[1, k] = own / room - band / less
    return demand, slope


@lean
def is_hopeless(more, less, value, demand, slope, job, changes):
    """Whether a token more of one device and less of another (-1: of none) surely gains nothing."""
    gain = 0.0
    if more >= 0:
        gain += changes.gain[0, more]
        demand += changes.demand[0, more]
        slope += changes.slope[0, more]
    if less >= 0:
        gain += changes.gain[1, less]
        demand += changes.demand[1, less]
        slope += changes.slope[1, less]
    return demand + slope * (gain / value) > job.band * (1.0 + MARGIN)


@compiled
def improve(lengths, value, job, trial, memory):
    """Improve lengths in place, by moves of one token, until none helps. Returns their goodput."""
    num_devices = lengths.shape[0]
    changes = Changes(
        np.empty((2, num_devices)), np.empty((2, num_devices)), np.empty((2, num_devices))
    )
    demand, slope = linearise(lengths, value, job, changes)
    improved = True
    while improved:
        improved = False
        for i in range(num_devices):
            for j in range(-2, num_devices):
                # j = -2: i drafts one token less; -1: one more; otherwise one moves from j to i.
                more, less = (i, j) if j >= 0 else ((i, -1) if j == -1 else (-1, i))
                if more == less or is_hopeless(more, less, value, demand, slope, job, changes):
                    continue
                if less >= 0 and lengths[less] <= job.low:
                    continue
                if more >= 0 and (lengths[more] >= job.high or job.work[more] == np.inf):
                    continue
                trial[:] = lengths
                if more >= 0:
                    trial[more] += 1
                if less >= 0:
                    trial[less] -= 1
                goodput = goodput_of(trial, job, memory)
                if goodput > value * (1.0 + LEAST_GAIN):
                    value = goodput
                    lengths[:] = trial
                    demand, slope = linearise(lengths, value, job, changes)
                    improved = True
    return value


# ---- the whole search ----------------------------------------------------------------------------


@compiled
def exact_lengths(job, num_deadlines):
    """The optimal lengths of one upload round, and an upper bound on any goodput.

    Returns:
        Lengths [K] and the bound [tokens/s].
    """
    num_devices = job.token_s.shape[0]
    memory = Valuation(np.empty(num_devices), np.empty(num_devices), np.empty((4, num_devices)))
    best = np.full(num_devices, job.low, np.int64)
    value = goodput_of(best, job, memory)

    # The range of phi in which anything can be optimal: from one token of the quickest device (or
    # the least lengths of all) to the longest drafts of all.
    first, last = np.inf, 0.0
    for k in range(num_devices):
        if job.work[k] < np.inf:
            first = min(first, job.token_s[k] + job.work[k] / job.band)
            slowest = job.token_s[k] + num_devices * job.work[k] / job.band
            last = max(last, job.high * slowest)
    if last == 0.0 or job.high == 0 or value == 0.0:
        return best, value

    filling = Filling(
        np.full(num_devices, job.low, np.int64), np.empty(num_devices), np.empty(num_devices),
        np.empty(num_devices), np.empty(num_devices, np.int64), np.empty(num_devices, np.int64),
    )  # fmt: skip
    trial = np.empty(num_devices, np.int64)
    phis, bounds = np.empty(num_deadlines), np.empty(num_deadlines)
    step = (last / first) ** (1.0 / (num_deadlines - 1))
    price = np.inf
    for i in range(num_deadlines):
        phis[i] = first * step**i if i < num_deadlines - 1 else last
        bounds[i], price = fill_band(phis[i], price, job, filling)
        if bounds[i] > 0.0 and not is_late(filling.lengths, value, job):
            goodput = goodput_of(filling.lengths, job, memory)
            if goodput > value:
                value = goodput
                best[:] = filling.lengths
    value = improve(best, value, job, trial, memory)

    return best, bound_of(phis, bounds, value, job, filling)


@compiled
def bound_of(phis, tokens, value, job, filling):
    """A bound on the goodput of any lengths, given those on the tokens until rising phis.

    Nothing is drafted before the first; between two of them the later one's tokens bound all.
    """
    bound = value
    if job.low == 0:
        bound = max(bound, job.token_s.shape[0] / job.verification_s)
    highest = np.argmax(tokens[1:] / (phis[:-1] + job.verification_s))
    bound = bound_between(highest, phis, tokens, bound, value, job, filling)
    for i in range(phis.shape[0] - 1):
        bound = bound_between(i, phis, tokens, bound, value, job, filling)
    return bound


@compiled
def bound_between(i, phis, tokens, bound, value, job, filling):
    """The larger of `bound` and one on the goodput of lengths ready between phi_i and phi_(i+1).

    The interval is halved until its bound is tight, or no longer the largest.
    """
    left, right, most = np.empty(64), np.empty(64), np.empty(64)
    left[0], right[0], most[0] = phis[i], phis[i + 1], tokens[i + 1]
    depth, price = 1, np.inf
    while depth > 0:
        depth -= 1
        a, b, here = left[depth], right[depth], most[depth] / (left[depth] + job.verification_s)
        tight = here <= value * (1.0 + TOLERANCE) or b - a <= NARROWEST * b or depth > 61
        if tight or here <= bound:
            bound = max(bound, here)
            continue
        middle = 0.5 * (a + b)
        most[depth + 1], price = fill_band(middle, price, job, filling)
        left[depth], right[depth] = middle, b
        left[depth + 1], right[depth + 1] = a, middle
        depth += 2
    return bound
