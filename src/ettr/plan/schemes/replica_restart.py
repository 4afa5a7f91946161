"""The replica that lost a node restarts, while the others train on without it."""

from dataclasses import dataclass, replace

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms
from ettr.plan.schemes.replica_healing import healing_terms


@dataclass(frozen=True)
class ReplicaRestart(Scheme):
    """Fault-tolerant hybrid sharding: data-parallel replicas come and go.

    Attributes:
        pause_s: All replicas stand still so long when one leaves or comes back.
    """

    pause_s: float = 180.0

    name = "replica restart"
    source = "FT-HSDP (stall of 10 min cut to 3 min at 100,000 GPUs)"
    assumptions = (
        "The 3 min published hold at any size; while the lost replica waits for a node and "
        "restarts its share of the work is lost; one step is repeated; a rack holds nodes of one "
        "replica only."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        # one replica of so many does no work while it restarts
        absent_s = (job.restart_s + job.fetch_s) / job.replicas
        paused = Response(
            RecoveryLevel.SOFT, self.pause_s, lost_s=job.step_s + absent_s, waits=False
        )
        awaiting = replace(paused, absent_share=1.0 / job.replicas)
        return healing_terms(
            job, {Domain.PROCESS: paused, Domain.NODE: awaiting, Domain.RACK: awaiting}
        )
