"""Where a dump of the accounting begins: what ended before is missing, which biases every rate.

`sacct --starttime T` lists what ran at T or later, a job of last week included if it ran until T.
The runtime of such jobs from before T had no chance to end in a failure: whatever ended then is
not in the dump. Counted as exposure it makes rates too low, the more so the longer the jobs.

A log of jobs that ended (PBS, LSF, `sacct --state`) lacks in turn what still ran at its end; with
as many jobs running then as when it began, that makes up for it, and nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ettr.facts import Facts
from ettr.facts.files import Columns
from ettr.metrics.coverage import HOLE_CHANCE
from ettr.metrics.instants import to_datetime
from ettr.units import SECONDS_PER_DAY

# of a cluster's runtime; with less the bias lies far within any interval
LEAST_SHARE = 0.01
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
        first_end: When the first attempt ended; None: none has, the logs list only what runs.
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


def dump_windows(
    facts: Facts, clusters: Collection[str] = (), since: datetime | None = None
) -> tuple[DumpWindow, ...]:
    """Clusters of whose jobs none ended for so long that the dump must begin where the first did.

    The hazard of ending at each age comes from what ran after the first end (Nelson and Aalen,
    jobs from before entering at the age they had). Summed over the ages that jobs had reached by
    then, it is the number of ends to expect before the first one; in a log that has them all that
    is an exponential variable of mean 1, whatever law the lengths follow. A cluster whose log
    begins with its first day, with jobs that all take a day, is therefore not taken for a part of
    one. Logs of ended jobs alone are left out: none runs at their end, and jobs began until then.
    """
    rows = sorted(facts.rows("cluster_starts"), key=lambda row: str(row["cluster"]))
    asked = [row for row in rows if not clusters or row["cluster"] in clusters]
    found = (_window(facts, row, since) for row in asked if row["node_s"] is not None)
    return tuple(one for one in found if one is not None)


def _window(facts: Facts, row: dict[str, Any], since: datetime | None) -> DumpWindow | None:
    cluster, whole_s, early_s = row["cluster"], row["node_s"], float(row["early_node_s"])
    if not row["ended"]:
        return DumpWindow(cluster, None, whole_s / SECONDS_PER_DAY, 1.0)
    # a pass over all ages only for clusters that need it
    if not whole_s or early_s < LEAST_SHARE * whole_s:
        return None
    first_end = to_datetime(row["first_s"])
    if since is not None and since >= first_end:
        return None
    of_all = facts.under(least_share=LEAST_SHARE).columns("ages_at_first_end")
    ages = {name: column[of_all["cluster"] == cluster] for name, column in of_all.items()}
    if not row["running"]:
        mean_s = row["job_s"] / row["ended"]
        if float(ages["late_job_s"].sum()) <= -math.log(HOLE_CHANCE) * mean_s:
            return None
    if chance_of_no_end(ages) >= HOLE_CHANCE:
        return None
    return DumpWindow(cluster, first_end, early_s / SECONDS_PER_DAY, early_s / whole_s)


def chance_of_no_end(ages: Columns) -> float:
    """Probability that none of the jobs from before the first end ended before it.

    With a hazard known from d ends, x expected ends have the probability (1 + x/d)^-d of being
    none:
    """
    from scipy.special import digamma

    jobs, over = ages["jobs"].astype(np.int64), ages["is_over"].astype(np.bool_)
    entered, left = (ages[name].astype(np.int64) for name in ("entered", "left_at"))
    n_classes = int(max(entered.max(), left.max())) + 1
    early = entered != NOT_YET

    def by_class(places: NDArray[np.int64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.bincount(places[rows], jobs[rows], minlength=n_classes).astype(np.float64)

    enter, end, leave = by_class(entered, early), by_class(left, over), by_class(left, ~over)
    at_risk = jobs[~early].sum() + np.cumsum(enter - end - leave) - (enter - end - leave)
    at_risk = np.maximum(at_risk + (enter - leave) / 2, end)
    hazard = digamma(at_risk + 1) - digamma(at_risk - end + 1)
    # up to the class of its age, no further: jobs of one length end in one class
    expected = float(enter @ (np.cumsum(hazard) - hazard))
    n_ends = end.sum()
    return float((1 + expected / n_ends) ** -n_ends) if n_ends else 1.0
