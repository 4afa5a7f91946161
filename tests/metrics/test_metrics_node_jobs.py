"""What ran on each node and how it ended, by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ettr.metrics.exposure import exposure
from ettr.metrics.node_jobs import NOTHING_RAN, NodeJobs, node_jobs
from ettr.tables import ALLOCATIONS, TABLES
from fact_tables import facts_of, put
from synthetic.cluster import ClusterPlan, build_cluster

ATTEMPTS = [
    {"attempt_id": "a", "n_nodes": 1, "state": "COMPLETED"},
    {"attempt_id": "b", "n_nodes": 1, "state": "NODE_FAIL"},
    {"attempt_id": "c", "n_nodes": 2, "state": "NODE_FAIL"},
    {"attempt_id": "d", "n_nodes": None, "state": "COMPLETED"},
]
SAID = {"cluster": "c1", "source": "t", "file_id": "t", "line": 1}
HELD = [
    ("a", "c1", "n1", 10.0, 100, 110),
    ("b", "c1", "n1", 20.0, 50, 70),
    ("c", "c1", "n1", 5.0, 60, 65),
    ("c", "c1", "n2", 5.0, 60, None),
    ("d", "c2", "n1", 0.0, 70, 70),
    # of no attempt: it does not count
    ("x", "c1", "n1", 1000.0, 1, 1001),
]


def at_second(second: int | None) -> datetime | None:
    return None if second is None else datetime.fromtimestamp(second, UTC)


def test_attempts_and_failures_of_each_node():
    attempts = [
        dict.fromkeys(TABLES["attempts"].names)
        | {**SAID, "job_id": "1", "submit": at_second(0)}
        | row
        for row in ATTEMPTS
    ]
    columns = ("attempt_id", "cluster", "node", "elapsed_s")
    held = [
        dict.fromkeys(ALLOCATIONS.names)
        | SAID
        | dict(zip(columns, row, strict=False))
        | {"start": at_second(row[4]), "end": at_second(row[5])}
        for row in HELD
    ]
    found = node_jobs(
        facts_of(
            {
                "attempts": pa.Table.from_pylist(attempts, TABLES["attempts"].arrow_schema),
                "allocations": pa.Table.from_pylist(held, ALLOCATIONS.arrow_schema),
            }
        )
    )
    assert found == {
        ("c1", "n1"): NodeJobs(35.0, 1, 1, 2, 50.0, 110.0, 35.0),
        ("c1", "n2"): NodeJobs(5.0, 1, 0, 0, 60.0, math.inf),
        ("c2", "n1"): NodeJobs(0.0, 0, 0, 0, 70.0, 70.0),
    }
    assert found["c1", "n1"].single_node_failure_rate == 0.5
    assert NOTHING_RAN.single_node_failure_rate is None


@pytest.mark.slow
def test_node_time_is_the_exposure():
    facts = facts_of(build_cluster(ClusterPlan(days=5.0), seed=4).tables)
    held = exposure(facts).by_node
    sums = held.group_by("cluster", "node").agg(held_s=held["elapsed_s"].sum()).to_pyarrow()
    expected = {(row["cluster"], row["node"]): row["held_s"] for row in sums.to_pylist()}
    found = node_jobs(facts)
    assert len(expected) > 3
    assert {node: one.elapsed_s for node, one in found.items()} == pytest.approx(expected)


@pytest.mark.parametrize("held_s", [3600.0, 0.0, None])
def test_a_row_of_another_attempt_is_found_however_short(held_s):
    tables = build_cluster(ClusterPlan(days=2.0), seed=4).tables
    held = tables["allocations"].to_pylist()
    held.append(held[0] | {"attempt_id": "of no attempt", "elapsed_s": held_s})
    facts = facts_of(tables)
    loose = pa.schema([(one.name, one.type) for one in tables["allocations"].schema])
    put(facts, "allocations", pa.Table.from_pylist(held, schema=loose))
    assert not exposure(facts).none_foreign
