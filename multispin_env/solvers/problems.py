"""What the server knows at the start of one round, and what a decision is then worth.

A problem holds the state of one round (acceptance rates, channel, powers); its methods value a
decision. The objective of both papers is the goodput of the round in expectation over the
acceptances, G = E[tokens] / E[latency] (A-13, B-22), a ratio of expectations.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multispin_env.model import correction, upload
from multispin_env.model.acceptance import expected_tokens, rejection_probability, run_length
from multispin_env.model.channel import snr_from_db
from multispin_env.model.latency import drafting_latency
from multispin_env.scenario import CorrectionRadio, Scenario
from multispin_env.scenario.devices import DeviceLaw

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Exact expectations enumerate 2^K outcomes; more devices than this are refused.
EXACT_MAX_DEVICES: Final = 16


def _checked_array(
    problem: Any, name: str, num_devices: int | None, low: float, high: float
) -> Any:
    value = np.asarray(getattr(problem, name), dtype=np.float64)
    if num_devices is not None:
        if value.shape not in ((), (num_devices,)):
            raise ValueError(f"{name} has shape {value.shape}: must have shape ({num_devices},)")
        value = np.array(np.broadcast_to(value, num_devices))
    elif value.ndim > 0:
        raise ValueError(f"{name} has shape {value.shape}: must be one number")
    if not np.all((value >= low) & (value <= high)):
        raise ValueError(f"{name} = {value}: must be in [{low:g}, {high:g}]")
    return value if num_devices is not None else float(value)


def _check_arrays(problem: Any, ranges: Mapping[str, tuple[bool, float, float]]) -> None:
    """Turn a problem's arguments into arrays [K] or numbers, and check that they are in range.

    Args:
        problem: its `acceptance_rate` says how many devices there are.
        ranges: by argument: whether it has one value a device, the least and the largest.
    """
    num_devices = int(np.size(problem.acceptance_rate))
    if num_devices == 0:
        raise ValueError("acceptance_rate is empty: must hold one rate a device")
    for name, (per_device, low, high) in ranges.items():
        size = num_devices if per_device else None
        object.__setattr__(problem, name, _checked_array(problem, name, size, low, high))


def check_integer(name: str, value: Any, low: int) -> None:
    """ValueError unless `value` is an integer of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise ValueError(f"{name} = {value!r}: must be an integer >= {low}")


def _check_lengths(draft_length: ArrayLike, num_devices: int, low: int, high: int) -> Integers:
    lengths = np.asarray(draft_length)
    if lengths.shape != (num_devices,) or lengths.dtype.kind not in "iu":
        raise ValueError(
            f"draft_length has shape {lengths.shape} and dtype {lengths.dtype}: "
            f"must be {num_devices} integers"
        )
    if np.any(lengths < low) or np.any(lengths > high):
        raise ValueError(f"draft_length = {lengths}: must be in [{low}, {high}]")
    return lengths.astype(np.int64)


@lru_cache(maxsize=8)
def _variates(samples: int, num_devices: int, seed: int) -> tuple[Floats, Integers]:
    """Common random numbers: exponential variates and coins, [samples, K], read-only."""
    generator = np.random.default_rng(seed)
    exponential = generator.standard_exponential((samples, num_devices))
    coins = (generator.random((samples, num_devices)) < 0.5).astype(np.int64)
    exponential.setflags(write=False)
    coins.setflags(write=False)
    return exponential, coins


@dataclass(frozen=True, kw_only=True, eq=False)
class CorrectionProblem:
    """One round of the correction protocol (paper B), before drafting.

    Args:
        acceptance_rate: alpha, [K] in [0, 1].
        token_latency_s: drafting time a token T, [K].
        channel_gain: `|h|^2`, [K].
        uplink_power_w: largest uplink power, [K] or one number.
        downlink_power_w: the server's budget.
        payload_bits: D, bits of a truncated distribution.
        bandwidth_hz: B, split equally over the rejected devices.
        noise_server_w_hz: noise density at the server.
        noise_device_w_hz: noise density at the devices, [K] or one number.
        verification_s: T0 + K T1.
        max_draft_length: longest draft.

    Raises:
        ValueError: an argument has a wrong shape, is NaN or out of range.
    """

    acceptance_rate: Any
    token_latency_s: Any
    channel_gain: Any
    uplink_power_w: Any
    downlink_power_w: Any
    payload_bits: Any
    bandwidth_hz: Any
    noise_server_w_hz: Any
    noise_device_w_hz: Any
    verification_s: Any
    max_draft_length: int

    def __post_init__(self) -> None:
        ranges = {
            "acceptance_rate": (True, 0.0, 1.0),
            "token_latency_s": (True, 1e-12, 1e6),
            "channel_gain": (True, 0.0, 1e90),
            "uplink_power_w": (True, 0.0, 1e30),
            "downlink_power_w": (False, 0.0, 1e40),
            "payload_bits": (False, 1.0, 1e18),
            "bandwidth_hz": (False, 1e-3, 1e18),
            "noise_server_w_hz": (False, 1e-60, 1e30),
            "noise_device_w_hz": (True, 1e-60, 1e30),
            "verification_s": (False, 1e-9, 1e6),
        }
        _check_arrays(self, ranges)
        check_integer("max_draft_length", self.max_draft_length, 0)

    @property
    def num_devices(self) -> int:
        """K."""
        return int(self.acceptance_rate.size)

    def correct(
        self, rejected: ArrayLike, rule: str = "optimal", seed: int = 0
    ) -> correction.Correction:
        """The correction of a rejected set (bool [K]) under a rule; `seed` tosses the coins."""
        outcome = np.asarray(rejected)
        if outcome.shape != (self.num_devices,):
            raise ValueError(f"rejected = {rejected!r}: must be {self.num_devices} truth values")
        coins = None
        if rule == "random":
            coins = np.random.default_rng(seed).random(self.num_devices) < 0.5
        return correction.correct(outcome.astype(bool), rule=rule, downlink=coins, **self._radio())

    def expected_tokens(self, draft_length: ArrayLike) -> float:
        """E[tokens] of a round: the sum of :func:`expected_tokens` over the devices (B-14)."""
        lengths = self._lengths(draft_length)
        return float(np.sum(expected_tokens(self.acceptance_rate, lengths)))

    def expected_latency(
        self,
        draft_length: ArrayLike,
        rule: str = "optimal",
        *,
        exact: bool = False,
        samples: int = 1000,
        seed: int = 0,
    ) -> float:
        """E[latency] of a round [s]: drafting + verification + E[communication].

        Args:
            draft_length: [K].
            rule: how corrections travel; `random` is in expectation over its coins.
            exact: enumerate the rejected sets (and the coins), for small K; otherwise average
                over `samples` outcomes drawn from `seed`, the same for every decision.
        """
        lengths = self._lengths(draft_length)
        correction.check_rule(rule)
        mean = self._exact(lengths, rule) if exact else self._sampled(lengths, rule, samples, seed)
        drafting_s = float(drafting_latency(lengths, self.token_latency_s))
        return float(drafting_s + self.verification_s + mean)

    def goodput(
        self,
        draft_length: ArrayLike,
        rule: str = "optimal",
        *,
        exact: bool = False,
        samples: int = 1000,
        seed: int = 0,
    ) -> float:
        """E[tokens] / E[latency] [tokens/s]; 0 if the latency is infinite."""
        tokens = self.expected_tokens(draft_length)
        return tokens / self.expected_latency(
            draft_length, rule, exact=exact, samples=samples, seed=seed
        )

    def _lengths(self, draft_length: ArrayLike) -> Integers:
        return _check_lengths(draft_length, self.num_devices, 0, self.max_draft_length)

    def _radio(self) -> dict[str, Any]:
        return {
            "channel_gain": self.channel_gain,
            "uplink_power_w": self.uplink_power_w,
            "downlink_power_w": self.downlink_power_w,
            "payload_bits": self.payload_bits,
            "bandwidth_hz": self.bandwidth_hz,
            "noise_server_w_hz": self.noise_server_w_hz,
            "noise_device_w_hz": self.noise_device_w_hz,
        }

    def _sampled(self, lengths: Integers, rule: str, samples: int, seed: int) -> float:
        check_integer("samples", samples, 1)
        exponential, coins = _variates(samples, self.num_devices, seed)
        return float(
            np.mean(
                correction.correct(
                    run_length(exponential, self.acceptance_rate) < lengths,
                    rule=rule,
                    downlink=coins if rule == "random" else None,
                    **self._radio(),
                ).latency_s
            )
        )

    def _exact(self, lengths: Integers, rule: str) -> float:
        outcomes, latency = self.outcome_latencies(rule)
        reject = rejection_probability(self.acceptance_rate, lengths)
        probability = np.prod(np.where(outcomes == 1, reject, 1.0 - reject), axis=1)
        possible = probability > 0  # an impossible outcome may take forever: 0 * inf is not 0
        return float(probability[possible] @ latency[possible])

    def outcome_latencies(self, rule: str = "optimal") -> tuple[Integers, Floats]:
        """Every rejected set (0 or 1, [2^K, K]) and its correction latency [s], [2^K].

        Under `random` the mean over the coins of the rejected devices.

        Raises:
            ValueError: more than 16 devices.
        """
        k = self.num_devices
        if k > EXACT_MAX_DEVICES:
            raise ValueError(f"exact=True enumerates 2^K outcomes: K = {k} is over the limit of 16")
        outcomes = np.array(list(itertools.product([0, 1], repeat=k)))
        if rule != "random":
            sent = correction.correct(outcomes, rule=rule, **self._radio())
            return outcomes, np.asarray(sent.latency_s)
        latency = np.zeros(len(outcomes))
        for index, outcome in enumerate(outcomes):
            members = np.flatnonzero(outcome)
            coins = np.zeros((2**members.size, k), dtype=int)
            coins[:, members] = list(itertools.product([0, 1], repeat=members.size))
            latency[index] = np.mean(
                correction.correct(
                    np.broadcast_to(outcome, coins.shape),
                    rule="random",
                    downlink=coins,
                    **self._radio(),
                ).latency_s
            )
        return outcomes, latency


@dataclass(frozen=True, kw_only=True, eq=False)
class UploadProblem:
    """One round of the upload protocol (paper A), before drafting.

    Args:
        acceptance_rate: alpha, [K] in [0, 1].
        token_latency_s: drafting time a token T, [K].
        spectral_efficiency: r, [K] [bit/s/Hz]; 0 is a dead channel.
        bandwidth_hz: B.
        token_bits: Q, bits uploaded for each drafted token.
        verification_s: T_fix + K T_lin.
        max_draft_length, min_draft_length: allowed lengths; the paper starts at 1.

    Raises:
        ValueError: an argument has a wrong shape, is NaN or out of range.
    """

    acceptance_rate: Any
    token_latency_s: Any
    spectral_efficiency: Any
    bandwidth_hz: Any
    token_bits: Any
    verification_s: Any
    max_draft_length: int
    min_draft_length: int = 1

    def __post_init__(self) -> None:
        ranges = {
            "acceptance_rate": (True, 0.0, 1.0),
            "token_latency_s": (True, 1e-12, 1e6),
            "spectral_efficiency": (True, 0.0, 1e6),
            "bandwidth_hz": (False, 1e-3, 1e18),
            "token_bits": (False, 1.0, 1e18),
            "verification_s": (False, 1e-9, 1e6),
        }
        _check_arrays(self, ranges)
        check_integer("min_draft_length", self.min_draft_length, 0)
        check_integer("max_draft_length", self.max_draft_length, 0)
        if self.min_draft_length > self.max_draft_length:
            raise ValueError(
                f"min_draft_length = {self.min_draft_length}: must be at most max_draft_length = "
                f"{self.max_draft_length}"
            )

    @property
    def num_devices(self) -> int:
        """K."""
        return int(self.acceptance_rate.size)

    def allocate(self, draft_length: ArrayLike) -> upload.Allocation:
        """Bandwidths and latency of drafting and uploading (Lemma 3)."""
        return self._allocate(self._lengths(draft_length), None)

    def expected_tokens(self, draft_length: ArrayLike) -> float:
        """E[tokens] of a round (A-25)."""
        lengths = self._lengths(draft_length)
        return float(np.sum(expected_tokens(self.acceptance_rate, lengths)))

    def goodput(self, draft_length: ArrayLike, bandwidth_hz: ArrayLike | None = None) -> float:
        """E[tokens] / latency [tokens/s] (A-27), under given bandwidths or those of Lemma 3.

        0 if a device with a dead channel or no bandwidth drafts.
        """
        lengths = self._lengths(draft_length)
        if bandwidth_hz is None:
            ready_s = float(self._allocate(lengths, None).latency_s)
        else:
            band = np.asarray(bandwidth_hz, dtype=np.float64)
            fits = band.shape == lengths.shape and np.all(band >= 0)
            if not fits or not band.sum() <= self.bandwidth_hz * (1 + 1e-9):
                raise ValueError(
                    f"bandwidth_hz = {band}: must be {lengths.size} numbers >= 0 that sum to at "
                    f"most {self.bandwidth_hz:g}"
                )
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                per_token = self.token_latency_s + self.token_bits / (
                    band * self.spectral_efficiency
                )
                ready_s = float(np.max(np.where(lengths > 0, lengths * per_token, 0.0)))
        return float(self.expected_tokens(lengths) / (ready_s + self.verification_s))

    @property
    def unit_work_hz_s(self) -> Floats:
        """Upload work of one token, Q / r [Hz s], [K]; inf for a dead channel."""
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.token_bits / self.spectral_efficiency)

    def ready_latency(self, draft_lengths: Integers) -> Floats:
        """Drafting and uploading of many decisions [M, K] under Lemma 3 [s], [M].

        The fast way for solvers; lengths are not checked, and need not be allowed.
        """
        return np.asarray(self._allocate(draft_lengths, None).latency_s)

    def _lengths(self, draft_length: ArrayLike) -> Integers:
        low, high = self.min_draft_length, self.max_draft_length
        return _check_lengths(draft_length, self.num_devices, low, high)

    def _allocate(self, lengths: Integers, share: Floats | None) -> upload.Allocation:
        return upload.allocate(
            lengths,
            token_latency_s=self.token_latency_s,
            spectral_efficiency=self.spectral_efficiency,
            token_bits=self.token_bits,
            bandwidth_hz=self.bandwidth_hz,
            share=share,
        )


Problem = CorrectionProblem | UploadProblem


def pose(
    scenario: Scenario,
    acceptance_rate: ArrayLike,
    token_latency_s: ArrayLike,
    channel_gain: ArrayLike,
    min_draft_length: int = 0,
) -> Problem:
    """The problem that one round of a scenario poses, given its devices and channel, each [K]."""
    if isinstance(scenario.radio, CorrectionRadio):
        return CorrectionProblem(
            acceptance_rate=acceptance_rate,
            token_latency_s=token_latency_s,
            channel_gain=channel_gain,
            uplink_power_w=scenario.uplink_power_w,
            downlink_power_w=scenario.downlink_power_w,
            payload_bits=scenario.payload.distribution_bits,
            bandwidth_hz=scenario.radio.bandwidth_hz,
            noise_server_w_hz=scenario.noise_server_w / scenario.radio.bandwidth_hz,
            noise_device_w_hz=scenario.noise_device_w / scenario.radio.bandwidth_hz,
            verification_s=scenario.verification_s,
            max_draft_length=scenario.max_draft_length,
        )
    return UploadProblem(
        acceptance_rate=acceptance_rate,
        token_latency_s=token_latency_s,
        spectral_efficiency=upload.spectral_efficiency(
            scenario.uplink_power_w, channel_gain, scenario.noise_server_w
        ),
        bandwidth_hz=scenario.radio.bandwidth_hz,
        token_bits=scenario.payload.distribution_bits,
        verification_s=scenario.verification_s,
        max_draft_length=scenario.max_draft_length,
        min_draft_length=min_draft_length,
    )


def draw(scenario: Scenario, generator: np.random.Generator, min_draft_length: int = 0) -> Problem:
    """The problem of a random round: fresh devices and a fresh channel."""
    devices = DeviceLaw(scenario)(generator.random((3, scenario.num_devices)))
    fading = generator.standard_exponential(scenario.num_devices)
    gain = devices.mean_gain * (fading if scenario.channel.fading == "rayleigh" else 1.0)
    return pose(scenario, devices.acceptance_rate, devices.token_latency_s, gain, min_draft_length)


def pose_observed(scenario: Scenario, observation: Mapping[str, Any]) -> Problem:
    """The problem behind one observation of DraftLength or DraftBandwidth, arrays [K].

    The observed full-band signal-to-noise ratio is turned back into the channel gain.

    Raises:
        ValueError: the observation hides the acceptance rates.
    """
    if "acceptance_rate" not in observation:
        raise ValueError("the observation has no acceptance_rate: needs observe_acceptance=True")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        unit = scenario.uplink_power_w / scenario.noise_server_w
        gain = np.where(unit > 0, snr_from_db(observation["snr_db"]) / unit, 0.0)
    return pose(
        scenario,
        np.asarray(observation["acceptance_rate"], dtype=np.float64),
        np.asarray(observation["token_latency_s"], dtype=np.float64),
        gain,
    )
