"""The benchmark: frozen suites, honest statistics, entries that are rerun.

A suite is a set of tasks (:func:`load`); a policy is a factory `make(env) -> policy`; evaluating it
on a task (:func:`evaluate`) gives one goodput an episode. docs/benchmark.md has the rules, and
`scripts/leaderboard.py` does everything from the command line.
"""

from multispin_env.benchmark import report, statistics
from multispin_env.benchmark.entry import DIVISIONS, Entry, pack
from multispin_env.benchmark.references import Reference, load_references
from multispin_env.benchmark.results import Plan, Results, load_factory, run
from multispin_env.benchmark.rollout import (
    Episode,
    Evaluation,
    PolicyError,
    check_causal,
    evaluate,
)
from multispin_env.benchmark.suite import SPLITS, TRACKS, Suite, Task, list_suites, load
from multispin_env.benchmark.verification import Verification, verify

__all__ = [
    "DIVISIONS",
    "SPLITS",
    "TRACKS",
    "Entry",
    "Episode",
    "Evaluation",
    "Plan",
    "PolicyError",
    "Reference",
    "Results",
    "Suite",
    "Task",
    "Verification",
    "check_causal",
    "evaluate",
    "list_suites",
    "load",
    "load_factory",
    "load_references",
    "pack",
    "report",
    "run",
    "statistics",
    "verify",
]
