"""On which days each node's events came, by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from ettr.tables import EVENTS
from fact_tables import facts_of

ROWS = [
    ("c1", "n1", "check_dmesg", "2026-03-01T00:00:00"),
    ("c1", "n1", "xid", "2026-03-01T23:59:59"),
    ("c1", "n1", "slurmctld", "2026-03-01T12:00:00"),
    ("c1", "n1", "xid", "2026-03-02T00:00:00"),
    # the controller alone names it
    ("c1", "n2", "slurmctld", "2026-03-01T12:00:00"),
    ("c2", "n1", "xid", "2026-03-01T12:00:00"),
    ("c1", None, "xid", "2026-03-01T12:00:00"),
]


def test_events_of_each_node_and_day_apart_from_what_the_controller_says():
    rows = [
        dict.fromkeys(EVENTS.names)
        | dict(zip(("cluster", "node", "check"), row, strict=False))
        | {"time": datetime.fromisoformat(row[3]).replace(tzinfo=UTC), "event_id": str(line)}
        | {"severity": "unknown", "source": "t", "file_id": "t", "line": line}
        for line, row in enumerate(ROWS)
    ]
    facts = facts_of({"events": pa.Table.from_pylist(rows, EVENTS.arrow_schema)})
    first = datetime(2026, 3, 1, tzinfo=UTC)
    day = int(first.timestamp() // 86400)
    found = {
        (row["cluster"], row["node"], row["day"]): row["errors"] for row in facts.rows("event_days")
    }
    assert found == {
        ("c1", "n1", day): 2,
        ("c1", "n1", day + 1): 1,
        ("c1", "n2", day): 0,
        ("c2", "n1", day): 1,
    }
