"""A period that begins long before the logs do, with what was going on when they began.

`sacctmgr show event` and `sacct` list an outage, a job and its submission with the time when they
began, however long before the dump. The period of the logs reaches back to it, and every node
counts as in service since then, though nothing else of that time is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from ettr.facts import Facts
from ettr.facts.facts import to_moment
from ettr.metrics.dump_window import DumpWindow
from ettr.metrics.instants import Period
from ettr.units import SECONDS_PER_DAY

LEAST = timedelta(days=1)
LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class EarlyStart:
    """What lies before the logs in their period.

    Attributes:
        what: Began then: a node's state, a job, or the submission of one.
        known_from: First sign of anything else: an event, the end of an outage, the start of a job
            or, where a dump of the accounting begins in the middle of jobs, the end of one.
    """

    what: str
    start: datetime
    known_from: datetime

    @property
    def sentence(self) -> str:
        """What is wrong, by how much, and what to do."""
        days = (self.known_from - self.start).total_seconds() / SECONDS_PER_DAY
        return (
            f"The period begins with {self.what} at {self.start:%Y-%m-%dT%H:%M:%SZ}, {days:,.1f} "
            "days before anything else is known: nodes count as in service in these days, rates "
            "and shares by time in service are too low, and of earlier outages and jobs only the "
            "long ones are here. "
            f"`--since {self.known_from:%Y-%m-%dT%H:%M:%SZ}` leaves them out."
        )


def early_start(facts: Facts, period: Period, windows: Iterable[DumpWindow]) -> EarlyStart | None:
    """What makes the period begin long before the logs do; None where nothing does.

    Long is more than a day, and more than a twentieth of the time that is known.

    Args:
        windows: clusters whose dump of the accounting begins in the middle of jobs.
    """
    jobs = facts.rows("cluster_starts")
    moments = {row["table_name"]: row for row in facts.rows("log_moments")}
    states = moments["node_states"]
    began = {row["cluster"]: to_moment(row["start_us"]) for row in jobs}
    ends = {one.cluster: one.first_end for one in windows if one.first_end is not None}
    signs = [
        to_moment(states["first_b_us"]),
        to_moment(moments["events"]["first_a_us"]),
        *(began | ends).values(),
    ]
    known = [sign for sign in signs if sign is not None]
    if not known:
        return None
    known_from = min(known)
    lead = known_from - period.start
    if lead < LEAST or lead < LEAST_SHARE * (period.end - known_from):
        return None
    firsts = {
        "a node's state": [states["first_a_us"]],
        "a job": [row["start_us"] for row in jobs],
        "a job's submission": [row["submit_us"] for row in jobs],
    }
    what = next(
        (name for name, found in firsts.items() if period.start in map(to_moment, found)), None
    )
    # an inventory that says since when nodes are in service is no accident of a dump
    return None if what is None else EarlyStart(what, period.start, known_from)
