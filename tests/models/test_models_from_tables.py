from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from ettr.errors import UsageError
from ettr.models.constant import ConstantRate
from ettr.models.from_tables import cut_at, from_tables
from ettr.models.log_location_scale import Weibull

ORIGIN = datetime(2025, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
DAY_S = 86400.0


def day(value):
    return ORIGIN + timedelta(days=float(value))


def tables(allocations, failures, born=None):
    """Allocations (node, start, days); failures (node, day, symptom); nodes (node, born)."""
    alloc = pa.table(
        {
            "node": pa.array([a[0] for a in allocations], pa.string()),
            "start": pa.array([day(a[1]) for a in allocations], TIME),
            "end": pa.array([day(a[1] + a[2]) for a in allocations], TIME),
            "elapsed_s": pa.array([a[2] * DAY_S for a in allocations], pa.float64()),
        }
    )
    fail = pa.table(
        {
            "node": pa.array([f[0] for f in failures], pa.string()),
            "end": pa.array([day(f[1]) for f in failures], TIME),
            "symptom": pa.array([f[2] for f in failures], pa.string()),
        }
    )
    if born is None:
        return fail, alloc
    nodes = pa.table(
        {
            "node": pa.array([b[0] for b in born], pa.string()),
            "in_service_from": pa.array([None if b[1] is None else day(b[1]) for b in born], TIME),
        }
    )
    return fail, alloc, nodes


CASE = tables(
    [("n2", 0, 4), ("n1", 0, 2), ("n1", 5, 3), ("n1", 10, 5), ("n3", 1, 1)],
    [("n1", 8, "pcie"), ("n1", 12, "pcie"), (None, 3, "unattributed"), ("gone", 4, "nvlink")],
    [("n1", -10), ("n2", None)],
)


def test_counts_of_nodes_and_what_no_node_can_be_blamed_for():
    found = from_tables(*CASE).by_node
    assert found.group.tolist() == ["n1", "n2", "n3"]
    assert found.failures.tolist() == [2, 0, 0]
    assert found.exposure_node_days.tolist() == [10.0, 4.0, 1.0]
    assert found.unplaced == 2
    assert found.total == 4
    assert ConstantRate().fit(found).rate_per_node_day.estimate == pytest.approx(4 / 15)


def test_time_in_use_runs_only_while_a_node_works_and_starts_anew():
    spans = from_tables(*CASE).since_failure
    rows = sorted(
        zip(
            spans.group.tolist(),
            (spans.duration_s / DAY_S).tolist(),
            spans.observed.tolist(),
            strict=True,
        )
    )
    assert rows == [
        ("n1", 2.0, True),
        ("n1", 3.0, False),
        ("n1", 5.0, True),
        ("n2", 4.0, False),
        ("n3", 1.0, False),
    ]
    assert spans.node_days == pytest.approx(15.0)


def test_ages_begin_when_observation_does():
    found = from_tables(*CASE)
    spans = found.by_age
    assert (spans.entry_s / DAY_S).tolist() == [10.0, 18.0, 22.0]
    assert (spans.duration_s / DAY_S).tolist() == [18.0, 22.0, 25.0]
    assert spans.observed.tolist() == [True, True, False]
    assert set(spans.symptom[spans.observed]) == {"pcie"}
    assert "2 of 3 nodes have no service date; they are left out" in found.notes[1]


def test_symptoms_are_counted_over_the_whole_fleet():
    found = from_tables(*CASE)
    assert found.by_symptom == {"nvlink": 1, "pcie": 2, "unattributed": 1}
    assert "2 of 4 failures blame no node that was in use" in found.notes[0]


def test_a_cut_keeps_every_node_day_and_every_failure():
    fail, alloc, _ = CASE
    before, after = (from_tables(*period) for period in cut_at(fail, alloc, day(6)))
    assert before.by_node.node_days == pytest.approx(2 + 1 + 4 + 1)
    assert after.by_node.node_days == pytest.approx(2 + 5)
    assert before.by_symptom == {"unattributed": 1, "nvlink": 1}
    assert after.by_symptom == {"pcie": 2}
    assert after.by_node.group.tolist() == ["n1"]
    with pytest.raises(UsageError, match="has no time zone; write it with one"):
        cut_at(fail, alloc, datetime(2025, 1, 7))  # noqa: DTZ001


def test_nothing_failed():
    fail, alloc = tables([("n1", 0, 2)], [])
    found = from_tables(fail, alloc)
    assert found.by_node.total == 0
    assert found.since_failure.failures == 0
    assert found.by_age is None


def test_tables_that_cannot_be():
    fail, alloc, nodes = CASE
    with pytest.raises(UsageError, match="failures lacks symptom"):
        from_tables(fail.drop_columns(["symptom"]), alloc)
    with pytest.raises(UsageError, match="no allocations, so no exposure"):
        from_tables(fail, alloc.slice(0, 0))
    with pytest.raises(UsageError, match="nodes lacks in_service_from"):
        from_tables(fail, alloc, nodes.drop_columns(["in_service_from"]))


def test_planted_gaps_are_found_again_through_the_tables():
    """Nodes that run job after job; the job that a failure ends is followed by the next."""
    rng = np.random.default_rng(3)
    allocations, failures = [], []
    for node in range(80):
        now = 0.0
        while now < 200:
            gap = 20 * rng.weibull(0.7)
            end = min(now + gap, 200.0)
            middle = rng.uniform(now, end)
            allocations += [(f"n{node}", now, middle - now), (f"n{node}", middle, end - middle)]
            if end < 200:
                failures.append((f"n{node}", end, "pcie"))
            now = end
    found = from_tables(*tables(allocations, failures))
    assert found.by_node.node_days == pytest.approx(80 * 200, rel=1e-6)
    assert found.since_failure.failures == len(failures)
    shape = Weibull().fit(found.since_failure).parameter("shape")
    assert shape.low <= 0.7 <= shape.high
    assert shape.high - shape.low < 0.15
