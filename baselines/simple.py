"""Policies that look at nothing: the floor that others are measured from."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from baselines.policy import Context, Observation, Policy
from multispin_env.solvers import reference_draft_length


class FixedDraftLength(Policy):
    """Every device drafts the same number of tokens in every round.

    Knows: nothing about the round. Costs: nothing. In DraftBandwidth the band is split equally; in
    Joint modes are optimal, with what :class:`ModeRule` knows and costs.

    Args:
        context: the environment.
        draft_length: tokens; the scenario's reference length if None.
    """

    def __init__(self, context: Context, draft_length: int | None = None) -> None:
        super().__init__(context)
        longest = self.scenario.max_draft_length
        if draft_length is None:
            draft_length = reference_draft_length(self.scenario)
        whole = isinstance(draft_length, int | np.integer) and not isinstance(draft_length, bool)
        if not whole or not 0 <= draft_length <= longest:
            raise ValueError(f"draft_length = {draft_length!r}: must be an int in [0, {longest}]")
        self.draft_length = int(draft_length)

    @staticmethod
    def fits(context: Context) -> bool:
        """Fits where the agent decides lengths."""
        return context.control.draft

    def act(self, observation: Observation) -> Any:
        """The same length for all."""
        lengths = np.full(observation["snr_db"].shape, self.draft_length, dtype=np.int64)
        return self.draft_action(lengths, observation)


class RandomPolicy(Policy):
    """Uniform actions from the action space.

    Knows: nothing. Costs: nothing.

    Args:
        context: the environment.
        seed: of the policy's own generator, independent of the environment's.
    """

    def __init__(self, context: Context, seed: int | None = None) -> None:
        super().__init__(context)
        self._generator = np.random.default_rng(seed)
        self._batches: dict[int, spaces.Space[Any]] = {}

    def seed(self, seed: int) -> None:
        """Start the policy's randomness anew."""
        self._generator = np.random.default_rng(seed)
        self._batches.clear()

    def act(self, observation: Observation) -> Any:
        """An independent sample for each observation of the batch."""
        size = len(observation["snr_db"])
        if size not in self._batches:
            self._batches[size] = batch_space(self._space, size)
            self._batches[size].seed(int(self._generator.integers(2**31)))
        return self._batches[size].sample()
