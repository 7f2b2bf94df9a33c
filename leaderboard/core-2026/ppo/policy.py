"""Weights of one training seed, which lie beside this file."""

from pathlib import Path

import agents


def make(env, weights):
    return agents.load(Path(__file__).parent / weights, env)
