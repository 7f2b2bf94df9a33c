"""The upload protocol (paper A): bandwidths with which all drafts arrive together, and when."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from multispin_env.model.kernels.compiling import inner, lean


class Drafts(NamedTuple):
    """What is drafted and sent in a round; arrays [K], or [N, K] and [N] for N rounds."""

    length: Any  # [K] L
    token_latency_s: Any  # [K] T
    work_hz_s: Any  # [K] L Q / r, 0 where nothing is drafted; inf for a dead channel
    share: Any  # [K] weights >= 0 that split the band over those who draft; all zero means equally
    bandwidth_hz: Any  # B


@inner
def upload(given, drafts, allocated_hz, scratch):
    """Bandwidths and latency of drafting and uploading in a round (Lemma 3, A-31, A-32).

    With d_k = L_k T_k seconds of drafting and w_k = L_k Q / r_k Hz s of upload work, bandwidth
    w_k / (phi - d_k) lets device k finish at phi. The least phi is the root of

        F(phi) = sum_k w_k / (phi - d_k) = B,    phi > max d_k.

    1/F is a parallel sum of lines, hence concave and increasing: Newton's method on it, started
    below the root, rises to the root without ever passing it. The unknown is y = phi - max d,
    which keeps all digits when the upload is short. Below the root are w_k / B - s_k for every
    device, with s_k = max d - d_k, and sum w / B - sum w s / sum w (Jensen's inequality).

    Args:
        given: false for this optimal allocation, true to split the band by the shares of `drafts`.
        drafts: what is drafted and sent.
        allocated_hz: [K] output: bandwidth of each device, 0 where nothing is sent.
        scratch: [4, K] overwritten.

    Returns:
        Latency (A-26) [s]: 0 if nobody drafts, inf if a device that drafts cannot finish.
    """
    draft_length, token_latency_s, share = drafts.length, drafts.token_latency_s, drafts.share
    work_hz_s, bandwidth_hz = drafts.work_hz_s, drafts.bandwidth_hz
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
def upload_all(given, drafts, allocated_hz, latency_s, scratch):
    """:func:`upload` for N rounds: arrays [N, K] or [N], latencies as an output too."""
    for n in range(latency_s.shape[0]):
        one = Drafts(
            drafts.length[n],
            drafts.token_latency_s[n],
            drafts.work_hz_s[n],
            drafts.share[n],
            drafts.bandwidth_hz[n],
        )
        latency_s[n] = upload(given, one, allocated_hz[n], scratch)
