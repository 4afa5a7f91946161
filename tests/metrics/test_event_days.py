"""On which days each node's events came, by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import ibis

from ettr.metrics.event_days import event_days

ROWS = [
    ("c1", "n1", "check_dmesg", "2026-03-01T00:00:00"),
    ("c1", "n1", "xid", "2026-03-01T23:59:59"),
    ("c1", "n1", "slurmctld", "2026-03-01T12:00:00"),
    ("c1", "n1", "xid", "2026-03-02T00:00:00"),
    # the controller alone names it, a check without a name says nothing of who made it
    ("c1", "n2", "slurmctld", "2026-03-01T12:00:00"),
    ("c1", "n3", None, "2026-03-01T12:00:00"),
    ("c2", "n1", "xid", "2026-03-01T12:00:00"),
    ("c1", None, "xid", "2026-03-01T12:00:00"),
]


def test_events_of_each_node_and_day_apart_from_what_the_controller_says():
    schema = {
        "cluster": "string",
        "node": "string",
        "check": "string",
        "time": "timestamp('UTC', 6)",
    }
    rows = [(*row[:3], datetime.fromisoformat(row[3]).replace(tzinfo=UTC)) for row in ROWS]
    events = ibis.memtable([dict(zip(schema, row, strict=True)) for row in rows], schema=schema)
    first = datetime(2026, 3, 1, tzinfo=UTC)
    day = int(first.timestamp() // 86400)
    found = {
        (row["cluster"], row["node"], row["day"]): row["errors"]
        for row in event_days(events).to_pyarrow().to_pylist()
    }
    assert found == {
        ("c1", "n1", day): 2,
        ("c1", "n1", day + 1): 1,
        ("c1", "n2", day): 0,
        ("c1", "n3", day): 0,
        ("c2", "n1", day): 1,
    }
