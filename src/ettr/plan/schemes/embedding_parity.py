"""Parity over the shards of embedding tables, kept up to date with every step."""

from dataclasses import dataclass, replace

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms


@dataclass(frozen=True)
class EmbeddingParity(Scheme):
    """Erasure-coded tables in memory; dense parameters are replicated anyway.

    Attributes:
        group_nodes: Servers that share a parity.
        slowdown: Share by which the updates of the parity slow training.
    """

    group_nodes: int = 4
    slowdown: float = 0.02

    assumed = ("group_nodes", "slowdown")
    name = "embedding parity"
    source = "ECRM (Liu, Kosaian, Rashmi, arXiv 2104.01981)"
    assumptions = (
        "`slowdown` is assumed; training goes on while a shard is rebuilt, so only the "
        "replacement stops it; one server of a group at a time."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        rebuilt = Response(RecoveryLevel.SOFT, job.replace_s, lost_s=job.step_s)
        back = Response(RecoveryLevel.LIGHT, job.full_restart_s)
        tables = job.embedding_share * job.shard_bytes
        return Terms(
            responses={
                Domain.PROCESS: replace(rebuilt, waits=False),
                Domain.NODE: rebuilt,
                Domain.RACK: back,
                Domain.JOB: back,
            },
            stall_s=job.snapshot_s,
            slowdown=self.slowdown,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s),
            host_bytes=tables / self.group_nodes + job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            min_nodes=self.group_nodes,
            obstacle=None
            if job.embedding_share >= 0.5
            else "less than half of the state is in embedding tables; use a scheme for dense state",
        )
