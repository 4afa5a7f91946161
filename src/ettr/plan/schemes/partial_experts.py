"""Each checkpoint holds some of the experts only."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms


@dataclass(frozen=True)
class PartialExperts(Scheme):
    """Everything but the experts, and a share of the experts in turn.

    Attributes:
        saved_share: Share of the experts in one checkpoint.
    """

    saved_share: float = 0.125

    name = "partial experts"
    source = "MoC-System (Cai et al., ASPLOS 2025, arXiv 2408.04307)"
    assumptions = (
        "Two levels, asynchronous: a snapshot in the memory of each node, which outlives a process "
        "and not its node, and each snapshot written to storage; three buffers; a restore mixes "
        "experts of several checkpoints; durable reads fetch the whole state."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        share = 1.0 - job.expert_share * (1.0 - self.saved_share)
        write_s = share * job.write_alone_s
        from_memory = Response(RecoveryLevel.LIGHT, job.restart_s + job.snapshot_s, waits=False)
        from_storage = Response(RecoveryLevel.DEEP, job.full_restart_s)
        return Terms(
            responses={
                Domain.PROCESS: from_memory,
                Domain.NODE: from_storage,
                Domain.RACK: from_storage,
                Domain.JOB: from_storage,
            },
            stall_s=share * job.snapshot_s,
            shortest_interval_s=max(job.step_s, write_s),
            # the experts that are not in the last snapshot stay from earlier ones
            host_bytes=job.shard_bytes + 2 * share * job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            two_levels=True,
            durable_lag_s=write_s,
            quality=(
                "Approximate: experts not in the last checkpoint lose tokens; accuracy held in "
                "the paper while at most 3.75 % of tokens were lost."
            ),
            obstacle=None
            if job.expert_share > 0
            else "the state has no experts; give --expert-share, or use asynchronous",
        )
