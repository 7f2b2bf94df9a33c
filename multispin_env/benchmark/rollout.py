"""Playing a policy on a task: episodes, what they deliver, and what is needed to replay them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray

from multispin_env.benchmark import statistics
from multispin_env.benchmark.suite import TRACKS, Task, check_choice
from multispin_env.model.kernels.state import BLOCK
from multispin_env.model.latency import MAX_ROUND_S
from multispin_env.model.sums import total
from multispin_env.solvers.problems import check_integer, pose
from multispin_env.world.control import MODE_SELECTION
from multispin_env.world.regret import expected_goodput
from multispin_env.world.tape import Tape, episode_seed

Floats = NDArray[np.float64]
Factory = Callable[[Any], Any]

#: Quasi-random outcomes behind an expected goodput.
EXPECTATION_SAMPLES: Final = 512


@dataclass(frozen=True)
class Episode:
    """One episode. Arrays are over its rounds [R]; actions over its steps, one each."""

    seed: int
    goodput: float  #: tokens delivered over seconds [tokens/s]
    tokens: int  #: delivered
    emitted: NDArray[np.int64]  #: generated in each round, also in one that was cut
    latency_s: Floats  #: whole duration of each round
    #: [R, ...] by name; a plain action's name is `action`
    actions: dict[str, NDArray[Any]]
    expected_goodput: float  #: mean over rounds, over acceptances [tokens/s]; nan if left out
    decision_s: float  #: mean time of a decision, as measured

    @property
    def rounds(self) -> int:
        """Rounds played, with the one that was cut."""
        return int(self.emitted.size)

    def charged_goodput(self, decision_time_s: float, horizon_s: float | None) -> float:
        """Goodput if every decision had taken simulated time as well [tokens/s].

        Rounds do not depend on the time, so the same rounds are played, only fewer by the horizon.
        """
        ends = np.cumsum(self.latency_s + decision_time_s)
        if horizon_s is None:
            return float(self.emitted.sum() / ends[-1])
        return float(self.emitted[ends <= horizon_s].sum() / horizon_s)


@dataclass(frozen=True)
class Evaluation:
    """A policy's episodes on one task."""

    task: str
    track: str
    episodes: tuple[Episode, ...]

    @cached_property
    def goodputs(self) -> Floats:
        """Goodput of every episode [tokens/s]."""
        return np.array([episode.goodput for episode in self.episodes])

    @property
    def goodput(self) -> float:
        """Mean over episodes [tokens/s]."""
        return float(self.goodputs.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % t interval of the mean goodput [tokens/s]; at least two episodes."""
        return statistics.mean_interval(self.goodputs).interval


def evaluate(
    factory: Factory,
    task: Task,
    episodes: int | None = None,
    *,
    track: str = "full",
    split: str = "dev",
    value: str = "",
    seed: int | None = None,
    lanes: int = 1,
    expected: bool = True,
) -> Evaluation:
    """Play a policy on a task.

    The factory is given an environment of the same kind, never the one that is played.

    Args:
        factory: `make(env) -> policy`, an object with Stable-Baselines3's `predict`; a new one for
            every episode. If it has a method `seed(int)`, that is called first.
        task: of a suite.
        episodes: how many; the suite's number of dev episodes if None.
        track: `full`, or `feedback` without acceptance rates.
        split, value: which seeds, see :meth:`Task.seeds`.
        seed: seeds seed, seed + 1, ... instead of a split's.
        lanes: episodes to play at once in a vector environment, by one policy. The numbers are the
            same for policies that decide on each observation alone; one with `seed` plays singly.
        expected: also find the expected goodput of every round, which takes 0.3 ms each.
    """
    if seed is None:
        seeds = task.seeds(split, episodes, value)
    else:
        check_integer("seed", seed, 0)
        seeds = [seed + i for i in range(task.dev_episodes if episodes is None else episodes)]
    return Evaluation(task.name, track, tuple(play(factory, task, seeds, track, lanes, expected)))


def play(
    factory: Factory,
    task: Task,
    seeds: Sequence[int],
    track: str = "full",
    lanes: int = 1,
    expected: bool = True,
) -> list[Episode]:
    """The episodes of the given seeds; see :func:`evaluate`."""
    check_integer("lanes", lanes, 1)
    if lanes == 1:
        given, env = task.make(track), task.make(track)
        return [
            play_episode(
                env, make_policy(factory, given, task, policy_seed(seed)), task, seed, expected
            )
            for seed in seeds
        ]
    found: list[Episode] = []
    for first in range(0, len(seeds), lanes):
        some = seeds[first : first + lanes]
        policy = factory(task.make_vec(len(some), track))
        if callable(getattr(policy, "seed", None)):
            return play(factory, task, seeds, track, 1, expected)
        envs = task.make_vec(len(some), track)
        found.extend(_play_lanes(envs, policy, task, some, expected))
    return found


class PolicyError(RuntimeError):
    """A policy failed; the message says where, the cause is what it raised."""


def policy_seed(seed: int) -> int:
    """The seed that a policy is given for an episode: it tells nothing of the episode's own."""
    return int.from_bytes(hashlib.sha256(f"policy/{seed}".encode()).digest()[:4])


def make_policy(factory: Factory, env: Any, task: Task, own_seed: int) -> Any:
    """A policy for one episode, its own randomness seeded with a :func:`policy_seed`.

    Raises:
        PolicyError: the factory raises, or what it returns has no `predict`.
    """
    try:
        policy = factory(env)
        if callable(getattr(policy, "seed", None)):
            policy.seed(own_seed)
    except Exception as error:
        raise PolicyError(f"{task.name}: making the policy: {_told(error)}") from error
    if not callable(getattr(policy, "predict", None)):
        raise PolicyError(f"{task.name}: the factory returned {policy!r}, which has no predict()")
    return policy


def decide(policy: Any, observation: Any, state: Any, start: NDArray[np.bool_]) -> tuple[Any, Any]:
    """A policy's action and next state.

    Raises:
        PolicyError: it raises, or does not return (action, state).
    """
    try:
        answer = policy.predict(observation, state=state, episode_start=start, deterministic=True)
    except Exception as error:
        raise PolicyError(f"predict: {_told(error)}") from error
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise PolicyError(f"predict returned {type(answer).__name__}: must be (action, state)")
    return answer


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


@dataclass
class _Log:
    """What is written down while an episode runs."""

    seed: int
    actions: list[Any] = field(default_factory=list)
    infos: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def close(self, task: Task, goodput: float, expected: bool) -> Episode:
        """The episode, once it is over."""
        parts = ("drafting_s", "verification_s", "communication_s")
        latency_s = np.array([total(info[part] for part in parts) for info in self.infos])
        emitted = np.array([info["emitted"] for info in self.infos], np.int64)
        return Episode(
            self.seed,
            goodput,
            sum(int(info["tokens"]) for info in self.infos),
            emitted,
            np.minimum(latency_s, MAX_ROUND_S),
            _stack(self.actions),
            _expected_goodput(task, self.seed, self.infos, emitted / latency_s)
            if expected
            else np.nan,
            self.seconds / len(self.infos),
        )


_LOGGED: Final = (
    *("tokens", "emitted", "drafting_s", "verification_s", "communication_s"),
    *("drafted", "bandwidth_hz"),
)


def play_episode(
    env: gym.Env[Any, Any], policy: Any, task: Task, seed: int, expected: bool = True
) -> Episode:
    """One episode in a scalar environment.

    Raises:
        PolicyError: the policy fails, or its action is not one of the environment's.
    """
    observation, info = env.reset(seed=seed)
    log, state, start = _Log(seed), None, np.ones(1, np.bool_)
    while "episode_goodput" not in info:
        try:
            before = time.perf_counter()
            action, state = decide(policy, observation, state, start)
            log.seconds += time.perf_counter() - before
            start = np.zeros(1, np.bool_)
            observation, _, _, _, info = env.step(action)
        except (PolicyError, ValueError) as error:
            where = f"{task.name}, seed {seed}, round {len(log.infos)}"
            raise PolicyError(f"{where}: {error}") from (error.__cause__ or error)
        log.actions.append(action)
        log.infos.append({key: info[key] for key in _LOGGED})
    return log.close(task, info["episode_goodput"], expected)


def _play_lanes(
    envs: gym.vector.VectorEnv[Any, Any, Any],
    policy: Any,
    task: Task,
    seeds: Sequence[int],
    expected: bool,
) -> list[Episode]:
    """One episode in every lane of a vector environment."""
    observations, _ = envs.reset(seed=list(seeds))  # type: ignore[arg-type]
    logs = [_Log(seed) for seed in seeds]
    found: dict[int, Episode] = {}
    state, start = None, np.ones(len(seeds), np.bool_)
    while len(found) < len(seeds):
        before = time.perf_counter()
        actions, state = decide(policy, observations, state, start)
        seconds = (time.perf_counter() - before) / len(seeds)
        observations, _, _, start, infos = envs.step(actions)
        for n, log in enumerate(logs):
            if n in found:  # lanes that are done play on, unseen
                continue
            log.seconds += seconds
            log.actions.append(
                {key: part[n] for key, part in actions.items()}
                if isinstance(actions, dict)
                else actions[n]
            )
            log.infos.append({key: np.copy(infos[key][n]) for key in _LOGGED})
            if start[n]:
                found[n] = log.close(task, float(infos["episode_goodput"][n]), expected)
    return [found[n] for n in range(len(seeds))]


def _stack(actions: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Actions by name, [R, ...]: integers as int16, shares as float32."""
    if not isinstance(actions[0], dict):
        actions = [{"action": action} for action in actions]
    stacked = {key: np.stack([np.asarray(a[key]) for a in actions]) for key in actions[0]}
    return {
        key: array.astype(np.float32 if key == "bandwidth" else np.int16)
        for key, array in stacked.items()
    }


def _expected_goodput(
    task: Task, seed: int, infos: Sequence[dict[str, Any]], outcome_goodput: Floats
) -> float:
    """Mean over rounds of the expected goodput of what was decided [tokens/s].

    In expectation over acceptances, given the channel; in ModeSelection, whose lengths are not the
    agent's, the goodput of the outcome.
    """
    if task.control == MODE_SELECTION:
        return float(np.mean(outcome_goodput))
    words = episode_seed(seeding.np_random(seed)[0])
    tape = Tape(task.scenario, words, -(-len(infos) // BLOCK) * BLOCK)
    rule, devices = task.arguments.get("correction", "optimal"), tape.devices
    values = []
    for gain, info in zip(tape.channel_gain, infos):
        problem = pose(task.scenario, devices.acceptance_rate, devices.token_latency_s, gain)
        played = info["drafted"], info["bandwidth_hz"]
        values.append(expected_goodput(task.control, rule, problem, *played, EXPECTATION_SAMPLES))
    return float(np.mean(values))


def check_causal(
    factory: Factory,
    task: Task,
    *,
    track: str = "full",
    seed: int = 0,
    rounds: Sequence[int] = (0, 1, 7, 18),
    forks: int = 3,
) -> list[int]:
    """The rounds at which a policy acts on what it cannot know; none if it is causal.

    An episode is played up to a round; then the future is drawn anew (:meth:`.MultiSpinEnv.fork`),
    so that all the policy has seen stays as it was. A policy that acts on observations only decides
    as before. Here the factory is given the environment that is played, so that a policy which
    reads the tape is caught. Rounds after the episode's end are left out.

    Args:
        factory, task, track: as :func:`evaluate`.
        seed: of the episode.
        rounds: at which to look.
        forks: how many futures to try at each.
    """
    check_choice("track", track, TRACKS)
    suspicious = []
    for last in rounds:
        decisions = [_decision_at(factory, task, track, seed, last, n) for n in range(forks + 1)]
        if any(not _equal(decisions[0], other) for other in decisions[1:]):
            suspicious.append(last)
    return suspicious


def _decision_at(
    factory: Factory, task: Task, track: str, seed: int, last: int, fork: int
) -> dict[str, NDArray[Any]] | None:
    """The action in round `last` of an episode, in its own future (fork 0) or in another one."""
    env = task.make(track)
    policy = make_policy(factory, env, task, policy_seed(seed))
    observation, _ = env.reset(seed=seed)
    state, start = None, np.ones(1, np.bool_)
    for played in range(last + 1):
        if played == last and fork > 0:
            env.unwrapped.fork(seed + fork)  # type: ignore[attr-defined]
        action, state = decide(policy, observation, state, start)
        start = np.zeros(1, np.bool_)
        if played < last:
            observation, _, _, truncated, _ = env.step(action)
            if truncated:
                return None
    return _stack([action])


def _equal(a: dict[str, NDArray[Any]] | None, b: dict[str, NDArray[Any]] | None) -> bool:
    if a is None or b is None:
        return a is b
    return all(np.array_equal(a[key], b[key]) for key in a)
