"""Failure rates, their trend and MTTF by size against a cluster whose truth is known."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate, mean_time_interval, rate_interval
from ettr.estimates.spread import Spread
from ettr.metrics.instants import observed_period, to_seconds
from ettr.metrics.mttf import mttf_by_size, project, restarts_within_attempts
from ettr.metrics.rates import estimated_rate, failure_rates, window_rate
from ettr.metrics.trend import cumulative_node_days, rate_trend
from ettr.models.dispersion import FailureTimeline, spread_over_time
from fact_tables import facts_of, put
from synthetic.cluster import ClusterPlan, SyntheticCluster, build_cluster
from synthetic.tables import every_table

pytestmark = pytest.mark.slow

PLAN = ClusterPlan(filler_mean_s=6 * 3600.0)


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    return build_cluster(PLAN, seed=1)


@pytest.fixture(scope="module")
def tables(cluster) -> dict[str, pa.Table]:
    return every_table(cluster.tables)


def test_counts_and_exposure_come_back_exactly(cluster, tables):
    found = failure_rates(facts_of(tables))
    truth = cluster.truth
    assert found.all_jobs.failures == sum(truth.failures_all.values())
    assert found.large_jobs.failures == sum(truth.failures_large.values())
    assert found.all_jobs.node_days == pytest.approx(truth.node_s_all / 86400)
    assert found.large_jobs.node_days == pytest.approx(truth.node_s_large / 86400)
    by_symptom = {row.symptom: row for row in found.by_symptom}
    assert {name: row.all_jobs.failures for name, row in by_symptom.items()} == truth.failures_all
    assert found.best is found.large_jobs


def test_planted_rates_lie_in_their_intervals(tables):
    found = failure_rates(facts_of(tables), confidence=0.99)
    planted = sum(PLAN.rate_per_node_day.values()) * 1000
    assert found.large_jobs.per_1000_node_days.contains(planted)
    for row in found.by_symptom:
        truth = PLAN.rate_per_node_day[row.symptom] * 1000
        assert row.large_jobs.per_1000_node_days.contains(truth), row.symptom


def test_intervals_of_the_rate_hold_their_confidence_over_many_clusters():
    planted = sum(PLAN.rate_per_node_day.values()) * 1000
    # the rate is that of large jobs: what fills other nodes, and steps, take time alone
    few = {"filler_nodes": 1, "noise_events": 0, "red_herrings": 0, "step_s": 2400}
    small = ClusterPlan(days=12.0, work_s=3 * 86400, **few)
    held = 0
    for seed in range(60):
        cluster = build_cluster(small, seed=seed)
        truth = cluster.truth
        rate = estimated_rate(sum(truth.failures_large.values()), truth.node_s_large / 86400)
        if seed < 6:  # what is counted is what is true
            found = failure_rates(facts_of(every_table(cluster.tables))).large_jobs
            assert (found.failures, found.node_days) == (
                rate.failures,
                pytest.approx(rate.node_days),
            )
            one, other = found.per_1000_node_days, rate.per_1000_node_days
            assert (one.low, one.high) == pytest.approx((other.low, other.high))
        held += rate.per_1000_node_days.contains(planted)
    assert held >= 49  # 90 % of 60 is 54; fewer than 49 has a chance of 1.5 %


def test_no_failure_leaves_an_upper_bound_and_no_exposure_none():
    none = estimated_rate(0, 1000.0)
    assert none.per_1000_node_days.estimate == 0.0
    assert none.per_1000_node_days.high == pytest.approx(2.996, abs=1e-3)
    assert estimated_rate(0, 0.0).per_1000_node_days.high == math.inf
    assert rate_interval(0, 0.0).estimate is None
    assert mean_time_interval(0, 100.0).high == math.inf
    assert mean_time_interval(0, 100.0).low == pytest.approx(33.38, abs=0.01)


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, "1.80"), (131_072, "0.23")])
def test_the_papers_projections_come_back(gpus, hours):
    rsc1 = estimated_rate(65, 10_000.0)  # 6.50 per 1,000 node-days
    assert f"{project(rsc1, gpus / 8).estimate:.2f}" == hours


def test_mttf_by_size_counts_what_failed_and_what_ran(cluster, tables):
    rates = failure_rates(facts_of(tables))
    found = mttf_by_size(facts_of(tables), rates.best)
    assert sum(row.failures for row in found.classes) == sum(cluster.truth.failures_all.values())
    assert sum(row.node_days for row in found.classes) == pytest.approx(
        cluster.truth.node_s_all / 86400
    )
    assert found.gpus_per_node == 8.0
    large = next(row for row in found.classes if row.size.size_to == 256)
    planted_h = 24 / (large.mean_nodes * sum(PLAN.rate_per_node_day.values()))
    assert large.scheduler_mttf_h.contains(planted_h)
    assert large.projected_mttf_h.contains(planted_h)
    assert next(p for p in found.line if p.size == 16_384).nodes == 2048


def test_restarts_within_jobs_shorten_the_time_between_interruptions_only(cluster, tables):
    rates = failure_rates(facts_of(tables))
    found = mttf_by_size(facts_of(tables), rates.best)
    planted = sum(run.in_job_restarts for run in cluster.truth.runs)
    assert sum(row.in_job_restarts or 0 for row in found.classes) == planted
    large = next(row for row in found.classes if row.size.size_to == 256)
    assert large.interruption_mttf_h.estimate < large.scheduler_mttf_h.estimate
    both = sum(PLAN.rate_per_node_day.values()) + PLAN.in_job_restarts_per_node_day
    assert large.interruption_mttf_h.contains(24 / (large.mean_nodes * both))
    silent = facts_of({"attempts": cluster.tables["attempts"]})
    assert restarts_within_attempts(silent) == []


def test_the_trend_adds_up_to_the_whole(cluster, tables):
    period = observed_period(facts_of(tables))
    found = rate_trend(facts_of(tables), period, window_days=365.0)
    last = found.points[-1]
    assert last.failures == sum(cluster.truth.failures_all.values())
    assert last.node_days == pytest.approx(cluster.truth.node_s_all / 86400, rel=1e-9)
    assert sum(part.failures for part in last.by_symptom) == last.failures


def test_windows_side_by_side_cut_the_exposure_without_overlap(cluster, tables):
    period = observed_period(facts_of({"attempts": tables["attempts"]}))
    found = rate_trend(
        facts_of(tables),
        period,
        window_days=1.0,
        step_days=1.0,
        above_gpus=128,
    )
    assert sum(p.node_days for p in found.points) == pytest.approx(
        cluster.truth.node_s_large / 86400
    )
    assert sum(p.failures for p in found.points) == sum(cluster.truth.failures_large.values())
    assert max(p.node_days for p in found.points) <= sum(PLAN.slot_nodes) + 1e-9


def test_exposure_before_an_edge_equals_the_sum_of_clipped_attempts(cluster, tables):
    rows = cluster.tables["attempts"].to_pylist()
    origin = to_seconds(min(row["start"] for row in rows))
    edges = origin + 7 * 3600.0 * np.arange(0, 210)
    found = cumulative_node_days(facts_of(tables), edges)
    end_s = to_seconds(cluster.end)
    spans = [
        (to_seconds(r["start"]), to_seconds(r["end"]) if r["end"] else end_s, r["n_nodes"])
        for r in rows
    ]
    begin, until, nodes = (np.array(part, dtype=float) for part in zip(*spans, strict=True))
    for place in (0, 1, 17, 100, 209):
        clipped = np.clip(edges[place], begin, until) - begin
        assert found[place] == pytest.approx((clipped * nodes).sum() / 86400, rel=1e-9, abs=1e-9)


def test_a_check_that_appears_late_is_marked_as_new(tables):
    period = observed_period(facts_of({"attempts": tables["attempts"]}))
    found = rate_trend(facts_of(tables), period)
    markers = {marker.check: marker for marker in found.markers}
    assert set(markers) == {"xid", "slurmctld", "check ibstat", "check mountpoint"}
    assert not markers["xid"].is_new
    assert markers["xid"].first_seen >= datetime(2025, 3, 1, tzinfo=UTC)


def test_a_window_without_length_is_refused(tables):
    period = observed_period(facts_of({"attempts": tables["attempts"]}))
    with pytest.raises(UsageError, match="window_days 0 and step_days"):
        rate_trend(facts_of(tables), period, window_days=0)


def burst_times(rng: np.random.Generator, per_day: float, days: float) -> np.ndarray:
    """Fleet-wide bursts of four in the mean, each within a day, at a constant rate."""
    parents = rng.uniform(0.0, days, rng.poisson(per_day * days / 4.0))
    times = np.repeat(parents, rng.geometric(0.25, parents.size))
    times = times + rng.uniform(0.0, 1.0, times.size)
    return times[times < days]


@pytest.mark.parametrize("days", [90.0, 360.0])
def test_a_window_of_the_trend_holds_whole_bursts(days: float):
    """The interval of each month holds the rate, however many months the log has."""
    rng, nodes, per_day = np.random.default_rng(1), 500, 1.0
    held = tried = 0
    for _ in range(40):
        times = burst_times(rng, per_day, days)
        edges = np.linspace(0.0, days, int(2 * days) + 1)
        spread = spread_over_time(FailureTimeline(times, edges, edges * nodes))
        for end in np.arange(30.0, days + 1.0, 30.0):
            inside = int(((times > end - 30.0) & (times <= end)).sum())
            found = window_rate(inside, 30.0 * nodes, times.size, spread=spread)
            interval = found.per_1000_node_days
            held += interval.low <= 1000.0 * per_day / nodes <= interval.high
            tried += 1
    assert held > 0.88 * tried


def test_of_what_nodes_are_prone_to_a_window_has_a_part():
    spread = Spread("nodes", 400, 100, None, 9.0, 80.0, 1e-6)
    part, whole = (
        window_rate(40, 1000.0, total, spread=spread).per_1000_node_days for total in (400, 40)
    )
    assert part.high - part.low < 0.7 * (whole.high - whole.low)


def test_the_trend_has_that_interval(cluster, tables):
    spread = Spread("time", 400, 100, 7.0, 9.0, 80.0, 1e-6)
    period = observed_period(facts_of(tables))
    found = rate_trend(facts_of(tables), period, spread=spread)
    last = found.points[-1]
    assert last.failures < sum(point.failures for point in found.points)
    wanted = estimated_rate(last.failures, last.node_days, 0.9, spread)
    assert last.per_1000_node_days == wanted.per_1000_node_days


def test_a_size_that_ran_for_a_month_has_a_share_of_what_failed_in_that_month():
    """Ten failures of each size, those of 64 GPUs within the first tenth of the time."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {
            "attempt_id": f"{gpus}/{n}",
            "n_gpus": gpus,
            "n_nodes": gpus // 8,
            "start": at + timedelta(days=n * days),
            "end": at + timedelta(days=n * days + 0.5),
            "elapsed_s": 43_200.0,
            "node_s": 43_200.0 * gpus / 8,
            "belongs": True,
            "symptom": "node-hardware",
            "confidence": "named",
        }
        for gpus, days in ((64, 1.0), (8, 10.0))
        for n in range(10)
    ]
    spread = Spread("time", 20, 90, 1.0, 9.0, 80.0, 1e-6)
    facts = facts_of()
    for name in ("exposure", "failures"):
        put(facts, name, pa.Table.from_pylist(rows))
    found = mttf_by_size(facts, estimated_rate(20, 45.0), spread=spread)
    by_size = {row.size.size_to: row for row in found.classes}
    # the other size failed once within the days in which 64 GPUs ran, and on all of its own
    for gpus, share in ((64, 10 / 11), (8, 10 / 20)):
        wanted = spread.thinned(share).interval(FailureRate(10, 120.0)).inverse()
        got = by_size[gpus].scheduler_mttf_h
        assert (got.low, got.high) == pytest.approx((wanted.low, wanted.high))
