"""Just-in-time recovery below the training script, which does not notice."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms
from ettr.plan.schemes.replica_healing import healing_terms


@dataclass(frozen=True)
class JustInTimeSystem(Scheme):
    """At system level: GPU state is set back to the step and copied from a replica, in place.

    Attributes:
        recover_s: Reset of the GPUs and repetition of the calls; published as a few seconds.
    """

    recover_s: float = 10.0

    name = "system-level just in time"
    source = "Just-In-Time Checkpointing, transparent (Gupta et al., EuroSys 2024)"
    assumptions = (
        "Published are a few seconds for each GPU and one step repeated; `recover` is assumed. A "
        "lost node is replaced and gets its state from a replica; replicas lie in different racks."
    )
    assumed = ("recover_s",)

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        in_place = Response(
            RecoveryLevel.SOFT, self.recover_s + job.fetch_s, lost_s=job.step_s, waits=False
        )
        moved = Response(
            RecoveryLevel.SOFT, job.replace_s + self.recover_s + job.fetch_s, lost_s=job.step_s
        )
        return healing_terms(
            job, {Domain.PROCESS: in_place, Domain.NODE: moved, Domain.RACK: moved}
        )
