"""Selections: the parts of a partition of the rows add up to the whole, and clip exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ettr.errors import UsageError
from ettr.facts.chosen import microseconds
from ettr.metrics.rates import failure_rates
from ettr.metrics.status import status_mix, totals
from ettr.selection import Selection
from ettr.tables import ALLOCATIONS, ATTEMPTS, FAILURES, TABLES
from fact_tables import facts_of
from synthetic.cluster import ORIGIN, ClusterPlan, SyntheticCluster, build_cluster
from synthetic.tables import every_table

_PLANTED = (
    'SELECT f.*, epoch_us(f.start) AS start_us, epoch_us(f."end") AS end_us, NULL AS kind, '
    'a."partition", a.account, a."user", a.qos '
    "FROM {} f JOIN {} a ON f.attempt_id = a.attempt_id"
)
PLAN = ClusterPlan(days=10.0, work_s=2 * 86400, slot_nodes=(6, 4), filler_nodes=3)


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    return build_cluster(PLAN, seed=3)


@pytest.fixture(scope="module")
def tables(cluster) -> dict[str, pa.Table]:
    return every_table(cluster.tables)


def measured(tables: dict[str, pa.Table], selection: Selection, end: datetime) -> dict[str, Any]:
    """What adds up: failures, attempts, and hours of nodes and GPUs."""
    logs = {name: rows for name, rows in tables.items() if name in TABLES}
    logs["planted"] = tables.get("failures", FAILURES.empty())
    facts = facts_of(logs, selection=selection, logs_end_us=microseconds(end))
    rows = facts.given("sources")("planted"), facts.table("attempts")
    planted = facts.keep("planted", _PLANTED.format(*rows), view=False)
    facts = facts.over(all_failures=planted, all_endings=planted)
    rate = failure_rates(facts).all_jobs
    ran = totals(facts)
    states = status_mix(facts).states
    return {
        "failures": rate.failures,
        "attempts": ran.attempts,
        "states": sum(state.attempts for state in states),
        "node_days": rate.node_days,
        "gpu_hours": ran.gpu_hours or 0.0,
        "state_gpu_hours": sum(state.gpu_hours for state in states),
    }


@pytest.fixture(scope="module")
def whole(cluster, tables) -> dict[str, Any]:
    return measured(tables, Selection(), cluster.end)


def summed(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def agree(parts: list[dict[str, Any]], whole: dict[str, Any]) -> None:
    both = summed(parts)
    for name, value in whole.items():
        if isinstance(value, int):
            assert both[name] == value, name
        else:
            assert both[name] == pytest.approx(value, rel=1e-9), name


@pytest.mark.slow
@settings(max_examples=4)
@given(cuts=st.lists(st.integers(0, 10 * 86400 * 10**6), min_size=1, max_size=4, unique=True))
def test_the_parts_of_any_calendar_add_up_to_the_whole(cluster, tables, whole, cuts):
    moments = [None, *(ORIGIN + timedelta(microseconds=cut) for cut in sorted(cuts)), None]
    parts = [
        measured(tables, Selection(since, until), cluster.end) for since, until in pairwise(moments)
    ]
    assert whole["failures"] == sum(cluster.truth.failures_all.values()) > 0
    agree(parts, whole)


def thirds(names: list[str]) -> list[tuple[str, ...]]:
    return [tuple(names[place::3]) for place in range(min(3, len(names)))]


@pytest.mark.slow
@pytest.mark.parametrize("column", ["partition", "user", "cluster"])
def test_the_parts_by_a_column_of_jobs_add_up_to_the_whole(cluster, tables, whole, column):
    names = sorted(set(cluster.tables["attempts"][column].to_pylist()))
    parts = [
        measured(tables, Selection(**{column: tuple(some)}), cluster.end) for some in thirds(names)
    ]
    agree(parts, whole)


@pytest.mark.slow
def test_the_parts_by_node_add_up_to_the_whole_but_for_failures_that_blame_none(
    cluster, tables, whole
):
    nodes = cluster.tables["nodes"]["node"].to_pylist()
    parts = [measured(tables, Selection(node=some), cluster.end) for some in thirds(nodes)]
    both = summed(parts)
    assert both["node_days"] == pytest.approx(whole["node_days"], rel=1e-9)
    assert both["gpu_hours"] == pytest.approx(whole["gpu_hours"], rel=1e-9)
    assert both["failures"] == whole["failures"]  # every planted one blames a node


HOUR = timedelta(hours=1)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def one_job(tables: dict[str, pa.Table], **times: Any) -> dict[str, pa.Table]:
    """The tables of one job on one node of 8 GPUs."""
    row = {
        "cluster": "c",
        "attempt_id": "c/1@x",
        "job_id": "1",
        "state": "COMPLETED",
        "submit": NOON - HOUR,
        "start": NOON,
        "n_nodes": 1,
        "n_gpus": 8,
        "node": "n1",
        "source": "test",
        "file_id": "f",
        "line": 1,
        **times,
    }
    made = {}
    for table in (ATTEMPTS, ALLOCATIONS):
        full = [{name: row.get(name) for name in table.names}]
        made[table.name] = pa.Table.from_pylist(full, schema=table.arrow_schema)
    return every_table(made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("since", "until", "hours", "attempts"),
    [
        (NOON, NOON + 4 * HOUR, 4.0, 0),  # its end is no part of the period
        (NOON, NOON + 4 * HOUR + timedelta(microseconds=1), 4.0, 1),
        (NOON + 3 * HOUR, None, 1.0, 1),
        (NOON + 4 * HOUR, None, 0.0, 1),
        (NOON + 5 * HOUR, None, 0.0, 0),
        (None, NOON, 0.0, 0),
        (NOON + HOUR, NOON + HOUR + timedelta(microseconds=36), 1e-8, 0),
    ],
)
def test_hours_are_cut_exactly_and_an_attempt_belongs_to_its_end(since, until, hours, attempts):
    t = one_job({}, end=NOON + 4 * HOUR, elapsed_s=4 * 3600.0)
    found = measured(t, Selection(since, until), NOON + 4 * HOUR)
    assert found["node_days"] * 24 == pytest.approx(hours, rel=1e-12)
    assert found["gpu_hours"] == pytest.approx(8 * hours, rel=1e-12)
    assert found["attempts"] == attempts


@pytest.mark.slow
def test_suspended_time_is_spread_over_the_attempt():
    t = one_job({}, end=NOON + 4 * HOUR, elapsed_s=2 * 3600.0, suspended_s=2 * 3600.0)
    assert measured(t, Selection(NOON + HOUR), NOON + 4 * HOUR)["gpu_hours"] == pytest.approx(12.0)


@pytest.mark.slow
def test_a_running_job_adds_its_hours_to_each_period_and_belongs_to_the_last():
    t = one_job({}, end=None, elapsed_s=4 * 3600.0, state="RUNNING")
    early = measured(t, Selection(None, NOON + HOUR), NOON + 4 * HOUR)
    late = measured(t, Selection(NOON + HOUR, None), NOON + 4 * HOUR)
    assert (early["gpu_hours"], early["attempts"]) == (pytest.approx(8.0), 0)
    assert (late["gpu_hours"], late["attempts"]) == (pytest.approx(24.0), 1)


def test_a_period_without_time_or_zone_is_refused():
    with pytest.raises(UsageError, match="holds no time"):
        Selection(NOON, NOON)
    with pytest.raises(UsageError, match="no zone"):
        Selection(since=datetime(2026, 5, 1))  # noqa: DTZ001
