"""One policy for every kind of environment: what a suite with several kinds is played with."""

from __future__ import annotations

from typing import Any, Final

from baselines.policy import Context, Policy
from baselines.registry import make
from multispin_env.world.control import MODE_SELECTION

#: Policy by portfolio, for lengths (and modes) of corrections, for modes alone, and for uploads.
PORTFOLIOS: Final[dict[str, tuple[str, str, str]]] = {
    "strongest": ("deadline", "optimal_modes", "exact"),
    "papers": ("greedy", "optimal_modes", "heterogeneous"),
    "rivals": ("uniform", "optimal_modes", "uniform_bandwidth"),
    "constant": ("fixed", "all_downlink", "fixed"),
}


def portfolio(name: str, env: Any) -> Policy:
    """The policy that a portfolio has for an environment.

    Args:
        name: a key of PORTFOLIOS: `strongest` (ours), `papers` (the papers' controllers), `rivals`
            (which they are compared with: uniform lengths, uniform bandwidth) or `constant`.
        env: as for :func:`baselines.make`.

    Raises:
        ValueError: no portfolio has that name.
    """
    if name not in PORTFOLIOS:
        raise ValueError(f"name = {name!r}: must be one of {', '.join(map(repr, PORTFOLIOS))}")
    context = Context.of(env)
    corrections, modes, uploads = PORTFOLIOS[name]
    if context.control == MODE_SELECTION:
        return make(modes, env)
    return make(uploads if context.scenario.protocol == "upload" else corrections, env)
