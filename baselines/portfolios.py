"""One policy for every kind of environment: what a suite with several kinds is played with."""

from __future__ import annotations

from typing import Any, Final

from baselines.policy import Context, Policy
from baselines.registry import make
from multispin_env.spaces import DRAFT_LENGTH, JOINT, MODE_SELECTION

#: Policy by portfolio, for lengths of corrections, modes, both, and uploads.
PORTFOLIOS: Final[dict[str, tuple[str, str, str, str]]] = {
    "strongest": ("deadline", "optimal_modes", "deadline", "exact"),
    "papers": ("greedy", "optimal_modes", "greedy", "heterogeneous"),
    "rivals": ("uniform", "optimal_modes", "uniform", "uniform_bandwidth"),
    "constant": ("fixed", "all_downlink", "fixed", "fixed"),
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
    lengths, modes, both, uploads = PORTFOLIOS[name]
    if context.control == MODE_SELECTION:
        return make(modes, env)
    if context.control == JOINT:
        return make(both, env)
    corrects = context.control == DRAFT_LENGTH and context.scenario.protocol == "correction"
    return make(lengths if corrects else uploads, env)
