"""Job sizes by classes that double, the time each holds; failures of users' own making."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ettr.facts import Facts, made
from ettr.metrics.status import in_hours, share
from ettr.units import SECONDS_PER_HOUR

SIZE_ENDS = tuple(2**power for power in range(18))
"""Upper ends of the size classes: 1, 2, 4, ... 131,072."""

UNKNOWN_SIZE = -1
_TOO_LARGE = 2 ** len(SIZE_ENDS)


class SizeUnit(StrEnum):
    """What a job's size counts."""

    GPUS = "gpus"
    NODES = "nodes"

    @property
    def column(self) -> str:
        """Column of `attempts` and `failures` that holds the size."""
        return f"n_{self.value}"


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Jobs of `size_from` to `size_to` GPUs or nodes; both None where the log does not say."""

    size_from: int | None
    size_to: int | None

    @property
    def label(self) -> str:
        """The class as a reader expects it: 1, 3-4, unknown."""
        if self.size_from is None:
            return "unknown"
        if self.size_from == self.size_to:
            return str(self.size_from)
        return f"{self.size_from}-{self.size_to}"


@dataclass(frozen=True, slots=True)
class SizeShare:
    """One size class. A share is None where its whole is zero.

    Hours are those of attempts that say their GPUs or nodes; None where some ran and none says.
    """

    size: SizeClass
    attempts: int
    share_of_attempts: float | None
    gpu_hours: float | None
    share_of_gpu_hours: float | None
    node_hours: float | None
    share_of_node_hours: float | None
    job_hours: float


@dataclass(frozen=True, slots=True)
class SizeMix:
    """All size classes that occur, small to large, unknown last."""

    size_unit: str
    classes: tuple[SizeShare, ...]


def size_end_of(size: int | None) -> int:
    """Upper end of the class of a size: 0 for none, -1 where it is not known."""
    if size is None:
        return UNKNOWN_SIZE
    if size <= 0:
        return 0
    place = bisect_left(SIZE_ENDS, size)
    return int(SIZE_ENDS[place]) if place < len(SIZE_ENDS) else _TOO_LARGE


def size_ends_of(sizes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The same of many sizes; NaN or None where it is not known."""
    known = np.asarray(sizes, dtype=np.float64)
    ends = np.array([*SIZE_ENDS, _TOO_LARGE])
    found = ends[np.searchsorted(SIZE_ENDS, np.nan_to_num(known))]
    return np.where(np.isnan(known), UNKNOWN_SIZE, np.where(known <= 0, 0, found))


def size_class(end: int) -> SizeClass:
    """The class with this upper end."""
    if end == UNKNOWN_SIZE:
        return SizeClass(None, None)
    if end <= 1:
        return SizeClass(end, end)
    return SizeClass(end // 2 + 1, end)


def main_size_unit(facts: Facts) -> SizeUnit:
    """GPUs where attempts with GPUs held most of the node time, else nodes.

    A few GPU jobs on a cluster of CPUs would leave all others in the class of no GPUs.
    """
    held = facts.row("size_units")
    with_gpus = 2 * (held["with_gpus_s"] or 0.0) > (held["all_s"] or 0.0)
    return SizeUnit.GPUS if with_gpus else SizeUnit.NODES


def size_mix(facts: Facts, unit: SizeUnit = SizeUnit.GPUS) -> SizeMix:
    """Attempts that ran and the hours they held, by size class.

    Attempts that never started have no size yet and are left out.
    """
    shapes = facts.columns("chosen_shapes")
    ends = size_ends_of(shapes[unit.column])
    found = np.unique(ends)
    rows: list[dict[str, Any]] = []
    for end in [*found[found != UNKNOWN_SIZE], *found[found == UNKNOWN_SIZE]]:
        own = {name: values[ends == end] for name, values in shapes.items()}
        ran = own["ran"].sum() > 0
        rows.append(
            {
                "size_end": int(end),
                "attempts": int(own["attempts"].sum()),
                "gpu_s": known_sum(own["gpu_s"]) if ran else 0.0,
                "node_s": known_sum(own["node_s"]) if ran else 0.0,
                "job_s": float(own["job_s"].sum()),
            }
        )
    whole = {name: sum(row[name] or 0 for row in rows) for name in ("attempts", "gpu_s", "node_s")}
    return SizeMix(
        unit.value,
        tuple(
            SizeShare(
                size=size_class(row["size_end"]),
                attempts=row["attempts"],
                share_of_attempts=share(row["attempts"], whole["attempts"]),
                gpu_hours=in_hours(row["gpu_s"]),
                share_of_gpu_hours=share(row["gpu_s"], whole["gpu_s"]),
                node_hours=in_hours(row["node_s"]),
                share_of_node_hours=share(row["node_s"], whole["node_s"]),
                job_hours=row["job_s"] / SECONDS_PER_HOUR,
            )
            for row in rows
        ),
    )


def known_sum(values: npt.NDArray[Any]) -> float | None:
    """The sum of those that are known; None where none is."""
    numbers = np.asarray(values, dtype=np.float64)
    known = numbers[~np.isnan(numbers)]
    return float(known.sum()) if known.size else None


# -- failures of the users' own making: whose they are, how they ended, where, and what they held


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


def user_failures(facts: Facts, *, several_clusters: bool = False) -> UserFailures:
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
    states = _groups(by_kind.get("state", ()))
    total = sum(one.attempts for one in states)
    without = sum(one.attempts_without_gpus for one in states)
    return UserFailures(
        attempts=total,
        gpu_hours=None
        if 0 < total == without
        else sum((one.gpu_hours or 0.0 for one in states), 0.0),
        attempts_without_gpus=without,
        by_state=states,
        by_user=_groups(by_kind.get("user", ())),
        by_account=_groups(by_kind.get("account", ())),
        by_exit=_groups(by_kind.get("exit", ())),
        by_node=_groups(by_kind.get("node", ())),
        one_node_attempts=sum(n for _, n, _, _ in by_kind.get("node", ())),
        listed=LISTED,
    )


def _groups(found: Sequence[_Group]) -> tuple[FailureGroup, ...]:
    total = sum(n for _, n, _, _ in found)
    ranked = sorted(found, key=lambda one: (-one[1], one[0] is None, one[0] or ""))
    return tuple(
        FailureGroup(name, n, share(n, total), in_hours(gpu_s), n - known)
        for name, n, known, gpu_s in ranked[:LISTED]
    )


@made("ended", (), reads=("chosen", "ended_joined"), takes=("selection",))
def _ended(facts: Facts) -> str:
    """One row is a selected attempt with all the time that it held."""
    selected = not facts.given("selection").is_everything
    return facts.table("ended_joined" if selected else "chosen")
