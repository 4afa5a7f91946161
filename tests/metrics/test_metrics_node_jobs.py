"""What ran on each node and how it ended, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import ibis
import pytest

from ettr.metrics.exposure import exposure
from ettr.metrics.node_jobs import NOTHING_RAN, NodeJobs, node_jobs
from synthetic.cluster import ClusterPlan, build_cluster
from synthetic.tables import on_duckdb

ATTEMPTS = [
    {"attempt_id": "a", "n_nodes": 1, "state": "COMPLETED"},
    {"attempt_id": "b", "n_nodes": 1, "state": "NODE_FAIL"},
    {"attempt_id": "c", "n_nodes": 2, "state": "NODE_FAIL"},
    {"attempt_id": "d", "n_nodes": None, "state": None},
]
HELD = [
    ("a", "c1", "n1", 10.0, 100, 110),
    ("b", "c1", "n1", 20.0, 50, 70),
    ("c", "c1", "n1", 5.0, 60, 65),
    ("c", "c1", "n2", 5.0, 60, None),
    ("d", "c2", "n1", None, None, None),
    # of no attempt, and of no node: neither counts
    ("x", "c1", "n1", 1000.0, 1, 1001),
    ("a", "c1", None, 1000.0, 1, 1001),
]


def at_second(second: int | None) -> datetime | None:
    return None if second is None else datetime.fromtimestamp(second, UTC)


def test_attempts_and_failures_of_each_node():
    moment = "timestamp('UTC', 6)"
    schema = {
        **{"attempt_id": "string", "cluster": "string", "node": "string"},
        **{"elapsed_s": "float64", "start": moment, "end": moment},
    }
    rows = [dict(zip(schema, (*row[:4], *map(at_second, row[4:])), strict=True)) for row in HELD]
    found = node_jobs(
        ibis.memtable(
            ATTEMPTS, schema={"attempt_id": "string", "n_nodes": "int64", "state": "string"}
        ),
        ibis.memtable(rows, schema=schema),
    )
    assert found == {
        ("c1", "n1"): NodeJobs(35.0, 1, 1, 2, 50.0, 110.0, 35.0),
        ("c1", "n2"): NodeJobs(5.0, 1, 0, 0, 60.0, math.inf),
        ("c2", "n1"): NodeJobs(0.0, 0, 0, 0),
    }
    assert found["c1", "n1"].single_node_failure_rate == 0.5
    assert NOTHING_RAN.single_node_failure_rate is None


@pytest.mark.slow
def test_node_time_is_the_exposure():
    tables = on_duckdb(build_cluster(ClusterPlan(days=5.0), seed=4).tables)
    held = exposure(tables["attempts"], tables["allocations"]).by_node
    sums = held.group_by("cluster", "node").agg(held_s=held["elapsed_s"].sum()).to_pyarrow()
    expected = {(row["cluster"], row["node"]): row["held_s"] for row in sums.to_pylist()}
    found = node_jobs(tables["attempts"], tables["allocations"])
    assert len(expected) > 3
    assert {node: one.elapsed_s for node, one in found.items()} == pytest.approx(expected)


@pytest.mark.slow
def test_without_rows_of_other_attempts_the_join_with_all_is_spared():
    tables = on_duckdb(build_cluster(ClusterPlan(days=5.0), seed=4).tables)
    attempts, held = tables["attempts"], tables["allocations"]
    assert exposure(attempts, held).none_foreign
    found = node_jobs(attempts, held, none_foreign=True)
    joined = node_jobs(attempts, held)
    assert found.keys() == joined.keys()
    for node, one in joined.items():
        # sums of floats depend on the order in which an engine adds them
        assert found[node].elapsed_s == pytest.approx(one.elapsed_s)
        assert replace(found[node], elapsed_s=one.elapsed_s) == one


@pytest.mark.parametrize("held_s", [3600.0, 0.0, None])
def test_a_row_of_another_attempt_is_found_however_short(held_s):
    tables = on_duckdb(build_cluster(ClusterPlan(days=2.0), seed=4).tables)
    attempts = tables["attempts"]
    first = tables["allocations"].limit(1)
    foreign = first.mutate(
        attempt_id=ibis.literal("of no attempt"), elapsed_s=ibis.literal(held_s, "float64")
    )
    held = ibis.union(tables["allocations"].cast(foreign.schema()), foreign)
    assert not exposure(attempts, held).none_foreign
