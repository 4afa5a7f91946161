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
        "Traffic hides in the idle time of the network over the next step, as Gemini arranges; two "
        "buffers a copy and a third for the durable checkpoint under way, which stalls training "
        "for its copy and outlives a node, as its peer writes on; no two failures hit all copies "
        "of a shard at once; copies lie in different racks."
    )
    assumed = ("spans_racks",)

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        send_s = (self.n_copies - 1) * job.shard_bytes / job.network_bytes_per_s
        from_memory = Response(RecoveryLevel.LIGHT, job.restart_s + job.fetch_s)
        # the job keeps its nodes, whose memory is all that it needs
        in_place = Response(RecoveryLevel.LIGHT, job.restart_s, waits=False)
        durable = Response(RecoveryLevel.DEEP, job.full_restart_s)
        return Terms(
            responses={
                Domain.PROCESS: in_place,
                Domain.NODE: from_memory if self.n_copies > 1 else durable,
                Domain.RACK: from_memory if self.n_copies > 1 and self.spans_racks else durable,
                Domain.JOB: durable,
            },
            stall_s=0.0,
            # the traffic is spread over the idle time of the next step
            lag_s=job.snapshot_s + job.step_s + send_s,
            shortest_interval_s=max(job.step_s, job.snapshot_s + send_s),
            host_bytes=3 * self.n_copies * job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            two_levels=True,
            durable_period_s=job.durable_every_s,
            durable_stall_s=job.snapshot_s,
            durable_lag_s=job.write_alone_s,
            min_nodes=self.n_copies,
            memory_remedy="keep fewer copies",
        )
