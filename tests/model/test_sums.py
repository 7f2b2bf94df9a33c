"""Sums with one order and plain additions, whatever Python sums by itself."""

import math

import numpy as np
import pytest

from multispin_env.model.sums import total


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e16, 1.0, -1e16], 0.0),  # the exact sum is 1
        ([1.0, 1e16, -1e16], 0.0),
        ([1e16, -1e16, 1.0], 1.0),
        ([0.1] * 10, 0.9999999999999999),
        ([0.1, 0.2, 0.3], 0.6000000000000001),
        ([0.3, 0.2, 0.1], 0.6),
    ],
)
def test_additions_are_plain_and_from_left_to_right(values, expected):
    assert total(values) == expected
    assert total(iter(values)) == expected
    assert total([np.float64(value) for value in values]) == expected
    assert np.array_equal(total([np.array([value, 0.5]) for value in values])[0], expected)


def test_lanes_have_the_sums_of_their_numbers():
    generator = np.random.default_rng(3)
    columns = generator.normal(size=(5, 1000)) * 10.0 ** generator.integers(-12, 12, (5, 1000))
    lanes = total(columns)
    alone = [total(column.tolist()) for column in columns.T]
    assert lanes.tolist() == alone
    assert any(value != math.fsum(column) for value, column in zip(alone, columns.T))


def test_a_sum_starts_from_nought_and_changes_nothing():
    assert (total([]), type(total([]))) == (0, int)
    assert (total([True, 2]), type(total([True, 2]))) == (3, int)
    assert math.copysign(1.0, total([-0.0])) == 1.0
    assert math.copysign(1.0, total([-0.0, -0.0])) == 1.0
    parts = [np.array([-0.0, 1.0]), np.array([2.0, 3.0])]
    assert np.signbit(total(parts[:1])).tolist() == [False, False]
    assert total(parts).tolist() == [2.0, 4.0]
    assert parts[0].tolist() == [0.0, 1.0]
