"""What schemes share that heal a loss from a data-parallel replica of the state."""

from collections.abc import Mapping

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Terms


def healing_terms(
    job: JobShape, healed: Mapping[Domain, Response], *, checkpoints: int = 2
) -> Terms:
    """Terms of a scheme that heals some failures, and saves asynchronously for all others.

    Args:
        job: The job.
        healed: Responses to the failures that a replica heals.
        checkpoints: In durable storage at the most.
    """
    back = Response(RecoveryLevel.LIGHT, job.full_restart_s)
    return Terms(
        responses=dict.fromkeys(Domain, back) | dict(healed),
        stall_s=job.snapshot_s,
        lag_s=job.write_alone_s,
        shortest_interval_s=max(job.step_s, job.write_alone_s),
        host_bytes=job.shard_bytes,
        storage_bytes=checkpoints * job.state_bytes,
        min_nodes=2,
        obstacle=None
        if job.replicas > 1
        else "the state has no replica to heal from; train with two data-parallel copies",
    )
