"""What a network is shown: observations and a scenario's constants as numbers of order one.

Every number is a ratio or a logarithm of physical quantities, so that one network serves cells of
any size, power and model pair. Written in torch, on batches: the same code runs inside
Stable-Baselines3's policies and alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from multispin_env.scenario import Scenario
from multispin_env.scenario.devices import DeviceLaw

#: Features of each device, and of the cell.
NUM_DEVICE_FEATURES: Final = 8
NUM_CELL_FEATURES: Final = 5
#: Longest drafts that a network can have an opinion on.
MAX_LENGTH: Final = 63


@dataclass(frozen=True)
class Constants:
    """What is fixed about N cells of K devices; tensors [N] or [N, K]."""

    payload_s: Tensor  #: bits of a distribution over the band, seconds at 1 bit/s/Hz [N]
    verification_s: Tensor  #: [N]
    downlink_gain: (
        Tensor  #: downlink over uplink SNR, all power for one device [N, K]; 1 in uploads
    )
    max_draft_length: int

    @classmethod
    def of(cls, scenarios: Sequence[Scenario]) -> Constants:
        """Those of one scenario a cell; they agree in protocol, devices and longest draft."""
        gains = []
        for s in scenarios:
            gain = np.ones(s.num_devices)
            if s.protocol == "correction":
                uplink = s.uplink_power_w / s.noise_server_w
                gain = gain * s.downlink_power_w / s.noise_device_w / uplink
            gains.append(gain)
        payload = [s.payload.distribution_bits / s.radio.bandwidth_hz for s in scenarios]
        return cls(
            torch.tensor(payload, dtype=torch.float32),
            torch.tensor([s.verification_s for s in scenarios], dtype=torch.float32),
            torch.tensor(np.stack(gains), dtype=torch.float32),
            scenarios[0].max_draft_length,
        )

    def repeat(self, size: int) -> Constants:
        """Those of a batch of observations of the only cell."""
        return Constants(
            self.payload_s.expand(size),
            self.verification_s.expand(size),
            self.downlink_gain.expand(size, -1),
            self.max_draft_length,
        )


@dataclass(frozen=True)
class Inputs:
    """What a network reads about N cells of K devices."""

    device: Tensor  #: [N, K, NUM_DEVICE_FEATURES]
    cell: Tensor  #: [N, NUM_CELL_FEATURES]
    token_s: Tensor  #: time to draft a token [N, K]
    token_upload_s: Tensor  #: time to send one payload alone over the whole band [N, K]
    max_draft_length: int

    def __len__(self) -> int:
        return len(self.device)

    def rows(self, index: Any) -> Inputs:
        """Some of the cells."""
        return Inputs(
            self.device[index],
            self.cell[index],
            self.token_s[index],
            self.token_upload_s[index],
            self.max_draft_length,
        )


def inputs(
    constants: Constants,
    snr_db: Tensor,
    token_latency_s: Tensor,
    acceptance_rate: Tensor,
    member: Tensor | None = None,
) -> Inputs:
    """Features of N cells.

    Args:
        constants: of the N cells.
        snr_db, token_latency_s, acceptance_rate: as observed, [N, K].
        member: 1 for the devices that a decision is about (the rejected ones), [N, K]; all if None.
    """
    snr_db = snr_db.clamp(-100.0, 100.0)
    snr = 10.0 ** (snr_db / 10.0)
    upload_s = constants.payload_s[:, None] / torch.log2(1.0 + snr).clamp_min(1e-9)
    member = torch.ones_like(snr_db) if member is None else member.to(snr_db.dtype)
    verification_s = constants.verification_s[:, None]
    count = snr_db.shape[1]
    # The share of members with a worse uplink: what Lemma 2's split is about.
    rank = ((snr_db[:, None, :] < snr_db[:, :, None]) * member[:, None, :]).sum(-1)
    rank = rank / member.sum(-1, keepdim=True).clamp_min(1.0)
    device = torch.stack(
        [
            snr_db / 20.0,
            torch.log(upload_s / verification_s) / 3.0,
            (snr_db + 10.0 * torch.log10(constants.downlink_gain)) / 20.0,
            rank,
            torch.log(1.0 - acceptance_rate + 1e-3),
            token_latency_s / verification_s * 10.0,
            member,
            (upload_s * count / (upload_s * count + token_latency_s)),
        ],
        dim=-1,
    )
    cell = torch.stack(
        [
            torch.log(torch.full_like(constants.verification_s, count)) / 3.0,
            torch.log(constants.verification_s),
            torch.log(constants.payload_s / constants.verification_s) / 3.0,
            torch.log10(constants.downlink_gain).mean(-1),
            member.mean(-1),
        ],
        dim=-1,
    )
    return Inputs(device, cell, token_latency_s, upload_s, constants.max_draft_length)


class Reader:
    """Turns batched observations of one kind of environment into inputs.

    Where acceptance rates are hidden, their posterior means given the feedback stand in for them.

    Args:
        scenarios: of all lanes, or the only one.
    """

    def __init__(self, scenarios: Sequence[Scenario]) -> None:
        self._constants = Constants.of(scenarios)
        self._law = DeviceLaw(scenarios[0])

    def drafting(self, observation: Mapping[str, Any]) -> Inputs:
        """For the lengths of the round that comes next."""
        snr_db = observation.get("next_snr_db", observation["snr_db"])
        return self._inputs(observation, snr_db, None)

    def correcting(self, observation: Mapping[str, Any]) -> Inputs:
        """For the modes of the pending round."""
        return self._inputs(observation, observation["snr_db"], observation["rejected"])

    def _inputs(self, observation: Mapping[str, Any], snr_db: Any, member: Any) -> Inputs:
        size = len(snr_db)
        constants = self._constants
        if len(constants.payload_s) != size:
            constants = constants.repeat(size)
        return inputs(
            constants,
            _tensor(snr_db),
            _tensor(observation["token_latency_s"]),
            _tensor(self._law.acceptance_rate(observation)),
            None if member is None else _tensor(member),
        )


def _tensor(array: Any) -> Tensor:
    return torch.as_tensor(np.asarray(array), dtype=torch.float32)
