"""Traffic between stages is logged; only the lost part is computed again."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms


@dataclass(frozen=True)
class LoggingReplay(Scheme):
    """Heal from a replica where there is one, else replay the log from the last checkpoint.

    Attributes:
        replay_share: Time to replay an interval, as a share of it; several nodes share the work.
        slowdown: Share by which logging slows training.
    """

    replay_share: float = 0.5
    slowdown: float = 0.01

    name = "logging and replay"
    source = "Swift (Zhong et al., arXiv 2302.06173; IEEE TPDS 2024)"
    assumptions = "`replay_share` and `slowdown` are assumed; measure them on the pipeline."

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        if job.replicas > 1:
            fetch_s = job.shard_bytes / job.network_bytes_per_s
            repaired = Response(RecoveryLevel.SOFT, job.replace_s + fetch_s, lost_s=job.step_s)
        else:
            load_s = job.persist_s / job.n_nodes
            # a failure comes half an interval after the checkpoint, on average
            repaired = Response(
                RecoveryLevel.SOFT,
                job.replace_s + load_s,
                lost_interval_share=self.replay_share / 2.0,
            )
        back = Response(RecoveryLevel.LIGHT, job.full_restart_s)
        log_bytes = job.logged_bytes_per_step * job.durable_period_s / job.step_s
        return Terms(
            responses={
                Domain.PROCESS: repaired,
                Domain.NODE: repaired,
                Domain.RACK: back,
                Domain.JOB: back,
            },
            stall_s=job.snapshot_s,
            slowdown=0.0 if job.replicas > 1 else self.slowdown,
            lag_s=job.persist_s,
            shortest_interval_s=max(job.step_s, job.persist_s),
            host_bytes=job.shard_bytes,
            storage_bytes=2 * job.state_bytes + (0.0 if job.replicas > 1 else log_bytes),
            obstacle=None
            if job.replicas > 1 or job.logged_bytes_per_step
            else "there is neither a replica nor a log; give logged_bytes_per_step of a pipeline",
        )
