"""The tasks of a scenario: a table `name -> acceptance rate` in files, a tuple in objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from multispin_env.scenario.checks import PerDevice, nonempty_string, number, refusal


@dataclass(frozen=True)
class Task:
    """A kind of work and the rate at which its drafted tokens are accepted."""

    name: str
    acceptance_rate: PerDevice  # in [0, 1]; a list gives each device its own rate


def task_tuple(name: str, value: Any) -> tuple[Task, ...]:
    """Tasks from a mapping `name -> acceptance rate`, or from a sequence of tasks; a check."""
    table = task_table(value)
    if not isinstance(table, Mapping) or not table:
        raise refusal(name, value, "a table with at least one task: its name and acceptance rate")
    pairs = list(table.items())
    rate = number(0.0, 1.0, per_device=True)
    return tuple(Task(nonempty_string(name, key), rate(f"{name}.{key}", r)) for key, r in pairs)


def task_table(value: Any) -> Any:
    """A sequence of tasks (as `asdict` gives it) as a table; anything else as it is.

    Raises:
        ValueError: a name stands twice.
    """
    if not isinstance(value, list | tuple):
        return value
    items = [asdict(task) if isinstance(task, Task) else task for task in value]
    if not all(isinstance(i, Mapping) and set(i) == {"name", "acceptance_rate"} for i in items):
        return value
    table = {item["name"]: item["acceptance_rate"] for item in items}
    if len(table) < len(items):
        raise refusal("tasks", value, "a table in which no name stands twice")
    return table
