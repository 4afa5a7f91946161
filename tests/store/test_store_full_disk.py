"""A disk that fills up: a sentence, exit status 1, and what was there before is there still."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.kills import dump
from cli.program import Done
from ettr.store import open_store

pytestmark = pytest.mark.slow

LIMIT_BYTES = 40_000


def limited(*words: str | Path) -> Done:
    """The program where no file may grow beyond `LIMIT_BYTES`, as on a disk that is full."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))

    code = "from ettr.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def ingest(place: Path, log: Path) -> None:
    from cli.program import ettr

    assert ettr("ingest", place, log, "--timezone", "UTC").code == 0


def n_rows(place: Path) -> int:
    with open_store(place) as store:
        return store.rows("attempts").num_rows


@pytest.mark.parametrize("kind", ["s", "s.duckdb"])
def test_an_ingestion_without_room_leaves_the_store_as_it_was(kind: str, tmp_path: Path) -> None:
    place = tmp_path / kind
    first, second = (dump(tmp_path / f"{job}.psv", job, ended=True) for job in (1, 3001))
    ingest(place, first)
    before = n_rows(place)
    done = limited("ingest", place, second, "--timezone", "UTC")
    assert (done.code, done.out) == (1, "")
    assert "cannot be written: " in done.err
    assert "the store is as it was before" in done.err
    assert "Traceback" not in done.err
    assert n_rows(place) == before == 4000
    ingest(place, second)
    assert n_rows(place) == 7000


@pytest.mark.parametrize("kind", ["s", "s.duckdb"])
def test_a_new_store_without_room_is_made_once_there_is_room(kind: str, tmp_path: Path) -> None:
    place, log = tmp_path / kind, dump(tmp_path / "a.psv", 1, ended=True)
    done = limited("ingest", place, log, "--timezone", "UTC")
    assert (done.code, done.out) == (1, "")
    assert "cannot be written: " in done.err
    ingest(place, log)
    assert n_rows(place) == 4000


def test_a_report_without_room_leaves_the_older_one(tmp_path: Path) -> None:
    place, page = tmp_path / "s", tmp_path / "r.html"
    ingest(place, dump(tmp_path / "a.psv", 1, ended=True))
    page.write_text("older")
    done = limited("report", place, "-o", page)
    assert done.code == 1
    assert f"ettr: {page}: File too large\n" in done.err
    assert page.read_text() == "older"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.psv", "r.html", "s"]
