"""TOML files: the shipped scenarios, `multispin_env/scenarios/*.toml`, and any other."""

from __future__ import annotations

import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from multispin_env.scenario.checks import refusal


def folder() -> Traversable:
    """Where the shipped scenarios are."""
    return resources.files("multispin_env") / "scenarios"


def list_scenarios() -> list[str]:
    """Names of the shipped scenarios."""
    return sorted(
        f.name.removesuffix(".toml") for f in folder().iterdir() if f.name.endswith(".toml")
    )


def read(source: str | Path) -> dict[str, Any]:
    """The content of a shipped scenario, by its name, or of a TOML file.

    Raises:
        ValueError: there is no such scenario or file, or it is not TOML.
    """
    if not isinstance(source, str | Path):
        raise refusal(
            "scenario", source, "a name, the path of a TOML file, a mapping or a Scenario"
        )
    if isinstance(source, str) and source in list_scenarios():
        content = (folder() / f"{source}.toml").read_bytes()
    else:
        try:
            content = Path(source).read_bytes()
        except (OSError, ValueError) as error:
            raise ValueError(
                f"scenario = {str(source)!r}: must be one of {', '.join(list_scenarios())}, "
                f"or the path of a TOML file ({type(error).__name__})"
            ) from error
    try:
        return tomllib.loads(content.decode("utf8"))
    except ValueError as error:  # not UTF-8, or not TOML
        raise ValueError(f"scenario = {str(source)!r}: not a TOML file ({error})") from error
