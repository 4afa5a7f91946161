"""How many events of which kind each day has: one pass over them, for all that needs no more."""

from __future__ import annotations

from ibis.expr.types import Table

from ettr.tables.event_summaries import KIND, census
from ettr.tables.materialize import materialize


def event_census(events: Table, kind: tuple[str, ...] = KIND) -> Table:
    """Events of each kind and UTC day (`ettr.tables.event_summaries.census`), kept on the backend.

    Args:
        events: the table `events`.
        kind: the columns that make a kind.
    """
    return materialize(census(events, kind))
