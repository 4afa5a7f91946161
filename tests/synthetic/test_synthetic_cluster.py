"""From events and attempts alone, attribution and the metrics find what was planted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ettr.attribution.job_history import failure_rows
from ettr.facts.stored import stored_sql
from ettr.metrics.goodput import lost_goodput
from ettr.metrics.mttf import mttf_by_size
from ettr.metrics.rates import failure_rates
from ettr.metrics.stitching import preemption_links
from ettr.tables import FAILURES, INTERRUPTIONS
from fact_tables import attributed, facts_of
from synthetic.cluster import ClusterPlan, build_cluster
from synthetic.tables import every_table

pytestmark = pytest.mark.slow

PLAN = ClusterPlan()


@pytest.fixture(scope="module")
def cluster():
    return build_cluster(PLAN, seed=1)


@pytest.fixture(scope="module")
def tables(cluster):
    given = {k: v for k, v in cluster.tables.items() if k not in ("failures", "interruptions")}
    facts = attributed(given)
    failed = pa.Table.from_pylist(failure_rows(facts), schema=FAILURES.arrow_schema)
    ended = facts.engine.arrow(stored_sql(INTERRUPTIONS, facts.table("all_endings")), {})
    ends = {"failures": failed, "interruptions": ended}
    return every_table({**given, **ends})


def test_every_planted_failure_is_found_and_hardly_another(cluster, tables):
    found = {row["attempt_id"]: row for row in tables["failures"].to_pylist()}
    planted = cluster.truth.failed_attempts
    assert set(planted) <= set(found)
    # A job of a user that failed by itself minutes before a node's fault looks like its victim.
    assert len(set(found) - set(planted)) <= 0.05 * len(planted)


def test_symptoms_and_nodes_are_those_planted(cluster, tables):
    found = {row["attempt_id"]: row for row in tables["failures"].to_pylist()}
    planted = cluster.truth.failed_attempts
    told = {a: p for a, p in planted.items() if p[0] != "unattributed"}
    right = [a for a, (symptom, _) in told.items() if found[a]["symptom"] == symptom]
    blamed = [a for a, (_, node) in told.items() if found[a]["node"] == node]
    assert len(right) >= 0.95 * len(told)
    assert len(blamed) >= 0.95 * len(told)


def test_red_herrings_of_a_careless_user_are_no_failures(cluster, tables):
    names = {r["attempt_id"]: r["name"] for r in cluster.tables["attempts"].to_pylist()}
    found = tables["failures"]["attempt_id"].to_pylist()
    assert sum(names[attempt] == "array-of-errors" for attempt in found) <= 2


def test_rates_and_mttf_hold_what_was_planted(cluster, tables):
    facts = facts_of(tables)
    found = failure_rates(facts)
    planted = sum(PLAN.rate_per_node_day.values())
    assert found.large_jobs.per_1000_node_days.contains(planted * 1000)
    assert found.large_jobs.failures == sum(cluster.truth.failures_large.values())
    sizes = mttf_by_size(facts, found.best)
    for row in sizes.classes:
        if row.size.size_to in (256,):
            assert row.scheduler_mttf_h.contains(24 / (row.mean_nodes * planted))


def test_lost_goodput_comes_back_within_the_error_of_attribution(cluster, tables):
    facts = attributed(tables)
    found = lost_goodput(facts, preemption_links(facts))
    truth = cluster.truth
    first_h = sum(truth.first_order_gpu_s.values()) / 3600
    second_h = sum(truth.second_order_gpu_s.values()) / 3600
    assert found.first_order_gpu_hours == pytest.approx(first_h, rel=0.02)
    assert found.second_order_gpu_hours == pytest.approx(second_h, rel=1e-9)


def test_the_same_seed_builds_the_same_cluster():
    plan = ClusterPlan(days=2.0, slot_nodes=(4,), filler_nodes=4, noise_events=5, red_herrings=5)
    one, other = build_cluster(plan, seed=3), build_cluster(plan, seed=3)
    assert all(one.tables[name].equals(other.tables[name]) for name in one.tables)
    assert not build_cluster(plan, seed=4).tables["attempts"].equals(one.tables["attempts"])
