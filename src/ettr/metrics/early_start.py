"""A period that begins long before the logs do, with what was going on when they began.

`sacctmgr show event` and `sacct` list an outage, a job and its submission with the time when they
began, however long before the dump. The period of the logs reaches back to it, and every node
counts as in service since then, though nothing else of that time is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import ibis

from ettr.metrics.dump_window import DumpWindow
from ettr.metrics.instants import Period, first_row, in_utc
from ettr.units import SECONDS_PER_DAY

LEAST = timedelta(days=1)
LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class EarlyStart:
    """What lies before the logs in their period.

    Attributes:
        what: Began then: a node's state, a job, or the submission of one.
        start: Of the period.
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


def early_start(
    period: Period,
    attempts: ibis.Table,
    node_states: ibis.Table,
    census: ibis.Table,
    windows: Iterable[DumpWindow],
) -> EarlyStart | None:
    """What makes the period begin long before the logs do; None where nothing does.

    Long is more than a day, and more than a twentieth of the time that is known.

    Args:
        period: of the whole logs.
        attempts: the table `attempts`, whole; likewise the next.
        node_states: scheduler states of nodes.
        census: of the observations (`event_census`).
        windows: clusters whose dump of the accounting begins in the middle of jobs.
    """
    by_cluster = attempts.group_by("cluster").aggregate(
        submit=attempts["submit"].min(), start=attempts["start"].min()
    )
    jobs = by_cluster.to_pyarrow().to_pylist()
    states = first_row(
        node_states.aggregate(start=node_states["start"].min(), end=node_states["end"].min())
    )
    began = {row["cluster"]: _utc(row["start"]) for row in jobs}
    ends = {one.cluster: one.first_end for one in windows if one.first_end is not None}
    signs = [
        _utc(states["end"]),
        _utc(first_row(census.aggregate(first=census["first"].min()))["first"]),
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
        "a node's state": [states["start"]],
        "a job": [row["start"] for row in jobs],
        "a job's submission": [row["submit"] for row in jobs],
    }
    what = next(
        (name for name, moments in firsts.items() if period.start in map(_utc, moments)), None
    )
    # an inventory that says since when nodes are in service is no accident of a dump
    return None if what is None else EarlyStart(what, period.start, known_from)


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else in_utc(moment)
