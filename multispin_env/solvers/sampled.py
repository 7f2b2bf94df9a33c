"""A round of corrections valued on sampled outcomes, the same for all decisions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multispin_env.model.acceptance import expected_tokens, run_length
from multispin_env.model.correction import RULES, check_rule
from multispin_env.model.kernels import correction_samples
from multispin_env.model.kernels.correction_samples import Radio, Samples
from multispin_env.model.kernels.correction_search import Objective
from multispin_env.solvers.problems import CorrectionProblem, check_integer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Decision:
    """A solver's answer: draft lengths [K] and their expected goodput [tokens/s]."""

    draft_length: Integers
    goodput: float


@lru_cache(maxsize=16)
def sobol_outcomes(samples: int, num_devices: int, seed: int) -> tuple[Floats, Integers]:
    """Quasi-random exponential variates and coins, [samples, K]: kept between calls.

    Scrambled Sobol points: as few as 128 average as well as a thousand independent ones.
    """
    from scipy.stats import qmc  # takes as long to import as all that an environment needs

    sampler = qmc.Sobol(2 * num_devices, scramble=True, rng=np.random.default_rng(seed))
    exponent = int(np.ceil(np.log2(samples)))
    uniform = sampler.random_base2(exponent)[:samples]
    exponential = -np.log1p(-uniform[:, :num_devices])
    coins = (uniform[:, num_devices:] < 0.5).astype(np.int64)
    exponential.setflags(write=False)
    coins.setflags(write=False)
    return exponential, coins


class SampledRound:
    """A problem under a rule, ready to value many decisions on the same outcomes.

    Devices are sorted by their uplink, as the kernels want them; :meth:`restore` undoes that.

    Args:
        problem: the round.
        rule: how corrections travel.
        samples, seed: outcomes of the sample average.
    """

    def __init__(self, problem: CorrectionProblem, rule: str, samples: int, seed: int) -> None:
        check_rule(rule)
        check_integer("samples", samples, 1)
        self.problem, self.rule = problem, rule
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            noise_w = problem.noise_server_w_hz * problem.bandwidth_hz
            snr = problem.uplink_power_w * problem.channel_gain / noise_w
            cost = problem.noise_device_w_hz * problem.bandwidth_hz / problem.channel_gain
        self.order = np.argsort(snr, kind="stable")
        self.token_s = problem.token_latency_s[self.order]
        self.longest = int(problem.max_draft_length)
        self.radio = Radio(
            RULES[rule],
            snr[self.order],
            cost[self.order],
            problem.downlink_power_w,
            problem.payload_bits,
            problem.bandwidth_hz,
        )
        alpha = problem.acceptance_rate[self.order]
        exponential, coins = sobol_outcomes(int(samples), problem.num_devices, seed)
        self.samples = Samples(run_length(exponential, alpha), coins)
        #: Expected tokens of every device and length, [K, gamma_max + 1].
        self.tokens = expected_tokens(alpha[:, None], np.arange(self.longest + 1))
        self.device = np.arange(problem.num_devices)

    def objective(self, price: float | None = None) -> Objective:
        """What the kernels value decisions by: goodput, or tokens - price * latency.

        Raises:
            ValueError: the price is negative, infinite or NaN.
        """
        if price is not None and not 0.0 <= price < np.inf:
            raise ValueError(f"price = {price!r}: must be a finite number >= 0, or None")
        return Objective(
            self.radio,
            self.longest,
            self.tokens,
            self.token_s,
            self.problem.verification_s,
            -1.0 if price is None else float(price),
        )

    def sort(self, lengths: Integers) -> Integers:
        """Lengths in the order of this round's devices."""
        return np.asarray(lengths, dtype=np.int64)[self.order]

    def restore(self, lengths: Any) -> Any:
        """Lengths (or other values, [K]) in the problem's order of devices."""
        result = np.empty_like(lengths)
        result[self.order] = lengths
        return result

    def goodput(self, lengths: Integers, exact: bool = False) -> float:
        """Sample-average goodput of a decision [tokens/s], or (for few devices) the exact one."""
        if exact:
            return self.problem.goodput(self.restore(lengths), self.rule, exact=True)
        base = correction_samples.mean_latency(self.radio, self.samples, lengths)
        drafting = float(np.max(lengths * self.token_s))
        latency = drafting + self.problem.verification_s + max(base, 0.0)
        return float(self.tokens[self.device, lengths].sum() / latency)


def all_deadlines(problem: CorrectionProblem) -> Floats:
    """All n T_k, rising, and 0."""
    counts = np.arange(problem.max_draft_length + 1)
    return np.unique(np.outer(counts, problem.token_latency_s))
