"""An episode's randomness. Nothing here depends on an action.

At reset an environment takes a few words from its generator, the *episode seed*. Child streams
of that seed, one a purpose and each with a fixed index, give everything random in the episode:

* stream 0 draws the devices (three uniform numbers each), then, in blocks of 16 rounds, standard
  exponential numbers ``[16, 2, K]``: the fading `|h|^2` of every round and device, and the variates
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

from multispin_env.model.acceptance import run_length
from multispin_env.model.kernels.state import BLOCK
from multispin_env.scenario import Scenario
from multispin_env.scenario.devices import DeviceLaw, Devices

Floats = NDArray[np.float64]
EpisodeSeed = tuple[int, ...]

#: Rows of a round's variates: behind the fading, and behind the run lengths.
FADING, RUN = range(2)
#: Uniform numbers that each device is made from.
DEVICE_DRAWS: Final = 3

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
class Fork:
    """Where the tape of another episode seed takes over."""

    fading_from: int  #: first round with fading of that seed
    run_from: int  #: first round with run lengths of that seed
    seed: EpisodeSeed


@dataclass(frozen=True)
class Tape:
    """The draws of one episode, for analysis and replay; drawn again from the seed when read.

    All arrays are read-only. Rows are rounds, columns devices.
    """

    scenario: Scenario
    seed: EpisodeSeed
    num_rounds: int  #: rounds drawn so far, a multiple of 16
    forks: tuple[Fork, ...] = ()  #: where another future began

    @cached_property
    def _draws(self) -> tuple[Devices, Floats]:
        uniform, exponential = self._drawn_from(self.seed)
        for fork in self.forks:
            _, other = self._drawn_from(fork.seed)
            exponential[fork.fading_from :, FADING] = other[fork.fading_from :, FADING]
            exponential[fork.run_from :, RUN] = other[fork.run_from :, RUN]
        return DeviceLaw(self.scenario)(uniform), exponential

    def _drawn_from(self, seed: EpisodeSeed) -> tuple[Floats, Floats]:
        """The draws of an episode seed: for the devices [3, K], and of rounds [rounds, 2, K]."""
        generator, k = stream(seed, BASE_STREAM), self.scenario.num_devices
        uniform = draw_uniform(generator, k)
        blocks = np.empty((self.num_rounds // BLOCK, BLOCK, 2, k))
        for block in blocks:
            draw_block(generator, block)
        return uniform, blocks.reshape(-1, 2, k)

    @cached_property
    def devices(self) -> Devices:
        """Acceptance rates, drafting speeds and mean gains, each [K], read-only."""
        drawn, _ = self._draws
        for array in vars(drawn).values():
            _read_only(array)
        return drawn

    @cached_property
    def channel_gain(self) -> Floats:
        """Power gains `|h|^2` of all rounds drawn so far, [rounds, K]."""
        drawn, exponential = self._draws
        fading = exponential[:, FADING] if self.scenario.channel.fading == "rayleigh" else 1.0
        return _read_only(
            np.broadcast_to(drawn.mean_gain * fading, exponential[:, FADING].shape).copy()
        )

    @cached_property
    def run_length(self) -> NDArray[np.int64]:
        """Run lengths G of all rounds drawn so far, [rounds, K]; a draft accepts min(G, gamma)."""
        drawn, exponential = self._draws
        return _read_only(np.asarray(run_length(exponential[:, RUN], drawn.acceptance_rate)))


def draw_uniform(generator: np.random.Generator, num_devices: int) -> Floats:
    """The numbers that :class:`DeviceLaw` reads, [3, K]: the first draw of an episode."""
    return generator.random((DEVICE_DRAWS, num_devices))


def draw_block(generator: np.random.Generator, out: Floats) -> None:
    """Draw one block into `out` [16, 2, K]: the variates of fading and of run lengths."""
    generator.standard_exponential(out=out)


def draw_coins(generator: np.random.Generator, num_devices: int) -> NDArray[np.int64]:
    """Fair coins of one block, [16, K]: 1 is downlink."""
    return (generator.random((BLOCK, num_devices)) < 0.5).astype(np.int64)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
