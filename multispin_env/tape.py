"""An episode's randomness. Nothing here depends on an action.

At reset an environment takes a few words from its generator, the *episode seed*. Child streams
of that seed, one a purpose and each with a fixed index, give everything random in the episode:

* stream 0 draws the devices (three uniform numbers each), then, in blocks of 16 rounds, standard
  exponential numbers ``[2, 16, K]``: the fading |h|^2 of every round and device, and the variates
  of the run lengths;
* stream 1, only under random modes, draws a coin for every round and device.

So block b is a function of the episode seed and b alone: two policies that start from the same
seed meet the same devices, channels and run lengths (*common random numbers*), whatever they do,
and switching an option on leaves all other draws as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from multispin_env.model.acceptance import run_length
from multispin_env.model.channel import path_gain
from multispin_env.model.kernels import BLOCK
from multispin_env.scenario import DistanceChannel, PerDevice, Range, Scenario

Floats = NDArray[np.float64]
EpisodeSeed = tuple[int, ...]

#: Indices of the child streams. An index is never reused or renumbered.
BASE_STREAM: Final = 0
COIN_STREAM: Final = 1


def episode_seed(generator: np.random.Generator) -> EpisodeSeed:
    """Take the seed of the next episode, 128 bits, from an environment's generator."""
    return tuple(generator.bit_generator.random_raw(2).tolist())


def stream(seed: EpisodeSeed, index: int) -> np.random.Generator:
    """Child stream `index` of an episode."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(index,))))


@dataclass(frozen=True)
class Devices:
    """What is drawn about each device at reset; arrays [..., K]."""

    acceptance_rate: Floats
    token_latency_s: Floats
    mean_gain: Floats


def devices(scenario: Scenario, uniform: Floats) -> Devices:
    """Devices from standard uniform numbers ``[..., 3, K]``: task, drafting speed, position.

    Constants that the scenario lists per device ignore their number, so that listing one leaves
    all others as they were.
    """
    shape = uniform.shape[:-2] + uniform.shape[-1:]
    rates = np.array([np.broadcast_to(t.acceptance_rate, shape[-1]) for t in scenario.tasks])
    task = (uniform[..., 0, :] * len(rates)).astype(np.int64)
    acceptance_rate = np.take_along_axis(rates, task.reshape(-1, shape[-1]), axis=0).reshape(shape)

    latency = np.broadcast_to(np.asarray(scenario.drafting.token_latency_s), shape)
    if not isinstance(scenario.drafting.token_latency_s, tuple):
        latency = latency * _between(scenario.drafting.spread, uniform[..., 1, :])

    channel = scenario.channel
    if isinstance(channel, DistanceChannel):
        distance = np.ascontiguousarray(_between(channel.distance_m, uniform[..., 2, :]))
        mean_gain = path_gain(distance, channel.reference_gain_db, channel.exponent)
    else:
        mean_gain = _between(channel.mean_gain, uniform[..., 2, :])
    return Devices(acceptance_rate, np.array(latency), np.array(mean_gain))


def _between(bounds: PerDevice | Range, uniform: Floats) -> Floats:
    if isinstance(bounds, Range):
        return bounds.min + (bounds.max - bounds.min) * uniform
    return np.broadcast_to(np.asarray(bounds, dtype=np.float64), uniform.shape)


@dataclass(frozen=True)
class Tape:
    """The draws of one episode, for analysis and replay; drawn again from the seed when read.

    All arrays are read-only. Rows are rounds, columns devices.
    """

    scenario: Scenario
    seed: EpisodeSeed
    num_rounds: int  #: rounds drawn so far, a multiple of 16

    @cached_property
    def _draws(self) -> tuple[Devices, Floats]:
        generator = stream(self.seed, BASE_STREAM)
        drawn = devices(self.scenario, draw_uniform(generator, self.scenario.num_devices))
        shape = (2, BLOCK, self.scenario.num_devices)
        blocks = [
            generator.standard_exponential(shape) for _ in range(self.num_rounds // BLOCK)
        ]
        return drawn, np.concatenate(blocks, axis=1)

    @cached_property
    def devices(self) -> Devices:
        """Acceptance rates, drafting speeds and mean gains, each [K]."""
        drawn, _ = self._draws
        for array in (drawn.acceptance_rate, drawn.token_latency_s, drawn.mean_gain):
            array.setflags(write=False)
        return drawn

    @cached_property
    def channel_gain(self) -> Floats:
        """Power gains |h|^2 of all rounds drawn so far, [rounds, K]."""
        drawn, exponential = self._draws
        fading = exponential[0] if self.scenario.channel.fading == "rayleigh" else 1.0
        return _read_only(np.broadcast_to(drawn.mean_gain * fading, exponential[0].shape).copy())

    @cached_property
    def run_length(self) -> NDArray[np.int64]:
        """Run lengths G of all rounds drawn so far, [rounds, K]; a draft accepts min(G, gamma)."""
        drawn, exponential = self._draws
        lengths = run_length(exponential[1], drawn.acceptance_rate)
        lengths.setflags(write=False)
        return np.asarray(lengths)


def draw_uniform(generator: np.random.Generator, num_devices: int) -> Floats:
    """The numbers that :func:`devices` reads, [3, K]: the first draw of an episode."""
    return generator.random((3, num_devices))


def draw_coins(generator: np.random.Generator, num_devices: int) -> NDArray[np.int64]:
    """Fair coins of one block, [16, K]: 1 is downlink."""
    return (generator.random((BLOCK, num_devices)) < 0.5).astype(np.int64)


def _read_only(array: Floats) -> Floats:
    array.setflags(write=False)
    return array
