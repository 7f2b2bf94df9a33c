"""Policies by name."""

from __future__ import annotations

from typing import Any, Final

from baselines.analytical import (
    UPLOAD_SOLVERS,
    CorrectionSolver,
    JointSolver,
    ModeRule,
    UploadSolver,
)
from baselines.policy import Context, Policy
from baselines.simple import FixedDraftLength, RandomPolicy
from multispin_env.solvers import DRAFT_SOLVERS

#: A policy's class, and the options that its name stands for.
_POLICIES: Final[dict[str, tuple[type[Policy], dict[str, Any]]]] = {
    "fixed": (FixedDraftLength, {}),
    "random": (RandomPolicy, {}),
    **{name: (CorrectionSolver, {"solver": name}) for name in DRAFT_SOLVERS},
    **{
        f"{name}_{rule}": (JointSolver, {"solver": name, "rule": rule})
        for name in DRAFT_SOLVERS
        for rule in ("uplink", "downlink", "random")
    },
    **{name: (UploadSolver, {"solver": name}) for name in UPLOAD_SOLVERS},
    "optimal_modes": (ModeRule, {"rule": "optimal"}),
    "all_uplink": (ModeRule, {"rule": "uplink"}),
    "all_downlink": (ModeRule, {"rule": "downlink"}),
}


def register(name: str, policy: type[Policy]) -> None:
    """Add a policy of your own under a new name.

    Raises:
        ValueError: the name is taken.
    """
    if name in _POLICIES:
        raise ValueError(f"name = {name!r}: is taken; choose another")
    _POLICIES[name] = (policy, {})


def names(env: Any) -> list[str]:
    """Names of the policies that fit an environment's control and protocol."""
    return _names(Context.of(env))


def _names(context: Context) -> list[str]:
    return sorted(name for name, (policy, _) in _POLICIES.items() if policy.fits(context))


def make(name: str, env: Any, **options: Any) -> Policy:
    """The named policy for an environment, a vector environment or a scenario.

    Args:
        name: one of :func:`names`.
        env: what it shall control; only its control and scenario are read.
        options: passed to the policy.

    Raises:
        ValueError: no policy has that name, or it does not fit the environment.
    """
    context = Context.of(env)
    if name not in _names(context):
        fitting = ", ".join(map(repr, _names(context)))
        problem = "does not fit" if name in _POLICIES else "is no policy"
        raise ValueError(
            f"name = {name!r} {problem}: {context.control.id} with the "
            f"{context.scenario.protocol} protocol is controlled by {fitting}"
        )
    policy, given = _POLICIES[name]
    return policy(context, **given, **options)
