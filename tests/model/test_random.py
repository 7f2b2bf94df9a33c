"""Random numbers in compiled code against NumPy's own, bit by bit."""

import numba
import numpy as np
import pytest

from multispin_env.model.kernels import random
from multispin_env.model.kernels.random import (
    fill_coins,
    fill_exponential,
    fill_uniform,
    high_word,
    seed,
    words_of,
)


@numba.njit
def exponentials(stream, out):
    fill_exponential(stream, out)


@numba.njit
def uniforms(stream, out):
    fill_uniform(stream, out)


@numba.njit
def coins(stream, out):
    fill_coins(stream, out)


@numba.njit
def seeded(words, stream):
    seed(words, stream)


@numba.njit
def upper(a, b):
    return high_word(a, b)


def generator(number):
    return np.random.Generator(np.random.PCG64(number))


@pytest.mark.parametrize("number", range(5))
def test_exponentials_are_numpys(number):
    # A million variates meet every layer of the ziggurat, its wedges and, 450 times, its tail.
    theirs = generator(number)
    stream, found = words_of(theirs), np.empty(1_000_000)
    exponentials(stream, found)
    expected = theirs.standard_exponential(found.size)
    np.testing.assert_array_equal(found, expected)
    assert np.sum(found > 7.697) > 300
    np.testing.assert_array_equal(stream, words_of(theirs))


def test_uniform_numbers_and_coins_are_numpys():
    theirs = generator(1)
    stream, found, heads = words_of(theirs), np.empty(100_000), np.empty(1000, np.int64)
    uniforms(stream, found)
    np.testing.assert_array_equal(found, theirs.random(found.size))
    coins(stream, heads)
    np.testing.assert_array_equal(heads, theirs.random(heads.size) < 0.5)
    np.testing.assert_array_equal(stream, words_of(theirs))


@pytest.mark.parametrize("number", [0, 1, 7, 2**63, 2**64 - 1])
def test_a_stream_is_seeded_as_pcg64_is(number):
    sequence = np.random.SeedSequence(number)
    stream = np.empty(4, np.uint64)
    seeded(sequence.generate_state(4, np.uint64), stream)
    np.testing.assert_array_equal(stream, words_of(np.random.Generator(np.random.PCG64(sequence))))


EDGES = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]


@pytest.mark.parametrize("a", EDGES)
@pytest.mark.parametrize("b", EDGES)
def test_the_upper_half_of_a_product(a, b):
    exactly = (a * b) >> 64
    assert int(upper(np.uint64(a), np.uint64(b))) == exactly
    assert int(random.high_word(np.uint64(a), np.uint64(b))) == exactly
