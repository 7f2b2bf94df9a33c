"""Training that can be interrupted: everything that the next step depends on, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


class Checkpoint:
    """Saves and restores a network, its optimiser and schedule, and all random numbers.

    Args:
        path: of the file; None to keep nothing.
        key: what identifies the training; a file of another one is refused.
        network, optimiser, schedule, generator: what is saved.
    """

    def __init__(
        self,
        path: Path | None,
        key: str,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LRScheduler,
        generator: np.random.Generator,
    ) -> None:
        self._path, self._key = path, key
        self._parts: dict[str, Any] = {
            "network": network,
            "optimiser": optimiser,
            "schedule": schedule,
        }
        self._generator = generator

    def restore(self) -> dict[str, Any]:
        """Restore everything; returns the numbers saved beside it, or {} without a file.

        Raises:
            ValueError: the file is of another training.
        """
        if self._path is None or not self._path.is_file():
            return {}
        state = torch.load(self._path, weights_only=True)
        if state["key"] != self._key:
            raise ValueError(f"{self._path} is of another training: delete it, or choose a folder")
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        words, rest = state["generator"]
        self._generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": int(words[0]), "inc": int(words[1])},
            **rest,
        }
        torch.set_rng_state(state["torch"])
        numbers: dict[str, Any] = state["numbers"]
        return numbers

    def save(self, **numbers: float) -> None:
        """Write everything, and some numbers; the old file is replaced at the end."""
        if self._path is None:
            return
        words = self._generator.bit_generator.state
        inner = words["state"]
        rest = {key: words[key] for key in ("has_uint32", "uinteger")}
        state = {name: part.state_dict() for name, part in self._parts.items()}
        state |= {
            "generator": ([str(inner["state"]), str(inner["inc"])], rest),
            "torch": torch.get_rng_state(),
            "numbers": numbers,
            "key": self._key,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".tmp")
        torch.save(state, unfinished)
        unfinished.rename(self._path)
