"""Job sizes: classes that double, and how much time each class holds."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum

import ibis

from ettr.metrics.instants import first_row
from ettr.metrics.selected import n_counted
from ettr.metrics.status import held_or_unknown, in_hours, share
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


def size_end(size: ibis.expr.types.IntegerColumn) -> ibis.expr.types.IntegerColumn:
    """Upper end of the class of each size: 0 for none, -1 where the size is null."""
    branches = [(size.isnull(), UNKNOWN_SIZE), (size <= 0, 0)]
    branches += [(size <= end, end) for end in SIZE_ENDS]
    return ibis.cases(*branches, else_=_TOO_LARGE).cast("int64")


def size_end_of(size: int | None) -> int:
    """Upper end of the class of one size, as `size_end` has it."""
    if size is None:
        return UNKNOWN_SIZE
    if size <= 0:
        return 0
    place = bisect_left(SIZE_ENDS, size)
    return int(SIZE_ENDS[place]) if place < len(SIZE_ENDS) else _TOO_LARGE


def size_class(end: int) -> SizeClass:
    """The class with this upper end."""
    if end == UNKNOWN_SIZE:
        return SizeClass(None, None)
    if end <= 1:
        return SizeClass(end, end)
    return SizeClass(end // 2 + 1, end)


def main_size_unit(attempts: ibis.Table) -> SizeUnit:
    """GPUs where attempts with GPUs held most of the node time, else nodes.

    A few GPU jobs on a cluster of CPUs would leave all others in the class of no GPUs. One that
    does not say its nodes had one at least.
    """
    node_s = attempts["elapsed_s"] * attempts["n_nodes"].fill_null(1)
    held = first_row(
        attempts.aggregate(all_s=node_s.sum(), with_gpus_s=node_s.sum(where=attempts["n_gpus"] > 0))
    )
    return (
        SizeUnit.GPUS
        if 2 * (held["with_gpus_s"] or 0.0) > (held["all_s"] or 0.0)
        else SizeUnit.NODES
    )


def size_mix(attempts: ibis.Table, unit: SizeUnit = SizeUnit.GPUS) -> SizeMix:
    """Attempts that ran and the hours they held, by size class.

    Attempts that never started have no size yet and are left out.
    """
    ran = attempts.filter(attempts["start"].notnull())
    elapsed_s = ran["elapsed_s"].fill_null(0.0)
    rows = (
        ran.mutate(size_end=size_end(ran[unit.column]), run_s=elapsed_s)
        .group_by("size_end")
        .aggregate(
            lambda t: n_counted(t).name("attempts"),
            lambda t: held_or_unknown(t, "n_gpus").name("gpu_s"),
            lambda t: held_or_unknown(t, "n_nodes").name("node_s"),
            lambda t: t["run_s"].sum().fill_null(0.0).name("job_s"),
        )
        .to_pyarrow()
        .to_pylist()
    )
    rows.sort(key=lambda row: (row["size_end"] == UNKNOWN_SIZE, row["size_end"]))
    whole = {name: sum(row[name] or 0 for row in rows) for name in ("attempts", "gpu_s", "node_s")}
    return SizeMix(
        unit.value,
        tuple(
            SizeShare(
                size=size_class(row["size_end"]),
                attempts=int(row["attempts"]),
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
