"""Where a dump of the accounting begins: what ended before is missing, which biases every rate.

`sacct --starttime T` lists what ran at T or later, a job of last week included if it ran until T.
The runtime of such jobs from before T had no chance to end in a failure: whatever ended then is not
in the dump. Counted as exposure it makes rates too low, the more so the longer the jobs.

A log of jobs that ended (PBS, LSF, `sacct --state`) lacks in turn what still ran at its end; with
as many jobs running then as when it began, that makes up for it, and nothing is said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import ibis
from ibis.expr.types import Table

from ettr.metrics.coverage import HOLE_CHANCE
from ettr.metrics.instants import fetch
from ettr.tables.ibis_time import epoch_s
from ettr.units import SECONDS_PER_DAY

# of a cluster's runtime; with less the bias lies far within any interval
LEAST_SHARE = 0.01
NO_DIRECTION = (
    "the dump of the accounting begins in the middle of jobs, and the runtime from before it holds "
    "no failures."
)
"""Why a rate that rises in such logs may be constant."""


@dataclass(frozen=True, slots=True)
class DumpWindow:
    """A cluster of whose jobs none ended for longer than chance explains.

    Attributes:
        cluster: Its name.
        first_end: When the first attempt ended; None: none has, the logs list only what runs.
        node_days_before: Runtime before that; without an end all of it.
        share: Of the cluster's runtime.
    """

    cluster: str
    first_end: datetime | None
    node_days_before: float
    share: float

    @property
    def sentence(self) -> str:
        """What is wrong, by how much, and what to do."""
        if self.first_end is None:
            return (
                f"No attempt of cluster {self.cluster} has ended: these logs list only what runs, "
                "and hold no failure that could be counted. Add the accounting."
            )
        at = f"{self.first_end:%Y-%m-%dT%H:%M:%SZ}"
        return (
            f"No attempt of cluster {self.cluster} ended before {at}, for longer than chance "
            "explains: the dump begins there, and lacks what had ended. "
            f"{self.node_days_before:,.1f} node-days ({100 * self.share:.2g} %) of runtime from "
            "before count without the failures of that time, and make rates too low by about so "
            f"much. `--since {at}` leaves them out; a dump from earlier on has the failures."
        )


def dump_windows(attempts: Table, since: datetime | None) -> tuple[DumpWindow, ...]:
    """Clusters of whose jobs none ended for so long that the dump must begin where the first did.

    Were ends as frequent as later, by hours of jobs, the hours before the first one would be an
    exponential variable of the mean length of a job: so many have a chance below one in ten
    thousand. Young jobs end sooner rather than later, so that a log from a cluster's first day on
    is not taken for a part of one. Logs of ended jobs alone are left out: none runs at their end,
    and jobs began until then.

    Args:
        attempts: the table `attempts`, of whole clusters.
        since: what was before is left out anyway; None: nothing is.
    """
    began = attempts.filter(attempts["start"].notnull() & (attempts["elapsed_s"] > 0))
    ends = began.group_by("cluster").aggregate(
        first_s=epoch_s(began["end"]).min(),
        ended=began["end"].count(),
        running=began["end"].isnull().sum(),
        last_start_s=epoch_s(began["start"]).max(),
        job_s=began["elapsed_s"].sum(),
        node_s=(began["elapsed_s"] * began["n_nodes"].fill_null(1)).sum(),
    )
    joined = began.inner_join(ends, "cluster")
    early_s = ibis.greatest(joined["first_s"] - epoch_s(joined["start"]), 0)
    late_s = ibis.greatest(epoch_s(joined["end"]) - joined["last_start_s"], 0)
    sums = joined.group_by("cluster").aggregate(
        early_job_s=early_s.sum(),
        early_node_s=(early_s * joined["n_nodes"].fill_null(1)).sum(),
        late_job_s=late_s.sum(),
    )
    rows = fetch(ends.left_join(sums, "cluster").drop("cluster_right").order_by("cluster"))
    found = (_window(row, since) for row in rows.to_pylist())
    return tuple(one for one in found if one is not None)


def _window(row: dict[str, float | str | None], since: datetime | None) -> DumpWindow | None:
    cluster, whole_s = str(row["cluster"]), float(row["node_s"] or 0.0)
    if not row["ended"]:
        return DumpWindow(cluster, None, whole_s / SECONDS_PER_DAY, 1.0)
    mean_s = float(row["job_s"] or 0.0) / float(row["ended"])
    early_s, early_node_s = (float(row[name] or 0.0) for name in ("early_job_s", "early_node_s"))
    first_end = datetime.fromtimestamp(float(row["first_s"] or 0.0), UTC)
    unlikely_s = -math.log(HOLE_CHANCE) * mean_s
    if early_s <= unlikely_s or early_node_s < LEAST_SHARE * whole_s:
        return None
    if not row["running"] and float(row["late_job_s"] or 0.0) <= unlikely_s:
        return None
    if since is not None and since >= first_end:
        return None
    return DumpWindow(cluster, first_end, early_node_s / SECONDS_PER_DAY, early_node_s / whole_s)
