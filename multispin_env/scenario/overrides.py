"""Overrides: dotted field names and the values written in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from multispin_env.scenario.checks import refusal
from multispin_env.scenario.tables import plain
from multispin_env.scenario.tasks import task_table

#: Fields that change no physics; overriding only these keeps a preset's computed reference.
NOT_PHYSICS: Final = frozenset(
    {
        "name",
        "models",
        "episode",
        "reference_draft_length",
        "reference_goodput",
        "reference_physics",
    }
)


def override(data: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`data`, nested tables, with dotted `overrides` written into it.

    Raises:
        ValueError: `overrides` is no mapping, or leads into something that is no table.
    """
    if not isinstance(overrides, Mapping):
        raise refusal("overrides", overrides, "a mapping of dotted field names to values")
    drop_alternatives(data, overrides)
    drop_reference(data, overrides)
    data["tasks"] = task_table(data.get("tasks"))
    for name, value in overrides.items():
        *parents, leaf = str(name).split(".", 1)  # once: the name of a task may have dots
        table = data
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise ValueError(f"unknown scenario field {name!r}: {parent!r} is not a table")
        table[leaf] = plain(value)
    return data


def drop_alternatives(data: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Drop what excludes the new values: the other length of an episode, the old channel."""
    if "episode.rounds" in overrides or "episode.horizon_s" in overrides:
        data["episode"] = {}
    channel = data.get("channel")
    if isinstance(channel, dict):
        kind = channel.get("kind")
        if overrides.get("channel.kind", kind) != kind:
            # The fields of the two kinds have nothing in common but the fading.
            data["channel"] = {key: channel[key] for key in ("fading",) if key in channel}


def drop_reference(data: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Drop the stored reference if the physics changes, its fingerprint if a new one is given."""
    physics_changes = any(str(name).split(".")[0] not in NOT_PHYSICS for name in overrides)
    for name in ("reference_draft_length", "reference_goodput"):
        if physics_changes:
            data.pop(name, None)
        if name in overrides:  # given, not computed: it holds whatever the physics
            data.pop("reference_physics", None)
