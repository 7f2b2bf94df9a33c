"""Decisions taken before a round: how long to draft, how to split the band.

:class:`CorrectionProblem` and :class:`UploadProblem` hold what the server knows when a round
starts and value decisions; solvers map a problem to a decision.
"""

from multispin_env.solvers.corrections import computation_only, deadline, greedy, uniform
from multispin_env.solvers.optima import branch_and_bound, exhaustive, thorough
from multispin_env.solvers.policies import DRAFT_SOLVERS, draft_policy
from multispin_env.solvers.pricing import (
    Reference,
    reference,
    reference_draft_length,
    reference_goodput,
)
from multispin_env.solvers.problems import CorrectionProblem, UploadProblem
from multispin_env.solvers.sampled import Decision
from multispin_env.solvers.uploads import (
    UploadDecision,
    centralised,
    exact,
    fixed,
    heterogeneous,
    homogeneous,
    homogeneous_closed_form,
    point_to_point,
    uniform_bandwidth,
)

__all__ = [
    "DRAFT_SOLVERS",
    "CorrectionProblem",
    "Decision",
    "Reference",
    "UploadDecision",
    "UploadProblem",
    "branch_and_bound",
    "centralised",
    "computation_only",
    "deadline",
    "draft_policy",
    "exact",
    "exhaustive",
    "fixed",
    "greedy",
    "heterogeneous",
    "homogeneous",
    "homogeneous_closed_form",
    "point_to_point",
    "reference",
    "reference_draft_length",
    "reference_goodput",
    "thorough",
    "uniform",
    "uniform_bandwidth",
]
