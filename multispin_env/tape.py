"""An episode's randomness. Nothing here depends on an action.

At reset an environment takes a few words from its generator, the *episode seed*. Child streams
of that seed, one a purpose and each with a fixed index, give everything random in the episode:

* stream 0 draws the devices (three uniform numbers each), then, in blocks of 16 rounds, standard
  exponential numbers ``[16, 2, K]``: the fading |h|^2 of every round and device, and the variates
  of the run lengths;
* stream 1, only under random modes, draws a coin for every round and device.

So block b is a function of the episode seed and b alone: two policies that start from the same
seed meet the same devices, channels and run lengths (*common random numbers*), whatever they do,
and switching an option on leaves all other draws as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from multispin_env.model.acceptance import mean_run, run_length
from multispin_env.model.channel import path_gain
from multispin_env.model.kernels import BLOCK, FADING, RUN
from multispin_env.scenario import DistanceChannel, PerDevice, Range, Scenario

Floats = NDArray[np.float64]
EpisodeSeed = tuple[int, ...]

#: Indices of the child streams. An index is never reused or renumbered.
BASE_STREAM: Final = 0
COIN_STREAM: Final = 1


def episode_seed(generator: np.random.Generator) -> EpisodeSeed:
    """Take the seed of the next episode, 256 bits, from an environment's generator."""
    return tuple(generator.bit_generator.random_raw(4).tolist())


class _SeedWords(ISeedSequence):
    """Seeds a bit generator with given words, as they are.

    An episode's seed is random already; hashing it once more, as SeedSequence does, would take
    longer than all else that a reset does.
    """

    def __init__(self, words: EpisodeSeed) -> None:
        if len(words) != 4:
            raise ValueError(f"seed = {words!r}: must be 4 words of 64 bits")
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> NDArray[Any]:
        """The words; PCG64 asks for four of 64 bits."""
        return np.array(self._words, dtype=dtype)


def stream(seed: EpisodeSeed, index: int) -> np.random.Generator:
    """Child stream `index` of an episode."""
    sequence = np.random.SeedSequence(seed, spawn_key=(index,)) if index else _SeedWords(seed)
    return np.random.Generator(np.random.PCG64(sequence))  # type: ignore[arg-type]


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
    """

    def __init__(self, scenario: Scenario) -> None:
        k = scenario.num_devices
        self._device = np.arange(k)
        self._rates = np.array([np.broadcast_to(t.acceptance_rate, k) for t in scenario.tasks])
        self._mean_runs = mean_run(self._rates)
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
        task = (uniform[..., 0, :] * len(self._rates)).astype(np.int64)
        latency = _between(self._latency, uniform[..., 1, :])
        position = _between(self._position, uniform[..., 2, :])
        channel = self._channel
        if isinstance(channel, DistanceChannel):
            position = path_gain(position, channel.reference_gain_db, channel.exponent)
        rate, run = self._rates[task, self._device], self._mean_runs[task, self._device]
        return Devices(rate, run, latency, position)


def _interval(bounds: PerDevice | Range, num_devices: int) -> Floats:
    """Bounds [2, K] of a uniform draw; a constant is an interval of no width."""
    low, high = (bounds.min, bounds.max) if isinstance(bounds, Range) else (bounds, bounds)
    return np.array([np.broadcast_to(low, num_devices), np.broadcast_to(high, num_devices)])


def _between(interval: Floats, uniform: Floats) -> Floats:
    return np.asarray(interval[0] + (interval[1] - interval[0]) * uniform)


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
        drawn = DeviceLaw(self.scenario)(draw_uniform(generator, self.scenario.num_devices))
        blocks = np.empty((self.num_rounds // BLOCK, BLOCK, 2, self.scenario.num_devices))
        for block in blocks:
            draw_block(generator, block)
        return drawn, blocks.reshape(-1, 2, self.scenario.num_devices)

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
        fading = exponential[:, FADING] if self.scenario.channel.fading == "rayleigh" else 1.0
        return _read_only(
            np.broadcast_to(drawn.mean_gain * fading, exponential[:, FADING].shape).copy()
        )

    @cached_property
    def run_length(self) -> NDArray[np.int64]:
        """Run lengths G of all rounds drawn so far, [rounds, K]; a draft accepts min(G, gamma)."""
        drawn, exponential = self._draws
        lengths = run_length(exponential[:, RUN], drawn.acceptance_rate)
        lengths.setflags(write=False)
        return np.asarray(lengths)


def draw_uniform(generator: np.random.Generator, num_devices: int) -> Floats:
    """The numbers that :class:`DeviceLaw` reads, [3, K]: the first draw of an episode."""
    return generator.random((3, num_devices))


def draw_block(generator: np.random.Generator, out: Floats) -> None:
    """Draw one block into `out` [16, 2, K]: the variates of fading and of run lengths."""
    generator.standard_exponential(out=out)


def draw_coins(generator: np.random.Generator, num_devices: int) -> NDArray[np.int64]:
    """Fair coins of one block, [16, K]: 1 is downlink."""
    return (generator.random((BLOCK, num_devices)) < 0.5).astype(np.int64)


def _read_only(array: Floats) -> Floats:
    array.setflags(write=False)
    return array
