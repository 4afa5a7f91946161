"""What ran on each node and how it ended, in one pass over what jobs held."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import ibis
from ibis.expr.types import BooleanValue, Value

from ettr.metrics.instants import in_utc, to_seconds
from ettr.tables.ibis_time import epoch_s

NODE_FAIL = "NODE_FAIL"


@dataclass(frozen=True, slots=True)
class NodeJobs:
    """What ran on one node.

    Attributes:
        elapsed_s: Time that attempts ran on it, added up.
        multi_node_failures: Attempts of several nodes with it among them that ended as NODE_FAIL.
        single_node_failures: Attempts on it alone that ended as NODE_FAIL.
        single_node_attempts: Attempts on it alone.
        first_s: When the first of its attempts began, in seconds since 1970; None where no log
            says.
        last_s: When the last one ended; infinity where one goes on.
        span_s: Time from the start to the end of those that ran and ended, in whole seconds each.
    """

    elapsed_s: float
    multi_node_failures: int
    single_node_failures: int
    single_node_attempts: int
    first_s: float | None = None
    last_s: float | None = None
    span_s: float = 0.0

    @property
    def single_node_failure_rate(self) -> float | None:
        """Share of the attempts on it alone that ended as NODE_FAIL; None without any."""
        if not self.single_node_attempts:
            return None
        return self.single_node_failures / self.single_node_attempts


NOTHING_RAN = NodeJobs(0.0, 0, 0, 0)


def node_jobs(
    attempts: ibis.Table,
    allocations: ibis.Table,
    *,
    none_foreign: bool = False,
    all_listed: bool = False,
    failed_held: ibis.Table | None = None,
) -> Mapping[tuple[str, str], NodeJobs]:
    """What ran on each node, by cluster and name.

    Args:
        attempts: rows of the table `attempts`.
        allocations: the table `allocations`; rows of other attempts do not count.
        none_foreign: there are no rows of other attempts. What is not found among the attempts on
            several nodes is then known to have run alone, which spares the join with all of them.
        all_listed: the lists of nodes of the attempts say all that they held
            (`ettr.metrics.listed_nodes`).
        failed_held: rows of `allocations` among which are all of the attempts that ended as
            NODE_FAIL, where they are at hand.
    """
    held = allocations.filter(allocations["node"].notnull())
    if all_listed:
        rows = _by_lists(attempts, held, held if failed_held is None else failed_held)
    else:
        rows = _by_joins(attempts, held, none_foreign)
    return {
        (row["cluster"], row["node"]): NodeJobs(
            row["elapsed_s"] or 0.0,
            int(row["multi"]),
            int(row["single"]),
            int(row["alone"]),
            _seconds(row["first"]),
            math.inf if row["goes_on"] else _seconds(row["last"]),
            float(row["span_s"] or 0),
        )
        for row in rows
    }


def _by_joins(
    attempts: ibis.Table, held: ibis.Table, none_foreign: bool
) -> Iterable[Mapping[str, Any]]:
    """A row for each node, of allocations joined with their attempts."""
    ended = attempts.select("attempt_id", alone=_alone(attempts), failed=_failed(attempts))
    held = held.select("attempt_id", "cluster", "node", "start", "end", "elapsed_s")
    if none_foreign:
        met = held.left_join(ended.filter(~ended["alone"] | ended["failed"]), "attempt_id")
        met = met.mutate(alone=met["alone"].fill_null(True), failed=met["failed"].fill_null(False))
    else:
        met = held.join(ended, "attempt_id")
    rows: list[dict[str, Any]] = (
        met.group_by("cluster", "node")
        .agg(
            **_times(met),
            multi=(met["failed"] & ~met["alone"]).sum(),
            single=(met["failed"] & met["alone"]).sum(),
            alone=met["alone"].sum(),
        )
        .to_pyarrow()
        .to_pylist()
    )
    return rows


def _by_lists(
    attempts: ibis.Table, held: ibis.Table, failed_held: ibis.Table
) -> Iterable[Mapping[str, Any]]:
    """The same without a join of all: the list of an attempt on one node is its name."""
    single = attempts.filter(_alone(attempts) & attempts["node_list"].notnull())
    singles = single.group_by("cluster", node="node_list").agg(
        alone=single.count(), single=_failed(single).sum()
    )
    several = attempts.filter(_failed(attempts) & ~_alone(attempts)).select("attempt_id")
    multi = failed_held.filter(failed_held["node"].notnull()).semi_join(several, "attempt_id")
    multis = multi.group_by("cluster", "node").agg(multi=multi.count())
    rows = held.group_by("cluster", "node").agg(**_times(held)).to_pyarrow().to_pylist()
    nothing = {"alone": 0, "single": 0, "multi": 0}
    of_node = {(row["cluster"], row["node"]): {**nothing, **row} for row in rows}
    for counts in (singles, multis):
        for row in counts.to_pyarrow().to_pylist():
            of_node[row["cluster"], row["node"]].update(row)
    return of_node.values()


def _alone(attempts: ibis.Table) -> BooleanValue:
    return (attempts["n_nodes"] == 1).fill_null(False)


def _failed(attempts: ibis.Table) -> BooleanValue:
    return (attempts["state"] == NODE_FAIL).fill_null(False)


def _times(held: ibis.Table) -> dict[str, Value]:
    """When attempts ran on a node, and how long."""
    ran = (held["elapsed_s"] > 0).fill_null(False)
    span_s = epoch_s(held["end"]) - epoch_s(held["start"])
    return {
        "elapsed_s": held["elapsed_s"].sum(where=ran),
        "span_s": span_s.sum(where=ran & (span_s > 0).fill_null(False)),
        "first": held["start"].min(),
        "last": held["end"].max(),
        "goes_on": (held["start"].notnull() & held["end"].isnull()).any(),
    }


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else to_seconds(in_utc(moment))
