"""A store in PostgreSQL gives the same report as a folder, and commits in one transaction."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr, write_logs
from ettr.errors import StoreError
from ettr.store import open_store
from store.postgres_server import running
from store.test_store import NOON, attempts, ingest, states

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

EXAMPLE = Path(__file__).resolve().parents[1] / "data" / "bad_morning"
METRICS = ("status", "sizes", "failures", "mttf", "runs", "goodput", "nodes", "quality")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running() as url:
        yield url


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    """A database of the test's own."""
    import psycopg

    name = f"site_{abs(hash(request.node.name))}"
    with psycopg.connect(f"{server}/postgres".replace("postgres://", "postgresql://")) as admin:
        admin.autocommit = True
        admin.execute(f'CREATE DATABASE "{name}"')
    return f"{server}/{name}"


def test_every_command_says_what_it_says_of_a_folder(url: str, tmp_path: Path) -> None:
    logs = sorted(EXAMPLE.iterdir())
    for store in (url, str(tmp_path / "s")):
        assert ettr("ingest", store, *logs, "--timezone", "UTC").code == 0
    for command in METRICS:
        ours, theirs = (ettr(command, store, "--json") for store in (str(tmp_path / "s"), url))
        assert theirs.code == 0, theirs.err
        assert_close(ours.json, theirs.json, command)
    for words in (("plan", "--gpus", "1024"), ("explain", "4"), ("report", "--json")):
        command, *rest = words
        ours, theirs = (ettr(command, store, *rest) for store in (str(tmp_path / "s"), url))
        assert (ours.code, theirs.code) == (0, 0), theirs.err
    page = tmp_path / "r.html"
    done = ettr("report", url, "-o", page)
    assert done.code == 0, done.err
    assert page.stat().st_size > 100_000
    again = ettr("ingest", url, *logs, "--timezone", "UTC")
    assert again.out.count("already in the store, unchanged") == len(logs)


def assert_close(one: Any, other: Any, where: str) -> None:
    """Equal but for the last digits of sums and the order of rows that no query orders."""
    if isinstance(one, dict):
        assert list(one) == list(other), where
        for key, value in one.items():
            assert_close(value, other[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        if one and isinstance(one[0], dict):
            one, other = (sorted(rows, key=json.dumps) for rows in (one, other))
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_close(left, right, f"{where}[{place}]")
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9), where
    else:
        assert one == other, where


def test_who_reads_sees_one_moment(url: str) -> None:
    with open_store(url, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "RUNNING", None)))
    with open_store(url) as reader:
        assert states(reader) == {"1": "RUNNING"}
        with open_store(url, create=True) as writer:
            ingest(writer, "two", attempts("two", ("1", "COMPLETED", NOON)))
        assert [file.file_id for file in reader.files()] == ["one"]
        assert states(reader) == {"1": "RUNNING"}
    with open_store(url) as reader:
        assert states(reader) == {"1": "COMPLETED"}


def test_two_processes_do_not_ingest_at_once(url: str) -> None:
    with (
        open_store(url, create=True) as one,
        open_store(url, create=True) as other,
        one.ingestion("a"),
        pytest.raises(StoreError, match="another process is ingesting"),
    ):
        ingest(other, "b", attempts("b", ("1", "FAILED", NOON)))
    with open_store(url) as store:  # opened to read, and the lock is free again
        ingest(store, "b", attempts("b", ("1", "FAILED", NOON)))
        assert states(store) == {"1": "FAILED"}


def test_a_connection_that_is_cut_within_a_commit_leaves_what_was_before(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ettr.store.backend import BackendStore
    from ettr.tables import FILES

    with open_store(url, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "RUNNING", None)))
    merge = BackendStore._merge

    def cut(self: BackendStore, table: object, *given: object) -> None:
        if table is FILES:
            pid = self._engine.server.info.backend_pid
            killer = threading.Thread(target=terminate, args=(url, pid))
            killer.start()
            killer.join()
        merge(self, table, *given)  # type: ignore[arg-type]

    with open_store(url, create=True) as store, monkeypatch.context() as patched:
        patched.setattr(BackendStore, "_merge", cut)
        with pytest.raises(StoreError, match=r"cannot be written: .*the store is as it was before"):
            ingest(store, "two", attempts("two", ("1", "COMPLETED", NOON)))
    with open_store(url) as store:
        assert states(store) == {"1": "RUNNING"}
        assert [file.file_id for file in store.files()] == ["one"]


def terminate(url: str, pid: int) -> None:
    import psycopg

    with psycopg.connect(url.replace("postgres://", "postgresql://")) as admin:
        admin.execute("SELECT pg_terminate_backend(%s)", (pid,))


def test_a_password_is_in_no_message(url: str) -> None:
    with_password = url.replace("postgres@", "postgres:secret@")
    assert ettr("status", with_password).code == 0
    nowhere = with_password.rpartition("/")[0] + "/nowhere"
    done = ettr("status", nowhere, "--detail")
    assert "nowhere: cannot be opened: " in done.err
    for one in (with_password, nowhere):
        for words in (("status", one), ("plan", one, "--gpus", "64"), ("project", one)):
            done = ettr(*words)
            assert "secret" not in done.err + done.out


def test_access_to_files_is_no_matter_of_a_server(url: str, tmp_path: Path) -> None:
    logs = write_logs(tmp_path)
    done = ettr("ingest", url, *logs, "--timezone", "UTC", "--readable-by", "all")
    assert (done.code, done.out) == (2, "")
    assert "--readable-by is for a folder or a DuckDB file" in done.err
