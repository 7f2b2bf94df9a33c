"""The scenario itself, one cell: its sections, what holds between them, what follows from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from multispin_env.model.channel import dbm_to_w
from multispin_env.model.latency import verification_latency
from multispin_env.scenario.checks import (
    checked,
    choice,
    instance,
    integer,
    nonempty_string,
    number,
    optional,
    refusal,
)
from multispin_env.scenario.files import read
from multispin_env.scenario.overrides import NOT_PHYSICS, override
from multispin_env.scenario.sections import (
    MAX_TOKEN_LATENCY_S,
    RADIOS,
    CorrectionRadio,
    DistanceChannel,
    Drafting,
    Episode,
    Models,
    Payload,
    Section,
    UniformChannel,
    UploadRadio,
    Verification,
)
from multispin_env.scenario.tables import from_tables, plain
from multispin_env.scenario.tasks import Task, task_tuple

#: Least duration of a round [s]; keeps goodputs finite.
MIN_ROUND_S: Final = 1e-9


@dataclass(frozen=True)
class Scenario(Section):
    """One cell, complete and checked; see :mod:`multispin_env.scenario`.

    Make one with :meth:`load` (a preset's name, a TOML path, a dict, a scenario) and change it
    with `overrides`, a mapping of dotted field names to values:

    >>> Scenario.load("qwen2.5", overrides={"num_devices": 8}).num_devices
    8

    ============================  ===================================================  ==========
    field                         meaning                                              range
    ============================  ===================================================  ==========
    name                          any name
    protocol                      `correction` (paper B) or `upload` (paper A)
    num_devices                   K                                                    1..100000
    max_draft_length              longest draft [tokens]                               1..1000
    tasks                         name -> acceptance rate; a device draws one          [0, 1]
    models                        `Models`
    drafting                      `Drafting`
    verification                  `Verification`
    payload                       `Payload`
    radio                         `CorrectionRadio` or `UploadRadio`
    channel                       `DistanceChannel` or `UniformChannel`
    episode                       `Episode`
    reference_draft_length        a good common length [tokens]; computed if left out
    reference_goodput             default price of a second [tokens/s]; as above
    reference_physics             fingerprint of what the two were computed for
    ============================  ===================================================  ==========

    The two reference values hold for one physics only. Where `reference_physics` is given and is
    not the :attr:`fingerprint` of the rest, as in an edited copy, all three are dropped.

    Raises:
        ValueError: a field is unknown, missing or outside its range; the message names it.
    """

    #: any name
    name: str = checked(nonempty_string)
    #: what goes over the air, corrections (paper B) or all drafts (paper A)
    protocol: str = checked(choice(list(RADIOS)))
    #: K
    num_devices: int = checked(integer(1, 100_000))
    #: longest draft [tokens]
    max_draft_length: int = checked(integer(1, 1000))
    #: name and acceptance rate of each; a device draws one
    tasks: tuple[Task, ...] = checked(task_tuple)
    #: the pair of models
    models: Models = checked(instance(Models))
    #: speed of drafting
    drafting: Drafting = checked(instance(Drafting))
    #: latency of the batched verification
    verification: Verification = checked(instance(Verification))
    #: size of a token distribution
    payload: Payload = checked(instance(Payload))
    #: powers, noise and band
    radio: CorrectionRadio | UploadRadio = checked(instance(CorrectionRadio, UploadRadio))
    #: gains
    channel: DistanceChannel | UniformChannel = checked(instance(DistanceChannel, UniformChannel))
    #: how long an episode is
    episode: Episode = checked(instance(Episode))
    #: a good common length [tokens]
    reference_draft_length: int | None = checked(optional(integer(0, 1000)), None)
    #: default price of a second [tokens/s]
    reference_goodput: float | None = checked(optional(number(0.0, 1e12)), None)
    #: fingerprint of what the two were computed for
    reference_physics: str | None = checked(optional(nonempty_string), None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_radio()
        self._check_duration()
        self._settle_reference()
        self._check_per_device_lists()
        self._check_slowest()

    def _check_radio(self) -> None:
        wanted = RADIOS[self.protocol]
        if not isinstance(self.radio, wanted):
            raise ValueError(
                f"radio is a {type(self.radio).__name__}: "
                f"the {self.protocol} protocol takes a {wanted.__name__}"
            )

    def _check_duration(self) -> None:
        if self.verification_s < MIN_ROUND_S:
            raise refusal(
                "verification.fixed_s + num_devices * verification.per_device_s",
                self.verification_s,
                f"at least {MIN_ROUND_S:g} s, for a round must take time",
            )

    def _settle_reference(self) -> None:
        """Drop the reference of another physics, and check the draft length of one that stays."""
        if self.reference_physics not in (None, self.fingerprint):
            for name in ("reference_draft_length", "reference_goodput", "reference_physics"):
                object.__setattr__(self, name, None)
        length = self.reference_draft_length
        if length is not None and length > self.max_draft_length:
            raise refusal(
                "reference_draft_length",
                length,
                f"at most max_draft_length = {self.max_draft_length}",
            )

    def _check_per_device_lists(self) -> None:
        rates = [(f"tasks.{task.name}", task.acceptance_rate) for task in self.tasks]
        values = [(name, value) for name, value in self.flat() if name != "tasks"]
        for name, value in rates + values:
            if isinstance(value, tuple) and len(value) != self.num_devices:
                raise ValueError(
                    f"{name} lists {len(value)} values: must list num_devices = "
                    f"{self.num_devices}, or give one number for all"
                )

    def _check_slowest(self) -> None:
        slowest = np.max(self.drafting.token_latency_s)
        if not isinstance(self.drafting.token_latency_s, tuple):
            slowest *= self.drafting.spread.max
        if slowest > MAX_TOKEN_LATENCY_S:
            raise refusal(
                "drafting.token_latency_s * drafting.spread.max",
                float(slowest),
                f"at most {MAX_TOKEN_LATENCY_S:g} s",
            )

    @property
    def fingerprint(self) -> str:
        """A hash of the physics, of all but the name, the models, the episode and the reference."""
        physics = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name not in NOT_PHYSICS
        }
        text = json.dumps(plain(physics), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    # ---- derived quantities, each in one place --------------------------------------------

    @property
    def verification_s(self) -> float:
        """Latency of verifying all devices in one batch [s]; equations A-7, B-16."""
        parts = self.verification
        return float(verification_latency(self.num_devices, parts.fixed_s, parts.per_device_s))

    @property
    def uplink_power_w(self) -> np.ndarray:
        """Largest uplink power of each device [W], shape [K]."""
        return self._per_device(dbm_to_w(np.asarray(self.radio.uplink_power_dbm)))

    @property
    def downlink_power_w(self) -> float:
        """Downlink power budget of the server [W]; correction protocol only."""
        assert isinstance(self.radio, CorrectionRadio)
        return self.radio.downlink_power_ratio * float(self.uplink_power_w.max())

    @property
    def noise_server_w(self) -> float:
        """Noise power at the server over the whole band [W]."""
        if isinstance(self.radio, CorrectionRadio):
            return float(dbm_to_w(self.radio.noise_server_dbm_hz)) * self.radio.bandwidth_hz
        return float(dbm_to_w(self.radio.noise_total_dbm))

    @property
    def noise_device_w(self) -> np.ndarray:
        """Noise power at each device over the whole band [W], shape [K]; correction only."""
        assert isinstance(self.radio, CorrectionRadio)
        density = dbm_to_w(np.asarray(self.radio.noise_device_dbm_hz))
        return self._per_device(density) * self.radio.bandwidth_hz

    def _per_device(self, value: Any) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), self.num_devices))

    # ---- in and out ------------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        source: str | Path | Mapping[str, Any] | Scenario,
        overrides: Mapping[str, Any] | None = None,
    ) -> Scenario:
        """Load a scenario and change some of its fields.

        Args:
            source: a preset's name (:func:`.list_scenarios`), the path of a TOML file, a dict as
                :meth:`to_dict` gives it, or a scenario.
            overrides: dotted field names and their new values, for example
                ``{"radio.uplink_power_dbm": 10, "num_devices": 8}``. When they change the
                physics, the stored reference no longer holds and is computed when needed.

        Raises:
            ValueError: no such preset or file, an unknown field, or a value out of range.
        """
        if isinstance(source, Scenario):
            if not overrides:
                return source
            data = source.to_dict()
        elif isinstance(source, Mapping):
            data = plain(source)
        else:
            data = read(source)
        return cls.from_dict(override(data, overrides or {}))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scenario:
        """The scenario that a (nested) dict describes: the inverse of :meth:`to_dict`."""
        scenario: Scenario = from_tables(cls, data)
        return scenario

    def to_dict(self) -> dict[str, Any]:
        """The scenario as nested plain dicts, lists, numbers and strings."""
        data = asdict(self)
        data["tasks"] = {task.name: task.acceptance_rate for task in self.tasks}
        tables: dict[str, Any] = plain(data)
        return tables

    def to_toml(self) -> str:
        """The scenario as the text of a TOML file."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())
