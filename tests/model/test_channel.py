"""Units, path loss and decibels, against known values."""

import numpy as np
import pytest

from multispin_env.model.channel import (
    SNR_LIMIT_DB,
    db_to_ratio,
    dbm_to_w,
    path_gain,
    snr_db,
    snr_from_db,
)


@pytest.mark.parametrize(
    ("decibel", "ratio"),
    [
        (0.0, 1.0),
        (10.0, 10.0),
        (3.0, 1.9952623149688795),
        (-3.0, 0.5011872336272722),
        (-30.0, 1e-3),
        (300.0, 1e30),
        (-np.inf, 0.0),
    ],
)
def test_db_to_ratio_of_known_values(decibel, ratio):
    assert float(db_to_ratio(decibel)) == pytest.approx(ratio, rel=1e-14)


@pytest.mark.parametrize(
    ("dbm", "watt"),
    [
        (30.0, 1.0),
        (0.0, 1e-3),
        (20.0, 0.1),
        (-169.0, 1.2589254117941673e-20),
        (-167.0, 1.9952623149688795e-20),
        (-46.38, 2.3014418e-8),
        (-np.inf, 0.0),
    ],
)
def test_dbm_to_w_of_known_values(dbm, watt):
    assert float(dbm_to_w(dbm)) == pytest.approx(watt, rel=1e-7)
    assert dbm_to_w([dbm, 30.0]).shape == (2,)


def test_path_gain_at_one_metre_is_the_reference():
    assert float(path_gain(1.0, -30.0, 3.5)) == pytest.approx(1e-3, rel=1e-14)


@pytest.mark.parametrize("exponent", [0.0, 2.0, 3.5, 4.0])
def test_path_gain_falls_by_ten_exponent_decibel_a_decade(exponent):
    gains = path_gain(np.array([1.0, 10.0, 100.0, 1000.0]), -30.0, exponent)
    decades = 10.0 * np.log10(gains)
    assert np.diff(decades) == pytest.approx(np.full(3, -10.0 * exponent), abs=1e-9)


def test_path_gain_is_a_straight_line_in_logarithms():
    distance = np.random.default_rng(1).uniform(100.0, 500.0, 200)
    gain = path_gain(distance, -30.0, 3.5)
    slope, offset = np.polyfit(np.log10(distance), np.log10(gain), 1)
    assert (slope, offset) == pytest.approx((-3.5, -3.0), abs=1e-10)


@pytest.mark.parametrize(
    ("snr", "decibel"), [(1.0, 0.0), (100.0, 20.0), (2.0, 3.010299956639812), (1e-12, -120.0)]
)
def test_snr_db_of_known_values(snr, decibel):
    assert float(snr_db(snr)) == pytest.approx(decibel, abs=1e-12)


@pytest.mark.parametrize(
    ("snr", "decibel"),
    [(0.0, -300.0), (1e-31, -300.0), (5e-324, -300.0), (1e31, 300.0), (np.inf, 300.0)],
)
def test_snr_db_is_clipped(snr, decibel):
    assert float(snr_db(snr)) == pytest.approx(decibel, abs=1e-12)


@pytest.mark.parametrize("snr", [0.0, 1e-40, 1e40, np.inf, 1e-30, 1e30])
def test_snr_db_stays_inside_the_limits(snr):
    assert -SNR_LIMIT_DB <= float(snr_db(snr)) <= SNR_LIMIT_DB
    assert -300.0 <= np.float32(snr_db(snr)) <= 300.0


def test_snr_survives_the_round_trip():
    snr = 10.0 ** np.random.default_rng(2).uniform(-29.9, 29.9, 1000)
    assert snr_from_db(snr_db(snr)) == pytest.approx(snr, rel=1e-12)


def test_decibels_survive_the_round_trip():
    decibel = np.linspace(-299.9, 300.0, 1001)
    assert snr_db(snr_from_db(decibel)) == pytest.approx(decibel, abs=1e-11)


def test_no_signal_survives_the_round_trip():
    values = snr_from_db(snr_db(np.array([0.0, 1.0])))
    assert values[0] == 0.0
    assert values[1] == pytest.approx(1.0, rel=1e-14)


def test_no_signal_survives_single_precision():
    assert snr_from_db(np.float32(snr_db(0.0))) == 0.0


def test_snr_db_does_not_raise_under_strict_arithmetic():
    with np.errstate(all="raise"):
        values = snr_db(np.array([0.0, 5e-324, 1.0, 1e300, np.inf]))
    assert np.all(np.isfinite(values))
