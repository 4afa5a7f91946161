"""On which days each node's events came: one pass over them, for all that ask by node and day."""

from __future__ import annotations

from ibis.expr.types import Table

from ettr.metrics.logs_read import CONTROLLER_CHECK
from ettr.tables.ibis_time import epoch_day
from ettr.tables.materialize import materialize


def event_days(events: Table) -> Table:
    """Events of each node and UTC day, kept on the backend; those that name no node are left out.

    Columns: `cluster`, `node`, `day` (days since 1970), and `errors`: how many of the events are
    kernel messages and health checks, which the node's own logs hold. It is 0 where the controller
    alone names the node.

    Args:
        events: the table `events`.
    """
    named = events.filter(events["node"].notnull())
    own = named["check"] != CONTROLLER_CHECK
    keyed = named.select("cluster", "node", day=epoch_day(named["time"]), own=own)
    return materialize(
        keyed.group_by("cluster", "node", "day").aggregate(errors=keyed.count(where=keyed["own"]))
    )
