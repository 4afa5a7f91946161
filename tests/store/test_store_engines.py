"""A database keeps a store whole, or is refused before anything is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from cli.program import Done, ettr, write_logs
from ettr.errors import StoreError
from ettr.store import Store, open_store
from ettr.tables import TABLES
from store.test_store import NOON, attempts, ingest, states


def in_folder(folder: Path, *words: str | Path) -> Done:
    """The program run in a folder, as what an engine keeps may go to the current one."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        return ettr(*words)
    finally:
        os.chdir(before)


EXAMPLE = sorted((Path(__file__).resolve().parents[1] / "data" / "bad_morning").iterdir())


@pytest.mark.slow
def test_a_duckdb_file_gives_the_report_of_a_folder(tmp_path: Path) -> None:
    documents = []
    for store in (tmp_path / "s", tmp_path / "s.duckdb"):
        # one after the other, so that later files meet what is stored
        for log in EXAMPLE:
            done = ettr("ingest", store, log, "--timezone", "UTC")
            assert done.code == 0, done.err
        done = ettr("report", store, "--json")
        assert done.code == 0, done.err
        documents.append(done.json)
    assert documents[0].keys() == documents[1].keys()
    for part in documents[0]:
        assert documents[0][part] == documents[1][part], part


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("duckdb://", "names no file, so nothing would be saved; give duckdb://site.duckdb"),
        ("duckdb:///", "names no file, so nothing would be saved"),
        ("duckdb://:memory:", "names no file, so nothing would be saved"),
        ("duckdb://md:site", "MotherDuck is not known to keep a store whole"),
        ("pyspark://local", "pyspark is not known to keep a store whole"),
        ("sqlite://s.sqlite", "sqlite is not known to keep a store whole; give a folder, s3:"),
        ("snowflake://u:secret@account/db", "snowflake is not known to keep a store whole"),
        ("foo://bar", "foo is not known to keep a store whole"),
        ("://", "it is not known to keep a store whole"),
        ("postgres://host", "names no database; give postgres://USER@HOST/DATABASE"),
        ("postgres://host:x/db", "is no URL: Port could not be cast"),
        ("postgres://[::1/db", "is no URL: Invalid IPv6 URL"),
    ],
)
def test_what_would_not_keep_a_store_is_refused_in_a_sentence(
    url: str, says: str, tmp_path: Path
) -> None:
    logs = write_logs(tmp_path)
    before = sorted(tmp_path.iterdir())
    for words in (("ingest", url, *logs, "--timezone", "UTC"), ("report", url), ("status", url)):
        done = in_folder(tmp_path, *words)
        assert (done.code, done.out) == (1, "")
        assert says in done.err
        assert "Traceback" not in done.err
        assert "secret" not in done.err
    assert sorted(tmp_path.iterdir()) == before


def test_reading_makes_no_store(tmp_path: Path) -> None:
    for where in ("duckdb://nope", "nope.duckdb"):
        assert "no such store; `ettr ingest" in in_folder(tmp_path, "report", where).err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_duckdb_file_of_any_name_is_a_store(tmp_path: Path) -> None:
    url = f"duckdb://{tmp_path}/site.db"
    done = ettr("ingest", url, *write_logs(tmp_path), "--timezone", "UTC")
    assert done.code == 0
    assert (
        ettr("status", tmp_path / "site.db", "--detail").out == ettr("status", url, "--detail").out
    )
    assert "NODE_FAIL" in ettr("status", url, "--detail").out


def test_a_database_with_tables_of_its_own_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "s.duckdb"
    with duckdb.connect(place) as duck:
        duck.execute("CREATE TABLE nodes AS SELECT 1 AS rack")
    for words in (("nodes", place), ("ingest", place, *write_logs(tmp_path), "--timezone", "UTC")):
        done = ettr(*words)
        assert done.code == 1
        assert "ettr did not make its table `nodes` (no column cluster, node" in done.err
    with duckdb.connect(place) as duck:
        assert duck.execute("SELECT table_name, rack FROM duckdb_tables(), nodes").fetchall() == [
            ("nodes", 1)
        ]


# -- one transaction ------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_commands_read_a_duckdb_file_at_once(tmp_path: Path) -> None:
    place = tmp_path / "s.duckdb"
    with open_store(place, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
    with open_store(place) as one:
        assert states(one) == {"1": "FAILED"}
        assert read_elsewhere(place).returncode == 0


@pytest.mark.slow
def test_who_reads_a_duckdb_file_under_an_ingestion_is_told(tmp_path: Path) -> None:
    place = tmp_path / "s.duckdb"
    with open_store(place, create=True) as store, store.ingestion("one"):
        done = read_elsewhere(place)
    assert done.returncode == 1
    assert "is writing to this store; try again when it is done" in done.stderr
    assert f"PID {os.getpid()}" in done.stderr


def read_elsewhere(place: Path) -> subprocess.CompletedProcess[str]:
    code = "from ettr.cli.main import main; main()"
    words = [sys.executable, "-c", code, "status", str(place)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("after", [name for name in TABLES if name not in {"nodes", "rejects"}])
def test_a_commit_that_breaks_off_after_any_table_leaves_what_was_before(
    after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ettr.store.backend import BackendStore

    place = tmp_path / "s.duckdb"
    with open_store(place, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "RUNNING", None)))
        merge = BackendStore._merge

        def breaks(self: BackendStore, table: object, *given: object) -> None:
            merge(self, table, *given)  # type: ignore[arg-type]
            if table is TABLES[after]:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(BackendStore, "_merge", breaks)
            with pytest.raises(KeyboardInterrupt):
                ingest(store, "two", attempts("two", ("1", "COMPLETED", NOON)))
        assert states(store) == {"1": "RUNNING"}
        assert [file.file_id for file in store.files()] == ["one"]
        ingest(store, "two", attempts("two", ("1", "COMPLETED", NOON)))
    with open_store(place) as store:
        assert states(store) == {"1": "COMPLETED"}
        assert [file.file_id for file in store.files()] == ["one", "two"]


@pytest.mark.slow
def test_files_keep_their_order_when_one_is_read_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.duckdb", create=True) as store:
        for file_id in ("one", "two", "one", "three"):
            ingest(store, file_id, attempts(file_id, (file_id, "FAILED", NOON)))
        turns = store.rows("files")["ingested"].to_pylist()
        assert len(set(turns)) == 3
        assert [file.file_id for file in store.files()] == ["two", "one", "three"]


def test_a_store_opened_to_read_takes_an_ingestion_too(tmp_path: Path) -> None:
    place = tmp_path / "s.duckdb"
    open_store(place, create=True).close()
    with open_store(place) as store:
        assert states(store) == {}
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
        assert states(store) == {"1": "FAILED"}


def test_a_pipe_is_no_duckdb_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s.duckdb")
    for create in (False, True):
        with pytest.raises(StoreError, match="is not a file; give a name for a file"):
            open_store(tmp_path / "s.duckdb", create=create)


def test_a_file_that_was_read_can_be_asked_again_after_an_ingestion(tmp_path: Path) -> None:
    place = tmp_path / "site.duckdb"
    with open_store(place, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
    with open_store(place) as store:
        assert count(store) == 1
        ingest(store, "two", attempts("two", ("2", "FAILED", NOON)))
        assert count(store) == 2


def count(store: Store) -> int:
    """Rows of attempts that the engine finds."""
    assert store.connection is not None
    query = f"SELECT count(*) FROM {store.source('attempts')}"
    ((n_rows,),) = store.connection.execute(query).fetchall()
    return int(n_rows)
