"""Beyond the papers: where greedy fails, what learning reaches, what a score rests on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import baselines
from experiments import paper_b, tables
from experiments.tables import Job, Row, job
from multispin_env import Scenario, benchmark
from multispin_env.model.channel import snr_db
from multispin_env.solvers import reference_goodput
from multispin_env.world.control import DRAFT_LENGTH

GOODPUT = "goodput [tokens/s]"
#: Edges of the groups of Fig. "regret" [dB].
SNR_EDGES_DB: Final = tuple(range(-40, 21, 5))
SEED: Final = 20260729


def goodputs(
    scenario: Scenario, factory: Callable[[Any], Any], episodes: int
) -> np.ndarray[Any, Any]:
    """Goodput of each of some episodes, the same ones for every policy [tokens/s]."""
    task = benchmark.Task("figures", "", scenario.name, DRAFT_LENGTH, scenario, {}, episodes)
    return benchmark.evaluate(
        factory, task, episodes, seed=SEED, lanes=episodes, expected=False
    ).goodputs


def baseline(name: str, **options: Any) -> Callable[[Any], Any]:
    """The factory of a baseline."""
    return lambda env: baselines.make(name, env, **options)


def agent(env: Any) -> Any:
    """The shipped agent; torch takes seconds to import, and is of use here alone."""
    import torch

    import agents

    torch.set_num_threads(1)
    return agents.load("distilled", env)


# ---- where greedy loses --------------------------------------------------------------------------


def regret(quick: bool) -> list[Job]:
    """Two power ratios, both pairs."""
    return [
        job(losses, pair=pair, ratio=ratio, uplink_dbm=(10.0, 20.0), rounds=60 if quick else 500)
        for pair in paper_b.PAIRS
        for ratio in (4.0, 16.0)
    ]


def losses(pair: str, ratio: float, uplink_dbm: tuple[float, ...], rounds: int) -> list[Row]:
    """Loss of greedy against the deadline search, by the uplink of the worst device.

    Each of the powers has as many rounds. At a given ratio a round is the same for the same
    signal-to-noise ratios, so that they are pooled.
    """
    worst_db, loss = [], []
    for power in uplink_dbm:
        for p in paper_b.rounds_of(paper_b.cell(pair, power, ratio), rounds):
            snr = p.uplink_power_w * p.channel_gain / (p.noise_server_w_hz * p.bandwidth_hz)
            worst_db.append(float(snr_db(snr.min())))
            best = paper_b.valued(p, "deadline")[1]
            loss.append(100 * (1 - paper_b.valued(p, "greedy")[1] / best))
    group = np.digitize(worst_db, SNR_EDGES_DB)
    rows = []
    for g, (low, high) in enumerate(itertools.pairwise(SNR_EDGES_DB), start=1):
        inside = np.array(loss)[group == g]
        if inside.size >= 10:
            keys: Row = {"pair": pair, "ratio": ratio, "worst uplink [dB]": (low + high) / 2}
            rows.append(tables.mean(keys, "loss of greedy [%]", inside))
            rows.append(tables.exact(keys, "largest loss [%]", inside.max()))
    rows.append(tables.mean({"pair": pair, "ratio": ratio}, "loss of greedy [%]", loss))
    return rows


# ---- learned against analytical ------------------------------------------------------------------


def learned(quick: bool) -> list[Job]:
    """Over the number of devices at 20 dBm, and over the power with 20 devices; ratio 4."""
    sizes = (5, 20) if quick else (5, 10, 20, 30, 40, 60)
    powers = (10.0,) if quick else (5.0, 8.0, 10.0, 14.0, 20.0, 25.0)
    cells = [(k, 20.0) for k in sizes] + [(20, power) for power in powers if power != 20.0]
    return [
        job(shares, pair=pair, devices=k, uplink_dbm=power, episodes=4 if quick else 24)
        for pair in paper_b.PAIRS
        for k, power in cells
    ]


def shares(pair: str, devices: int, uplink_dbm: float, episodes: int) -> list[Row]:
    """Goodput of episodes: the shipped agent, deadline and greedy; and ratios to deadline."""
    scenario = paper_b.cell(pair, uplink_dbm, 4.0, devices)
    factories = {
        "deadline": baseline("deadline"),
        "distilled": agent,
        "greedy": baseline("greedy"),
    }
    found = {name: goodputs(scenario, make, episodes) for name, make in factories.items()}
    rows = []
    for name, goodput in found.items():
        keys: Row = {
            "pair": pair,
            "devices": devices,
            "uplink [dBm]": uplink_dbm,
            "policy": name,
        }
        rows.append(tables.mean(keys, GOODPUT, goodput))
        if name != "deadline":
            rows.append(tables.ratio(keys, "ratio to deadline", goodput, found["deadline"]))
    return rows


# ---- what a score rests on -----------------------------------------------------------------------


def sensitivity(quick: bool) -> list[Job]:
    """Prices of 1/4 to 4 times the reference, horizons of 5 to 120 s; qwen2.5 at two powers."""
    factors = (0.25, 1.0, 4.0) if quick else (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
    horizons = (5.0, 60.0) if quick else (5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
    episodes = 4 if quick else 24
    powers = (10.0, 20.0)
    return [
        job(prices, uplink_dbm=power, factors=factors, episodes=episodes) for power in powers
    ] + [
        job(horizon, uplink_dbm=power, horizon_s=seconds, episodes=episodes)
        for power in powers
        for seconds in horizons
    ]


def prices(uplink_dbm: float, factors: tuple[float, ...], episodes: int) -> list[Row]:
    """Goodput of decisions that maximise tokens - price * latency, over that of the ratio's."""
    scenario = paper_b.cell("qwen2.5", uplink_dbm, 4.0)
    price = reference_goodput(scenario)
    best = goodputs(scenario, baseline("deadline"), episodes)
    rows = []
    for factor in factors:
        found = goodputs(scenario, baseline("deadline", price=factor * price), episodes)
        keys: Row = {"uplink [dBm]": uplink_dbm, "price / reference": factor}
        rows.append(tables.ratio(keys, "ratio to no price", found, best))
    return rows


def horizon(uplink_dbm: float, horizon_s: float, episodes: int) -> list[Row]:
    """Goodput of an episode by its length, of policies that look at the channel and that do not."""
    scenario = Scenario.load(
        paper_b.cell("qwen2.5", uplink_dbm, 4.0), {"episode.horizon_s": horizon_s}
    )
    policies = {
        "deadline": baseline("deadline"),
        "greedy": baseline("greedy"),
        "4 tokens": baseline("fixed", draft_length=4),
    }
    rows = []
    for name, factory in policies.items():
        keys: Row = {"uplink [dBm]": uplink_dbm, "horizon [s]": horizon_s, "policy": name}
        rows.append(tables.mean(keys, GOODPUT, goodputs(scenario, factory, episodes)))
    return rows
