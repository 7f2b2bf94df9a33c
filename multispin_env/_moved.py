"""Modules that once had another address: the old ones still work.

`import multispin_env.wrappers` gives :mod:`multispin_env.envs.wrappers`, the same module object.
Environments whose specification was stored with an old entry point can be made.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_PACKAGE: Final = "multispin_env"
#: Old name -> new name, below the package.
MOVED: Final = {
    "core": "world.core",
    "devices": "scenario.devices",
    "env": "envs.scalar",
    "regret": "world.regret",
    "rendering": "envs.rendering",
    "rewards": "envs.rewards",
    "round": "world.round",
    "settings": "envs.settings",
    "spaces": "envs.spaces",
    "tape": "world.tape",
    "vector_env": "envs.vector",
    "wrappers": "envs.wrappers",
}


class _Forwarder(MetaPathFinder, Loader):
    """Finds an old name, and loads what is at the new one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != _PACKAGE or name not in MOVED:
            return None
        module = importlib.import_module(f"{_PACKAGE}.{MOVED[name]}")
        # The import system writes the new spec into the module; kept here to be put back.
        return ModuleSpec(fullname, self, loader_state=(module, module.__spec__))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: ModuleType = spec.loader_state[0]
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state[1]


def keep_old_names() -> None:
    """Let old names be imported."""
    if not any(isinstance(finder, _Forwarder) for finder in sys.meta_path):
        sys.meta_path.append(_Forwarder())
