"""Traffic between stages is logged; only the lost part is computed again."""

from dataclasses import dataclass, replace

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms


@dataclass(frozen=True)
class LoggingReplay(Scheme):
    """Heal from a replica where there is one, else replay the log from the last checkpoint.

    Attributes:
        replay_share: Time to replay some work, as a share of it; several nodes share the replay.
        slowdown: Share by which logging slows training.
    """

    replay_share: float = 0.5
    slowdown: float = 0.01

    name = "logging and replay"
    source = "Swift (Zhong et al., arXiv 2302.06173; IEEE TPDS 2024)"
    assumptions = (
        "`replay-share` and `slowdown` are assumed: measure them on the pipeline. Checkpoints go "
        "on during a replay, a further failure adds its own; each checkpoint drops the log before."
    )
    assumed = ("replay_share", "slowdown")

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        if job.replicas > 1:
            repaired = Response(RecoveryLevel.SOFT, job.replace_s + job.fetch_s, lost_s=job.step_s)
        else:
            repaired = Response(
                RecoveryLevel.SOFT,
                job.replace_s + job.shard_read_s,
                lost_staleness_share=self.replay_share,
            )
        back = Response(RecoveryLevel.LIGHT, job.full_restart_s)
        logs = job.replicas == 1
        # from one durable checkpoint until the next can be used
        logged_s = job.durable_every_s + job.write_alone_s
        log_bytes = job.logged_bytes_per_step * logged_s / job.step_s
        return Terms(
            responses={
                Domain.PROCESS: replace(repaired, waits=False),
                Domain.NODE: repaired,
                Domain.RACK: back,
                Domain.JOB: back,
            },
            stall_s=job.snapshot_s,
            slowdown=self.slowdown if logs else 0.0,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s),
            durable_period_s=job.durable_every_s if logs else 0.0,
            host_bytes=job.shard_bytes,
            storage_bytes=2 * job.state_bytes + (log_bytes if logs else 0.0),
            min_nodes=2,
            obstacle=None if job.replicas > 1 else _log_obstacle(job),
        )


def _log_obstacle(job: JobShape) -> str | None:
    """Why a job without replicas cannot keep a log; None where it can."""
    if not job.logged_bytes_per_step:
        return "there is neither a replica nor a log; give --logged-bytes of a pipeline"
    log_bytes_per_s = job.logged_bytes_per_step / job.step_s
    if log_bytes_per_s > job.storage_bytes_per_s:
        return (
            f"its log of {log_bytes_per_s / 1e9:.3g} GB/s is more than the "
            f"{job.storage_bytes_per_s / 1e9:.3g} GB/s that storage takes; log less, or train "
            "with two data-parallel copies"
        )
    return None
