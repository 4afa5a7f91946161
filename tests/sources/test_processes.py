"""Logs read by several processes: the rows of one process, and no process left behind."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.sources import processes
from ettr.sources.base import ReadOptions
from ettr.sources.origin import Origin
from ettr.sources.slurm import sacct
from ettr.store import open_store
from ettr.tables import TABLES
from source_samples import SAMPLES

LOGS = Path(__file__).resolve().parents[1] / "data" / "bad_morning"
DIRTY = ("slurm-sacct/broken_records.psv", "slurm-sacct/states_and_ids.psv")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["", ".duckdb"])
def test_two_processes_store_what_one_does(tmp_path: Path, ending: str):
    again = shutil.copy(SAMPLES / DIRTY[0], tmp_path / "again.psv")
    bad = tmp_path / "bad.log"
    bad.write_bytes(b"\x00\x01 no log")
    others = () if ending else sorted(LOGS.iterdir())
    logs = [*others, *(SAMPLES / name for name in DIRTY), again, bad]
    words = (*map(str, logs), "--timezone", "UTC", "--json")
    found = []
    for jobs in ("1", "2"):
        place = str(tmp_path / f"{jobs}{ending}")
        done = ettr("ingest", place, *words, "--jobs", jobs)
        assert done.code == 1
        assert "bad.log: " in done.err
        assert f"{len(logs) - 1} other logs of {len(logs)} are in the store" in done.err
        with open_store(place) as store:
            rows = {name: sorted(map(str, store.rows(name).to_pylist())) for name in TABLES}
            assert len(rows["files"]) == len(logs) - 2  # the same bytes are known
        found.append((rows, done.err.replace(place, "STORE")))
        readers = "1" if ending else jobs  # processes get what is known, of any store
        repeated = ettr("ingest", place, *words[:-4], "--timezone", "UTC", "--jobs", readers)
        assert repeated.out.count("already in the store, unchanged") == len(logs) - 1
    assert found[0] == found[1]


@pytest.mark.parametrize("name", DIRTY)
@pytest.mark.parametrize("size_bytes", [1, 100, 1500, 1 << 20])
def test_a_block_read_by_itself_has_the_rows_it_has_in_its_file(
    name: str, size_bytes: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sacct, "CHUNK_BYTES", size_bytes)
    path = SAMPLES / name
    origin, options = Origin(path, "id", path.read_bytes()), ReadOptions(timezone="UTC")

    def spread(work, items):
        for item in items:  # as they go to another process and come back
            given = pickle.loads(pickle.dumps((work, item)))  # noqa: S301
            yield pickle.loads(pickle.dumps(given[0](given[1])))  # noqa: S301

    whole = list(sacct.read(origin, options))
    assert list(sacct.read(origin, options, spread)) == whole
    assert len(whole) > 5 or size_bytes > 100


@pytest.mark.slow
def test_a_large_log_read_by_two_processes_is_stored_as_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processes, "WORTH_BLOCKS_BYTES", 1)
    monkeypatch.setattr(sacct, "CHUNK_BYTES", 1 << 10)
    header, *records = (SAMPLES / DIRTY[1]).read_bytes().splitlines(keepends=True)
    large, torn = tmp_path / "large.psv", tmp_path / "torn.psv.gz"
    large.write_bytes((SAMPLES / DIRTY[0]).read_bytes() * 20)
    torn.write_bytes(gzip.compress(header + b"".join(records))[:-20])
    words = [str(torn), str(large), str(SAMPLES / DIRTY[1]), "--timezone", "UTC"]
    found = []
    for jobs in ("1", "2"):
        place = str(tmp_path / jobs)
        done = ettr("ingest", place, *words, "--jobs", jobs)
        assert done.code == 1
        assert "torn.psv.gz: is corrupt or truncated" in done.err
        with open_store(place) as store:
            assert len(store.files()) == 2
            rows = {name: sorted(map(str, store.rows(name).to_pylist())) for name in TABLES}
        found.append((rows, done.err.replace(place, "STORE")))
    assert found[0] == found[1]


@pytest.mark.slow
def test_workers_end_with_the_process_that_is_killed(tmp_path: Path):
    header, *rows = (SAMPLES / DIRTY[1]).read_bytes().splitlines(keepends=True)
    for name in ("a.psv", "b.psv"):
        (tmp_path / name).write_bytes(header + b"".join(rows) * 40_000 + name.encode())
    code = "import sys; from ettr.cli.main import main; sys.exit(main())"
    words = ["ingest", "s", "a.psv", "b.psv", "--timezone", "UTC", "--jobs", "2"]
    parent = subprocess.Popen([sys.executable, "-c", code, *words], cwd=tmp_path)

    def workers() -> list[int]:
        listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        command = {one: Path(f"/proc/{one}/cmdline").read_bytes() for one in listed}
        return [int(one) for one, text in command.items() if b"spawn_main" in text]

    started = time.monotonic()
    while len(found := workers()) < 2:
        assert parent.poll() is None
        assert time.monotonic() < started + 60
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    started = time.monotonic()
    while any(_runs(one) for one in found):
        assert time.monotonic() < started + 20, "a worker outlived the process that started it"
        time.sleep(0.05)
    with open_store(tmp_path / "s") as store:
        assert not store.files()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_arrow_looks_for_no_pandas_and_finds_it_when_asked(tmp_path):
    (tmp_path / "pandas.py").write_text("raise ImportError('pandas was looked for')")
    script = """
        import sys

        import pyarrow as pa

        from ettr.store.computing import spare_pandas

        spare_pandas()
        pa.array(["a"]).take([0])
        assert "pandas" not in sys.modules
        try:
            pa.table({"a": [1]}).to_pandas()
        except ImportError as error:
            print(error)
    """
    seen = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout == "pandas was looked for\n"


def test_ingest_imports_no_pandas(tmp_path):
    (tmp_path / "pandas.py").write_text("print('pandas was imported')")
    log = tmp_path / "sacct.psv"
    log.write_text("JobID|State|Submit|Elapsed\n1|COMPLETED|2026-01-01T00:00:00|01:00\n")
    command = "import sys; from ettr.cli.main import main_alone; sys.exit(main_alone())"
    seen = subprocess.run(
        [sys.executable, "-c", command, "ingest", tmp_path / "store", log, "--timezone", "UTC"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 kept" in seen.stdout
    assert "pandas" not in seen.stdout
