"""A scenario: everything that is fixed about one cell, in physical units.

A scenario names the models, the radio, the channel statistics, the tasks and the length of an
episode. What is random (which task a device works on, where it stands, the fading) is drawn by
:mod:`multispin_env.world.tape` from the ranges given here.

Scenarios are frozen dataclasses, loaded from TOML files; the shipped ones are listed by
:func:`multispin_env.list_scenarios`. Every value is checked when a scenario is made, so that an
object that exists is valid.

The way in: `files` reads a name or a path into nested tables, `overrides` writes single values
into them, `tables` makes objects of them, which are the `tasks`, the `sections` and, around both,
the `Scenario` of `cell`. All their fields go through `checks`.
"""

from multispin_env.scenario.cell import MIN_ROUND_S, Scenario
from multispin_env.scenario.checks import PerDevice, Range
from multispin_env.scenario.files import list_scenarios
from multispin_env.scenario.overrides import NOT_PHYSICS
from multispin_env.scenario.sections import (
    MAX_TOKEN_LATENCY_S,
    CorrectionRadio,
    DistanceChannel,
    Drafting,
    Episode,
    Models,
    Payload,
    UniformChannel,
    UploadRadio,
    Verification,
)
from multispin_env.scenario.tasks import Task

__all__ = [
    "MAX_TOKEN_LATENCY_S",
    "MIN_ROUND_S",
    "NOT_PHYSICS",
    "CorrectionRadio",
    "DistanceChannel",
    "Drafting",
    "Episode",
    "Models",
    "Payload",
    "PerDevice",
    "Range",
    "Scenario",
    "Task",
    "UniformChannel",
    "UploadRadio",
    "Verification",
    "list_scenarios",
]
