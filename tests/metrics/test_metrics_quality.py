"""Data quality: planted dirt must be counted, a clean log must show none; and the phillips log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from ettr.metrics.exposure import exposure_basis
from ettr.metrics.quality import data_quality
from ettr.metrics.status import status_mix, totals
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store import open_store
from ettr.tables import ATTEMPTS, FAILURES, FILES, REJECTS, TABLES
from fact_tables import facts_of
from shared_data import shared
from synthetic.cluster import ClusterPlan, build_cluster


@pytest.fixture(scope="module")
def cluster():
    return build_cluster(ClusterPlan(days=20.0, work_s=4 * 86400), seed=4)


def quality(tables: dict[str, pa.Table], **options):
    facts = facts_of({"failures": FAILURES.empty()} | tables)
    return data_quality(facts, exposure_basis(facts), **options)


def changed(table: pa.Table, change) -> pa.Table:
    return pa.Table.from_pylist([change(row) for row in table.to_pylist()], schema=table.schema)


@pytest.mark.slow
def test_a_clean_log_shows_no_dirt(cluster):
    found = quality(cluster.tables)
    assert found.clocks.attempts_started_before_submit == 0
    assert found.clocks.attempts_ended_before_start == 0
    assert found.clocks.attempts_elapsed_mismatch == 0
    assert found.nodes_not_in_inventory == 0
    assert found.attempts_without_nodes == 0
    assert found.pending_attempts == 0
    assert found.running_attempts > 0
    assert found.allocation_node_hours == pytest.approx(found.attempt_node_hours)
    assert all(not part.holes for part in found.coverage if part.table == "attempts")
    assert found.clocks.node_down_lag_s == 0.0
    assert found.clocks.node_down_pairs > 10


@pytest.mark.slow
def test_planted_dirt_is_counted(cluster):
    hurt = {"n": 0}

    def spoil(row):
        hurt["n"] += 1
        if hurt["n"] == 1:
            row["submit"] = row["start"] + timedelta(seconds=5)
        if hurt["n"] == 2:
            row["end"] = row["start"] - timedelta(hours=1)
        if hurt["n"] == 3:
            row["node_list"], row["n_gpus"] = None, None
        return row

    late = lambda row: {**row, "time": row["time"] + timedelta(days=300)}  # noqa: E731
    tables = {
        **cluster.tables,
        "attempts": changed(cluster.tables["attempts"], spoil),
        "nodes": cluster.tables["nodes"].slice(1),
        "events": changed(cluster.tables["events"], late),
    }
    found = quality(tables, assumptions=("zone given",))
    assert found.clocks.attempts_started_before_submit == 1
    assert found.clocks.attempts_ended_before_start == 1
    assert found.clocks.attempts_elapsed_mismatch == 1
    assert (found.attempts_without_nodes, found.attempts_without_gpu_count) == (1, 1)
    assert found.nodes_not_in_inventory_first == ("n000",)
    assert found.clocks.events_after_last_job == tables["events"].num_rows
    assert found.assumptions == ("zone given",)


@pytest.mark.slow
def test_days_without_rows_are_holes_only_beyond_chance(cluster):
    low, high = datetime(2025, 3, 8, tzinfo=UTC), datetime(2025, 3, 10, tzinfo=UTC)
    rows = [r for r in cluster.tables["attempts"].to_pylist() if not low <= r["submit"] < high]
    table = pa.Table.from_pylist(rows, schema=ATTEMPTS.arrow_schema)
    found = quality({**cluster.tables, "attempts": table})
    (part,) = [part for part in found.coverage if part.table == "attempts"]
    assert [(h.first_day, h.last_day, h.days) for h in part.holes] == [
        ("2025-03-08", "2025-03-09", 2)
    ]
    sparse = [part for part in found.coverage if part.table == "node_states"]
    assert all(hole.days > 1 for part in sparse for hole in part.holes)


@pytest.mark.slow
def test_rejects_are_counted_by_reason_with_the_first_of_them():
    rejects = [
        {
            "source": "slurm-sacct",
            "file_id": "f",
            "line": line,
            "reason": reason,
            "detail": f"line {line}",
            "raw": "x",
        }
        for line, reason in ((9, "bad-timestamp"), (4, "bad-timestamp"), (7, "too-few-fields"))
    ]
    files = [
        {
            "file_id": "f",
            "name": "sacct.psv",
            "source": "slurm-sacct",
            "size_bytes": 9,
            "rows_read": 100,
            "rows_rejected": 3,
            "rows_skipped": 2,
            "timezone": "UTC",
            "options": "{}",
            "notes": "one note\nanother",
            "ingested": 1,
        }
    ]
    found = quality(
        {
            "rejects": pa.Table.from_pylist(rejects, schema=REJECTS.arrow_schema),
            "files": pa.Table.from_pylist(files, schema=FILES.arrow_schema),
        }
    )
    assert [(r.reason, r.rows, r.first_line) for r in found.rejected] == [
        ("bad-timestamp", 2, 4),
        ("too-few-fields", 1, 7),
    ]
    assert (found.rows_read, found.rows_rejected, found.rows_skipped) == (100, 3, 2)
    assert found.assumptions == ("one note", "another")
    assert found.attempts_without_nodes_share is None


@pytest.mark.slow
def test_phillips_comes_back_to_the_last_digit(tmp_path: Path):
    log = shared("data/traces/xdmod_slurm/phillips.log.zst")
    fields = (
        "jobid jobidraw cluster partition qos account group gid user uid submit eligible "
        "start end elapsed exitcode state nnodes ncpus reqcpus reqmem reqtres alloctres "
        "timelimit nodelist jobname"
    )
    with open_store(tmp_path / "store", create=True) as store:
        ingest_file(
            store,
            log,
            ReadOptions(timezone="UTC", fields=tuple(fields.split())),
            source_name="slurm-sacct",
        )
        given = {name: store.rows(name) for name in TABLES} | {"failures": FAILURES.empty()}
        facts = facts_of(given)
        found = totals(facts)
        assert (found.jobs, found.attempts) == (4046, 4285)
        assert f"{found.cpu_hours:.4f}" == "11767.9883"
        assert f"{found.node_hours:.4f}" == "1344.8686"
        assert f"{found.gpu_hours:.4f}" == "506.9128"
        assert sum(s.attempts for s in status_mix(facts).states) == 4285
        seen = data_quality(facts, exposure_basis(facts))
        assert (seen.rows_read, seen.rows_rejected) == (4285, 0)
