"""How many events of which kind each day has: one pass over them, for all that needs no more."""

from __future__ import annotations

from ibis.expr.types import Table

from ettr.tables.ibis_time import epoch_day
from ettr.tables.materialize import materialize

KIND = ("source", "check", "code", "severity")


def event_census(events: Table, kind: tuple[str, ...] = KIND) -> Table:
    """Events of each kind and UTC day, kept on the backend.

    Columns: those of `kind`, `day` (days since 1970), `events` (how many), `first` and `last`
    (times of the first and the last), `first_end` and `last_end` (the same of `time_end`).

    Args:
        events: the table `events`.
        kind: the columns that make a kind.
    """
    daily = events.mutate(day=epoch_day(events["time"]))
    return materialize(
        daily.group_by(*kind, "day").aggregate(
            events=daily.count(),
            first=daily["time"].min(),
            last=daily["time"].max(),
            first_end=daily["time_end"].min(),
            last_end=daily["time_end"].max(),
        )
    )
