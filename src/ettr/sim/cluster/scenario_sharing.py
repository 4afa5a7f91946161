"""The groups of values by which users share a cluster; a scenario may go without any of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

QUOTA_SCOPES = ("user", "account", "qos")
EACH = "*"


@dataclass(frozen=True, slots=True)
class Quota:
    """Most GPUs that run at once for one user, account or quality of service.

    Attributes:
        scope: Whose jobs count together: those of a user, an account or a qos.
        name: Of it, or * for each of them, which then has such a quota of its own.
        most_gpus: That its running jobs hold together.
    """

    scope: str
    name: str
    most_gpus: int


def problems_of_quotas(quotas: Sequence[Quota], priorities: Collection[str]) -> Iterator[str]:
    """What cannot be, a sentence each.

    Args:
        quotas: Of a scenario.
        priorities: Names of its qualities of service.
    """
    known = {(one.scope, one.name) for one in quotas}
    if len(known) < len(quotas):
        yield "quotas: a user, account or qos has one quota"
    for one in quotas:
        if one.scope not in QUOTA_SCOPES:
            yield f"quotas.scope: {one.scope!r}; give one of {', '.join(QUOTA_SCOPES)}"
        elif one.scope == "qos" and one.name not in (EACH, *priorities):
            yield f"quotas.name: {one.name!r} has no entry in [[priorities]]"
        if one.most_gpus < 1:
            yield f"quotas.most_gpus: {one.most_gpus}; give 1 or more"
