"""Rewards: what a step is worth, from the outcome of the round that it closed.

A reward is a function of the step's `info`, so that one definition serves the scalar environment
(numbers and arrays [K]) and the vector environment (arrays [N] and [N, K]). The named rewards are

``"margin"``
    tokens - price * latency_s [tokens]: what the round delivered, less what its time could have
    earned elsewhere. Undiscounted it sums to (episode goodput - price) * seconds, so that
    maximising the return maximises the goodput at any price; at a price near the achievable
    goodput even a myopic learner gets it right.
``"goodput"``
    tokens / latency_s [tokens/s]: the papers' objective for one round.
``"tokens"``
    tokens delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

Terms = dict[str, Any]
Reward = str | Callable[[Mapping[str, Any]], Any]

#: Largest price [tokens/s]; keeps rewards finite.
PRICE_MAX: Final = 1e12

REWARDS: Final = ("margin", "goodput", "tokens")


def check_reward(reward: Reward, price: float | None) -> None:
    """Raise unless `reward` is a name or a callable, and `price` fits it."""
    if not callable(reward) and reward not in REWARDS:
        names = ", ".join(map(repr, REWARDS))
        raise ValueError(f"reward = {reward!r}: must be one of {names}, or a callable of the info")
    if price is None:
        return
    if reward != "margin":
        raise ValueError(f"price = {price!r}: only the reward 'margin' has a price, not {reward!r}")
    number = isinstance(price, int | float | np.integer | np.floating)
    if isinstance(price, bool) or not number or not 0 <= price <= PRICE_MAX:
        raise ValueError(f"price = {price!r}: must be a number in [0, {PRICE_MAX:g}] [tokens/s]")


def terms(reward: Reward, price: Any, info: Mapping[str, Any]) -> Terms:
    """The named parts of a reward [tokens, or tokens/s]; they sum to it."""
    if reward == "margin":
        return {"tokens": info["tokens"] * 1.0, "latency": -price * info["latency_s"]}
    if reward == "goodput":
        return {"goodput": info["goodput"] * 1.0}  # a copy: infos share no memory
    if reward == "tokens":
        return {"tokens": info["tokens"] * 1.0}
    assert callable(reward)
    value = np.asarray(reward(info), dtype=np.float64)
    shape = np.shape(info["tokens"])
    if value.shape != shape or not np.all(np.isfinite(value)):
        wanted = f"{shape[0]} finite numbers" if shape else "a finite number"
        raise ValueError(f"reward returned {value!r}: must be {wanted}")
    return {"custom": value[()] if shape else float(value)}
