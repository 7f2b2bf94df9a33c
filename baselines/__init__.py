"""Policies that need no training: observation -> action.

A policy belongs to a scenario, so it is made for an environment::

    policy = baselines.make("fixed", env, draft_length=4)
    action, _ = policy.predict(observation)

It follows Stable-Baselines3's `predict`, for one observation or a batch of them, so that SB3's
`evaluate_policy` runs it like a trained model.
"""

from baselines.analytical import CorrectionSolver, JointSolver, ModeRule, UploadSolver
from baselines.policy import Context, Policy
from baselines.portfolios import PORTFOLIOS, portfolio
from baselines.registry import make, names, register
from baselines.simple import FixedDraftLength, RandomPolicy

__all__ = [
    "PORTFOLIOS",
    "Context",
    "CorrectionSolver",
    "FixedDraftLength",
    "JointSolver",
    "ModeRule",
    "Policy",
    "RandomPolicy",
    "UploadSolver",
    "make",
    "names",
    "portfolio",
    "register",
]
