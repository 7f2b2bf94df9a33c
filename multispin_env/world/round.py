"""One round as a pure function of the tape, the round's index and the decision.

This is the readable account of a round, for analysis and replay: it puts the formulas of
`multispin_env.model` together. The environments do the same in compiled code, for many cells
at once, and the tests hold the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multispin_env.model import correction, upload
from multispin_env.model.latency import MAX_ROUND_S, drafting_latency
from multispin_env.scenario import CorrectionRadio
from multispin_env.world.tape import Tape

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Round:
    """What happened in one round; arrays are [K]."""

    drafted: Integers  #: draft lengths [tokens]
    accepted: Integers  #: accepted tokens of each draft
    rejected: Integers  #: 1 where a token was rejected
    mode: Integers  #: 0 uplink, 1 downlink, -1 sent nothing
    power_w: Floats  #: transmit power [W]
    bandwidth_hz: Floats  #: bandwidth used [Hz]
    drafting_s: float  #: until the last device has drafted
    verification_s: float  #: the batched verification
    communication_s: float  #: corrections; in uploads what goes on after the last drafting

    @property
    def emitted(self) -> int:
        """Tokens generated, the accepted ones, and one more for each device."""
        return int(self.accepted.sum()) + self.accepted.size

    @property
    def latency_s(self) -> float:
        """Duration of the round [s]."""
        return self.drafting_s + self.verification_s + self.communication_s


def play_round(
    tape: Tape,
    index: int,
    draft_length: ArrayLike,
    *,
    rule: str = "optimal",
    downlink: ArrayLike | None = None,
    share: ArrayLike | None = None,
) -> Round:
    """Play round `index` of a tape.

    Args:
        tape: the episode's draws.
        index: the round, among those drawn.
        draft_length: tokens that each device drafts, integers [K].
        rule, downlink: how corrections travel: a rule of
            :func:`multispin_env.model.correction.correct`, or given modes (`downlink`, [K], for
            example `info["mode"] == 1`). Correction protocol only.
        share: bandwidth shares [K] in place of Lemma 3's allocation. Upload protocol only.
    """
    scenario, devices = tape.scenario, tape.devices
    longest = scenario.max_draft_length
    drafted = np.asarray(draft_length)
    if (
        drafted.shape != (scenario.num_devices,)
        or drafted.dtype.kind not in "iu"
        or not np.all((drafted >= 0) & (drafted <= longest))
    ):
        raise ValueError(
            f"draft_length = {draft_length!r}: must be {scenario.num_devices} integers in "
            f"[0, {longest}]"
        )
    if not 0 <= index < tape.num_rounds:
        raise ValueError(f"index = {index!r}: must be in [0, {tape.num_rounds - 1}]")
    if share is not None and scenario.protocol != "upload":
        raise ValueError("share is for the upload protocol only")
    if downlink is not None and (scenario.protocol == "upload" or rule != "optimal"):
        raise ValueError("downlink gives the modes of corrections: leave `rule` at its default")
    gain = tape.channel_gain[index]
    accepted = np.minimum(tape.run_length[index], drafted)
    rejected = (accepted < drafted).astype(np.int64)
    drafting_s = float(drafting_latency(drafted, devices.token_latency_s))

    if isinstance(scenario.radio, CorrectionRadio):
        sent = correction.correct(
            rejected,
            channel_gain=gain,
            uplink_power_w=scenario.uplink_power_w,
            downlink_power_w=scenario.downlink_power_w,
            payload_bits=scenario.payload.distribution_bits,
            bandwidth_hz=scenario.radio.bandwidth_hz,
            noise_server_w_hz=scenario.noise_server_w / scenario.radio.bandwidth_hz,
            noise_device_w_hz=scenario.noise_device_w / scenario.radio.bandwidth_hz,
            rule=rule if downlink is None else "random",
            downlink=downlink,
        )
        mode, power_w, communication_s = sent.mode, sent.power_w, float(sent.latency_s)
        bandwidth_hz = rejected * scenario.radio.bandwidth_hz / max(1, int(rejected.sum()))
    else:
        given = upload.allocate(
            drafted,
            token_latency_s=devices.token_latency_s,
            spectral_efficiency=upload.spectral_efficiency(
                scenario.uplink_power_w, gain, scenario.noise_server_w
            ),
            token_bits=scenario.payload.distribution_bits,
            bandwidth_hz=scenario.radio.bandwidth_hz,
            share=share,
        )
        bandwidth_hz, communication_s = given.bandwidth_hz, float(given.latency_s) - drafting_s
        mode = np.where(drafted > 0, 0, -1)
        power_w = np.where(drafted > 0, scenario.uplink_power_w, 0.0)
    most_s = MAX_ROUND_S - drafting_s - scenario.verification_s
    return Round(
        drafted,
        accepted,
        rejected,
        mode,
        power_w,
        bandwidth_hz,
        drafting_s,
        scenario.verification_s,
        min(communication_s, most_s),
    )
