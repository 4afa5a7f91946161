"""What ran on each node and how it ended, in one pass over what jobs held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import ibis

from ettr.metrics.instants import in_utc, to_seconds

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
    """

    elapsed_s: float
    multi_node_failures: int
    single_node_failures: int
    single_node_attempts: int
    first_s: float | None = None
    last_s: float | None = None

    @property
    def single_node_failure_rate(self) -> float | None:
        """Share of the attempts on it alone that ended as NODE_FAIL; None without any."""
        if not self.single_node_attempts:
            return None
        return self.single_node_failures / self.single_node_attempts


NOTHING_RAN = NodeJobs(0.0, 0, 0, 0)


def node_jobs(
    attempts: ibis.Table, allocations: ibis.Table, *, none_foreign: bool = False
) -> Mapping[tuple[str, str], NodeJobs]:
    """What ran on each node, by cluster and name.

    Args:
        attempts: rows of the table `attempts`.
        allocations: the table `allocations`; rows of other attempts do not count.
        none_foreign: there are no rows of other attempts. What is not found among the attempts on
            several nodes is then known to have run alone, which spares the join with all of them.
    """
    alone = (attempts["n_nodes"] == 1).fill_null(False)
    failed = (attempts["state"] == NODE_FAIL).fill_null(False)
    ended = attempts.select("attempt_id", alone=alone, failed=failed)
    held = allocations.filter(allocations["node"].notnull())
    held = held.select("attempt_id", "cluster", "node", "start", "end", "elapsed_s")
    if none_foreign:
        met = held.left_join(ended.filter(~ended["alone"] | ended["failed"]), "attempt_id")
        met = met.mutate(alone=met["alone"].fill_null(True), failed=met["failed"].fill_null(False))
    else:
        met = held.join(ended, "attempt_id")
    ran = (met["elapsed_s"] > 0).fill_null(False)
    rows = met.group_by("cluster", "node").agg(
        elapsed_s=met["elapsed_s"].sum(where=ran),
        multi=(met["failed"] & ~met["alone"]).sum(),
        single=(met["failed"] & met["alone"]).sum(),
        alone=met["alone"].sum(),
        first=met["start"].min(),
        last=met["end"].max(),
        goes_on=(met["start"].notnull() & met["end"].isnull()).any(),
    )
    return {
        (row["cluster"], row["node"]): NodeJobs(
            row["elapsed_s"] or 0.0,
            int(row["multi"]),
            int(row["single"]),
            int(row["alone"]),
            _seconds(row["first"]),
            math.inf if row["goes_on"] else _seconds(row["last"]),
        )
        for row in rows.to_pyarrow().to_pylist()
    }


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else to_seconds(in_utc(moment))
