"""What is observed of the round that comes next, or is pending."""

from __future__ import annotations

import numpy as np

from multispin_env.model.kernels.compiling import inner, lean
from multispin_env.model.kernels.logarithms import DB_PER_NEPER, natural_log
from multispin_env.model.kernels.state import device_of, memory_of, variates_of


@inner
def read_channel(cell, device, fading, gain, uplink_snr):
    """Channel gains of a round, mean gain times |h|^2 ~ Exp(1), and full-band uplink SNRs, [K]."""
    mean_gain, unit_snr = device.mean_gain, device.unit_snr
    fades = cell["fades"] > 0
    for k in range(gain.shape[0]):
        gain[k] = mean_gain[k] * (fading[k] if fades else 1.0)
    for k in range(gain.shape[0]):
        uplink_snr[k] = unit_snr[k] * gain[k]


@inner
def read_runs(device, exponential, run):
    """Run lengths of a round before they are rounded down, [K]: E / -ln alpha with E ~ Exp(1).

    See :func:`multispin_env.model.acceptance.run_length`.
    """
    mean_run = device.mean_run
    for k in range(run.shape[0]):
        run[k] = exponential[k] * mean_run[k]


@inner
def show_snr(cell, device, fading, snr_db, workspace):
    """The full-band uplink SNRs of a round, [K] in dB.

    As :func:`multispin_env.model.channel.snr_db` has them. `workspace` is overwritten.
    """
    gain, snr = workspace[0], workspace[1]
    read_channel(cell, device, fading, gain, snr)
    for k in range(snr.shape[0]):
        snr[k] = min(max(snr[k], 1e-30), 1e30)
    for k in range(snr.shape[0]):
        snr_db[k] = DB_PER_NEPER * natural_log(snr[k])


@inner
def observe_cell(state, n, pending, floats, integers, workspace):
    """Write what is observed of the round that comes next (or is pending) in cell n.

    Row order, shared with :mod:`multispin_env.world.control`. Floats: snr_db, token_latency_s, then
    next_snr_db if `pending`, then acceptance_rate if rates are shown. Integers: draft_length and
    rejected if `pending`; without rates then accepted_count, rejection_count, accepted, and
    rejected where it is not there yet.

    Args:
        state: the cells.
        n: which one.
        pending: whether the observation is that of a pending round.
        floats, integers: [keys, N, K] outputs.
        workspace: overwritten.
    """
    num_devices = floats.shape[2]
    full, cell = state.kind[0]["full"], state.cell[n]
    device, memory = device_of(state, n), memory_of(state, n)
    r = state.clock[n]["round"]
    variates = variates_of(state, n, r)
    show_snr(cell, device, variates.fading, floats[0, n], workspace)
    for k in range(num_devices):
        floats[1, n, k] = device.token_latency_s[k]
    if full:
        for k in range(num_devices):
            floats[2 + pending, n, k] = device.acceptance_rate[k]
    if pending:
        show_snr(cell, device, variates_of(state, n, r + 1).fading, floats[2, n], workspace)
        run, draft = workspace[0], memory.pending_draft
        read_runs(device, variates.run, run)
        for k in range(num_devices):
            integers[0, n, k] = draft[k]
        for k in range(num_devices):
            integers[1, n, k] = 1 if run[k] < draft[k] else 0
        if not full:
            for k in range(num_devices):
                integers[4, n, k] = np.int64(run[k]) if run[k] < draft[k] else draft[k]
    if not full:
        for k in range(num_devices):
            integers[2 * pending, n, k] = memory.accepted_count[k]
            integers[2 * pending + 1, n, k] = memory.rejection_count[k]
            if not pending:
                integers[2, n, k] = memory.last_accepted[k]
                integers[3, n, k] = memory.last_rejected[k]


@lean
def observe(state, idle, pending, floats, integers, workspace):
    """Write the observations of all cells but the idle ones, see :func:`observe_cell`."""
    for n in range(idle.shape[0]):
        if not idle[n]:
            observe_cell(state, n, pending, floats, integers, workspace)
