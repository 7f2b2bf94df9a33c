"""Networks as policies: Stable-Baselines3's `predict`, weights in safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_model
from torch import nn

from agents.features import MAX_LENGTH, Reader
from agents.networks import NETWORKS, Network
from agents.sb3 import SB3Policy
from baselines import Context, Policy
from multispin_env.world.control import DRAFT_BANDWIDTH, JOINT, MODE_SELECTION

#: What a card calls a policy of Stable-Baselines3.
SB3: Final = "sb3"
#: The shipped weights, a folder an agent.
WEIGHTS: Final = Path(__file__).parent / "weights"


def networks_for(context: Context) -> tuple[str, ...]:
    """Names of the networks that control such an environment."""
    if context.control == JOINT:
        return "draft", "modes"
    if context.control == MODE_SELECTION:
        return ("modes",)
    return ("uploads",) if context.scenario.protocol == "upload" else ("draft",)


class NetworkPolicy(Policy):
    """The most likely decisions of trained networks.

    Knows what is observed, and the scenario's constants; without acceptance rates it takes their
    posterior means. Costs under a millisecond for one state, and tens of microseconds in batches.

    Args:
        context: the environment.
        networks: by name, at least :func:`agents.policy.networks_for` the environment.

    Raises:
        ValueError: a network is missing, or drafts may be longer than networks can say.
    """

    def __init__(self, context: Context, networks: Mapping[str, Network]) -> None:
        super().__init__(context)
        for name in networks_for(context):
            if name not in networks:
                raise ValueError(
                    f"networks = {sorted(networks)}: {context.control.id} with the "
                    f"{context.scenario.protocol} protocol needs {name!r}"
                )
        if context.scenario.max_draft_length > MAX_LENGTH:
            raise ValueError(
                f"max_draft_length = {context.scenario.max_draft_length}: must be at most "
                f"{MAX_LENGTH} for these networks"
            )
        self.networks = {name: networks[name].eval() for name in networks_for(context)}
        self._reader = Reader([context.scenario])

    @torch.inference_mode()
    def act(self, observation: Mapping[str, NDArray[Any]]) -> Any:
        """Decisions for every observation of the batch."""
        parts = {}
        for name, network in self.networks.items():
            modes = name == "modes"
            reader = self._reader
            given = reader.correcting(observation) if modes else reader.drafting(observation)
            encoded = network.encode(given)
            decision = network.head.best(encoded, given)
            parts[name] = decision.numpy()
            if self.control == DRAFT_BANDWIDTH:
                assert network.share is not None
                share = network.share.shares(encoded, given, decision)
                return {"draft_length": parts[name], "bandwidth": share.numpy()}
        if self.control == MODE_SELECTION:
            return parts["modes"].astype(np.int8)
        return np.concatenate(list(parts.values()), axis=1)


def save(module: nn.Module, path: str | Path, card: Mapping[str, Any]) -> None:
    """Write weights, and what is to be known about them (JSON) beside."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_model(module, str(path))
    path.with_suffix(".json").write_text(json.dumps(card, indent=2) + "\n", "utf8")


def load_network(name: str, path: str | Path) -> Network:
    """The network of a name with weights from a file.

    Raises:
        ValueError: no such file or name, or weights of another network.
    """
    if name not in NETWORKS:
        raise ValueError(f"name = {name!r}: must be one of {', '.join(map(repr, NETWORKS))}")
    if not Path(path).is_file():
        raise ValueError(f"path = {path}: is no file")
    network = NETWORKS[name]()
    try:
        network.load_state_dict(load_file(path))
    except (RuntimeError, SafetensorError) as error:
        raise ValueError(f"path = {path}: does not hold weights of the network {name!r}") from error
    return network


def list_agents() -> list[str]:
    """Names of the shipped agents."""
    return sorted(path.name for path in WEIGHTS.iterdir() if path.is_dir())


def load(name: str | Path, env: Any) -> Policy:
    """A trained agent as the policy of an environment.

    Args:
        name: a shipped agent (:func:`list_agents`), a folder of weights, or one file of weights
            with its card (JSON) beside it.
        env: what it shall control, as for :func:`baselines.make`.

    Raises:
        ValueError: no such agent, or it has no weights for this control and protocol.
    """
    folder = WEIGHTS / name if str(name) in list_agents() else Path(name)
    context = Context.of(env)
    if folder.is_file():
        return _of_file(folder, context)
    if not folder.is_dir():
        names = ", ".join(map(repr, list_agents()))
        raise ValueError(f"name = {str(name)!r}: must be one of {names}, a folder or a file")
    if (folder / f"{SB3}.safetensors").is_file():
        return _of_file(folder / f"{SB3}.safetensors", context)
    networks = {}
    for network in networks_for(context):
        path = folder / f"{network}.safetensors"
        if not path.is_file():
            raise ValueError(
                f"name = {str(name)!r}: has no {path.name}, which {context.control.id} with the "
                f"{context.scenario.protocol} protocol needs"
            )
        networks[network] = load_network(network, path)
    return NetworkPolicy(context, networks)


def _of_file(path: Path, context: Context) -> Policy:
    """The policy of one file of weights, as its card says."""
    try:
        card = json.loads(path.with_suffix(".json").read_text("utf8"))
        kind = card["network"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"path = {path}: must have its card, a JSON file, beside it") from error
    if kind == SB3:
        return SB3Policy.load(path, card, context)
    return NetworkPolicy(context, {kind: load_network(kind, path)})
