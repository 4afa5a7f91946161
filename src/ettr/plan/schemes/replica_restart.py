"""The replica that lost a node restarts, while the others train on without it."""

from dataclasses import dataclass

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
        "The 3 min published hold at any size; while the lost replica restarts its share of the "
        "work is lost; one step is repeated; a rack holds nodes of one replica only."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        # one replica of so many does no work while it restarts
        absent_s = (job.restart_s + job.fetch_s) / job.replicas
        paused = Response(RecoveryLevel.SOFT, self.pause_s, lost_s=job.step_s + absent_s)
        outlived = (Domain.PROCESS, Domain.NODE, Domain.RACK)
        return healing_terms(job, dict.fromkeys(outlived, paused))
