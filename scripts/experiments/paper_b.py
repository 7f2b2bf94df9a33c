"""The experiments of paper B (corrections): "Uplink or Downlink?", arXiv 2608.29618, section VI.

The goodput of a round is its expected value, E[tokens] / E[latency] given the channel, as in the
paper; decisions are made on one sample of outcomes and valued on another. Means are over random
rounds, with fresh devices and fading, the same ones for all that is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from experiments import rates, tables
from experiments.tables import Job, Row, job
from multispin_env import Scenario, solvers
from multispin_env.model.acceptance import rejection_probability
from multispin_env.model.correction import RULES
from multispin_env.solvers import CorrectionProblem
from multispin_env.solvers.problems import draw

PAIRS: Final = ("qwen2.5", "deepseek-r1")
GOODPUT = "goodput [tokens/s]"
LENGTH = "mean draft length [tokens]"
SEED: Final = 20260829
SOLVERS: Final[dict[str, Callable[..., Any]]] = {
    "deadline": solvers.deadline,
    "greedy": solvers.greedy,
    "uniform": solvers.uniform,
    "computation_only": solvers.computation_only,
}


def rounds_of(scenario: Scenario, rounds: int) -> Iterator[CorrectionProblem]:
    """Random rounds with fresh devices and fading; the same ones whatever is compared on them."""
    generator = np.random.default_rng(SEED)
    for _ in range(rounds):
        problem = draw(scenario, generator)
        assert isinstance(problem, CorrectionProblem)
        yield problem


def cell(pair: str, uplink_dbm: float, ratio: float, devices: int = 20) -> Scenario:
    """A pair's preset with other powers; the ratio is the server's power over a device's."""
    return Scenario.load(
        pair,
        {
            "num_devices": devices,
            "radio.uplink_power_dbm": uplink_dbm,
            "radio.downlink_power_ratio": ratio,
        },
    )


def valued(problem: CorrectionProblem, solver: str, rule: str = "optimal") -> tuple[Any, float]:
    """A solver's lengths, and their goodput on outcomes that it has not seen [tokens/s]."""
    lengths = SOLVERS[solver](problem, rule=rule).draft_length
    return lengths, problem.goodput(lengths, rule, seed=1)


# ---- goodput, draft lengths and modes against the downlink power ---------------------------------


def downlink_power(quick: bool) -> list[Job]:
    """Downlink powers of 5 to 45 dBm under two uplink powers."""
    powers = (5.0, 20.0, 35.0, 45.0) if quick else tuple(np.arange(5.0, 46.0, 5.0).tolist())
    return [
        job(
            adaptation,
            pair=pair,
            uplink_dbm=uplink,
            downlink_dbm=power,
            rounds=16 if quick else 200,
            outcomes=4 if quick else 16,
        )
        for pair in PAIRS
        for uplink in (10.0, 20.0)
        for power in powers
    ]


def adaptation(
    pair: str, uplink_dbm: float, downlink_dbm: float, rounds: int, outcomes: int
) -> list[Row]:
    """Goodput, mean length, and corrections a round on either link, under optimal modes."""
    scenario = cell(pair, uplink_dbm, 10 ** ((downlink_dbm - uplink_dbm) / 10))
    rows = []
    for solver in ("greedy", "deadline"):
        found: dict[str, list[float]] = {}
        generator = np.random.default_rng(SEED)
        for problem in rounds_of(scenario, rounds):
            lengths, goodput = valued(problem, solver)
            reject = rejection_probability(problem.acceptance_rate, lengths)
            sent = [
                problem.correct(generator.random(reject.size) < reject).mode
                for _ in range(outcomes)
            ]
            uplink, downlink = (np.mean(np.sum(np.equal(sent, m), axis=1)) for m in (0, 1))
            measured = (GOODPUT, goodput), (LENGTH, lengths.mean())
            for name, value in (*measured, ("uplink", uplink), ("downlink", downlink)):
                found.setdefault(name, []).append(float(value))
        keys: Row = {
            "pair": pair,
            "uplink [dBm]": uplink_dbm,
            "downlink [dBm]": downlink_dbm,
            "solver": solver,
        }
        rows += [tables.mean(keys, name, values) for name, values in found.items()]
        both = np.add(found["uplink"], found["downlink"])
        if both.any():
            rows.append(tables.ratio(keys, "downlink share", found["downlink"], both))
    return rows


# ---- mode rules against the number of devices ----------------------------------------------------


def modes(quick: bool) -> list[Job]:
    """The four rules for cells of 5 to 40 devices."""
    return [
        job(mode_rules, pair=pair, devices=k, ratio=ratio, rounds=12 if quick else 200)
        for pair in PAIRS
        for ratio in (4.0, 16.0)
        for k in ((5, 20, 40) if quick else (5, 10, 15, 20, 30, 40))
    ]


def mode_rules(pair: str, devices: int, ratio: float, rounds: int) -> list[Row]:
    """Goodput under each rule at 20 dBm, lengths optimised for it by greedy and by deadline."""
    problems = list(rounds_of(cell(pair, 20.0, ratio, devices), rounds))
    rows = []
    for solver in ("greedy", "deadline"):
        found = {rule: [valued(p, solver, rule)[1] for p in problems] for rule in RULES}
        for rule, goodput in found.items():
            keys: Row = {
                "pair": pair,
                "ratio": ratio,
                "devices": devices,
                "solver": solver,
                "rule": rule,
            }
            rows.append(tables.mean(keys, GOODPUT, goodput))
            if rule != "optimal":
                best = found["optimal"]
                rows.append(tables.gain(keys, "gain of optimal modes [%]", best, goodput))
    return rows


# ---- draft-length schemes against the power ratio ------------------------------------------------


def lengths(quick: bool) -> list[Job]:
    """The paper's three schemes and the deadline search, ratios 1 to 64."""
    return [
        job(schemes, pair=pair, uplink_dbm=uplink, ratio=ratio, rounds=16 if quick else 300)
        for pair in PAIRS
        for uplink in (10.0, 20.0)
        for ratio in ((1.0, 4.0, 16.0) if quick else (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0))
    ]


def schemes(pair: str, uplink_dbm: float, ratio: float, rounds: int) -> list[Row]:
    """Goodput of the draft-length schemes under optimal modes, and what greedy gains on each."""
    problems = list(rounds_of(cell(pair, uplink_dbm, ratio), rounds))
    found = {solver: [valued(p, solver)[1] for p in problems] for solver in SOLVERS}
    rows = []
    for solver, goodput in found.items():
        keys: Row = {
            "pair": pair,
            "uplink [dBm]": uplink_dbm,
            "ratio": ratio,
            "solver": solver,
        }
        rows.append(tables.mean(keys, GOODPUT, goodput))
        if solver != "greedy":
            rows.append(tables.gain(keys, "gain of greedy [%]", found["greedy"], goodput))
    return rows


# ---- Table I -------------------------------------------------------------------------------------


def table1(quick: bool) -> list[Job]:
    """The assumed acceptance rates, as the environment plays them."""
    return rates.jobs(PAIRS, quick)
