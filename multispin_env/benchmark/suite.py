"""Suites: frozen sets of tasks, and the seeds of their episodes.

A task is an environment with all its arguments. A suite is immutable once released: its hash covers
everything that is played, presets resolved, and the hashes of the shipped ones are pinned.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import gymnasium as gym

from multispin_env.scenario import Scenario
from multispin_env.solvers.problems import check_integer
from multispin_env.world.control import CONTROLS, Control

#: What an agent knows, acceptance rates, or what their feedback tells.
TRACKS: Final = ("full", "feedback")
#: Episodes to train on (any number), to develop on (public), and to be ranked on (secret until
#: submissions close).
SPLITS: Final = ("train", "dev", "test")


@dataclass(frozen=True)
class Task:
    """One environment of a suite."""

    suite: str  #: name of the suite
    suite_sha256: str
    name: str
    control: Control
    scenario: Scenario
    arguments: Mapping[str, Any]  #: further arguments of the environment
    dev_episodes: int

    def make(self, track: str = "full", **kwargs: Any) -> gym.Env[Any, Any]:
        """The scalar environment; further arguments are passed on (`regret`, `render_mode`)."""
        return gym.make(self.control.id, **self._arguments(track), **kwargs)

    def make_vec(
        self, num_envs: int, track: str = "full", **kwargs: Any
    ) -> gym.vector.VectorEnv[Any, Any, Any]:
        """The vector environment, to train on or to play many episodes at once."""
        return gym.make_vec(self.control.id, num_envs=num_envs, **self._arguments(track), **kwargs)

    def _arguments(self, track: str) -> dict[str, Any]:
        check_choice("track", track, TRACKS)
        return {
            "scenario": self.scenario,
            "observe_acceptance": track == "full",
            **self.arguments,
        }

    def seeds(self, split: str = "dev", episodes: int | None = None, value: str = "") -> list[int]:
        """Seeds of the first episodes of a split, 48 bits each.

        Args:
            split: `train`, `dev` or `test`.
            episodes: how many; the suite's number of dev episodes if None.
            value: of the test split: what is published after submissions close.

        Raises:
            ValueError: an unknown split, too many dev episodes, or a value that does not belong.
        """
        check_choice("split", split, SPLITS)
        episodes = self.dev_episodes if episodes is None else episodes
        check_integer("episodes", episodes, 1)
        if split == "dev" and episodes > self.dev_episodes:
            raise ValueError(
                f"episodes = {episodes}: the dev split of {self.suite} has {self.dev_episodes}"
            )
        if (split == "test") != bool(value):
            raise ValueError(
                f"value = {value!r}: must be given for the test split, and for no other"
            )
        prefix = f"{self.suite_sha256}/{split}/{value}/{self.name}/"
        return [
            int.from_bytes(hashlib.sha256(f"{prefix}{i}".encode()).digest()[:6])
            for i in range(episodes)
        ]


@dataclass(frozen=True)
class Suite:
    """A named set of tasks."""

    name: str
    description: str
    sha256: str  #: of all that is played
    dev_episodes: int
    tasks: tuple[Task, ...]

    @cached_property
    def names(self) -> list[str]:
        """Names of the tasks."""
        return [task.name for task in self.tasks]

    def task(self, name: str) -> Task:
        """The task of a name.

        Raises:
            ValueError: there is none.
        """
        check_choice("task", name, self.names)
        return self.tasks[self.names.index(name)]


def list_suites() -> list[str]:
    """Names of the shipped suites."""
    return sorted(name for name in pinned_hashes() if "/" not in name)


def load(suite: str | Path) -> Suite:
    """A shipped suite by name, or a suite of your own from a TOML file.

    Raises:
        ValueError: no such suite, a malformed file, or a shipped suite that is not what was
            released (its file, or a scenario preset that it uses, has changed).
    """
    return _load(str(suite))


@lru_cache(maxsize=32)
def _load(suite: str) -> Suite:
    shipped = suite in list_suites()
    path = files() / f"{suite}.toml" if shipped else Path(suite)
    if not shipped and not (suite.endswith(".toml") and Path(suite).is_file()):
        names = ", ".join(map(repr, list_suites()))
        raise ValueError(f"suite = {suite!r}: must be one of {names}, or the path of a TOML file")
    try:
        loaded = _parse(tomllib.loads(path.read_text("utf8")))
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"suite = {suite!r}: malformed: {error!r}") from error
    if shipped and loaded.sha256 != pinned_hashes()[suite]:
        raise ValueError(
            f"suite {suite!r} hashes to {loaded.sha256}, not to the {pinned_hashes()[suite]} that "
            "was released: its file or a scenario preset has changed"
        )
    return loaded


def _parse(data: Mapping[str, Any]) -> Suite:
    tasks = []
    for entry in data["tasks"]:
        controls = {control.id: control for control in CONTROLS}
        check_choice("env", entry["env"], list(controls))
        scenario = Scenario.load(entry["scenario"], entry.get("overrides"))
        tasks.append((entry["name"], controls[entry["env"]], scenario, entry.get("arguments", {})))
    names = [name for name, *_ in tasks]
    if len(set(names)) != len(names) or not names:
        raise ValueError(f"tasks = {names}: must be one or more different names")
    for name in names:
        if not re.fullmatch(r"\w[\w.-]*", str(name)):
            raise ValueError(f"tasks: name = {name!r}: must be letters, digits, '.', '_' and '-'")
    episodes = data["dev_episodes"]
    check_integer("dev_episodes", episodes, 2)
    content = {
        "name": data["name"],
        "dev_episodes": episodes,
        "tasks": [
            {
                "name": name,
                "env": control.id,
                "scenario": {k: v for k, v in s.to_dict().items() if k != "reference_physics"},
                "arguments": arguments,
            }
            for name, control, s, arguments in tasks
        ],
    }
    sha256 = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return Suite(
        data["name"],
        data.get("description", ""),
        sha256,
        episodes,
        tuple(Task(data["name"], sha256, *task, episodes) for task in tasks),
    )


def files() -> Any:
    """The folder of the shipped suites and references."""
    return resources.files("multispin_env.benchmark") / "suites"


@lru_cache(maxsize=1)
def pinned_hashes() -> dict[str, str]:
    """SHA-256 of the shipped suites, and of their references (`NAME/references`)."""
    lines = (files() / "SHA256SUMS").read_text("utf8").split("\n")
    return {name: digest for digest, name in (line.split() for line in lines if line)}


def check_choice(name: str, value: Any, allowed: Any) -> None:
    """ValueError unless `value` is one of the allowed."""
    if value not in allowed:
        raise ValueError(f"{name} = {value!r}: must be one of {', '.join(map(repr, allowed))}")
