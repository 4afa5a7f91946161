"""A known value is never overwritten by nothing: facts of a submission outlive a later row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ettr.store import Store, open_store
from ettr.tables import ATTEMPTS
from ettr.tables.rows import Row, attempt_id

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONE = NOON + timedelta(hours=1)
SUBMITTED: Row = {
    "name": "train",
    "user": "eva",
    "account": "llm",
    "partition": "gpu",
    "qos": "high",
    "time_limit_s": 3600.0,
    "requested_nodes": 2,
    "requested_gpus": 16,
    "excluded_nodes": "n[1-2]",
    "comment": "seed 7",
    "work_dir": "/home/eva",
    "submit_line": "sbatch -x n[1-2] train.sh",
}
RAN: Row = {
    "start": NOON,
    "n_nodes": 2,
    "n_gpus": 16,
    "node_list": "n[3-4]",
    "step_state": "FAILED",
}


@pytest.fixture(params=["folder", "site.duckdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / request.param, create=True) as opened:
        yield opened


def row(state: str, end: datetime | None = None, **columns: Any) -> Row:
    given: Row = {"job_id": "1", "state": state, "end": end, **columns}
    return {"cluster": "c", "submit": NOON, "source": "s", **given}


def ingest(store: Store, file_id: str, *rows: Row) -> None:
    full = [
        {
            **each,
            "attempt_id": attempt_id("c", str(each["job_id"]), NOON),
            "file_id": file_id,
            "line": line,
        }
        for line, each in enumerate(rows, 1)
    ]
    with store.ingestion(file_id) as ingestion:
        ingestion.write("attempts", pa.Table.from_pylist(full, schema=ATTEMPTS.arrow_schema))
        ingestion.commit(
            {"name": file_id, "source": "s", "size_bytes": 1, "rows_read": len(rows)}
            | {"rows_rejected": 0, "rows_skipped": 0, "options": "{}"}
        )


def stored(store: Store, job_id: str = "1") -> dict[str, Any]:
    rows = store.rows("attempts").to_pylist()
    found = [each for each in rows if each["job_id"] == job_id]
    assert len(found) == 1
    return found[0]


@pytest.mark.slow
def test_who_cancelled_is_not_forgotten_when_accounting_forgets_it(store: Store) -> None:
    ingest(store, "half", row("CANCELLED", ONE, cancelled_by="0"))
    ingest(store, "full", row("CANCELLED", ONE))
    assert stored(store)["cancelled_by"] == "0"
    assert stored(store)["file_id"] == "full"


def test_a_snapshot_keeps_what_was_asked_for_once_accounting_has_the_end(store: Store) -> None:
    ingest(store, "snapshot", row("PENDING", **SUBMITTED), row("PENDING", job_id="2"))
    ingest(store, "sacct", row("NODE_FAIL", ONE, **RAN))
    found = stored(store)
    assert {name: found[name] for name in SUBMITTED} == SUBMITTED
    assert (found["state"], found["end"], found["n_gpus"]) == ("NODE_FAIL", ONE, 16)
    assert stored(store, "2")["excluded_nodes"] is None


@pytest.mark.slow
def test_the_order_of_files_does_not_matter(tmp_path: Path) -> None:
    files = {
        "pending": row("PENDING", excluded_nodes="n7", requested_nodes=2, comment="c"),
        "half": row("CANCELLED", ONE, start=NOON, cancelled_by="0"),
        "full": row("CANCELLED", ONE, start=NOON, user="eva"),
    }
    expected = {"excluded_nodes": "n7", "requested_nodes": 2, "comment": "c"}
    expected |= {"cancelled_by": "0", "user": "eva", "state": "CANCELLED"}
    for kind in ("", ".duckdb"):
        for order in permutations(files):
            with open_store(tmp_path / f"{'-'.join(order)}{kind}", create=True) as store:
                for name in order:
                    ingest(store, name, files[name])
                found = stored(store)
                assert {name: found[name] for name in expected} == expected, order


def test_rows_of_one_file_keep_each_others_values(store: Store) -> None:
    ingest(
        store,
        "one",
        row("CANCELLED", ONE, cancelled_by="0", qos="low"),
        row("CANCELLED", ONE, qos="high"),
        row("PENDING", **{**SUBMITTED, "qos": "older"}),
        row("PENDING", job_id="2", user="ann"),
    )
    found = stored(store)
    assert {name: found[name] for name in SUBMITTED} == SUBMITTED
    assert (found["cancelled_by"], found["line"]) == ("0", 2)
    assert stored(store, "2")["user"] == "ann"


@pytest.mark.slow
def test_what_says_how_it_ended_is_not_kept_for_another_end(store: Store) -> None:
    ingest(store, "one", row("CANCELLED", ONE, cancelled_by="0", failed_node="n3"))
    ingest(store, "two", row("COMPLETED", ONE))
    assert (stored(store)["cancelled_by"], stored(store)["failed_node"]) == (None, None)


def test_a_null_that_says_something_is_not_filled(store: Store) -> None:
    """It never started, it has no nodes, it does not wait: that is not `unknown`."""
    ingest(store, "one", row("RUNNING", eligible=NOON, reason="Priority", elapsed_s=9.0, **RAN))
    ingest(store, "two", row("CANCELLED", ONE, n_nodes=0))
    found = stored(store)
    assert found["n_nodes"] == 0
    for name in ("start", "eligible", "elapsed_s", "node_list", "reason", "step_state", "n_gpus"):
        assert found[name] is None, name


ENDED: Row = {
    **{"exit_code": 1, "exit_signal": 0, "derived_exit_code": 125, "derived_exit_signal": 9},
    **{"step_state": "OUT_OF_MEMORY", "elapsed_s": 3600.0, "suspended_s": 0.0, "n_nodes": 2},
    **{"n_cpus": 128, "n_gpus": 16, "node_list": "n[3-4]", "restarts": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("order", ["rich first", "rich last", "one file"])
def test_a_dump_with_fewer_columns_or_without_steps_takes_nothing_away(
    store: Store, order: str
) -> None:
    rich, poor = row("FAILED", ONE, start=NOON, **ENDED), row("FAILED", ONE, start=NOON)
    if order == "one file":
        ingest(store, "both", rich, poor)
    else:
        for name in ("rich", "poor") if order == "rich first" else ("poor", "rich"):
            ingest(store, name, {"rich": rich, "poor": poor}[name])
    found = stored(store)
    assert {name: found[name] for name in ENDED} == ENDED
    # another end is another story
    ingest(store, "later", row("FAILED", ONE + timedelta(hours=1), start=NOON))
    assert {stored(store)[name] for name in ENDED} == {None}


@pytest.mark.slow
def test_a_file_read_again_after_a_kill_keeps_what_others_gave(store: Store) -> None:
    ingest(store, "snapshot", row("PENDING", **SUBMITTED))
    ingest(store, "sacct", row("FAILED", ONE))
    ingest(store, "sacct", row("FAILED", ONE))
    assert stored(store)["excluded_nodes"] == "n[1-2]"
    assert len(store.files()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("order", list(permutations(["pending", "early", "late"])))
def test_of_dumps_of_a_running_job_the_later_one_stands(
    store: Store, order: tuple[str, ...]
) -> None:
    """Whichever is read last: what ran for longer is newer."""
    files = {
        "pending": row("PENDING"),
        "early": row("RUNNING", elapsed_s=100.0, **RAN),
        "late": row("RUNNING", elapsed_s=500.0, **RAN),
    }
    for name in order:
        ingest(store, name, files[name])
    found = stored(store)
    assert (found["state"], found["elapsed_s"], found["file_id"]) == ("RUNNING", 500.0, "late")
