"""On which days each node's events came: one pass over them, for all that ask by node and day."""

from __future__ import annotations

from ibis.expr.types import Table

from ettr.tables.event_summaries import node_days
from ettr.tables.materialize import materialize


def event_days(events: Table) -> Table:
    """Events of each node and day (`ettr.tables.event_summaries.node_days`), kept on the backend.

    Args:
        events: the table `events`.
    """
    return materialize(node_days(events))
