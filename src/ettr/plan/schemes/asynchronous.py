"""Training stops for the copy to memory and goes on during the write."""

from dataclasses import dataclass

from ettr.plan.schemes.base import JobShape, RecoveryLevel, Response, Scheme, Terms, everywhere


@dataclass(frozen=True)
class Asynchronous(Scheme):
    """One checkpoint under way at a time.

    Attributes:
        slowdown: Share by which the write slows training.
    """

    slowdown: float = 0.0

    assumed = ("slowdown",)
    name = "asynchronous"
    source = "CheckFreq (Mohan et al., FAST 2021); DCP, torch.distributed.checkpoint.async_save"
    assumptions = (
        "The copy stalls training in full (CheckFreq overlaps part of it, and bounds its overhead "
        "at 3.5 %); the write costs no more than `slowdown`."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        return Terms(
            responses=everywhere(Response(RecoveryLevel.LIGHT, job.full_restart_s)),
            stall_s=job.snapshot_s,
            slowdown=self.slowdown,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s),
            host_bytes=job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
        )
