"""State from a peer and new communicators, in a time that does not grow with the job."""

from dataclasses import dataclass, replace

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms
from ettr.plan.schemes.replica_healing import healing_terms


@dataclass(frozen=True)
class PeerRecovery(Scheme):
    """Fast detection, replacement and a copy from a replica.

    Attributes:
        recovery_s: From the failure until training goes on, all included.
    """

    recovery_s: float = 150.0

    name = "peer recovery"
    source = "FlashRecovery (150 s on 4,800 devices)"
    assumptions = (
        "The 150 s published hold at any size and state, as the paper claims constant time; one "
        "step is repeated; for a lost node another is awaited; the loss of a rack goes back to a "
        "checkpoint."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        recovered = Response(RecoveryLevel.SOFT, self.recovery_s, lost_s=job.step_s)
        in_place = replace(recovered, waits=False)
        return healing_terms(job, {Domain.PROCESS: in_place, Domain.NODE: recovered})
