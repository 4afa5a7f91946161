"""A store that lacks a table, or all of them, has results that say so and never an error."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from ettr.metrics.availability import availability, clusters_of, service
from ettr.metrics.faults import fleet_faults, recorded_faults
from ettr.metrics.goodput import lost_goodput
from ettr.metrics.instants import Period, observed_period
from ettr.metrics.mttf import mttf_by_size
from ettr.metrics.outages import outages
from ettr.metrics.rates import failure_rates
from ettr.metrics.runs import job_runs
from ettr.metrics.sizes import main_size_unit, size_mix
from ettr.metrics.status import status_mix, totals
from ettr.metrics.stitching import preemption_links
from ettr.metrics.trend import rate_trend
from ettr.report.rows import plain
from ettr.tables import ATTEMPTS
from ettr.taxonomy import load_taxonomy
from fact_tables import attributed, facts_of
from synthetic.cluster import ClusterPlan, build_cluster

pytestmark = pytest.mark.slow

PLAN = ClusterPlan(days=3.0, work_s=86400, slot_nodes=(8,), filler_nodes=6, noise_events=9)
EVERY = "every table"
ANY = Period(datetime(2025, 3, 1, tzinfo=UTC), datetime(2025, 3, 4, tzinfo=UTC))


@pytest.fixture(scope="module")
def made():
    return build_cluster(PLAN, seed=2).tables


def everything(t):
    facts = attributed(t)
    rates = failure_rates(facts)
    fleet, down = service(facts, ANY), outages(facts, ANY, load_taxonomy())
    return {
        "totals": totals(facts),
        "status": status_mix(facts),
        "sizes": size_mix(facts, main_size_unit(facts)),
        "rates": rates,
        "trend": rate_trend(facts, ANY),
        "mttf": mttf_by_size(facts, rates.best),
        "runs": job_runs(facts, min_scheduled_h=0.0),
        "goodput": lost_goodput(facts, preemption_links(facts)),
        "nodes": availability(facts, ANY, fleet, down, clusters_of(facts, "node_states")),
        "faults": fleet_faults(recorded_faults(facts, ANY), fleet),
    }


@pytest.mark.parametrize(
    "missing",
    [
        (),
        ("progress",),
        ("events",),
        ("failures",),
        ("nodes",),
        ("allocations", "node_states"),
        ("attempts", "allocations", "failures", "progress"),
        (EVERY,),
    ],
)
def test_a_missing_table_is_no_error_and_results_are_plain_json(made, missing):
    tables = {} if EVERY in missing else {k: v for k, v in made.items() if k not in missing}
    for name, result in everything(tables).items():
        if result is not None:
            assert json.loads(json.dumps(plain(result), allow_nan=False)), name


def test_nothing_was_observed_in_an_empty_store():
    assert observed_period(facts_of({})) is None


def test_the_period_holds_the_runtime_that_counts_of_a_running_job():
    """Dumped two hours after its start; no other log goes on beyond the start."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    ends = ({"elapsed_s": 7200.0, "end": None}, {"elapsed_s": 60.0, "end": start})
    rows = [
        dict.fromkeys(ATTEMPTS.names)
        | {"cluster": "c", "attempt_id": f"c/{n}", "job_id": str(n), "state": "RUNNING"}
        | {"submit": start, "start": start, "source": "t", "file_id": "t", "line": 1, **end}
        for n, end in enumerate(ends)
    ]
    attempts = pa.Table.from_pylist(rows, schema=ATTEMPTS.arrow_schema)
    period = observed_period(facts_of({"attempts": attempts}))
    assert (period.start, period.end) == (start, start + timedelta(hours=2))
