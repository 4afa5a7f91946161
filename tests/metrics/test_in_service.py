"""When nodes are in service: from their first trace, as an inventory says, never powered down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ettr.metrics.availability import Service, service
from ettr.metrics.instants import Period
from ettr.tables import ALLOCATIONS, EVENTS, NODE_STATES, NODES, Table
from fact_tables import facts_of

START = datetime(2026, 3, 1, tzinfo=UTC)
MONTHS = Period(START, START + timedelta(days=60))
SAID = {"cluster": "c", "source": "t", "file_id": "t", "line": 1}


def day(value: float | None) -> datetime | None:
    return None if value is None else START + timedelta(days=value)


def rows(table: Table, *given: dict[str, Any]) -> pa.Table:
    full = [{name: (SAID | row).get(name) for name in table.names} for row in given]
    return pa.Table.from_pylist(full, schema=table.arrow_schema)


def job(node: str, low: float, days: float = 0.9) -> dict[str, Any]:
    return {
        "attempt_id": f"{node}/{low}",
        "node": node,
        "start": day(low),
        "end": day(low + days),
        "elapsed_s": days * 86400.0,
    }


def state(node: str, name: str, low: float, high: float | None) -> dict[str, Any]:
    return {"node": node, "state": name, "start": day(low), "end": day(high)}


def in_service(**tables: pa.Table) -> Service:
    return service(facts_of(tables), MONTHS)


def daily(*nodes: str, since: int = 0) -> list[dict[str, Any]]:
    return [job(node, at) for node in nodes for at in range(since, 60)]


def test_nodes_that_were_added_count_from_their_first_job():
    """20 nodes for 60 days and 40 more from day 30: 2,400 node-days, not 3,600."""
    old, new = ([f"{kind}{i}" for i in range(n)] for kind, n in (("o", 20), ("n", 40)))
    found = in_service(allocations=rows(ALLOCATIONS, *daily(*old), *daily(*new, since=30)))
    assert found.node_s / 86400 == pytest.approx(2400)


def test_an_inventory_without_dates_does_not_put_them_in_service_before():
    listed = rows(NODES, {"node": "a"}, {"node": "b"}, {"node": "spare"})
    jobs = rows(ALLOCATIONS, *daily("a"), *daily("b", since=30))
    found = in_service(allocations=jobs, nodes=listed)
    days = {node: found.served_s(("c", node)) / 86400 for node in ("a", "b", "spare")}
    assert days == {"a": 60, "b": 30, "spare": 60}


def test_a_listed_node_that_was_idle_for_a_while_was_in_service():
    """It ran four jobs from day 5 on: that the first five days saw none is chance."""
    jobs = rows(ALLOCATIONS, *daily("a"), *(job("b", at) for at in (5, 20, 33, 51)))
    found = in_service(allocations=jobs, nodes=rows(NODES, {"node": "a"}, {"node": "b"}))
    assert found.served_s(("c", "b")) / 86400 == 60


def test_an_inventory_with_a_date_decides():
    listed = rows(NODES, {"node": "a"}, {"node": "b", "in_service_from": day(10)})
    jobs = rows(ALLOCATIONS, *daily("a"), *daily("b", since=30))
    found = in_service(allocations=jobs, nodes=listed)
    assert found.served_s(("c", "b")) / 86400 == 50


@pytest.mark.parametrize("kind", ["events", "node_states"])
def test_any_trace_counts(kind: str):
    traces = {
        "events": rows(EVENTS, {"event_id": "e", "node": "b", "time": day(20), "check": "xid"}),
        "node_states": rows(NODE_STATES, state("b", "DOWN", 20, 21)),
    }
    jobs = rows(ALLOCATIONS, *daily("a"), *daily("b", since=30))
    found = in_service(allocations=jobs, **{kind: traces[kind]})
    assert found.served_s(("c", "b")) / 86400 == 40


def test_without_jobs_a_trace_is_trouble_and_says_nothing_of_the_time_before():
    found = in_service(
        nodes=rows(NODES, {"node": "a"}, {"node": "b"}),
        node_states=rows(NODE_STATES, state("a", "DOWN", 40, 41)),
    )
    assert found.node_s / 86400 == 120


def test_powered_down_nodes_are_out_of_service_and_down_ones_are_not():
    found = in_service(
        allocations=rows(ALLOCATIONS, *daily("a", "b")),
        node_states=rows(
            NODE_STATES,
            state("a", "POWERING_DOWN", 9.9, 10),
            state("a", "POWERED_DOWN", 10, 20),
            state("a", "DOWN", 12, 13),  # would not come up
            state("a", "FUTURE", 30, 31),
            state("b", "POWERED_DOWN", 50, None),  # an old dump: jobs ran afterwards
        ),
    )
    assert found.served_s(("c", "a")) / 86400 == pytest.approx(60 - 10.1 + 1 - 1)
    assert found.served_s(("c", "b")) / 86400 == 60
    assert found.pieces_s[:, 1].sum() - found.pieces_s[:, 0].sum() == pytest.approx(found.node_s)


def test_a_powered_down_node_that_no_job_ran_on_since_is_out_to_the_end():
    found = in_service(
        allocations=rows(ALLOCATIONS, *daily("a"), job("b", 0)),
        node_states=rows(NODE_STATES, state("b", "POWERED_DOWN", 1, None)),
    )
    assert found.served_s(("c", "b")) / 86400 == pytest.approx(1)
