"""What ran on each node and how it ended, by hand."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ettr.metrics.exposure import NOTHING_RAN, NodeJobs, node_jobs
from ettr.tables import ALLOCATIONS, TABLES
from fact_tables import facts_of
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
    expected: dict[tuple[str, str], float] = defaultdict(float)
    for row in facts.rows("exposure_nodes"):
        expected[row["cluster"], row["node"]] += row["elapsed_s"]
    found = node_jobs(facts)
    assert len(expected) > 3
    assert {node: one.elapsed_s for node, one in found.items()} == pytest.approx(expected)
