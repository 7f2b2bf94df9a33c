"""Nested tables, as TOML files and dicts have them, and the objects that they describe."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from typing import Any

from multispin_env.scenario.checks import Range, choice, refusal
from multispin_env.scenario.sections import (
    CHANNELS,
    RADIOS,
    Drafting,
    Episode,
    Models,
    Payload,
    Section,
    Verification,
)
from multispin_env.scenario.tasks import Task


def plain(value: Any) -> Any:
    """A deep copy in plain dicts and lists, without the entries that are None."""
    if isinstance(value, Range | Task | Section):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def from_tables(whole: type[Section], data: Mapping[str, Any]) -> Any:
    """The object of class `whole`, a scenario, that nested tables describe.

    Raises:
        ValueError: a field is unknown, missing or outside its range.
    """
    if not isinstance(data, Mapping):
        raise refusal("scenario", data, "a mapping of fields to values")
    data = plain(data)
    for key in data:
        if not isinstance(key, str):
            raise ValueError(f"unknown scenario field {key!r}: names are strings")
    channel = data.get("channel", {})
    if not isinstance(channel, Mapping):
        raise refusal("channel", channel, "a table")
    protocol = choice(list(RADIOS))("protocol", data.get("protocol"))
    kind = choice(list(CHANNELS))("channel.kind", channel.get("kind"))
    sections = (Models, Drafting, Verification, Payload, RADIOS[protocol], CHANNELS[kind], Episode)
    classes = {cls.PREFIX.removesuffix("."): cls for cls in (whole, *sections)}
    return Layout(protocol, kind, classes).make("", data)


@dataclass(frozen=True)
class Layout:
    """The tables of the scenarios of one protocol and one kind of channel."""

    protocol: str
    kind: str
    classes: Mapping[str, type[Section]]  # of each table, by its dotted name; "" is the whole

    @cached_property
    def names(self) -> list[str]:
        """Dotted names of all fields."""
        return [cls.PREFIX + item.name for cls in self.classes.values() for item in fields(cls)]

    def make(self, name: str, table: Mapping[str, Any]) -> Any:
        """The object that the table of a name describes, and in it those of the tables inside."""
        cls = self.classes[name]
        values = {}
        for key, value in table.items():
            inner = f"{cls.PREFIX}{key}"
            self.check_known(inner)
            if inner in self.classes:
                if not isinstance(value, Mapping):
                    raise refusal(inner, value, "a table")
                value = self.make(inner, value)
            values[key] = value
        check_complete(cls, values)
        return cls(**values)

    def check_known(self, name: str) -> None:
        """Raise unless `name` is a field; the message names the nearest one."""
        if name in self.names:
            return
        near = difflib.get_close_matches(name, self.names, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown scenario field {name!r} (protocol {self.protocol!r}, channel kind "
            f"{self.kind!r}): did you mean {near!r}?"
        )


def check_complete(cls: type[Section], values: Mapping[str, Any]) -> None:
    """Raise if a required field is missing."""
    missing = [
        cls.PREFIX + item.name
        for item in fields(cls)
        if item.default is MISSING and item.name not in values
    ]
    if missing:
        hint = "; a table replaces its whole section, change single fields by their dotted names"
        raise ValueError(f"the scenario lacks {', '.join(missing)}{hint if cls.PREFIX else ''}")
