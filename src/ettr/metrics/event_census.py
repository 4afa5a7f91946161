"""How many events of which kind each day has: one pass over them, for all that needs no more."""

from __future__ import annotations

from ibis.expr.types import Table

from ettr.tables.ibis_time import epoch_s
from ettr.tables.materialize import materialize
from ettr.units import SECONDS_PER_DAY

_DAY_S = int(SECONDS_PER_DAY)
KIND = ("source", "check", "code", "severity")


def event_census(events: Table) -> Table:
    """Events of each source, check, code, severity and UTC day, kept on the backend.

    Columns: `source`, `check`, `code`, `severity`, `day` (days since 1970), `events` (how many),
    `first` and `last` (their times).

    Args:
        events: the table `events`.
    """
    daily = events.mutate(day=(epoch_s(events["time"]) // _DAY_S).cast("int64"))
    return materialize(
        daily.group_by(*KIND, "day").aggregate(
            events=daily.count(), first=daily["time"].min(), last=daily["time"].max()
        )
    )
