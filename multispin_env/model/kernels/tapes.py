"""Drawing an episode's randomness: devices, then blocks of rounds.

See :mod:`multispin_env.world.tape` for what is drawn, which reads the same numbers with NumPy.
"""

from __future__ import annotations

from multispin_env.model.kernels.compiling import inner, lean
from multispin_env.model.kernels.random import fill_coins, fill_exponential, fill_uniform, seed
from multispin_env.model.kernels.state import BLOCK


@lean
def start(state, cells, words, uniform):
    """Seed the streams of some cells, and draw the numbers that their devices are made from.

    Args:
        state: N cells.
        cells: [n] which.
        words: [n, 4] an episode's seed for each.
        uniform: [n, 3 K] output.
    """
    for i in range(cells.shape[0]):
        seed(words[i], state.stream[cells[i]])
        fill_uniform(state.stream[cells[i]], uniform[i])


@lean
def draw_first(state, cells):
    """Draw the first block of the tape of some cells."""
    for i in range(cells.shape[0]):
        draw_block(state, cells[i], 0)


@inner
def draw_if_due(state, n):
    """Draw the next block of cell n if it is about to show its first round."""
    unseen = state.clock[n]["round"] + state.kind[0]["pending"] + 1
    if unseen % BLOCK == 0:
        draw_block(state, n, unseen // BLOCK)


@lean
def draw_due(state, idle):
    """Draw the next block of all cells but the idle ones that are about to show its first round."""
    for n in range(idle.shape[0]):
        if not idle[n]:
            draw_if_due(state, n)


@inner
def draw_block(state, n, block):
    """Draw a block of cell n: it takes the place of the last but one."""
    fill_exponential(state.stream[n], state.tape[n, block % 2].reshape(-1))
    if state.kind[0]["tossed"]:
        fill_coins(state.coin_stream[n], state.coins[n, block % 2].reshape(-1))


def blocks_drawn(pending: int, round_index: int) -> int:
    """How many blocks of a tape are drawn when a round is about to be played."""
    return (round_index + pending + 1) // BLOCK + 1
