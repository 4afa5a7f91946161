"""The lost node is cut out of the communicators, and the others take over its part."""

from dataclasses import dataclass, replace

from ettr.plan.schemes.base import Domain, JobShape, RecoveryLevel, Response, Scheme, Terms
from ettr.plan.schemes.replica_healing import healing_terms


@dataclass(frozen=True)
class CommunicatorEdit(Scheme):
    """Elastic training: fewer nodes until a new one joins.

    Attributes:
        edit_s: Change of the communicators, when a node leaves and when one joins.
        replan_s: Detection of the loss, and division of the work among those that are left.
    """

    edit_s: float = 1.0
    replan_s: float = 30.0

    name = "communicator edit"
    source = "ElasWave (communicators edited in under 1 s on 96 NPUs)"
    assumptions = (
        "`edit` is the published bound, taken to hold at any size; `replan` is assumed; the "
        "part of the lost node comes from a replica at the network rate of one node; until a new "
        "node joins, after --queue and --replace, the work of one node is lost; one step is "
        "repeated."
    )
    assumed = ("replan_s",)

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        edited = Response(
            RecoveryLevel.SOFT,
            self.replan_s + 2 * self.edit_s + job.fetch_s,
            lost_s=job.step_s + job.replace_s / job.n_nodes,
            waits=False,
        )
        awaiting = replace(edited, absent_share=1.0 / job.n_nodes)
        return healing_terms(job, {Domain.PROCESS: edited, Domain.NODE: awaiting})
