"""Learned policies, and what training them needs."""

from agents import policy
from agents.policy import NetworkPolicy, list_agents, load
from agents.sb3 import EquivariantPolicy, ppo
from agents.vec_env import SB3VecEnv, make_vec_env

__all__ = [
    "EquivariantPolicy",
    "NetworkPolicy",
    "SB3VecEnv",
    "list_agents",
    "load",
    "make_vec_env",
    "policy",
    "ppo",
]
