"""What to do after a loss: where a lost shard comes from, by what each way is predicted to cost.

    from ettr.recovery import RecoveryPolicy, RecoverySource

Standard library only.
"""

from ettr.recovery.planner import (
    RESTORE_PRIORS,
    Decision,
    RecoveryOption,
    RecoveryPolicy,
    RecoverySource,
    RecoveryTimes,
    Situation,
    decide,
    iteration_cost,
    predicted_perturbation,
    recovery_times,
)
from ettr.recovery.restore_costs import RestorePrior, RestoreTimings, RunTimings, predicted_s

__all__ = [
    "RESTORE_PRIORS",
    "Decision",
    "RecoveryOption",
    "RecoveryPolicy",
    "RecoverySource",
    "RecoveryTimes",
    "RestorePrior",
    "RestoreTimings",
    "RunTimings",
    "Situation",
    "decide",
    "iteration_cost",
    "predicted_perturbation",
    "predicted_s",
    "recovery_times",
]
