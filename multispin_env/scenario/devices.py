"""What is drawn about the devices of a cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multispin_env.model.acceptance import mean_run, posterior_mean_rate
from multispin_env.model.channel import path_gain
from multispin_env.scenario import DistanceChannel, PerDevice, Range, Scenario

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Devices:
    """What is drawn about each device at reset; arrays [..., K]."""

    acceptance_rate: Floats
    mean_run: Floats  #: 1 / -ln(acceptance rate), the scale of run lengths
    token_latency_s: Floats
    mean_gain: Floats


class DeviceLaw:
    """How a scenario's devices are drawn: the map from uniform numbers to devices.

    Constants that the scenario lists per device ignore their numbers, so that listing one leaves
    all others as they were.

    Attributes:
        rates: acceptance rate of every task on every device, [tasks, K].
    """

    def __init__(self, scenario: Scenario) -> None:
        k = scenario.num_devices
        self._device = np.arange(k)
        self.rates = np.array([np.broadcast_to(t.acceptance_rate, k) for t in scenario.tasks])
        self._mean_runs = mean_run(self.rates)
        latency = scenario.drafting.token_latency_s
        spread = Range(1.0, 1.0) if isinstance(latency, tuple) else scenario.drafting.spread
        self._latency = _interval(latency, k) * _interval(spread, k)
        self._channel = scenario.channel
        if isinstance(scenario.channel, DistanceChannel):
            self._position = _interval(scenario.channel.distance_m, k)
        else:
            self._position = _interval(scenario.channel.mean_gain, k)

    def __call__(self, uniform: Floats) -> Devices:
        """Devices from standard uniform numbers ``[..., 3, K]``: task, speed, position."""
        task = (uniform[..., 0, :] * len(self.rates)).astype(np.int64)
        latency = _between(self._latency, uniform[..., 1, :])
        position = _between(self._position, uniform[..., 2, :])
        channel = self._channel
        if isinstance(channel, DistanceChannel):
            position = path_gain(position, channel.reference_gain_db, channel.exponent)
        rate, run = self.rates[task, self._device], self._mean_runs[task, self._device]
        return Devices(rate, run, latency, position)

    def acceptance_rate(self, observation: Mapping[str, Any]) -> NDArray[Any]:
        """Acceptance rates [..., K] as observed, or their posterior means given the feedback.

        To decide by these where the rates are hidden is certainty equivalence.
        """
        if "acceptance_rate" in observation:
            return np.asarray(observation["acceptance_rate"])
        accepted = np.asarray(observation["accepted_count"])
        rates = np.expand_dims(self.rates, tuple(range(1, accepted.ndim)))
        found = posterior_mean_rate(rates, accepted, observation["rejection_count"])
        return np.asarray(found)


def _interval(bounds: PerDevice | Range, num_devices: int) -> Floats:
    """Bounds [2, K] of a uniform draw; a constant is an interval of no width."""
    low, high = (bounds.min, bounds.max) if isinstance(bounds, Range) else (bounds, bounds)
    return np.array([np.broadcast_to(low, num_devices), np.broadcast_to(high, num_devices)])


def _between(interval: Floats, uniform: Floats) -> Floats:
    return np.asarray(interval[0] + (interval[1] - interval[0]) * uniform)
