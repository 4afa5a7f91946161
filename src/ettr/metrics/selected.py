"""The rows that a selection is about: what ran, clipped at the ends of the period, and what ended.

Hours belong to the period in which they ran, to the microsecond. An attempt, with its end and all
that it lost, belongs to the period in which it ended; one that is still open to that of the end of
the logs. So the parts of a partition of the rows add up to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import ibis
from ibis.expr.types import BooleanValue, Table, TimestampValue

from ettr.selection import Selection

_MOMENT = "timestamp('UTC', 6)"


@dataclass(frozen=True, slots=True)
class SelectedJobs:
    """What ran of a selection.

    Attributes:
        attempts: Those that ran or ended in the period, with `start`, `end`, `elapsed_s` and
            `suspended_s` clipped to it. Added columns, where anything is left out: `belongs`,
            whether it ended in the period, and `node_share`, the part of its nodes that is chosen.
        allocations: The same attempts on the chosen nodes, clipped likewise.
    """

    attempts: Table
    allocations: Table


def of_jobs(attempts: Table, selection: Selection) -> Table:
    """The attempts of the selected partitions, accounts, users, QOS and clusters, at any time."""
    for column, names in selection.of_jobs.items():
        attempts = attempts.filter(attempts[column].isin(names).fill_null(False))
    return attempts


def in_period(time: TimestampValue, selection: Selection) -> BooleanValue:
    """Whether a moment lies in the period: not before its start, and before its end."""
    inside: BooleanValue = ibis.literal(True)
    if selection.since is not None:
        inside &= time >= _literal(selection.since)
    if selection.until is not None:
        inside &= time < _literal(selection.until)
    return inside


def _literal(moment: datetime) -> TimestampValue:
    return ibis.literal(moment, type=_MOMENT)
