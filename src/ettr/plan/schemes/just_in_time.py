"""A checkpoint taken after the failure, from a surviving replica."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms
from ettr.plan.schemes.replica_healing import healing_terms


@dataclass(frozen=True)
class JustInTime(Scheme):
    """At user level: the survivors save, the job restarts; a periodic checkpoint for the rest."""

    name = "just in time"
    source = "Just-In-Time Checkpointing, user level (Gupta et al., EuroSys 2024)"
    assumptions = (
        "Replicas lie in different racks; one step is repeated; the state passes through durable "
        "storage to the restarted job; steady overhead is nil, as periodic checkpoints are rare."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        passed_on_s = job.write_alone_s + job.persist_s
        healed = Response(RecoveryLevel.SOFT, job.restart_s + passed_on_s, lost_s=job.step_s)
        outlived = (Domain.PROCESS, Domain.NODE, Domain.RACK)
        # two periodic ones, and the one of the moment
        return healing_terms(job, dict.fromkeys(outlived, healed), checkpoints=3)
