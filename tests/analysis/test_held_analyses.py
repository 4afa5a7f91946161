"""The answers that tests share are those that each would compute; a changed store shares none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from cli.program import ettr, write_logs
from ettr.analysis import Analysis
from ettr.report.page import document
from ettr.report.rows import plain
from ettr.store import open_store
from held_analyses import MEMORY, digest_of

pytestmark = pytest.mark.slow

ONE_MORE = """\
Cluster|JobID|JobName|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
c|9|late|eve|NODE_FAIL|0:0|2026-03-03T05:00:00|2026-03-03T05:00:00|2026-03-03T06:00:00|3600|1|n4|gres/gpu=8
"""


def site(folder: Path) -> Path:
    folder.mkdir()
    done = ettr("ingest", folder / "store", *write_logs(folder), "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


@contextmanager
def nothing_held() -> Iterator[None]:
    MEMORY.is_on = False
    try:
        yield
    finally:
        MEMORY.is_on = True


def reported(store: Path) -> object:
    with open_store(store) as opened:
        return plain(document(Analysis(opened)))


def attempts_in(store: Path) -> int:
    with open_store(store) as opened:
        return Analysis(opened).totals.attempts


def test_a_report_of_held_answers_is_the_one_computed_anew(tmp_path: Path) -> None:
    first, second = site(tmp_path / "a"), site(tmp_path / "b")
    reported(first)
    with open_store(first) as one, open_store(second) as other:
        assert Analysis(other).rates is Analysis(one).rates
    held = reported(second)
    with nothing_held():
        assert held == reported(second)
        with open_store(first) as one:
            assert Analysis(one).rates is not Analysis(one).rates


def test_a_store_that_was_written_to_is_asked_anew(tmp_path: Path) -> None:
    store, more = site(tmp_path / "a"), tmp_path / "more.psv"
    before = attempts_in(store)
    more.write_text(ONE_MORE)
    assert ettr("ingest", store, more, "--timezone", "UTC").code == 0
    assert attempts_in(store) == before + 1


def test_a_store_that_decayed_is_asked_anew(tmp_path: Path) -> None:
    store = site(tmp_path / "a")
    assert ettr("status", store).code == 0
    (part,) = (store / "parts" / "attempts").iterdir()
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    assert digest_of(store) != digest_of(site(tmp_path / "b"))
    done = ettr("status", store, "--detail")
    assert done.code != 0
    assert part.name in done.err


def test_what_a_test_plants_in_an_analysis_is_seen_by_no_other(tmp_path: Path) -> None:
    store = site(tmp_path / "a")
    with open_store(store) as opened:
        planted, whole = Analysis(opened), Analysis(opened)
        logs = planted.logs_period
        moved = planted.__dict__["logs_period"] = replace(logs, end=logs.end + timedelta(days=1))
        assert planted.period == moved
        assert whole.period == Analysis(opened).period == logs


@pytest.mark.usefixtures("monkeypatch")
def test_a_test_that_patches_something_shares_nothing() -> None:
    assert not MEMORY.is_on


def test_stores_of_one_engine_see_their_own_facts_alone(tmp_path: Path) -> None:
    first, second = site(tmp_path / "a"), site(tmp_path / "b")
    more = tmp_path / "more.psv"
    more.write_text(ONE_MORE)
    assert ettr("ingest", second, more, "--timezone", "UTC").code == 0
    with open_store(first) as one, open_store(second) as other:
        name = Analysis(one).facts.table("status")
        with pytest.raises(duckdb.CatalogException, match="does not exist"):
            other.connection.execute(f"FROM {name}")
        assert Analysis(other).totals.attempts == Analysis(one).totals.attempts + 1


def test_a_statement_of_the_users_own_locks_no_engine_but_its_own(tmp_path: Path) -> None:
    store, again = site(tmp_path / "a"), site(tmp_path / "b")
    with open_store(store) as opened:
        attempts = Analysis(opened).totals.attempts
        done = ettr("sql", again, "SELECT count(*) AS n FROM attempts", "--json")
        assert done.json == [{"n": attempts}]
        opened.connection.execute("SET threads = 2")
        assert attempts_in(again) == attempts
