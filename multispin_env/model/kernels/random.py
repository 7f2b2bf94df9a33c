"""NumPy's random numbers in compiled code: the same bits, for many streams and without the lock.

A stream is a row of four 64-bit words: state and increment of a PCG64 generator, the high words
first. One that is seeded with the same words as a :class:`numpy.random.PCG64` gives the numbers
that `Generator.random` and `Generator.standard_exponential` give on it, bit for bit: the tests
compare them.

The generator is O'Neill's PCG XSL RR 128/64 (2014); exponential variates are Marsaglia and Tsang's
ziggurat of 256 layers (2000). `exponential.npy` holds NumPy's tables of it, as [3, 256]: which
numbers of a layer are inside without a further look, a layer's width over 2^53, the density at its
edge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from multispin_env.model.kernels.compiling import called, inner

_INSIDE: Final = np.load(Path(__file__).with_name("exponential.npy"))[0].astype(np.uint64)
_WIDTH: Final = np.load(Path(__file__).with_name("exponential.npy"))[1]
_DENSITY: Final = np.load(Path(__file__).with_name("exponential.npy"))[2]
_TAIL: Final = 7.69711747013104972  # where the last layer ends

# PCG's multiplier of 128 bits.
_HIGH: Final = np.uint64(2549297995355413924)
_LOW: Final = np.uint64(4865540595714422341)
_64: Final = 2**64


def high_word(a: Any, b: Any) -> Any:
    """The upper 64 of the 128 bits of a product of two unsigned 64-bit integers."""
    return np.uint64((int(a) * int(b)) >> 64)


@intrinsic
def _high_word(typing_context, a, b):
    """A single instruction, which numba's integers of 64 bits cannot ask for."""

    def generate(context, builder, signature, arguments):
        from llvmlite import ir

        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(number, wide) for number in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@overload(high_word, inline="always")
def _compiled_high_word(a, b):
    return lambda a, b: _high_word(a, b)


@inner
def move_on(state):
    """A state (its high and low word, and the increment's), one step later."""
    high, low, more_high, more_low = state
    product = low * _LOW
    moved = product + more_low
    high = high_word(low, _LOW) + low * _HIGH + high * _LOW + more_high + np.uint64(moved < product)
    return high, moved, more_high, more_low


@inner
def word_of(state):
    """The 64 random bits that a state stands for."""
    mixed, turn = state[0] ^ state[1], state[0] >> np.uint64(58)
    return (mixed >> turn) | (mixed << ((np.uint64(64) - turn) & np.uint64(63)))


@inner
def uniform_of(state):
    """The number in [0, 1) that a state stands for."""
    return np.float64(word_of(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@called
def fill_uniform(stream, out):
    """Draw numbers, uniform in [0, 1), into `out` [n]; the stream moves on."""
    state = stream[0], stream[1], stream[2], stream[3]
    for i in range(out.shape[0]):
        state = move_on(state)
        out[i] = uniform_of(state)
    stream[0], stream[1] = state[0], state[1]


@called
def fill_coins(stream, out):
    """Toss fair coins into `out` [n]: 1 where a uniform number is below a half."""
    state = stream[0], stream[1], stream[2], stream[3]
    for i in range(out.shape[0]):
        state = move_on(state)
        out[i] = 1 if uniform_of(state) < 0.5 else 0
    stream[0], stream[1] = state[0], state[1]


@called
def fill_exponential(stream, out):
    """Draw standard exponential variates into `out` [n]; the stream moves on."""
    state = stream[0], stream[1], stream[2], stream[3]  # in registers while it lasts
    for i in range(out.shape[0]):
        while True:
            state = move_on(state)
            bits = word_of(state) >> np.uint64(3)
            layer = np.int64(bits & np.uint64(255))
            bits = bits >> np.uint64(8)
            x = np.float64(bits) * _WIDTH[layer]
            if bits < _INSIDE[layer]:
                break
            state = move_on(state)
            if layer == 0:
                x = _TAIL - np.log1p(-uniform_of(state))
                break
            above = (_DENSITY[layer - 1] - _DENSITY[layer]) * uniform_of(state)
            if above + _DENSITY[layer] < np.exp(-x):
                break
        out[i] = x
    stream[0], stream[1] = state[0], state[1]


@inner
def seed(words, stream):
    """Seed a stream [4] as PCG64 does with the four words that a seed sequence gives it."""
    more_high = (words[2] << np.uint64(1)) | (words[3] >> np.uint64(63))
    more_low = (words[3] << np.uint64(1)) | np.uint64(1)
    # From state 0 a step leads to the increment; then the first two words are added.
    low = more_low + words[1]
    high = more_high + words[0] + np.uint64(low < words[1])
    state = move_on((high, low, more_high, more_low))
    stream[0], stream[1], stream[2], stream[3] = state


def words_of(generator: np.random.Generator) -> np.ndarray:
    """The stream [4] that goes on as a generator on a PCG64 would."""
    state = generator.bit_generator.state["state"]
    numbers = [*divmod(state["state"], _64), *divmod(state["inc"], _64)]
    return np.array(numbers, np.uint64)
