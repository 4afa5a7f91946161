"""Failures of the users' own making: whose they are, how they ended, where, and what they held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ettr.facts import Facts, made
from ettr.metrics.status import in_hours, share

LISTED = 20
# its name, attempts, those whose GPU-seconds are known, and these
_Group = tuple[str | None, int, int, float | None]


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of users that share something, and the GPU-hours that those attempts held.

    Attributes:
        gpu_hours: What those held of which it is known; None where it is known of none.
        attempts_without_gpus: Those of which it is not known, since the log does not say their
            GPUs or how long they ran.
    """

    name: str | None
    attempts: int
    share_of_attempts: float | None
    gpu_hours: float | None
    attempts_without_gpus: int


@dataclass(frozen=True, slots=True)
class UserFailures:
    """Attempts that ended FAILED, OUT_OF_MEMORY, TIMEOUT or DEADLINE, without a fault of the site.

    Each list is in order of attempts and holds the first `listed` of its groups.
    """

    attempts: int
    gpu_hours: float | None
    attempts_without_gpus: int
    by_state: tuple[FailureGroup, ...]
    by_user: tuple[FailureGroup, ...]
    by_account: tuple[FailureGroup, ...]
    by_exit: tuple[FailureGroup, ...]
    by_node: tuple[FailureGroup, ...]
    one_node_attempts: int
    listed: int


def user_failures(
    facts: Facts, listed: int = LISTED, *, several_clusters: bool = False
) -> UserFailures:
    """Failures of users by state, user, account, exit code and node.

    Attempts for which attribution found a cause in the infrastructure do not count, nor do those
    that a user cancelled. A failure, with all that its attempt held, belongs to the period in
    which it ended.

    Args:
        several_clusters: there may be nodes of one name in two clusters: each is called
            `CLUSTER/NODE`.
    """
    by_kind: dict[str, list[_Group]] = {}
    for row in facts.rows("user_failures"):
        name = row["name"]
        if several_clusters and row["cluster"] is not None and name is not None:
            name = f"{row['cluster']}/{name}"
        by_kind.setdefault(row["kind"], []).append((name, row["n"], row["known"], row["gpu_s"]))
    states = _groups(by_kind.get("state", ()), listed)
    total = sum(one.attempts for one in states)
    without = sum(one.attempts_without_gpus for one in states)
    return UserFailures(
        attempts=total,
        gpu_hours=None
        if 0 < total == without
        else sum((one.gpu_hours or 0.0 for one in states), 0.0),
        attempts_without_gpus=without,
        by_state=states,
        by_user=_groups(by_kind.get("user", ()), listed),
        by_account=_groups(by_kind.get("account", ()), listed),
        by_exit=_groups(by_kind.get("exit", ()), listed),
        by_node=_groups(by_kind.get("node", ()), listed),
        one_node_attempts=sum(n for _, n, _, _ in by_kind.get("node", ())),
        listed=listed,
    )


def _groups(found: Sequence[_Group], listed: int) -> tuple[FailureGroup, ...]:
    total = sum(n for _, n, _, _ in found)
    ranked = sorted(found, key=lambda one: (-one[1], one[0] is None, one[0] or ""))
    return tuple(
        FailureGroup(name, n, share(n, total), in_hours(gpu_s), n - known)
        for name, n, known, gpu_s in ranked[:listed]
    )


@made("ended", (), reads=("chosen", "ended_joined"), takes=("selection",))
def _ended(facts: Facts) -> str:
    """One row is a selected attempt with all the time that it held."""
    selected = not facts.given("selection").is_everything
    return facts.table("ended_joined" if selected else "chosen")
