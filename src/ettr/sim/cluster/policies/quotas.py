"""Quotas: the GPUs that the running jobs of a user, an account or a qos hold together."""

from __future__ import annotations

from collections.abc import Sequence

from ettr.sim.cluster.policies.limits import Limit
from ettr.sim.cluster.scenario_sharing import EACH, Quota

REASONS = {
    "user": "QOSMaxGRESPerUser",
    "account": "AssocGrpGRES",
    "qos": "QOSGrpGRES",
}
"""What Slurm shows as the reason of a job that is held by a quota of such a scope."""


def quota_limits(
    quotas: Sequence[Quota], gpus: int, user: str, account: str, qos: str
) -> tuple[Limit, ...]:
    """The limits that quotas set to a job, in the order of the quotas.

    A quota by name takes the place of the one for each of that scope: both would be of the same
    jobs, and count their GPUs twice.

    Args:
        quotas: Of the scenario.
        gpus: Of the job.
        user: Its owner.
        account: That it is charged to.
        qos: Its quality of service.
    """
    names = {"user": user, "account": account, "qos": qos}
    own = {one.scope for one in quotas if one.name == names[one.scope]}
    return tuple(
        Limit(f"{one.scope}:{names[one.scope]}", one.most_gpus, gpus, REASONS[one.scope])
        for one in quotas
        if one.name == names[one.scope] or (one.name == EACH and one.scope not in own)
    )
