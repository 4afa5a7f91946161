"""Snapshots in memory, protected by parity over a group of nodes."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms


@dataclass(frozen=True)
class MemoryErasure(Scheme):
    """One parity over a group of nodes, in memory, and now and then a durable checkpoint.

    Attributes:
        group_nodes: Nodes that share a parity.
        spans_racks: Whether a group has at most one node in each rack.
    """

    group_nodes: int = 8
    spans_racks: bool = False

    name = "in-memory erasure code"
    source = "REFT (Wang et al., arXiv 2310.12670v1)"
    assumptions = (
        "One parity a group; two buffers and a third for the durable checkpoint under way, which "
        "stalls training for its copy and outlives a node, as the parity has it too; the code is "
        "computed during training; the death of a process leaves the snapshot of its "
        "node intact; group size and place are assumed."
    )
    assumed = ("group_nodes", "spans_racks")

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        parity_bytes = job.shard_bytes / (self.group_nodes - 1)
        exchange_s = job.shard_bytes / job.network_bytes_per_s
        # the new node reads its group, and the replicas that it holds
        decode_bytes = (self.group_nodes - 2) * job.shard_bytes + job.held_bytes
        durable = Response(RecoveryLevel.DEEP, job.full_restart_s)
        # the job keeps its nodes, whose memory is all that it needs
        in_place = Response(RecoveryLevel.LIGHT, job.restart_s, waits=False)
        rebuilt = Response(
            RecoveryLevel.LIGHT, job.restart_s + decode_bytes / job.network_bytes_per_s
        )
        return Terms(
            responses={
                Domain.PROCESS: in_place,
                Domain.NODE: rebuilt,
                Domain.RACK: rebuilt if self.spans_racks else durable,
                Domain.JOB: durable,
            },
            stall_s=0.0,
            lag_s=job.snapshot_s + exchange_s,
            shortest_interval_s=max(job.step_s, job.snapshot_s + exchange_s),
            host_bytes=3 * (job.shard_bytes + parity_bytes),
            storage_bytes=2 * job.state_bytes,
            two_levels=True,
            durable_period_s=job.durable_every_s,
            durable_stall_s=job.snapshot_s,
            durable_lag_s=job.write_alone_s,
            min_nodes=self.group_nodes,
        )
