"""Totals, states and sizes: hand-made rows, the real phillips log, and nothing counted twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ettr.facts import Facts
from ettr.metrics.sizes import SizeUnit, main_size_unit, size_class, size_end_of, size_mix
from ettr.metrics.status import status_mix, totals
from ettr.tables import ATTEMPTS
from fact_tables import facts_of
from synthetic.cluster import ClusterPlan, build_cluster

START = datetime(2025, 1, 1, tzinfo=UTC)


def attempt(job_id: str, **given: Any) -> dict[str, Any]:
    row = {
        "cluster": "c",
        "attempt_id": f"c/{job_id}@{given.get('submit', START)}",
        "job_id": job_id,
        "user": "ann",
        "name": "train",
        "state": "COMPLETED",
        "submit": START,
        "start": START,
        "end": START + timedelta(hours=1),
        "elapsed_s": 3600.0,
        "n_nodes": 1,
        "n_cpus": 4,
        "n_gpus": 8,
        "source": "t",
        "file_id": "t",
        "line": 1,
    }
    return {name: {**row, **given}.get(name) for name in ATTEMPTS.names}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=ATTEMPTS.arrow_schema)


def of(attempts: pa.Table) -> Facts:
    return facts_of({"attempts": attempts})


def test_a_requeued_job_is_one_job_of_two_attempts():
    again = START + timedelta(hours=2)
    found = totals(of(table(attempt("1", state="NODE_FAIL"), attempt("1", submit=again))))
    assert (found.jobs, found.attempts) == (1, 2)
    assert (found.cpu_hours, found.node_hours, found.gpu_hours) == (8.0, 2.0, 16.0)


def test_a_job_cancelled_before_it_ran_counts_as_an_attempt_only():
    never = attempt("2", state="CANCELLED", start=None, end=START, elapsed_s=0.0)
    cut = attempt("3", state="CANCELLED")
    found = totals(of(table(attempt("1"), never, cut)))
    assert (found.jobs, found.attempts) == (2, 3)


def test_an_id_that_returns_for_another_user_is_another_job():
    later = START + timedelta(days=90)
    found = totals(of(table(attempt("1"), attempt("1", user="bob", submit=later))))
    assert found.jobs == 2


@pytest.mark.slow
def test_unknown_counts_add_no_hours():
    known, unknown = attempt("1"), attempt("2", n_gpus=None, n_cpus=None)
    both, alone = totals(of(table(known, unknown))), totals(of(table(known)))
    assert (both.gpu_hours, both.cpu_hours) == (alone.gpu_hours, alone.cpu_hours)
    assert both.node_hours == 2.0
    # where no attempt names a count the hours are not known, which is not 0
    found = totals(of(table(unknown)))
    assert (found.gpu_hours, found.cpu_hours, found.node_hours) == (None, None, 1.0)


def test_an_empty_log_has_zeros_and_no_shares():
    empty = table()
    assert totals(of(empty)).jobs == 0
    assert totals(of(empty)).gpu_hours == 0.0
    assert status_mix(of(empty)).states == ()
    assert size_mix(of(empty)).classes == ()


def test_states_are_shared_by_count_and_by_gpu_time():
    rows = table(attempt("1"), attempt("2"), attempt("3"), attempt("4", state="FAILED", n_gpus=24))
    mix = status_mix(of(rows))
    by_state = {share.state: share for share in mix.states}
    assert by_state["COMPLETED"].share_of_attempts == 0.75
    assert by_state["COMPLETED"].share_of_gpu_hours == 0.5
    assert mix.states[0].state == "COMPLETED"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "label"),
    [
        (None, "unknown"),
        (0, "0"),
        (1, "1"),
        (2, "2"),
        (3, "3-4"),
        (4, "3-4"),
        (5, "5-8"),
        (129, "129-256"),
        (131072, "65537-131072"),
        (500_000, "131073-262144"),
    ],
)
def test_sizes_fall_into_classes_that_double(size, label):
    mix = size_mix(of(table(attempt("1", n_gpus=size))))
    assert mix.classes[0].size.label == label
    assert size_class(size_end_of(size)).label == label


def test_a_cluster_without_gpus_is_sized_by_nodes():
    cpu_only = table(attempt("1", n_gpus=None, n_nodes=3))
    assert main_size_unit(of(cpu_only)) is SizeUnit.NODES
    assert size_mix(of(cpu_only), SizeUnit.NODES).classes[0].size.label == "3-4"


def test_jobs_with_gpus_whose_nodes_no_log_names_are_sized_by_gpus():
    """Two hours of 16 GPUs on nodes unknown, and an hour without GPUs on one node."""
    gpu = attempt("1", n_nodes=None, n_gpus=16, elapsed_s=7200.0)
    rows = table(gpu, attempt("2", n_gpus=0))
    assert main_size_unit(of(table(gpu))) is main_size_unit(of(rows)) is SizeUnit.GPUS
    none, large = size_mix(of(rows)).classes
    assert (none.size.label, none.gpu_hours, none.node_hours) == ("0", 0.0, 1.0)
    assert (large.size.label, large.gpu_hours, large.node_hours) == ("9-16", 32.0, None)
    assert (large.share_of_gpu_hours, large.share_of_node_hours) == (1.0, None)


def test_hours_of_what_says_no_gpus_and_no_nodes_are_unknown():
    """One state without a word, one in which one of two says it, and one that never ran."""
    mute = {"n_gpus": None, "n_nodes": None}
    never = {"start": None, "end": None, "elapsed_s": 0.0}
    rows = table(
        attempt("1", state="FAILED", **mute),
        attempt("2"),
        attempt("3", **mute),
        attempt("4", state="PENDING", **never, **mute),
    )
    hours = {one.state: (one.gpu_hours, one.node_hours) for one in status_mix(of(rows)).states}
    assert hours == {"FAILED": (None, None), "COMPLETED": (8.0, 1.0), "PENDING": (0.0, 0.0)}
    unknown = size_mix(of(rows)).classes[-1]
    assert (unknown.size.label, unknown.gpu_hours, unknown.job_hours) == ("unknown", None, 2.0)


@pytest.mark.slow
def test_every_hour_lies_in_exactly_one_state_and_one_size():
    cluster = build_cluster(ClusterPlan(days=10.0, work_s=2 * 86400), seed=3)
    attempts = cluster.tables["attempts"]
    whole, states, sizes = totals(of(attempts)), status_mix(of(attempts)), size_mix(of(attempts))
    assert whole.gpu_hours == pytest.approx(cluster.truth.gpu_s / 3600)
    assert whole.node_hours == pytest.approx(cluster.truth.node_s_all / 3600)
    for parts in (states.states, sizes.classes):
        assert sum(part.attempts for part in parts) == whole.attempts
        assert sum(part.gpu_hours for part in parts) == pytest.approx(whole.gpu_hours)
        assert sum(part.node_hours for part in parts) == pytest.approx(whole.node_hours)
