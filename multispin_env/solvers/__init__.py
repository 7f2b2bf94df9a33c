"""Decisions taken before a round: how long to draft, how to split the band.

:class:`CorrectionProblem` and :class:`UploadProblem` hold what the server knows when a round
starts and value decisions; solvers map a problem to a decision.
"""

from multispin_env.solvers.policies import DRAFT_SOLVERS, draft_policy
from multispin_env.solvers.problems import CorrectionProblem, UploadProblem
from multispin_env.solvers.reference import Decision, Reference, drop_worst, reference

__all__ = [
    "DRAFT_SOLVERS",
    "CorrectionProblem",
    "Decision",
    "Reference",
    "UploadProblem",
    "draft_policy",
    "drop_worst",
    "reference",
]
