"""Several checkpoints under way at once, so that one need not wait for the one before."""

from dataclasses import dataclass

from ettr.plan.schemes.base import JobShape, RecoveryLevel, Response, Scheme, Terms, everywhere


@dataclass(frozen=True)
class Concurrent(Scheme):
    """N checkpoints under way.

    Attributes:
        n_under_way: How many, at most.
        slowdown: Share by which the writes slow training.
    """

    n_under_way: int = 4
    slowdown: float = 0.03

    name = "concurrent"
    source = "PCcheck (Strati, Friedman, Klimovic, ASPLOS 2025)"
    assumptions = (
        "Checkpoints share the storage's rate, so they help only where one alone does not fill "
        "it (one_writer_share under 1); `slowdown` 3 % as the paper reports at its most frequent."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        # alone at its own rate, together at no more than the storage's
        write_s = job.persist_s * max(1.0 / job.one_writer_share, self.n_under_way)
        shortest_s = write_s / self.n_under_way
        return Terms(
            responses=everywhere(Response(RecoveryLevel.LIGHT, job.full_restart_s)),
            stall_s=job.snapshot_s,
            slowdown=self.slowdown,
            lag_s=write_s,
            shortest_interval_s=max(job.step_s, shortest_s),
            host_bytes=2 * job.shard_bytes,
            storage_bytes=(self.n_under_way + 1) * job.state_bytes,
        )
