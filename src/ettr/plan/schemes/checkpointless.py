"""Processes start again in place and get their state from healthy peers."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms
from ettr.plan.schemes.replica_healing import healing_terms


@dataclass(frozen=True)
class Checkpointless(Scheme):
    """Recovery without a restart of the job, in a managed cluster with spare nodes.

    Attributes:
        recovery_s: From the failure until training goes on, all included.
    """

    recovery_s: float = 120.0

    name = "checkpointless"
    source = "SageMaker HyperPod checkpointless training (15-30 min cut to under 2 min)"
    assumptions = (
        "`recovery` is the published upper bound, taken to hold at any size and state; one step "
        "is repeated; spare nodes are at hand; the loss of a rack goes back to a checkpoint."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        recovered = Response(RecoveryLevel.SOFT, self.recovery_s, lost_s=job.step_s, waits=False)
        return healing_terms(job, dict.fromkeys((Domain.PROCESS, Domain.NODE), recovered))
