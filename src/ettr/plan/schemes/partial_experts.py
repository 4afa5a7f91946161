"""Each checkpoint holds some of the experts only."""

from dataclasses import dataclass

from ettr.plan.schemes.base import JobShape, RecoveryLevel, Response, Scheme, Terms, everywhere


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
        "Two levels, asynchronous; a restore mixes experts of several checkpoints; durable reads "
        "fetch the whole state."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        share = 1.0 - job.expert_share * (1.0 - self.saved_share)
        return Terms(
            responses=everywhere(Response(RecoveryLevel.LIGHT, job.full_restart_s)),
            stall_s=share * job.snapshot_s,
            lag_s=share * job.persist_s / job.one_writer_share,
            shortest_interval_s=max(job.step_s, share * job.persist_s / job.one_writer_share),
            host_bytes=share * job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            quality=(
                "Approximate: experts not in the last checkpoint lose tokens; accuracy held in "
                "the paper while at most 3.75 % of tokens were lost."
            ),
            obstacle=None
            if job.expert_share > 0
            else "the state has no experts; give expert_share, or use asynchronous",
        )
