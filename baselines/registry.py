"""Policies by name."""

from __future__ import annotations

from typing import Any, Final

from baselines.policy import Context, Policy
from baselines.simple import FixedDraftLength, RandomPolicy

_POLICIES: Final[dict[str, type[Policy]]] = {
    "fixed": FixedDraftLength,
    "random": RandomPolicy,
}


def register(name: str, policy: type[Policy]) -> None:
    """Add a policy of your own under a new name.

    Raises:
        ValueError: the name is taken.
    """
    if name in _POLICIES:
        raise ValueError(f"name = {name!r}: is taken; choose another")
    _POLICIES[name] = policy


def names(env: Any) -> list[str]:
    """Names of the policies that fit an environment's control and protocol."""
    context = Context.of(env)
    return sorted(name for name, policy in _POLICIES.items() if policy.fits(context))


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
    if name not in names(env):
        fitting = ", ".join(map(repr, names(env)))
        raise ValueError(f"name = {name!r}: {context.control.id} is controlled by {fitting}")
    return _POLICIES[name](context, **options)
