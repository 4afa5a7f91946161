"""Several checkpoints under way at once, so that one need not wait for the one before."""

import math
from dataclasses import dataclass

from ettr.plan.schemes.base import JobShape, RecoveryLevel, Response, Scheme, Terms, everywhere


@dataclass(frozen=True)
class Concurrent(Scheme):
    """As many checkpoints under way as the interval needs.

    Attributes:
        most_under_way: How many, at most.
        steps_per_checkpoint: Steps of training that each checkpoint costs; 3 % at one checkpoint
            in 10 steps, as published.
    """

    most_under_way: int = 4
    steps_per_checkpoint: float = 0.3

    name = "concurrent"
    source = "PCcheck (Strati, Friedman, Klimovic, ASPLOS 2025)"
    assumptions = (
        "Each checkpoint writes at the rate that one alone reaches and no more are under way than "
        "the storage serves at that rate, so they help only where one alone does not fill it "
        "(--one-writer-share under 1); the overhead published, 3 % at a checkpoint every 10 steps, "
        "is one of each checkpoint, and the copy to memory comes on top; `most-under-way` is "
        "assumed."
    )
    assumed = ("most_under_way",)

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        served = math.floor(1.0 / job.one_writer_share + 1e-9)
        n_under_way = min(self.most_under_way, served)
        return Terms(
            responses=everywhere(Response(RecoveryLevel.LIGHT, job.full_restart_s)),
            stall_s=job.snapshot_s + self.steps_per_checkpoint * job.step_s,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s / n_under_way),
            # a copy for each that is under way
            host_bytes=n_under_way * job.shard_bytes,
            storage_bytes=(n_under_way + 1) * job.state_bytes,
            memory_remedy="keep fewer under way",
        )
