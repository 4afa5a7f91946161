"""Only what was lost is restored; the others keep what they have learnt."""

from dataclasses import dataclass, replace

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms


@dataclass(frozen=True)
class PartialRecovery(Scheme):
    """Restore the lost shards from a running checkpoint and train on.

    The work lost is the iteration cost ι: the extra steps to the loss that training would have
    had. It is stated as a share of the staleness of what was restored: half an interval and the
    write of a checkpoint, on average.

    Attributes:
        iteration_cost_share: ι over staleness in steps; measured, not promised.
        slowdown: Share by which saves slow training.
    """

    iteration_cost_share: float = 0.3
    slowdown: float = 0.0

    assumed = ("iteration_cost_share", "slowdown")
    name = "partial recovery"
    source = "SCAR (Qiao et al., ICML 2019); CPR (Maeng et al., MLSys 2021)"
    assumptions = (
        "`iteration-cost-share` 0.3 was seen on one small transformer with a tuned learning rate "
        "and a quarter lost, up to 0.7 with an untuned one: measure it on your model. The others "
        "live, and their writes under way complete."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        mended = Response(
            RecoveryLevel.SOFT,
            job.replace_s + job.shard_read_s,
            lost_staleness_share=self.iteration_cost_share,
        )
        responses = dict.fromkeys((Domain.PROCESS, Domain.NODE, Domain.RACK), mended)
        responses[Domain.PROCESS] = replace(mended, waits=False)
        responses[Domain.JOB] = Response(RecoveryLevel.LIGHT, job.full_restart_s)
        return Terms(
            responses=responses,
            stall_s=job.snapshot_s,
            slowdown=self.slowdown,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s),
            # the running checkpoint is cached to find what has changed
            host_bytes=2 * job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            min_nodes=2,
            quality=(
                "Approximate: lost parameters go back while others do not; training corrects "
                "the perturbation, at the cost counted here, if it converges by itself."
            ),
        )
