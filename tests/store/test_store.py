"""A store keeps each file whole or not at all, and a later dump updates an earlier one."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ettr.errors import SchemaError, StoreError, UsageError
from ettr.store import Store, folder, layout, open_store
from ettr.tables import ALLOCATIONS, ATTEMPTS, PROGRESS, TABLES
from ettr.tables.rows import attempt_id

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FILE_ROW = {
    "name": "a.psv",
    "source": "slurm-sacct",
    "size_bytes": 1,
    "rows_read": 1,
    "rows_rejected": 0,
    "rows_skipped": 0,
    "timezone": "UTC",
    "options": "{}",
    "notes": None,
}


def attempts(file_id: str, *jobs: tuple[str, str, datetime | None]) -> pa.Table:
    rows = [
        {
            "cluster": "c",
            "attempt_id": attempt_id("c", job, NOON),
            "job_id": job,
            "state": state,
            "submit": NOON,
            "end": end,
            "source": "slurm-sacct",
            "file_id": file_id,
            "line": line,
        }
        for line, (job, state, end) in enumerate(jobs, 1)
    ]
    return pa.Table.from_pylist(rows, schema=ATTEMPTS.arrow_schema)


def ingest(store: Store, file_id: str, rows: pa.Table) -> None:
    with store.ingestion(file_id) as ingestion:
        ingestion.write("attempts", rows)
        ingestion.commit(FILE_ROW)


def states(store: Store) -> dict[str, str]:
    rows = store.rows("attempts").to_pylist()
    found = {row["job_id"]: row["state"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(params=["folder", "site.duckdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / request.param, create=True) as opened:
        yield opened


def test_the_newer_row_stands_whatever_the_folder_is_called(tmp_path: Path) -> None:
    with open_store(tmp_path / "it's [1] * 100%20;x", create=True) as store:
        ingest(store, "f1", attempts("f1", ("1", "RUNNING", None), ("2", "RUNNING", None)))
        ingest(store, "f2", attempts("f2", ("1", "FAILED", NOON)))
        ingest(store, "f1", attempts("f1", ("2", "FAILED", NOON)))
        assert states(store) == {"1": "FAILED", "2": "FAILED"}


def test_a_new_store_has_every_table_and_no_rows(store: Store) -> None:
    for name, table in TABLES.items():
        rows = store.rows(name)
        assert tuple(rows.column_names) == table.names
        assert rows.num_rows == 0


@pytest.mark.slow
def test_a_later_dump_updates_a_job_and_keeps_the_others(store: Store) -> None:
    ingest(store, "one", attempts("one", ("1", "RUNNING", None), ("2", "FAILED", NOON)))
    ingest(store, "two", attempts("two", ("1", "COMPLETED", NOON), ("3", "FAILED", NOON)))
    assert states(store) == {"1": "COMPLETED", "2": "FAILED", "3": "FAILED"}


@pytest.mark.slow
def test_an_older_dump_ingested_later_does_not_reopen_a_job(store: Store) -> None:
    ingest(store, "new", attempts("new", ("1", "COMPLETED", NOON)))
    ingest(store, "old", attempts("old", ("1", "RUNNING", None), ("2", "RUNNING", None)))
    assert states(store) == {"1": "COMPLETED", "2": "RUNNING"}


@pytest.mark.slow
def test_reading_the_same_file_again_replaces_what_it_left(store: Store) -> None:
    ingest(store, "one", attempts("one", ("1", "FAILED", NOON), ("2", "FAILED", NOON)))
    ingest(store, "one", attempts("one", ("2", "COMPLETED", NOON)))
    assert states(store) == {"2": "COMPLETED"}
    assert [file.file_id for file in store.files()] == ["one"]


def test_the_last_of_equal_keys_in_one_file_stands(store: Store) -> None:
    ingest(store, "one", attempts("one", ("1", "FAILED", NOON), ("1", "NODE_FAIL", NOON)))
    assert states(store) == {"1": "NODE_FAIL"}


def test_keys_that_share_a_hash_are_two_and_cost_no_copy(tmp_path: Path) -> None:
    """DuckDB hashes alike texts alike: these two collided among six million of one simulation."""
    keys = ("rsc-1-like/2020012@2026-10-12T07:10:14Z", "rsc-1-like/2020612@2026-10-12T09:10:14Z")
    rows = [
        {"attempt_id": key, "cluster": "c", "node": "n0033", "source": "x", "file_id": "one"}
        | {"line": line, "start": NOON, "elapsed_s": 1.0}
        for line, key in enumerate(keys, 1)
    ]
    with open_store(tmp_path / "folder", create=True) as store:
        with store.ingestion("one") as ingestion:
            ingestion.write("allocations", pa.Table.from_pylist(rows, ALLOCATIONS.arrow_schema))
            ingestion.commit(FILE_ROW)
        found = store.rows("allocations")["attempt_id"].to_pylist()
    assert sorted(found) == sorted(keys)
    (part,) = (tmp_path / "folder" / "parts" / "allocations").iterdir()
    assert "-new-" in part.name


def test_an_ingestion_that_is_not_committed_leaves_nothing(store: Store) -> None:
    def fail() -> None:
        with store.ingestion("one") as ingestion:
            ingestion.write("attempts", attempts("one", ("1", "FAILED", NOON)))
            raise RuntimeError("the reader broke")

    with pytest.raises(RuntimeError):
        fail()
    assert states(store) == {}


def test_rows_are_checked_at_the_door_and_all_problems_told(store: Store) -> None:
    bad = attempts("one", ("1", "FAILED", NOON)).drop_columns(["submit"])
    bad = bad.set_column(0, "cluster", pa.array([None], pa.string()))
    with store.ingestion("one") as ingestion, pytest.raises(SchemaError) as error:
        ingestion.write("attempts", bad)
    assert str(error.value) == (
        "not a valid `attempts` table:\n"
        "  cluster: 1 of 1 rows are null\n"
        "  submit: missing (expected timestamp('UTC', 6))"
    )


def test_an_unknown_table_is_refused_with_the_list(store: Store) -> None:
    with pytest.raises(UsageError, match="no table named 'jobs'; there are: nodes, attempts"):
        store.rows("jobs")


def test_a_missing_store_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store here; `ettr ingest"):
        open_store(tmp_path / "none")
    with pytest.raises(StoreError, match="no such store; `ettr ingest"):
        open_store(tmp_path / "none.duckdb")


def test_a_folder_with_other_files_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match="holds other files"):
        open_store(tmp_path, create=True)


def test_a_newer_store_is_refused_by_name(tmp_path: Path) -> None:
    open_store(tmp_path / "s", create=True).close()
    layout = tmp_path / "s" / "store.json"
    layout.write_text(json.dumps({**json.loads(layout.read_text()), "version": 99}))
    with pytest.raises(StoreError, match="written by a newer ettr"):
        open_store(tmp_path / "s")


def test_a_torn_manifest_is_an_error_not_an_empty_store(tmp_path: Path) -> None:
    open_store(tmp_path / "s", create=True).close()
    (tmp_path / "s" / "store.json").write_text('{"format": "ettr-')
    with pytest.raises(StoreError, match="cannot be read as a store's manifest"):
        open_store(tmp_path / "s")


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from store import test_store as t
from ettr.store import open_store
store = open_store(sys.argv[1], create=True)
from ettr.store import layout
from ettr.store.backend import BackendStore
kill = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
layout.write = kill
# of a database: when all tables but `files` hold the new rows
merge = BackendStore._merge
BackendStore._merge = lambda self, table, *a: (kill if table.name == "files" else merge)(
    self, table, *a
)
t.ingest(store, "two", t.attempts("two", ("1", "COMPLETED", t.NOON)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s", "s.duckdb"])
def test_a_process_killed_at_the_commit_leaves_the_store_as_it_was(
    name: str, tmp_path: Path
) -> None:
    place = tmp_path / name
    with open_store(place, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "RUNNING", None)))
    tests = str(Path(__file__).parents[1])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(place), tests], check=False, env={**os.environ}
    )
    assert killed.returncode == -signal.SIGKILL
    with open_store(place, create=True) as store:
        assert states(store) == {"1": "RUNNING"}
        assert store.rows("files")["file_id"].to_pylist() == ["one"]
        ingest(store, "two", attempts("two", ("1", "COMPLETED", NOON)))
        assert states(store) == {"1": "COMPLETED"}
    if place.is_dir():
        assert len(list((place / "parts" / "attempts").glob("*.parquet"))) == 1


@pytest.mark.parametrize("moment", ["manifest in place", "before the manifest"])
def test_an_interrupt_around_the_commit_leaves_a_store_that_can_be_read(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "s"
    with open_store(place, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "RUNNING", None)))
        replaced, flush = moment == "manifest in place", layout.flush

        def interrupted(path: Path) -> None:
            flush(path)
            if path == (place if replaced else place / "parts" / "attempts"):
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            for module in (layout, folder):
                patched.setattr(module, "flush", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ingest(store, "two", attempts("two", ("1", "COMPLETED", NOON)))
        expected = {"1": "COMPLETED" if replaced else "RUNNING"}
        assert states(store) == expected
    with open_store(place) as again:
        assert states(again) == expected


@pytest.mark.parametrize("corruption", ["cut off", "gone"])
def test_a_corrupt_part_is_named_in_a_sentence(corruption: str, tmp_path: Path) -> None:
    place = tmp_path / "s"
    with open_store(place, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
        ingest(store, "two", attempts("two", ("2", "FAILED", NOON)))
    part = sorted((place / "parts" / "attempts").iterdir())[1]
    if corruption == "gone":
        part.unlink()
    else:
        part.write_bytes(part.read_bytes()[:300])
    with open_store(place) as store:
        with pytest.raises(StoreError, match=rf"{part.name}: a part of the store is corrupt"):
            store.rows("attempts")
        with pytest.raises(StoreError, match=r"corrupt or missing.*ingest the logs into a new"):
            ingest(store, "three", attempts("three", ("2", "COMPLETED", NOON)))
    with open_store(place) as store:
        assert [file.file_id for file in store.files()] == ["one", "two"]


def test_two_processes_do_not_ingest_at_once(tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "s", create=True) as one,
        open_store(tmp_path / "s") as other,
        one.ingestion("a"),
        pytest.raises(StoreError, match="another process is ingesting"),
    ):
        ingest(other, "b", attempts("b", ("1", "FAILED", NOON)))


def _footer_too(writer: Any) -> None:
    if writer.is_open:
        writer.is_open = False
        writer.writer.close()
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("footer_too", [False, True])
def test_a_full_disk_is_told_and_leaves_the_store_as_it_was(
    footer_too: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    with open_store(tmp_path / "s", create=True) as store:
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(pq.ParquetWriter, "write_table", full)
            if footer_too:
                patched.setattr(pq.ParquetWriter, "close", _footer_too)
            with pytest.raises(StoreError, match="No space left on device"):
                ingest(store, "two", attempts("two", ("2", "FAILED", NOON)))
        assert states(store) == {"1": "FAILED"}
    assert len(list((tmp_path / "s" / "parts" / "attempts").iterdir())) == 1


def test_a_disk_that_fills_up_while_parts_are_merged_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine that merges has errors of its own, which are no OSError."""
    import duckdb

    def full(*_: object) -> None:
        raise duckdb.IOException("Could not write file: No space left on device")

    with open_store(tmp_path / "s", create=True) as store:
        ingest(store, "one", attempts("one", ("1", "RUNNING", None), ("2", "FAILED", NOON)))
        with monkeypatch.context() as patched:
            patched.setattr("ettr.store.merging.Merge._rewrite", full)
            with pytest.raises(StoreError, match=r"No space left.*as it was before"):
                ingest(store, "two", attempts("two", ("1", "COMPLETED", NOON)))
        assert states(store) == {"1": "RUNNING", "2": "FAILED"}
    assert len(list((tmp_path / "s" / "parts" / "attempts").iterdir())) == 1


def test_within_one_file_too_an_open_row_never_replaces_a_closed_one(store: Store) -> None:
    ingest(store, "one", attempts("one", ("1", "COMPLETED", NOON), ("1", "RUNNING", None)))
    assert states(store) == {"1": "COMPLETED"}


def events_of_a_run(file_id: str, *events: tuple[str, int | None]) -> pa.Table:
    rows = [
        {
            "run_id": "r",
            "rank": 0,
            "time": NOON,
            "event": event,
            "step": step,
            "source": "nvrx",
            "file_id": file_id,
            "line": line,
        }
        for line, (event, step) in enumerate(events, 1)
    ]
    return pa.Table.from_pylist(rows, schema=PROGRESS.arrow_schema)


def progress_rows(store: Store) -> list[tuple[str, int | None, str]]:
    rows = store.rows("progress").to_pylist()
    return sorted((r["event"], r["step"], r["file_id"]) for r in rows)


def test_rows_with_a_null_in_their_key_are_one_where_the_rest_is_equal(store: Store) -> None:
    for file_id in ("one", "two", "two"):
        with store.ingestion(file_id) as ingestion:
            # the same line twice, another event at the same time, a step that is known
            ingestion.write(
                "progress",
                events_of_a_run(file_id, ("end", None), ("end", None), ("restart", None)),
            )
            ingestion.write("progress", events_of_a_run(file_id, ("save", 7)))
            ingestion.commit(FILE_ROW)
    assert progress_rows(store) == [
        ("end", None, "two"),
        ("restart", None, "two"),
        ("save", 7, "two"),
    ]


VERSION_1 = Path(__file__).parent / "samples" / "store-version-1"
REQUESTED = ("requested_nodes", "requested_gpus", "excluded_nodes")


@pytest.fixture(params=["folder", "site.duckdb"])
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store that an ettr wrote before attempts had what was requested (store version 1)."""
    place = tmp_path / request.param
    if request.param == "folder":
        return Path(shutil.copytree(VERSION_1, place))
    import duckdb

    with duckdb.connect(place) as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for folder in sorted((VERSION_1 / "parts").iterdir()):
            parts = f"read_parquet('{folder}/*.parquet')"
            duck.execute(f"CREATE TABLE {folder.name} AS SELECT * FROM {parts}")
        for column in ("run_id", "rank", "time", "event", "step"):
            duck.execute(f"ALTER TABLE progress ALTER COLUMN {column} SET NOT NULL")
    return place


def test_an_older_store_opens_with_null_for_what_it_lacks(old_store: Path) -> None:
    with open_store(old_store) as store:
        assert tuple(store.rows("attempts").column_names) == ATTEMPTS.names
        rows = store.rows("attempts").sort_by("job_id").to_pylist()
        assert [(row["job_id"], row["state"], row["n_gpus"]) for row in rows] == [
            ("17", "NODE_FAIL", 16),
            ("18", "RUNNING", 8),
        ]
        assert {row[name] for row in rows for name in REQUESTED} == {None}
        assert store.rows("attempts").num_rows == 2
        assert [file.source for file in store.files()] == ["slurm-sacct", "nvrx"]


def test_an_older_store_takes_new_rows(old_store: Path) -> None:
    with open_store(old_store) as store, store.ingestion("new") as ingestion:
        jobs = attempts("new", ("99", "FAILED", NOON))
        place = ATTEMPTS.names.index("excluded_nodes")
        jobs = jobs.set_column(place, "excluded_nodes", pa.array(["n[1-2]"]))
        ingestion.write("attempts", jobs)
        ingestion.write("progress", events_of_a_run("new", ("end", None)))
        ingestion.commit(FILE_ROW)
    with open_store(old_store) as store:
        rows = store.rows("attempts").sort_by("job_id").to_pylist()
        assert [(r["job_id"], r["excluded_nodes"]) for r in rows] == [
            ("17", None),
            ("18", None),
            ("99", "n[1-2]"),
        ]
        assert progress_rows(store)[0] == ("end", None, "new")
        assert len(progress_rows(store)) == 3
    if old_store.is_dir():
        assert json.loads((old_store / "store.json").read_text())["version"] == 4


@pytest.mark.slow
def test_rows_of_an_older_store_take_what_a_snapshot_knows(old_store: Path) -> None:
    with open_store(old_store) as store:
        rows = store.rows("attempts").to_pylist()
        (snapshot,) = (row for row in rows if row["job_id"] == "17")
        snapshot |= {"state": "RUNNING", "end": None, "file_id": "new", "excluded_nodes": "n[1-2]"}
        ingest(store, "new", pa.Table.from_pylist([snapshot], schema=ATTEMPTS.arrow_schema))
    with open_store(old_store) as store:
        rows = store.rows("attempts").sort_by("job_id").to_pylist()
        assert [(row["job_id"], row["state"], row["excluded_nodes"]) for row in rows] == [
            ("17", "NODE_FAIL", "n[1-2]"),
            ("18", "RUNNING", None),
        ]


@pytest.mark.parametrize("name", ["site:2026", "s3:b", "gs:foo", "file:z", "dir:a/st", "hdfs:x"])
def test_a_folder_with_a_colon_in_its_name_keeps_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """Arrow would read it as the address of another file system."""
    monkeypatch.chdir(tmp_path)
    for turn in ("a", "b"):  # the second merges with the parts of the first
        with open_store(name, create=True) as store:
            ingest(store, turn, attempts(turn, (turn, "COMPLETED", NOON)))
    with open_store(name) as store:
        assert store.rows("attempts").num_rows == 2
        assert len(store.files()) == 2
        store.check_integrity()
    assert (tmp_path / name / "store.json").is_file()


@pytest.mark.parametrize("name", ["md:db", "motherduck:db"])
def test_what_would_be_a_database_at_motherduck_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        with pytest.raises(StoreError, match=f"MotherDuck .*; give a folder.*\\./{name} is a"):
            open_store(name, create=create)
    assert not list(tmp_path.iterdir())
    open_store(f"./{name}", create=True).close()
    assert (tmp_path / name / "store.json").is_file()
