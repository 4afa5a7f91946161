"""What to do after a loss: where a lost shard comes from, by what each way is predicted to cost.

    from ettr.recovery import RecoveryPolicy, RecoverySource

Standard library only.
"""

from ettr.recovery.planner import (
    RESTORE_PRIORS,
    Decision,
    Measured,
    Option,
    RecoveryPolicy,
    RecoverySource,
    Situation,
    decide,
    iteration_cost,
    measured_times,
    predicted_perturbation,
)
from ettr.recovery.restore_costs import RestorePrior, Restores, Timed, predicted_s

__all__ = [
    "RESTORE_PRIORS",
    "Decision",
    "Measured",
    "Option",
    "RecoveryPolicy",
    "RecoverySource",
    "RestorePrior",
    "Restores",
    "Situation",
    "Timed",
    "decide",
    "iteration_cost",
    "measured_times",
    "predicted_perturbation",
    "predicted_s",
]
