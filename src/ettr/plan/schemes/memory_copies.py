"""Copies of each node's state in the memory of other nodes."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms


@dataclass(frozen=True)
class MemoryCopies(Scheme):
    """k copies in memory, one of them local, and now and then one in durable storage.

    Attributes:
        n_copies: k.
        spans_racks: Whether the copies of a shard lie in different racks.
    """

    n_copies: int = 2
    spans_racks: bool = True

    name = "in-memory copies"
    source = "Gemini (Wang et al., SOSP 2023)"
    assumptions = (
        "Traffic hides in the idle time of the network, as Gemini arranges; two buffers a copy; "
        "no two failures hit all copies of a shard at once; durable checkpoints cost no stall."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        send_s = (self.n_copies - 1) * job.shard_bytes / job.network_bytes_per_s
        fetch_s = job.shard_bytes / job.network_bytes_per_s
        from_memory = Response(RecoveryLevel.LIGHT, job.restart_s + fetch_s)
        durable = Response(RecoveryLevel.DEEP, job.full_restart_s)
        host_bytes = 2 * self.n_copies * job.shard_bytes
        return Terms(
            responses={
                Domain.PROCESS: Response(RecoveryLevel.LIGHT, job.restart_s),
                Domain.NODE: from_memory if self.n_copies > 1 else durable,
                Domain.RACK: from_memory if self.n_copies > 1 and self.spans_racks else durable,
                Domain.JOB: durable,
            },
            stall_s=0.0,
            lag_s=job.snapshot_s + send_s,
            shortest_interval_s=max(job.step_s, job.snapshot_s + send_s),
            host_bytes=host_bytes,
            storage_bytes=2 * job.state_bytes,
            two_levels=True,
            obstacle=too_large(host_bytes, job, "keep fewer copies"),
        )


def too_large(host_bytes: float, job: JobShape, remedy: str) -> str | None:
    """Why a node cannot hold `host_bytes`; None where it can."""
    if host_bytes <= job.host_bytes:
        return None
    needed, given = host_bytes / 1e9, job.host_bytes / 1e9
    return (
        f"it needs {needed:.4g} GB of a node's memory, which has {given:.4g} GB to give; "
        f"{remedy}, or use more nodes"
    )
