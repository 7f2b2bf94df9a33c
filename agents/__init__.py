"""Learned policies, and what training them needs."""

from agents.vec_env import SB3VecEnv, make_vec_env

__all__ = ["SB3VecEnv", "make_vec_env"]
