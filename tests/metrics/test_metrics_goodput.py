"""Both orders of lost goodput, and the rule for preemptions held against the log."""

from __future__ import annotations

import pytest

from ettr.errors import UsageError
from ettr.facts import Facts
from ettr.metrics.goodput import lost_goodput
from ettr.metrics.stitching import preemption_links, restarts_after_failure
from fact_tables import attributed
from synthetic.cluster import ClusterPlan, SyntheticCluster, build_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    return build_cluster(ClusterPlan(days=40.0, work_s=6 * 86400), seed=5)


@pytest.fixture(scope="module")
def facts(cluster) -> Facts:
    return attributed(cluster.tables)


def hours(by_symptom: dict[str, int]) -> dict[str, float]:
    return {name: pytest.approx(gpu_s / 3600) for name, gpu_s in by_symptom.items() if gpu_s}


def test_both_orders_come_back_exactly_from_the_log(cluster, facts):
    found = lost_goodput(facts, preemption_links(facts))
    truth = cluster.truth
    first = {r.symptom: r.first_order_gpu_hours for r in found.by_cause if r.first_order_gpu_hours}
    second = {
        r.symptom: r.second_order_gpu_hours for r in found.by_cause if r.second_order_gpu_hours
    }
    assert first == hours(truth.first_order_gpu_s)
    assert second == hours(truth.second_order_gpu_s)
    pairs = {(p.attempt_id, p.failed_job_id) for p in found.preemption_links.links}
    assert pairs == truth.second_order_pairs
    assert len(pairs) > 10
    assert found.preemption_links.named_by_log == truth.preemptions
    assert all(p.from_log for p in found.preemption_links.links)
    lost = sum(truth.second_order_gpu_s.values()) + sum(truth.first_order_gpu_s.values())
    share = sum(truth.second_order_gpu_s.values()) / lost
    assert found.second_order_share == pytest.approx(share)


def test_the_rule_finds_what_the_log_tells_and_its_error_is_measured(cluster, facts):
    error = preemption_links(facts).rule_error
    assert error.log_links == len(cluster.truth.second_order_pairs)
    assert error.recall.estimate == 1.0
    assert error.precision.estimate > 0.9
    assert error.precision.low < error.precision.estimate <= error.precision.high


def test_without_the_controllers_log_the_rule_stands_alone(cluster):
    kept = {name: table for name, table in cluster.tables.items() if name != "events"}
    silent = preemption_links(attributed(kept))
    assert silent.rule_error is None
    assert silent.named_by_log == 0
    pairs = {(p.attempt_id, p.failed_job_id) for p in silent.links}
    assert pairs >= cluster.truth.second_order_pairs
    assert not any(p.from_log for p in silent.links)


def test_losses_by_cause_and_by_size_add_up_to_the_same(facts):
    found = lost_goodput(facts, preemption_links(facts))
    whole = found.first_order_gpu_hours + found.second_order_gpu_hours
    assert sum(row.gpu_hours for row in found.by_cause) == pytest.approx(whole)
    assert sum(row.gpu_hours for row in found.by_size) == pytest.approx(whole)
    assert sum(row.preemptions for row in found.by_size) == len(found.preemption_links.links)


def test_the_cap_bounds_what_one_interruption_loses(cluster, facts):
    assert lost_goodput(facts, preemption_links(facts), cap_min=0).first_order_gpu_hours == 0
    full = lost_goodput(facts, preemption_links(facts), cap_min=1e9).first_order_gpu_hours
    rows = cluster.tables["failures"].to_pylist()
    assert full == pytest.approx(sum(r["elapsed_s"] * r["n_gpus"] for r in rows) / 3600)


def test_a_crash_loop_is_found_with_whom_it_drove_out():
    plan = ClusterPlan(
        days=3.0,
        work_s=30 * 86400,
        crash_loop=12,
        rate_per_node_day={"unattributed": 1e-6},
        in_job_restarts_per_node_day=0.0,
        filler_mean_s=20_000.0,
        urgent_per_day=0.0,
    )
    cluster = build_cluster(plan, seed=2)
    facts = attributed(cluster.tables)
    found = lost_goodput(facts, preemption_links(facts))
    (loop,) = found.crash_loops
    assert loop.failures == 12
    assert "fast" in loop.patterns
    of_job = [r for r in cluster.tables["attempts"].to_pylist() if r["job_id"] == loop.job_id]
    assert loop.run_hours == pytest.approx(sum(r["elapsed_s"] for r in of_job) / 3600)
    assert loop.n_gpus == 256
    assert loop.preemptions == len(cluster.truth.second_order_pairs) >= 8
    assert loop.symptoms == ("unattributed",)


def test_a_restart_is_the_next_attempt_of_the_failed_job(cluster, facts):
    found = restarts_after_failure(facts)
    assert len({restart.attempt_id for restart in found}) == len(found)
    assert {r.failed_attempt_id for r in found} <= set(cluster.truth.failed_attempts)


def test_an_impossible_cap_is_refused(facts):
    with pytest.raises(UsageError, match="cap_min -1 must be 0 or more"):
        lost_goodput(facts, preemption_links(facts), cap_min=-1)
