"""A checkpoint taken after the failure, from a surviving replica."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms


@dataclass(frozen=True)
class JustInTime(Scheme):
    """Heal from a data-parallel replica; a periodic checkpoint only for the rest."""

    name = "just in time"
    source = "Just-In-Time Checkpointing (Gupta et al., EuroSys 2024)"
    assumptions = (
        "Replicas lie in different racks; one step is repeated; the state passes through durable "
        "storage to the restarted job; steady overhead is nil, as periodic checkpoints are rare."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        healed = Response(
            RecoveryLevel.SOFT, job.restart_s + job.write_alone_s + job.persist_s, lost_s=job.step_s
        )
        responses = dict.fromkeys((Domain.PROCESS, Domain.NODE, Domain.RACK), healed)
        responses[Domain.JOB] = Response(RecoveryLevel.LIGHT, job.full_restart_s)
        return Terms(
            responses=responses,
            stall_s=job.snapshot_s,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s),
            host_bytes=job.shard_bytes,
            storage_bytes=3 * job.state_bytes,
            min_nodes=2,
            obstacle=None
            if job.replicas > 1
            else "the state has no replica to heal from; train with two data-parallel copies",
        )
