"""The experiments of paper A (uploads): "Multi-SPIN", arXiv 2606.04581, section VI.

Two readings of the paper are measured side by side, because no choice of the two numbers that it
leaves out (transmit power, time of a drafted token) fits all its figures: the presets, and the
values with which the results that it reports for 20 devices come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import gymnasium as gym
import numpy as np

import multispin_env  # noqa: F401  (registers the environments)
from experiments import rates, tables
from experiments.tables import Job, Row, job
from multispin_env import Scenario, solvers
from multispin_env.solvers import UploadProblem, uploads
from multispin_env.solvers.problems import draw, pose

PAIRS: Final = ("llama2", "qwen3.5")
PRESETS, LITERAL = "presets", "K = 20 literal"
READINGS: Final = (PRESETS, LITERAL)
LITERAL_POWER_W: Final = 2e-8
LITERAL_TOKEN_S: Final = {"llama2": 21e-3, "qwen3.5": 20e-3}

GOODPUT = "goodput [tokens/s]"
SEED: Final = 20260604
#: Schemes of Figs. 7 and 8.
SCHEMES: Final[dict[str, Callable[[UploadProblem], Any]]] = {
    "Hete": solvers.heterogeneous,
    "Homo": solvers.homogeneous,
    "Uni-BW": solvers.uniform_bandwidth,
    "Fixed": solvers.fixed,
}


def overrides(pair: str, reading: str) -> dict[str, Any]:
    """What a reading changes in a pair's preset."""
    if reading == PRESETS:
        return {}
    return {
        "radio.uplink_power_dbm": 10 * np.log10(LITERAL_POWER_W) + 30,
        "drafting.token_latency_s": LITERAL_TOKEN_S[pair],
    }


def rounds_of(
    scenario: Scenario, rounds: int, min_draft_length: int = 1
) -> Iterator[UploadProblem]:
    """Random rounds with fresh devices and fading; the same ones whatever is compared on them."""
    generator = np.random.default_rng(SEED)
    for _ in range(rounds):
        problem = draw(scenario, generator, min_draft_length)
        assert isinstance(problem, UploadProblem)
        yield problem


# ---- Table I, and Fig. 3: goodput against the draft length ---------------------------------------


def constant_cell(pair: str, reading: str, rounds: int) -> gym.Env[Any, Any]:
    """An environment with GSM8K for all and every channel at its mean.

    A round's latency is then a function of the draft lengths alone, as in the paper's theory.
    """
    env = gym.make(
        "multispin/DraftLength-v0",
        scenario=pair,
        overrides={
            **overrides(pair, reading),
            "tasks": {"GSM8K": rates.acceptance_rate(pair, "GSM8K")},
            "channel.fading": "none",
            "episode.rounds": rounds,
        },
    )
    env.reset(seed=SEED)
    return env


def posed(env: gym.Env[Any, Any]) -> UploadProblem:
    """What the first round of a constant cell poses, and every other one too."""
    tape, scenario = env.unwrapped.tape, env.unwrapped.scenario  # type: ignore[attr-defined]
    problem = pose(
        scenario,
        tape.devices.acceptance_rate,
        tape.devices.token_latency_s,
        tape.channel_gain[0],
    )
    assert isinstance(problem, UploadProblem)
    return problem


def play(env: gym.Env[Any, Any], draft_length: int, rounds: int) -> list[float]:
    """Goodput of every round of an episode in which everybody drafts as much [tokens/s].

    The devices are the same for all lengths, the acceptances are not.
    """
    observation, _ = env.reset(seed=SEED)
    env.unwrapped.fork(SEED + draft_length)  # type: ignore[attr-defined]
    action = np.full(observation["snr_db"].size, draft_length)
    infos = [env.step(action)[4] for _ in range(rounds)]
    return [info["emitted"] / info["latency_s"] for info in infos]


def table1(quick: bool) -> list[Job]:
    """The reported acceptance rates, as the environment plays them."""
    return rates.jobs(PAIRS, quick)


def fig3(quick: bool) -> list[Job]:
    """Theory and simulation for lengths 0 to 24, on GSM8K."""
    rounds = 200 if quick else 1000
    return [
        job(draft_lengths, pair=pair, reading=reading, longest=24, rounds=rounds)
        for reading in READINGS
        for pair in PAIRS
    ]


def draft_lengths(pair: str, reading: str, longest: int, rounds: int) -> list[Row]:
    """Goodput of every common length, by theory and as played, and the optimum in closed form.

    The intervals of the simulation hold at all points of the figure at once. Length 0 needs none.
    """
    env = constant_cell(pair, reading, rounds)
    problem = posed(env)
    keys: Row = {"pair": pair, "reading": reading}
    points = longest * len(PAIRS) * len(READINGS)
    theta_s, alpha = uploads.token_latency(problem), problem.acceptance_rate[0]
    real = uploads.continuous_optimal_length(alpha, problem.verification_s, theta_s)
    optimum = solvers.homogeneous_closed_form(problem)
    rows = [
        tables.exact(keys, "theta [ms]", 1e3 * theta_s),
        tables.exact(keys, "closed form [tokens]", real),
        tables.exact(keys, "closed form, integer [tokens]", optimum.draft_length[0]),
        tables.exact(keys, "goodput at the closed form [tokens/s]", optimum.goodput),
    ]
    for length in range(longest + 1):
        at = {**keys, "draft_length": length}
        theory = problem.goodput(np.full(problem.num_devices, length))
        rows.append(tables.exact(at, "theory [tokens/s]", theory))
        goodput = play(env, length, rounds)
        rows.append(tables.mean(at, "simulated [tokens/s]", goodput, points))
    return rows


# ---- Fig. 4: the optimal common length -----------------------------------------------------------


def fig4(quick: bool) -> list[Job]:
    """Llama-2 pair: one of T_ver, theta and alpha varies, the others are those of Fig. 3."""
    steps = 9 if quick else 61
    return [
        job(optimal_length, reading=reading, varied=varied, low=low, high=high, steps=steps)
        for reading in READINGS
        for varied, low, high in (
            ("verification [ms]", 100.0, 400.0),
            ("token latency [ms]", 20.0, 80.0),
            ("acceptance rate", 0.6, 0.95),
        )
        if not (
            reading == LITERAL and varied == "token latency [ms]"
        )  # that is what they differ in
    ]


def optimal_length(reading: str, varied: str, low: float, high: float, steps: int) -> list[Row]:
    """Theorem 1's real optimum, and the best integer among all lengths, over one parameter."""
    cell = posed(constant_cell("llama2", reading, rounds=1))
    at = {
        "verification [ms]": 1e3 * cell.verification_s,
        "token latency [ms]": 1e3 * uploads.token_latency(cell),
        "acceptance rate": float(cell.acceptance_rate[0]),
    }
    rows = []
    for value in np.linspace(low, high, steps):
        at[varied] = float(value)
        alpha, theta_s = at["acceptance rate"], at["token latency [ms]"] / 1e3
        verification_s = at["verification [ms]"] / 1e3
        # One device whose upload takes no time: theta is its drafting time.
        problem = UploadProblem(
            acceptance_rate=[alpha],
            token_latency_s=[theta_s],
            spectral_efficiency=[1e6],
            bandwidth_hz=1e18,
            token_bits=1.0,
            verification_s=verification_s,
            max_draft_length=cell.max_draft_length,
            min_draft_length=0,
        )
        keys: Row = {"reading": reading, "varied": varied, **at}
        real = uploads.continuous_optimal_length(alpha, verification_s, theta_s)
        best = solvers.homogeneous(problem).draft_length[0]
        rows.append(tables.exact(keys, "closed form [tokens]", real))
        rows.append(tables.exact(keys, "best integer [tokens]", best))
    return rows


# ---- Fig. 5: batched verification ----------------------------------------------------------------


def fig5(quick: bool) -> list[Job]:
    """Both pairs, 1 to 16 devices."""
    return [job(verification, pair=pair, most=4 if quick else 16) for pair in PAIRS]


def verification(pair: str, most: int) -> list[Row]:
    """What a round is charged for verification in cells of 1 to `most` devices (A-7)."""
    rows = []
    for k in range(1, most + 1):
        scenario = Scenario.load(pair, {"num_devices": k})
        keys: Row = {"pair": pair, "devices": k}
        rows.append(tables.exact(keys, "verification [ms]", 1e3 * scenario.verification_s))
    return rows


# ---- Fig. 6: where to draft ----------------------------------------------------------------------


def fig6(quick: bool) -> list[Job]:
    """Both readings at K = 20, and the presets at K = 6."""
    rounds = 12 if quick else 300
    return [
        job(deployments, pair=pair, reading=reading, num_devices=k, rounds=rounds)
        for reading, k in ((PRESETS, 20), (PRESETS, 6), (LITERAL, 20))
        for pair in PAIRS
    ]


def deployments(pair: str, reading: str, num_devices: int, rounds: int) -> list[Row]:
    """P2P-SPIN, Cen-SPIN under three schedules, and Multi-SPIN with lengths from 1 and from 0.

    The time in which the server drafts a token is not in the paper; the preset's token latency of a
    device stands in for it under both readings.
    """
    server_s = float(Scenario.load(pair).drafting.token_latency_s)  # type: ignore[arg-type]
    alone_s = Scenario.load(pair, {"num_devices": 1}).verification_s
    scenario = Scenario.load(pair, {**overrides(pair, reading), "num_devices": num_devices})
    found: dict[tuple[str, int], list[float]] = {}
    for shortest in (0, 1):
        for problem in rounds_of(scenario, rounds, shortest):
            decisions = {
                "P2P-SPIN": solvers.point_to_point(problem, alone_s),
                "Multi-SPIN": solvers.heterogeneous(problem),
            }
            for schedule in ("single", "serial", "batched"):
                name = "Cen-SPIN" if schedule == "single" else f"Cen-SPIN, {schedule}"
                decisions[name] = solvers.centralised(problem, server_s, alone_s, schedule)
            for name, decision in decisions.items():
                found.setdefault((name, shortest), []).append(decision.goodput)
    rows = []
    for (name, shortest), goodput in found.items():
        keys: Row = {
            "pair": pair,
            "reading": reading,
            "devices": num_devices,
            "deployment": name,
            "shortest": shortest,
        }
        rows.append(tables.mean(keys, GOODPUT, goodput))
        if name != "Multi-SPIN":
            multi = found["Multi-SPIN", shortest]
            rows.append(tables.ratio(keys, "Multi-SPIN over it", multi, goodput))
    return rows


# ---- Figs. 7 and 8: four control schemes ---------------------------------------------------------


def fig7(quick: bool) -> list[Job]:
    """Bands of 5 to 20 MHz for 20 devices."""
    bands = (5.0, 10.0, 20.0) if quick else (5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0)
    return [
        job(control, pair=pair, reading=reading, devices=20, band_mhz=band, rounds=_rounds(quick))
        for reading in READINGS
        for pair in PAIRS
        for band in bands
    ]


def fig8(quick: bool) -> list[Job]:
    """4 to 24 devices in 10 MHz."""
    return [
        job(control, pair=pair, reading=reading, devices=k, band_mhz=10.0, rounds=_rounds(quick))
        for reading in READINGS
        for pair in PAIRS
        for k in ((4, 12, 24) if quick else (4, 8, 12, 16, 20, 24))
    ]


def _rounds(quick: bool) -> int:
    return 12 if quick else 300


def control(pair: str, reading: str, devices: int, band_mhz: float, rounds: int) -> list[Row]:
    """Mean goodput of the four schemes on the same rounds, with lengths from 1 and from 0.

    Gains are ratios of mean goodputs: over Fixed, and of Uni-BW over Homo.
    """
    changes = {"num_devices": devices, "radio.bandwidth_hz": 1e6 * band_mhz}
    scenario = Scenario.load(pair, {**overrides(pair, reading), **changes})
    rows = []
    for shortest in (0, 1):
        problems = list(rounds_of(scenario, rounds, shortest))
        goodput = {
            name: [solve(problem).goodput for problem in problems]
            for name, solve in SCHEMES.items()
        }
        for name, values in goodput.items():
            keys: Row = {
                "pair": pair,
                "reading": reading,
                "devices": devices,
                "band [MHz]": band_mhz,
                "scheme": name,
                "shortest": shortest,
            }
            rows.append(tables.mean(keys, GOODPUT, values))
            if name != "Fixed":
                rows.append(tables.gain(keys, "gain over Fixed [%]", values, goodput["Fixed"]))
            if name == "Uni-BW":
                rows.append(tables.gain(keys, "gain over Homo [%]", values, goodput["Homo"]))
    return rows
