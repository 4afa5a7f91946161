"""A standby node takes the place of the lost one while the others wait."""

from dataclasses import dataclass

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms
from ettr.plan.schemes.replica_healing import healing_terms


@dataclass(frozen=True)
class HotSwap(Scheme):
    """Warm standby nodes, swapped in without a restart of the job.

    Attributes:
        swap_s: From the failure until training goes on, without the transfer of the state.
    """

    swap_s: float = 40.0

    name = "hot swap"
    source = "DeadPool (under 40 s on 512 A100); TorchPass"
    assumptions = (
        "`swap` is DeadPool's published upper bound, taken to hold at any size; a standby node "
        "is always at hand, which costs its GPU-hours, and gets its state from a replica; one "
        "step is repeated; the loss of a rack is more than the standby nodes replace."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        swapped = Response(
            RecoveryLevel.SOFT, self.swap_s + job.fetch_s, lost_s=job.step_s, waits=False
        )
        return healing_terms(job, dict.fromkeys((Domain.PROCESS, Domain.NODE), swapped))
