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
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ibis.expr.types import Table, Value
from numpy.typing import NDArray
from scipy.special import digamma

from ettr.metrics.coverage import HOLE_CHANCE
from ettr.metrics.instants import fetch
from ettr.tables.ibis_time import epoch_s
from ettr.units import SECONDS_PER_DAY

# of a cluster's runtime; with less the bias lies far within any interval
LEAST_SHARE = 0.01
AGES_PER_OCTAVE = 8
# not yet begun at the first end: at risk from age 0 on
NOT_YET = -1
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

    The hazard of ending at each age comes from what ran after the first end (Nelson and Aalen,
    jobs from before entering at the age they had). Summed over the ages that jobs had reached by
    then, it is the number of ends to expect before the first one; in a log that has them all that
    is an exponential variable of mean 1, whatever law the lengths follow. A cluster whose log
    begins with its first day, with jobs that all take a day, is therefore not taken for a part of
    one. Logs of ended jobs alone are left out: none runs at their end, and jobs began until then.

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
    clusters = fetch(ends.order_by("cluster")).to_pylist()
    # a pass over all ages only for those that need it
    doubtful = [row["cluster"] for row in clusters if row["ended"] and _begins_late(began, row)]
    found = [_window(row, None, since) for row in clusters if not row["ended"]]
    if doubtful:
        of_ages = fetch(_by_age(began.filter(began["cluster"].isin(doubtful)), ends))
        found += [
            _window(row, of_ages.filter(pc.field("cluster") == row["cluster"]), since)
            for row in clusters
            if row["cluster"] in doubtful
        ]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.cluster))


def _begins_late(began: Table, row: dict[str, float | str | None]) -> bool:
    """Whether enough of a cluster's runtime lies before its first end to bias a rate."""
    first_s = int(row["first_s"] or 0)
    early = began.filter(
        (began["cluster"] == row["cluster"])
        & (began["start"] < datetime.fromtimestamp(first_s, UTC))
    )
    early_s = (first_s - epoch_s(early["start"])) * early["n_nodes"].fill_null(1)
    return (early_s.sum().to_pyarrow().as_py() or 0) >= LEAST_SHARE * float(row["node_s"] or 0.0)


def _by_age(began: Table, ends: Table) -> Table:
    """Jobs by their class of age at their cluster's first end, and by when they left."""
    joined = began.inner_join(ends, "cluster")
    start_s, end_s = epoch_s(joined["start"]), epoch_s(joined["end"])
    early_s = ibis.greatest(joined["first_s"] - start_s, 0)
    age_s = end_s.fill_null(start_s + joined["elapsed_s"].cast("int64")) - start_s
    return joined.group_by(
        cluster="cluster",
        entered=ibis.ifelse(early_s > 0, _age_class(early_s), NOT_YET),
        left=_age_class(age_s),
        is_over=joined["end"].notnull() & (end_s > joined["first_s"]),
    ).aggregate(
        jobs=joined.count(),
        early_node_s=(early_s * joined["n_nodes"].fill_null(1)).sum(),
        late_job_s=ibis.greatest(end_s - joined["last_start_s"], 0).sum(),
    )


def _age_class(age_s: Value) -> Value:
    """Eighths of an octave of seconds."""
    return (AGES_PER_OCTAVE * ibis.greatest(age_s, 1).log2()).floor().cast("int32")


def _window(
    row: dict[str, float | str | None], ages: pa.Table | None, since: datetime | None
) -> DumpWindow | None:
    cluster, whole_s = str(row["cluster"]), float(row["node_s"] or 0.0)
    if ages is None:
        return DumpWindow(cluster, None, whole_s / SECONDS_PER_DAY, 1.0)
    first_end = datetime.fromtimestamp(float(row["first_s"] or 0.0), UTC)
    early_node_s = pc.sum(ages["early_node_s"]).as_py()
    if since is not None and since >= first_end:
        return None
    if not row["running"]:
        mean_s = float(row["job_s"] or 0.0) / float(row["ended"] or 1)
        if (pc.sum(ages["late_job_s"]).as_py() or 0) <= -math.log(HOLE_CHANCE) * mean_s:
            return None
    if chance_of_no_end(ages) >= HOLE_CHANCE:
        return None
    return DumpWindow(cluster, first_end, early_node_s / SECONDS_PER_DAY, early_node_s / whole_s)


def chance_of_no_end(ages: pa.Table) -> float:
    """Probability that none of the jobs from before the first end ended before it.

    With a hazard known from d ends, x expected ends have the probability (1 + x/d)^-d of being
    none: Poisson with a mean that is itself known as a gamma variable of shape d.

    Args:
        ages: jobs by the class of their age at the first end (`entered`) and when they left
            (`left`), ended (`is_over`) or not.
    """
    jobs, over = ages["jobs"].to_numpy(), ages["is_over"].to_numpy()
    entered, left = ages["entered"].to_numpy(), ages["left"].to_numpy()
    n_classes = int(max(entered.max(), left.max())) + 1
    early = entered != NOT_YET

    def by_class(places: NDArray[np.int32], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.bincount(places[rows], jobs[rows], minlength=n_classes).astype(np.float64)

    enter, end, leave = by_class(entered, early), by_class(left, over), by_class(left, ~over)
    at_risk = jobs[~early].sum() + np.cumsum(enter - end - leave) - (enter - end - leave)
    at_risk = np.maximum(at_risk + (enter - leave) / 2, end)
    hazard = digamma(at_risk + 1) - digamma(at_risk - end + 1)
    # up to the class of its age, no further: jobs of one length end in one class
    expected = float(enter @ (np.cumsum(hazard) - hazard))
    n_ends = end.sum()
    return float((1 + expected / n_ends) ** -n_ends) if n_ends else 1.0
