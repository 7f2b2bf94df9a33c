"""The sections that the docstrings of the environments share."""

from __future__ import annotations

import inspect
from typing import Final, TypeVar

import gymnasium as gym

from multispin_env.world.control import Control

DRAFTING_SECTION: Final = """
    ## Observation Space
    `Dict` of boxes of shape [K]:

    | key               | dtype   | range       | unit    | meaning                   |
    | ----------------- | ------- | ----------- | ------- | ------------------------- |
    | `snr_db`          | float32 | [-300, 300] | dB      | full-band UL SNR, this round |
    | `token_latency_s` | float32 | [0, 10]     | s/token | to draft one token        |
    | `acceptance_rate` | float32 | [0, 1]      |         | acceptance of a token     |

    With `observe_acceptance=False`, in place of `acceptance_rate`:

    | key               | dtype | range                 | unit   | meaning                      |
    | ----------------- | ----- | --------------------- | ------ | ---------------------------- |
    | `accepted_count`  | int64 | [0, 2^53]             | tokens | accepted this episode        |
    | `rejection_count` | int64 | [0, 2^53]             |        | rejected drafts this episode |
    | `accepted`        | int64 | [0, max_draft_length] | tokens | accepted in the last round   |
    | `rejected`        | int64 | [0, 1]                |        | its draft was rejected       |

    Only delivered rounds enter the feedback.

    With `observe_time=True` also `time_left_s`, float32 of shape (1,) in [0, episode.horizon_s]:
    seconds until the episode ends. A round that is not over by then delivers nothing.
"""

PENDING_SECTION: Final = """
    ## Observation Space
    `Dict` of boxes of shape [K]:

    | key               | dtype   | range                 | unit    | meaning                 |
    | ----------------- | ------- | --------------------- | ------- | ----------------------- |
    | `snr_db`          | float32 | [-300, 300]           | dB      | full-band UL SNR, pending  |
    | `next_snr_db`     | float32 | [-300, 300]           | dB      | of the next round       |
    | `token_latency_s` | float32 | [0, 10]               | s/token | to draft one token      |
    | `acceptance_rate` | float32 | [0, 1]                |         | acceptance of a token   |
    | `draft_length`    | int64   | [0, max_draft_length] | tokens  | in the pending round    |
    | `rejected`        | int64   | [0, 1]                |         | 1 where it was rejected |

    With `observe_acceptance=False`, in place of `acceptance_rate`:

    | key               | dtype | range                 | unit   | meaning                       |
    | ----------------- | ----- | --------------------- | ------ | ----------------------------- |
    | `accepted`        | int64 | [0, max_draft_length] | tokens | accepted in the pending round |
    | `accepted_count`  | int64 | [0, 2^53]             | tokens | in delivered rounds           |
    | `rejection_count` | int64 | [0, 2^53]             |        | rejected drafts in such       |

    With `observe_time=True` also `time_left_s`, float32 of shape (1,) in [0, episode.horizon_s]:
    seconds from the start of the pending round until the episode ends. A round that is not over by
    then delivers nothing.
"""

OUTCOME_SECTIONS: Final = """
    ## Rewards
    `reward="margin"` (default): tokens delivered - price * latency [tokens], where the price is the
    scenario's `reference_goodput` unless `price` is given. Its undiscounted return is
    (episode goodput - price) * horizon. `"goodput"`: tokens / latency of the round [tokens/s].
    `"tokens"`: tokens delivered. Or a callable of the info dict below (without `reward_terms`).

    ## Attributes
    `env.unwrapped.scenario` (overrides applied), `.price` [tokens/s], and `.tape`: the running
    episode's `devices`, `channel_gain` and `run_length`, read-only. With them
    `multispin_env.world.round.play_round` replays any round.

    ## Starting State
    Each device draws a task (its acceptance rate), a drafting speed and a position, and the first
    16 rounds of the tape are drawn. Nothing random depends on an action: the same seed gives the
    same devices, channels and run lengths under any policy (`env.unwrapped.tape`).

    ## Episode End
    Never terminated. Truncated when the simulated time reaches `episode.horizon_s`: a round counts
    iff it ends by then; a round that is cut delivers 0 tokens and is charged up to the horizon.
    With `episode.rounds` instead, after that many rounds (each of at most 1e6 s). Stepping on
    raises ResetNeeded.

    ## Info
    `reset` gives `time_s` = 0.0; every step gives

    | key                 | type, shape | unit     | meaning                                   |
    | ------------------- | ----------- | -------- | ----------------------------------------- |
    | `round`             | int         |          | index of the round, from 0                |
    | `tokens`            | int         | tokens   | delivered: `emitted`, or 0 in a cut round |
    | `emitted`           | int         | tokens   | accepted + bonus + correction             |
    | `bonus_tokens`      | int         | tokens   | one for each draft that was not rejected  |
    | `correction_tokens` | int         | tokens   | one for each rejected draft               |
    | `latency_s`         | float       | s        | what the round is charged                 |
    | `drafting_s`        | float       | s        | until the last device has drafted         |
    | `verification_s`    | float       | s        | batched verification                      |
    | `communication_s`   | float       | s        | corrections; uploads after drafting       |
    | `time_s`            | float       | s        | simulated time now                        |
    | `goodput`           | float       | tokens/s | `tokens` / `latency_s`                    |
    | `drafted`           | int64 [K]   | tokens   | draft lengths                             |
    | `accepted`          | int64 [K]   | tokens   | accepted tokens of each draft             |
    | `rejected`          | int64 [K]   |          | 1 where the draft was rejected            |
    | `mode`              | int64 [K]   |          | 0 uplink, 1 downlink, -1 sent nothing     |
    | `power_w`           | float64 [K] | W        | transmit power                            |
    | `bandwidth_hz`      | float64 [K] | Hz       | bandwidth used                            |
    | `reward_terms`      | dict        |          | the parts of the reward, by name          |
    | `episode_goodput`   | float       | tokens/s | at the end: tokens per second             |

    With `regret=True` also (about a millisecond a round)

    | key                | type  | unit     | meaning                                          |
    | ------------------ | ----- | -------- | ------------------------------------------------ |
    | `best_goodput`     | float | tokens/s | expected, best known (`deadline`, `exact`)       |
    | `chosen_goodput`   | float | tokens/s | expected, of the lengths (and the bands) played  |
    | `regret`           | float | tokens/s | `best_goodput` - `chosen_goodput`                |
    | `excess_latency_s` | float | s        | ModeSelection, Joint: above optimal modes        |

    The expectation is over acceptances, with corrections by the rule `correction` (optimal in
    Joint). In ModeSelection the lengths are not the agent's, and the goodputs are those of the
    outcome, under optimal modes and under the chosen ones.

    Tokens and goodput are sums over all devices. In a cut round the parts (`drafting_s` and so on,
    `emitted`, the arrays) are those of the whole round; only `tokens` and `latency_s` are cut.
"""

_Environment = TypeVar("_Environment", bound=gym.Env)


def complete(cls: type[_Environment]) -> type[_Environment]:
    """Insert the sections that environments share before the docstring's Arguments."""
    if cls.__doc__ is not None:  # python -OO strips docstrings
        control: Control = cls.control  # type: ignore[attr-defined]
        head, arguments = inspect.cleandoc(cls.__doc__).split("\n## Arguments\n")
        observation = PENDING_SECTION if control.pending else DRAFTING_SECTION
        shared = "\n\n".join(map(inspect.cleandoc, (observation, OUTCOME_SECTIONS)))
        cls.__doc__ = f"{head}\n{shared}\n\n## Arguments\n{arguments}"
    return cls
