"""The world as it is with all options off, as hashes: what no change may alter.

Every case plays an environment, or asks a solver for decisions on stored rounds, and is reduced to
a SHA-256 over the bytes of all it gave: observations, rewards, infos and flags, through autoresets.

    python tests/golden_hashes.py    # makes tests/data/golden-hashes.json; adds cases, changes none

**Where the last bit may differ.** NumPy and the C library may round log, log1p, exp and powers
differently on processors with other vector instructions. :func:`platform` hashes those functions on
fixed numbers. On platforms that the file knows, hashes must be equal; on others the totals of each
case (tokens, rewards, seconds, what was observed) must agree to a relative 1e-9.
"""

import hashlib
import json
import struct
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

from multispin_env import Scenario, solvers
from multispin_env.solvers.problems import CorrectionProblem, UploadProblem, draw

DATA = Path(__file__).parent / "data"
HASHES = DATA / "golden-hashes.json"
ROUNDS_FILE = DATA / "golden-rounds.json"
STEPS = 300  # rounds of each case, through several episodes
LANES = 3
RULES = ("optimal", "uplink", "downlink", "random")


class Digest:
    """A SHA-256 over nested values, and running totals of the numbers among them."""

    def __init__(self):
        self._sha = hashlib.sha256()
        self.totals = {}

    def add(self, value, name=""):
        """Take in a dict, list, array or number; NaN never occurs and would fail the totals."""
        if isinstance(value, dict):
            for key in sorted(value):
                self._sha.update(key.encode())
                self.add(value[key], key)
        elif isinstance(value, list | tuple) or _holds_objects(value):
            for item in value:
                self.add(item, name)
        elif value is None or isinstance(value, str):
            self._sha.update(repr(value).encode())
        elif isinstance(value, np.ndarray):
            self._sha.update(f"{value.dtype.str}{value.shape}".encode())
            self._sha.update(np.ascontiguousarray(value).tobytes())
            self._count(name, float(np.sum(value, dtype=np.float64)))
        else:
            code = {bool: "?", int: "q"}.get(type(value), "d")  # NumPy's float64 is a float
            self._sha.update(code.encode() + struct.pack("<" + code, value))
            self._count(name, float(value))

    def _count(self, name, number):
        if abs(number) < 1e12:  # a round that never ends would hide all others
            self.totals[name] = self.totals.get(name, 0.0) + number

    def result(self):
        return {"sha256": self._sha.hexdigest(), "totals": self.totals}


def _holds_objects(value):
    """Whether a value is a NumPy array of Python objects, as `final_obs` is."""
    return isinstance(value, np.ndarray) and value.dtype.hasobject


# ---- what is played ------------------------------------------------------------------------------

UPLOAD, SHORT = {"scenario": "llama2"}, {"episode.horizon_s": 8.0}
WORLDS = {
    "draft": ("DraftLength", {}),
    "draft-upload": ("DraftLength", UPLOAD),
    "modes": ("ModeSelection", {}),
    "joint": ("Joint", {}),
    "bandwidth": ("DraftBandwidth", {}),
}


def cases():
    """Name -> what it gives, as a function without arguments."""
    found = {}
    for world, (name, kwargs) in WORLDS.items():
        for shown in (True, False):
            for fading in ("rayleigh", "none"):
                changed = {"overrides": SHORT | {"channel.fading": fading}}
                options = kwargs | changed | {"observe_acceptance": shown}
                label = f"{world}-{'rates' if shown else 'feedback'}-{fading}"
                found[f"scalar-{label}"] = played(scalar, name, options)
                found[f"vector-{label}"] = played(vector, name, options)
    short = {"overrides": SHORT}
    for rule in RULES[1:]:
        found[f"draft-{rule}"] = played(vector, "DraftLength", short | {"correction": rule})
    for reward in ("goodput", "tokens"):
        found[f"reward-{reward}"] = played(scalar, "Joint", short | {"reward": reward})
    found["modes-solver"] = played(scalar, "ModeSelection", short | {"draft_policy": "deadline"})
    for world, (name, kwargs) in WORLDS.items():
        found[f"regret-{world}"] = played(scalar, name, kwargs | short | {"regret": True}, steps=20)
        for mode in ("SAME_STEP", "DISABLED"):
            options = kwargs | short | {"autoreset_mode": mode}
            found[f"{mode.lower()}-{world}"] = played(vector, name, options)
        rounds = {"overrides": {"episode.rounds": 40}}
        found[f"rounds-{world}"] = played(vector, name, kwargs | rounds)
        found[f"fork-{world}"] = played(forked, name, kwargs | short, steps=60)
        found[f"tape-{world}"] = played(taped, name, kwargs | short, steps=60)
    lists = [
        SHORT | {"num_devices": 3, "radio.uplink_power_dbm": power, "channel.distance_m": metres}
        for power, metres in (
            (10, 300),
            ([0, 10, 20], [100, 200, 400]),
            (-40, {"min": 1, "max": 2}),
        )
    ]
    for name in ("DraftLength", "ModeSelection", "Joint"):
        found[f"own-physics-{name}"] = played(vector, name, {"overrides": lists})
    small = {"overrides": {"num_devices": 1, "max_draft_length": 3, "episode.rounds": 50}}
    found["one-device"] = played(vector, "Joint", small)
    for name, problems in stored_rounds().items():
        for label, solve in solvers_for(problems[0]).items():
            found[f"solver-{name}-{label}"] = decided(solve, problems)
    for name in ("qwen2.5", "llama2"):
        found[f"reference-{name}"] = priced(name)
    return found


def played(how, name, options, steps=STEPS):
    def run():
        digest = Digest()
        how(digest, f"multispin/{name}-v0", options, steps)
        return digest.result()

    return run


def action(env, number):
    """A decision that uses every part of the action space, another one in every round and lane."""
    scenario = env.unwrapped.scenario
    lane = np.arange(env.num_envs)[:, None] if hasattr(env, "num_envs") else 0
    device = np.arange(scenario.num_devices)
    lengths = np.where(
        (number + device + lane) % 11 == 0,
        scenario.max_draft_length,
        np.minimum((7 * device + 3 * number + lane) % 7, scenario.max_draft_length),
    )
    modes = (device + number + lane) // 2 % 2
    kind = env.unwrapped.control
    if kind.bandwidth:
        share = (1 + (device + number + lane) % 3) / 3
        return {"draft_length": lengths, "bandwidth": share}
    if kind.draft and kind.mode:
        return np.concatenate([lengths, modes], axis=-1)
    return modes if kind.mode else lengths


def scalar(digest, name, options, steps):
    env = gym.make(name, **options)
    digest.add(env.reset(seed=11))
    for number in range(steps):
        observation, reward, terminated, truncated, info = env.step(action(env, number))
        digest.add([observation, reward, terminated, truncated, info])
        if truncated:
            digest.add(env.reset())


def vector(digest, name, options, steps):
    envs = gym.make_vec(name, num_envs=LANES, **options)
    digest.add(envs.reset(seed=12))
    for number in range(steps // LANES + 40):
        given = envs.step(action(envs, number))
        digest.add(given)
        if options.get("autoreset_mode") == "DISABLED" and given[3].any():
            digest.add(envs.reset(options={"reset_mask": given[3]}))


def forked(digest, name, options, steps):
    env = gym.make(name, **options)
    digest.add(env.reset(seed=13))
    for number in range(steps):
        if number % 9 == 4:
            env.unwrapped.fork(number)
        observation, reward, _, truncated, info = env.step(action(env, number))
        digest.add([observation, reward, truncated, info])
        if truncated:
            digest.add(env.reset())


def taped(digest, name, options, steps):
    env = gym.make(name, **options)
    env.reset(seed=14)
    for number in range(steps):
        if env.step(action(env, number))[3]:
            break
    tape = env.unwrapped.tape
    digest.add([vars(tape.devices), tape.channel_gain, tape.run_length])


# ---- what is decided -----------------------------------------------------------------------------


def solvers_for(problem):
    """Label -> function from a problem to what its solver decides."""
    if isinstance(problem, UploadProblem):
        named = {
            "homogeneous": solvers.homogeneous,
            "heterogeneous": solvers.heterogeneous,
            "exact": solvers.exact,
            "uniform_bandwidth": solvers.uniform_bandwidth,
            "fixed": solvers.fixed,
            "point_to_point": lambda p: solvers.point_to_point(p, verification_s=0.03),
        }
        for schedule in ("single", "serial", "batched"):
            named[f"centralised-{schedule}"] = lambda p, s=schedule: solvers.centralised(
                p, server_token_latency_s=0.002, verification_s=0.03, schedule=s
            )
        return named
    found = {}
    for rule in RULES:
        for solver in ("greedy", "uniform", "deadline", "computation_only"):
            found[f"{solver}-{rule}"] = lambda p, s=solver, r=rule: getattr(solvers, s)(p, rule=r)
        found[f"price-{rule}"] = lambda p, r=rule: solvers.deadline(p, price=150.0, rule=r)
        if problem.num_devices <= 5:
            found[f"bound-{rule}"] = lambda p, r=rule: solvers.branch_and_bound(p, rule=r)
            found[f"greedy-exactly-{rule}"] = lambda p, r=rule: solvers.greedy(
                p, rule=r, exact=True
            )
    return found


def decided(solve, problems):
    def run():
        digest = Digest()
        for problem in problems:
            decision = solve(problem)
            digest.add(decision.draft_length, "draft_length")
            digest.add(getattr(decision, "bandwidth_hz", None), "bandwidth_hz")
            digest.add(float(decision.goodput), "goodput")
        return digest.result()

    return run


def priced(name):
    def run():
        digest = Digest()
        for devices in (1, 4, 12):
            scenario = Scenario.load(name, overrides={"num_devices": devices})
            digest.add(vars(solvers.reference(scenario)))
        return digest.result()

    return run


def stored_rounds():
    """Problems by name of their family, from the file."""
    families = json.loads(ROUNDS_FILE.read_text())
    kinds = {"correction": CorrectionProblem, "upload": UploadProblem}
    return {
        name: [kinds[name.split("-")[0]](**_arrays(fields)) for fields in family]
        for name, family in families.items()
    }


def _arrays(fields):
    return {k: np.array(v) if isinstance(v, list) else v for k, v in fields.items()}


def make_rounds():
    """Random rounds, among them rates of 0 and 1, dead links, and devices of one kind."""
    families = {}
    for protocol, scenario in (("correction", "qwen2.5"), ("upload", "qwen3.5")):
        for devices, count in ((3, 12), (20, 6), (100, 2)):
            generator = np.random.default_rng(devices)
            family = []
            for number in range(count):
                overrides = {"num_devices": devices}
                if protocol == "correction":
                    overrides["radio.uplink_power_dbm"] = 10 * (number % 3)
                problem = draw(Scenario.load(scenario, overrides=overrides), generator, number % 2)
                fields = {k: np.asarray(v).tolist() for k, v in vars(problem).items()}
                if number % 4 == 2:
                    fields["acceptance_rate"][:2] = [0.0, 1.0]
                if number % 4 == 3:
                    dead = "channel_gain" if protocol == "correction" else "spectral_efficiency"
                    fields[dead][1] = 0.0
                    fields["min_draft_length"] = 0
                    fields["token_latency_s"][0] *= 5.0
                if protocol == "correction":
                    fields.pop("min_draft_length", None)
                family.append(fields)
            families[f"{protocol}-{devices}"] = family
    return families


# ---- where it holds ------------------------------------------------------------------------------


def platform():
    """A hash of how this platform rounds the elementary functions that the model uses."""
    import numba

    x = np.random.default_rng(7).random(4096) * 10.0 + 1e-3
    log1p = numba.njit(lambda values: [np.log1p(v) for v in values])
    log = numba.njit(lambda values: [np.log(v) for v in values])
    floor = [np.log(x), np.log1p(x), np.exp(-x), np.expm1(-x), np.log10(x), 10.0**x, x**-3.5]
    sha = hashlib.sha256()
    for values in (*floor, np.array(log1p(x)), np.array(log(x)), np.sum(x), np.cos(x)):
        sha.update(np.asarray(values).tobytes())
    return sha.hexdigest()[:16]


def main():
    if not ROUNDS_FILE.exists():
        ROUNDS_FILE.write_text(json.dumps(make_rounds()) + "\n")
    stored = json.loads(HASHES.read_text()) if HASHES.exists() else {"sha256": {}, "totals": {}}
    here = stored["sha256"].setdefault(platform(), {})
    for name, run in cases().items():
        result = run()
        if here.setdefault(name, result["sha256"]) != result["sha256"]:
            sys.exit(f"{name} has changed: what exists is frozen")
        stored["totals"].setdefault(name, result["totals"])
    HASHES.write_text(json.dumps(stored, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
