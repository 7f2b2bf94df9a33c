"""The vectorised logarithms, against the C library's."""

import math

import numba
import numpy as np
import pytest

from multispin_env.model.kernels import logarithms


@numba.njit
def each(function, numbers):
    result = np.empty_like(numbers)
    for i in range(numbers.size):
        result[i] = function(numbers[i])
    return result


def units_off(found, true):
    """Distances in units in the last place of the true values."""
    return np.abs(found - true) / np.spacing(np.abs(true))


SPREAD = np.exp(np.random.default_rng(0).uniform(np.log(1e-300), np.log(1e300), 200_000))
NEAR_ONE = 1.0 + np.random.default_rng(1).normal(0.0, 1e-3, 200_000)
EDGES = np.array([1e-30, 1e30, 0.5, 1.0, 2.0, np.sqrt(0.5), np.sqrt(2.0)])
EDGES = np.concatenate([EDGES, np.nextafter(EDGES, 0.0), np.nextafter(EDGES, np.inf)])


@pytest.mark.parametrize("numbers", [SPREAD, NEAR_ONE, EDGES])
def test_natural_log_is_right_to_a_unit_in_the_last_place(numbers):
    true = np.array([math.log(x) for x in numbers])
    assert units_off(each(logarithms.natural_log, numbers), true).max() <= 1.0


@pytest.mark.parametrize("numbers", [SPREAD, np.abs(NEAR_ONE - 1.0), EDGES, np.zeros(1)])
def test_natural_log1p_is_right_to_two_units_in_the_last_place(numbers):
    true = np.array([math.log1p(x) for x in numbers])
    assert units_off(each(logarithms.natural_log1p, numbers), true).max() <= 2.0


def test_natural_log1p_of_infinity_is_large_and_finite():
    assert logarithms.natural_log1p(np.inf) == pytest.approx(math.log(1e300), rel=1e-15)
