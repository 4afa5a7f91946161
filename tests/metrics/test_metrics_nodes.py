"""Outages, time to repair and fault rates: intervals made by hand, and two real traces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from ettr.facts import Facts
from ettr.metrics.availability import Availability, availability, clusters_of, service
from ettr.metrics.faults import fleet_faults, recorded_faults
from ettr.metrics.instants import Period, observed_period
from ettr.metrics.outages import outages
from ettr.metrics.survival import durations
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.sources.slurm.events import node_state
from ettr.store import open_store
from ettr.tables import ALLOCATIONS, NODE_STATES, NODES, TABLES
from ettr.taxonomy import load_taxonomy
from fact_tables import facts_of
from shared_data import shared
from synthetic.cluster import ClusterPlan, build_cluster

START = datetime(2025, 1, 1, tzinfo=UTC)
DAY = Period(START, START + timedelta(hours=24))
TAXONOMY = load_taxonomy()
SAID = {"cluster": "c", "source": "t", "file_id": "t", "line": 1}


def hour(value: float | None) -> datetime | None:
    return None if value is None else START + timedelta(hours=value)


def states(*rows: tuple[Any, ...]) -> pa.Table:
    named = [
        {
            **SAID,
            "node": node,
            "state": state,
            "reason": reason,
            "start": hour(low),
            "end": hour(high),
        }
        for node, state, reason, low, high in rows
    ]
    full = [{name: row.get(name) for name in NODE_STATES.names} for row in named]
    return pa.Table.from_pylist(full, schema=NODE_STATES.arrow_schema)


def fleet(*names: str) -> pa.Table:
    rows = [
        {name: {**SAID, "node": node, "n_gpus": 8}.get(name) for name in NODES.names}
        for node in names
    ]
    return pa.Table.from_pylist(rows, schema=NODES.arrow_schema)


def held(*rows: tuple[str, float, float]) -> pa.Table:
    named = [
        {
            **SAID,
            "attempt_id": f"a{i}",
            "node": node,
            "start": hour(low),
            "end": hour(high),
            "elapsed_s": (high - low) * 3600.0,
        }
        for i, (node, low, high) in enumerate(rows)
    ]
    full = [{name: row.get(name) for name in ALLOCATIONS.names} for row in named]
    return pa.Table.from_pylist(full, schema=ALLOCATIONS.arrow_schema)


def measured(node_states: pa.Table, nodes: pa.Table, allocations: pa.Table | None = None):
    tables = {"node_states": node_states, "nodes": nodes}
    return of_facts(facts_of(tables | ({"allocations": allocations} if allocations else {})), DAY)


def of_facts(facts: Facts, period: Period) -> Availability:
    fleet, down = service(facts, period), outages(facts, period, TAXONOMY)
    return availability(facts, period, fleet, down, clusters_of(facts, "node_states"))


def test_states_that_overlap_or_touch_are_one_outage():
    facts = facts_of(
        {
            "node_states": states(
                ("a", "DOWN", "Not responding", 1, 3),
                ("a", "DRAIN", "NHC: check_ib", 2, 5),
                ("a", "DOWN", None, 5, 6),
                ("a", "DRAIN", "bad disk", 8, 9),
                ("b", "IDLE", None, 0, 24),
            )
        }
    )
    found = outages(facts, DAY, TAXONOMY)
    assert [(o.node, o.hours) for o in found] == [("a", 5.0), ("a", 1.0)]
    assert found[0].reason_class == "not-responding"


def test_what_a_person_says_later_of_a_silent_node_names_the_outage():
    facts = facts_of(
        {
            "node_states": states(
                ("a", "DOWN", "Not responding", 1, 2),
                ("a", "DRAIN", "bad DIMM B2", 2, 9),
                ("b", "DOWN", "Not responding", 1, 2),
            )
        }
    )
    (of_a, of_b) = outages(facts, DAY, TAXONOMY)
    assert of_a.reason_class == TAXONOMY.classify_reason("bad DIMM B2").reason_class
    assert of_b.reason_class == "not-responding"


@pytest.mark.parametrize("spelled", ["INVAL", "inval*", "INVALID", "IDLE+INVALID_REG"])
def test_a_node_that_registers_with_less_than_configured_is_out(spelled: str):
    state, _ = node_state(spelled)
    reason = "gres/gpu count reported lower than configured (7 < 8)"
    facts = facts_of({"node_states": states(("a", state, reason, 10, 20))})
    (found,) = outages(facts, DAY, TAXONOMY)
    assert (found.hours, found.is_planned, found.reason_class) == (10.0, False, "gres-count")


def test_every_node_hour_is_available_or_in_one_kind_of_outage():
    found = measured(
        states(
            ("a", "DOWN", "x", 1, 3), ("b", "MAINT", "upgrade", 0, 4), ("c", "DOWN", "y", 20, None)
        ),
        fleet("a", "b", "c", "d"),
    )
    assert found.in_service_node_hours == 96.0
    assert (found.unplanned_node_hours, found.planned_node_hours) == (6.0, 4.0)
    parts = found.available_node_hours + found.unplanned_node_hours + found.planned_node_hours
    assert parts == found.measured_node_hours == found.in_service_node_hours
    assert sum(row.node_hours for row in found.by_reason) == 10.0
    assert found.lost_gpu_hours == 80.0
    assert found.repair_h.still_open == 1


def test_a_draining_node_is_not_lost_while_its_jobs_run():
    found = measured(
        states(("a", "DRAIN", "NHC: check_ib", 10, 16)),
        fleet("a"),
        held(("a", 2, 12), ("a", 11, 13), ("a", 16, 20)),
    )
    assert found.draining_with_jobs_node_hours == pytest.approx(3.0)
    assert found.lost_node_hours == pytest.approx(3.0)
    assert found.lost_gpu_hours == pytest.approx(24.0)


def test_a_node_that_the_inventory_lacks_still_counts():
    found = measured(states(("z", "DOWN", "x", 1, 2)), fleet("a"))
    assert found.nodes == 2
    assert found.nodes_without_gpu_count == 1


def test_without_node_states_outages_are_unknown():
    """No outage was seen because none could be: 0 would read as a perfect fleet."""
    found = measured(states(), fleet("a"))
    assert found.down_share is None
    assert found.unplanned_node_hours is None
    assert (found.measured_node_hours, found.available_node_hours) == (None, None)
    assert found.outages_per_1000_node_days is None
    assert found.in_service_node_hours > 0
    assert found.repair_h.count == 0
    assert found.repair_h.median_h.estimate is None


@pytest.mark.slow
def test_repairs_of_a_known_cluster_come_back():
    plan = ClusterPlan(filler_mean_s=6 * 3600.0)
    cluster = build_cluster(plan, seed=11)
    attempts = facts_of({"attempts": cluster.tables["attempts"]})
    period = Period(observed_period(attempts).start, cluster.end)
    found = of_facts(facts_of(cluster.tables), period)
    truth = cluster.truth
    assert found.repair_h.count == len(truth.repairs_s) + len(truth.open_repairs_s)
    assert found.repair_h.still_open == len(truth.open_repairs_s)
    lost_h = (sum(truth.repairs_s) + sum(truth.open_repairs_s)) / 3600
    assert found.unplanned_node_hours == pytest.approx(lost_h)
    assert found.draining_with_jobs_node_hours == pytest.approx(0.0, abs=1e-6)
    assert found.repair_h.mean_h.contains((plan.repair_mean_s + 600) / 3600)


def test_without_open_ones_mean_and_quantiles_are_those_of_the_sample():
    rng = np.random.default_rng(3)
    hours = rng.exponential(5.0, 401)
    found = durations(hours, np.ones(401, dtype=bool))
    assert found.mean_h.estimate == pytest.approx(hours.mean())
    assert found.median_h.estimate == pytest.approx(np.median(hours))
    assert found.median_h.low < found.median_h.estimate < found.median_h.high


def test_open_durations_agree_with_lifelines():
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(4)
    true, seen = rng.exponential(5.0, 300), rng.uniform(0, 12.0, 300)
    hours, over = np.minimum(true, seen), true <= seen
    found = durations(hours, over)
    oracle = lifelines.KaplanMeierFitter(alpha=0.1).fit(hours, over)
    assert found.median_h.estimate == pytest.approx(oracle.median_survival_time_)


@pytest.mark.parametrize("n", [1, 4, 5, 20, 60, 128, 129, 1000])
def test_without_open_ones_ends_of_quantiles_are_order_statistics(n: int):
    """SciPy's two-sided test of a quantile inverted, each end at 5 %."""
    hours = np.random.default_rng(n).exponential(5.0, n)
    for one in durations(hours, np.ones(n, dtype=bool)).quantiles:
        oracle = stats.quantile_test(hours, p=one.level).confidence_interval(0.90)
        low, high = oracle.low, oracle.high
        expected = (0.0 if np.isnan(low) else low, np.inf if np.isnan(high) else high)
        assert (one.hours.low, one.hours.high) == pytest.approx(expected), one.level


def test_the_order_of_durations_changes_no_digit():
    rng = np.random.default_rng(8)
    # rounded, so that some that are over and some that are open last as long
    hours, over = np.round(rng.lognormal(2.0, 1.5, 700), 1), rng.random(700) < 0.8
    found = durations(hours, over)
    for _ in range(20):
        other = rng.permutation(700)
        assert durations(hours[other], over[other]) == found


def test_a_quantile_that_few_durations_cannot_bound_has_no_upper_end():
    """All of ten lie below the 90 % quantile with probability .35."""
    found = durations(np.arange(1.0, 11.0), np.ones(10, dtype=bool))
    assert [one.hours.high for one in found.quantiles if one.level >= 0.9] == [np.inf] * 2
    one = durations(np.array([2.0]), np.array([True])).median_h
    assert (one.estimate, one.low, one.high) == (2.0, 0.0, np.inf)


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 12])
def test_intervals_of_quantiles_hold_for_few_durations_of_which_some_are_open(n: int):
    """Lognormal repairs, a third of them open; 2 standard errors below 90 %."""
    rng = np.random.default_rng(100 + n)
    held = np.zeros(5)
    for _ in range(400):
        true, seen = np.exp(rng.standard_normal(n)), rng.exponential(3.0, n)
        quantiles = durations(np.minimum(true, seen), true <= seen).quantiles
        truth = np.exp(stats.norm.ppf([one.level for one in quantiles]))
        held += [one.hours.contains(at) for one, at in zip(quantiles, truth, strict=True)]
    assert (held >= 400 * 0.87).all()


@pytest.mark.slow
def test_intervals_of_mean_and_median_hold_under_censoring():
    rng = np.random.default_rng(5)
    held = np.zeros(2)
    for _ in range(400):
        true, seen = rng.exponential(5.0, 80), rng.uniform(0, 40.0, 80)
        found = durations(np.minimum(true, seen), true <= seen)
        held += [found.mean_h.contains(5.0), found.median_h.contains(5.0 * np.log(2))]
    assert (held >= 400 * 0.86).all()


@pytest.mark.slow
def test_the_interval_of_a_mean_holds_for_few_and_skewed_durations():
    """Lognormal; Student's alone holds .81 and .83 of them, the normal one .71 and .80."""
    rng = np.random.default_rng(6)
    for n, sigma in ((5, 0.8), (20, 1.0)):
        means = [
            durations(
                np.exp(sigma * rng.standard_normal(n) - sigma**2 / 2), np.ones(n, dtype=bool)
            ).mean_h
            for _ in range(500)
        ]
        held = sum(one.contains(1.0) for one in means)
        above = sum(one.low > 1.0 for one in means)
        assert held >= 500 * 0.835, n
        assert above <= 500 * 0.05, n


def test_the_interval_of_the_mean_of_two_durations_is_students():
    """6.3138 = t(0.95, 1 degree), from any table; two values have no skewness."""
    found = durations(np.array([9.0, 11.0]), np.ones(2, dtype=bool)).mean_h
    assert (found.estimate, found.low) == (10.0, pytest.approx(10 - 6.3138, abs=1e-3))
    assert found.high == pytest.approx(10 + 6.3138, abs=1e-3)


def test_one_duration_that_has_ended_does_not_say_what_the_mean_is_at_most():
    found = durations(np.array([6.0, 2.0]), np.array([True, False])).mean_h
    assert (found.estimate, found.low, found.high) == (6.0, 0.0, np.inf)


def test_all_open_gives_a_lower_bound_and_no_estimate():
    found = durations(np.array([1.0, 4.0]), np.array([False, False]))
    assert (found.mean_h.estimate, found.median_h.low) == (None, 4.0)


@pytest.mark.slow
def test_infinitehbd_comes_back(tmp_path: Path):
    trace = shared("data/traces/infinitehbd/fault_trace.json.zst")
    with open_store(tmp_path / "store", create=True) as store:
        ingest_file(store, trace, ReadOptions(n_nodes=400))
        faults, nodes = fleet_of(store)
    assert round(faults.in_service.per_1000_node_days.estimate, 2) == 4.18
    hardware = next(c for c in faults.by_category if c.category.startswith("Hardware"))
    # 298 faults in 400 x 348.98 node-days: 2.1348, printed as 2.14 beside the trace
    assert hardware.in_service.per_1000_node_days.estimate == pytest.approx(2.14, abs=0.006)
    assert round(faults.node_mtbf_days.estimate) == 239
    assert round(100 * nodes.down_share, 2) == 2.31
    assert round(faults.gap_variation, 2) == 1.76
    assert round(faults.node_dispersion, 2) == 2.58


@pytest.mark.slow
def test_lanl_comes_back(tmp_path: Path):
    trace = shared("data/traces/lanl/LA-UR-05-7318-failure-data-1996-2005.csv.zst")
    with open_store(tmp_path / "store", create=True) as store:
        ingest_file(store, trace, ReadOptions(timezone="America/Denver"))
        faults, _ = fleet_of(store)
    shares = {c.category: round(100 * c.share.estimate, 1) for c in faults.by_category}
    assert shares["Hardware"] == 60.4
    assert shares["Software"] == 22.6
    assert round(faults.repair_h.mean_h.estimate * 60) == 352
    assert round(faults.repair_h.median_h.estimate * 60) == 59


def fleet_of(store):
    facts = facts_of({name: store.rows(name) for name in TABLES})
    period = observed_period(facts)
    faults = fleet_faults(recorded_faults(facts, period), service(facts, period))
    return faults, of_facts(facts, period)


def test_a_log_without_faults_has_no_fault_rates():
    facts = facts_of({"nodes": fleet("a")})
    assert fleet_faults(recorded_faults(facts, DAY), service(facts, DAY)) is None
