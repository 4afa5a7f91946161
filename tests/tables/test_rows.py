"""The door for writers of rows: what a batch holds has passed its schema, and nothing is lost."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from ettr.errors import SchemaError
from ettr.tables import ATTEMPTS
from ettr.tables.rows import Batch, BatchBuilder

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def builder() -> BatchBuilder:
    return BatchBuilder("made-up", "f", "c")


def test_an_attempt_makes_its_id_its_elapsed_time_and_a_row_for_each_node() -> None:
    rows = builder()
    rows.count_read()
    key = rows.add_attempt(
        line=3,
        job_id="17",
        name="train",
        submit=NOON,
        state="NODE_FAIL",
        nodes=["n1", "n2"],
        start=NOON,
        end=NOON + timedelta(hours=1),
        n_gpus=16,
        user="eva",
    )
    assert key == "c/17@2026-03-01T12:00:00Z"
    batch = rows.batch()
    (attempt,) = batch.tables["attempts"].to_pylist()
    assert (attempt["elapsed_s"], attempt["n_nodes"], attempt["node_list"]) == (3600, 2, "n1,n2")
    assert (attempt["name"], attempt["user"], attempt["line"]) == ("train", "eva", 3)
    nodes = batch.tables["allocations"].to_pylist()
    assert [(n["node"], n["n_gpus"], n["elapsed_s"]) for n in nodes] == [
        ("n1", 8.0, 3600.0),
        ("n2", 8.0, 3600.0),
    ]
    assert {n["attempt_id"] for n in nodes} == {key}
    assert batch.rows_read == 1


@pytest.mark.parametrize(
    ("nodes", "n_nodes"), [(None, None), ([], 0)], ids=["not known", "never had any"]
)
def test_an_attempt_that_never_started_has_no_allocation(
    nodes: list[str] | None, n_nodes: int | None
) -> None:
    rows = builder()
    rows.add_attempt(line=1, job_id="1", submit=NOON, state="CANCELLED", nodes=nodes, end=NOON)
    tables = rows.batch().tables
    assert set(tables) == {"attempts"}
    assert tables["attempts"]["n_nodes"].to_pylist() == [n_nodes]


def test_a_column_that_is_not_there_and_a_time_without_zone_are_refused() -> None:
    rows = builder()
    with pytest.raises(SchemaError, match=r"gpus: no such column"):
        rows.add("attempts", line=1, gpus=8)
    with pytest.raises(SchemaError, match="start: 2026-03-01 12:00:00 has no zone"):
        rows.add("node_states", line=1, node="n1", start=NOON.replace(tzinfo=None))
    with pytest.raises(SchemaError, match="no such table; there are: nodes, attempts"):
        rows.add("jobs", line=1)


def test_a_batch_is_checked_where_it_is_made() -> None:
    rows = builder()
    rows.add("nodes", line=1, n_gpus=8)
    with pytest.raises(SchemaError, match="node: 1 of 1 rows are null"):
        rows.batch()
    with pytest.raises(SchemaError, match="submit: missing"):
        Batch({"attempts": ATTEMPTS.empty().drop_columns(["submit"])}, rows_read=0)
    with pytest.raises(SchemaError, match="no such table"):
        Batch({"jobs": pa.table({})}, rows_read=0)


def test_records_without_a_cluster_are_noted_only_where_there_are_any() -> None:
    named, unnamed, given = BatchBuilder("s", "f"), BatchBuilder("s", "f"), builder()
    for rows, cluster in ((named, "c"), (unnamed, None), (given, None)):
        rows.events.add(line=1, time=NOON, check="xid", node="n1", cluster=cluster)
    assert named.batch().notes == ()
    assert given.batch().notes == ()
    assert unnamed.batch().notes == (
        "records without a cluster's name were taken as 'cluster' (--cluster names it)",
    )


def test_progress_of_an_unknown_cluster_stays_unknown() -> None:
    rows = BatchBuilder("s", "f")
    rows.add("progress", line=1, run_id="r", rank=0, time=NOON, event="end")
    (row,) = rows.batch().tables["progress"].to_pylist()
    assert (row["cluster"], row["step"]) == (None, None)


def test_each_batch_counts_its_own_records() -> None:
    rows = builder()
    rows.count_read(3)
    rows.count_skipped()
    rows.reject(2, "bad-json", "no JSON", b"\xff\xfe")
    first, second = rows.batch(), rows.batch()
    assert (first.rows_read, first.rows_rejected, first.rows_skipped) == (3, 1, 1)
    assert (second.rows_read, second.rows_rejected, second.tables) == (0, 0, {})
    assert first.tables["rejects"]["raw"].to_pylist() == ["ÿþ"]
