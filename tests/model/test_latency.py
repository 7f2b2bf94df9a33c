"""The parts of a round's latency, against values worked out by hand."""

import numpy as np
import pytest

from multispin_env.model.latency import (
    drafting_latency,
    transmission_latency,
    verification_latency,
)


@pytest.mark.parametrize(
    ("lengths", "latencies", "seconds"),
    [
        ([3, 4], [0.5, 0.25], 1.5),
        ([0, 0, 0], [0.1, 0.2, 0.3], 0.0),
        ([1, 10, 2], [0.1, 0.0125, 0.0], 0.125),
        ([7], [0.125], 0.875),
    ],
)
def test_drafting_waits_for_the_slowest(lengths, latencies, seconds):
    assert drafting_latency(lengths, latencies) == pytest.approx(seconds, rel=1e-15)


def test_drafting_reduces_the_last_axis_only():
    lengths = np.array([[[1, 2], [3, 0]], [[0, 0], [5, 6]]])
    result = drafting_latency(lengths, np.array([1.0, 0.5]))
    assert result.tolist() == [[1.0, 3.0], [0.0, 5.0]]


@pytest.mark.parametrize(
    ("num_devices", "fixed_s", "per_device_s", "seconds"),
    [(20, 0.0428, 0.0076, 0.1948), (20, 0.02268, 0.01272, 0.27708), (1, 0.0693, 0.0091, 0.0784)],
)
def test_verification_of_the_papers(num_devices, fixed_s, per_device_s, seconds):
    result = verification_latency(num_devices, fixed_s, per_device_s)
    assert float(result) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(("snr", "bits_per_hertz"), [(1, 1), (3, 2), (15, 4), (1023, 10)])
def test_capacity_at_known_points(snr, bits_per_hertz):
    seconds = transmission_latency(6e6, 2e6, snr)
    assert float(seconds) == pytest.approx(3.0 / bits_per_hertz, rel=1e-14)


@pytest.mark.parametrize("snr", [1e-20, 1e-12, 1e-300])
def test_capacity_is_linear_when_the_signal_is_weak(snr):
    # B log2(1 + s) -> B s / ln 2 = 1.4426950408889634 B s: the power-limited regime.
    seconds = float(transmission_latency(1.0, 1.0, snr))
    assert seconds * snr == pytest.approx(0.6931471805599453, rel=1e-11)


def test_a_wider_band_at_fixed_power_helps_up_to_the_wideband_limit():
    band = 2.0 ** np.arange(0, 40)
    seconds = transmission_latency(1.0, band, 1.0 / band)  # total power over density: 1
    assert np.all(np.diff(seconds) < 0)
    assert seconds[-1] == pytest.approx(np.log(2.0), rel=1e-9)


@pytest.mark.parametrize(("bandwidth_hz", "snr"), [(1e6, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_a_dead_link_takes_forever(bandwidth_hz, snr):
    with np.errstate(all="raise"):
        assert transmission_latency(1e4, bandwidth_hz, snr) == np.inf


def test_no_band_takes_forever_at_any_density_of_power():
    # Power over N0 * 0 Hz is an infinite ratio, yet nothing can be sent.
    assert transmission_latency(1e4, 0.0, np.inf) == np.inf


def test_transmission_broadcasts():
    seconds = transmission_latency(np.array([[1e6], [2e6]]), 1e6, np.array([1.0, 3.0, 0.0]))
    assert seconds.tolist() == [[1.0, 0.5, np.inf], [2.0, 1.0, np.inf]]
