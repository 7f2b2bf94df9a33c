"""Learned policies, and what training them needs."""

from agents import policy
from agents.policy import NetworkPolicy, list_agents, load
from agents.sb3 import EquivariantPolicy, SB3Policy, learner
from agents.vec_env import SB3VecEnv, make_vec_env

__all__ = [
    "EquivariantPolicy",
    "NetworkPolicy",
    "SB3Policy",
    "SB3VecEnv",
    "learner",
    "list_agents",
    "load",
    "make_vec_env",
    "policy",
]
