"""Training stops until the checkpoint is in durable storage."""

from dataclasses import dataclass

from ettr.plan.schemes.base import JobShape, RecoveryLevel, Response, Scheme, Terms, everywhere


@dataclass(frozen=True)
class Synchronous(Scheme):
    """Stop, write, go on."""

    name = "synchronous"
    source = "Young (1974); Kokolis et al. (HPCA 2025), whose w it is"
    assumptions = "Copy and write follow each other."

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        return Terms(
            responses=everywhere(Response(RecoveryLevel.LIGHT, job.full_restart_s)),
            stall_s=job.snapshot_s + job.write_alone_s,
            shortest_interval_s=job.step_s,
            host_bytes=0.0,
            # the last complete one stays until the next is
            storage_bytes=2 * job.state_bytes,
        )
