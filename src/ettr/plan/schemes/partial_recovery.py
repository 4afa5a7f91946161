"""Only what was lost is restored; the others keep what they have learnt."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms


@dataclass(frozen=True)
class PartialRecovery(Scheme):
    """Restore the lost shards from a running checkpoint and train on.

    The work lost is the iteration cost ι: the extra steps to the loss that training would have
    had. It is stated as a share of the staleness of what was restored, half an interval on average.

    Attributes:
        iteration_cost_share: ι over staleness in steps; measured, not promised.
        slowdown: Share by which saves slow training.
    """

    iteration_cost_share: float = 0.3
    slowdown: float = 0.0

    name = "partial recovery"
    source = "SCAR (Qiao et al., ICML 2019); CPR (Maeng et al., MLSys 2021)"
    assumptions = (
        "iteration_cost_share 0.3 was seen on one small transformer with a tuned learning rate and "
        "a quarter lost, up to 0.7 with an untuned one: measure it on your model. Others live."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        shard_s = job.persist_s / job.n_nodes
        mended = Response(
            RecoveryLevel.SOFT,
            job.replace_s + shard_s,
            lost_interval_share=self.iteration_cost_share / 2.0,
        )
        responses = dict.fromkeys((Domain.PROCESS, Domain.NODE, Domain.RACK), mended)
        responses[Domain.JOB] = Response(RecoveryLevel.LIGHT, job.full_restart_s)
        return Terms(
            responses=responses,
            stall_s=job.snapshot_s,
            slowdown=self.slowdown,
            lag_s=job.persist_s,
            shortest_interval_s=max(job.step_s, job.persist_s),
            # the running checkpoint is cached to find what has changed
            host_bytes=2 * job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            quality=(
                "Approximate: lost parameters go back while others do not; training corrects "
                "the perturbation, at the cost counted here, if it converges by itself."
            ),
        )
