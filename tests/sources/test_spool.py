"""Logs that come through standard input and pipes are read as files are."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cli.program import KERNEL, PROGRAM, SACCT
from cli.program import ettr as ettr_here
from ettr.analysis import Analysis
from ettr.errors import SourceError
from ettr.sources import origin
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store import open_store

pytestmark = pytest.mark.slow

UTC_SAID = ReadOptions(timezone="UTC")


def ettr(*words: str | Path, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [PROGRAM, *map(str, words)],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, **more},
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def test_standard_input_is_recognised_hashed_and_kept_once(tmp_path: Path) -> None:
    words = ("ingest", tmp_path / "s", "-", "--timezone", "UTC")
    plain, compressed = SACCT.encode(), gzip.compress(SACCT.encode())
    for data in (plain, compressed):
        done = ettr(*words, stdin=data)
        assert done.returncode == 0, done.stderr
        assert "stdin: slurm-sacct, 6 records read as rows of attempts (6)" in done.stdout
        # no library complains of what a program leaves at its end
        assert all(line.startswith("ettr: ") for line in done.stderr.splitlines()), done.stderr
    assert "stdin: slurm-sacct, already in the store" in ettr(*words, stdin=compressed).stdout
    # the same bytes in a file are the same log
    (tmp_path / "sacct.psv").write_bytes(plain)
    (tmp_path / "sacct.psv.gz").write_bytes(compressed)
    files = (tmp_path / "sacct.psv", tmp_path / "sacct.psv.gz")
    again = ettr_here("ingest", tmp_path / "s", *files, "--timezone", "UTC", "--json")
    assert [one["unchanged"] for one in again.json] == [True, True]


def test_process_substitution_of_several_logs(tmp_path: Path) -> None:
    """One that names no cluster, though it comes first, has that of the other."""
    (tmp_path / "sacct.gz").write_bytes(gzip.compress(SACCT.encode()))
    (tmp_path / "kernel.log").write_text(KERNEL)
    line = f"'{PROGRAM}' ingest s <(cat kernel.log) <(gzip -dc sacct.gz) --timezone UTC"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(": ")[1].split(",")[0] for line in done.stdout.splitlines()] == [
        "kernel-xid",
        "slurm-sacct",
    ]
    with open_store(tmp_path / "s") as store:
        (event,) = Analysis(store).facts.rows("events")
    assert (event["cluster"], event["node"]) == ("c", "n1")


def test_a_report_of_standard_input(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = ettr("report", "-", "-o", page, "--timezone", "UTC", stdin=SACCT.encode())
    assert done.returncode == 0, done.stderr
    assert page.stat().st_size > 10_000


def test_a_fifo_waits_for_a_late_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "PATIENCE_S", 0.05)
    fifo = tmp_path / "sacct.fifo"
    os.mkfifo(fifo)
    said: list[str] = []

    def write_late() -> None:
        while not said:
            time.sleep(0.01)
        fifo.write_text(SACCT)

    writer = threading.Thread(target=write_late)
    writer.start()
    with origin.log_file(fifo, said.append) as log:
        assert log.path.read_text() == SACCT
        assert (str(log), log.name, log.is_nameless) == (str(fifo), "sacct.fifo", False)
    writer.join()
    assert said == [f"{fifo}: waiting, nothing has been written to it yet"]
    assert not log.path.exists()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_fifo_that_nobody_writes_to_is_told_and_can_be_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: signal.Signals
) -> None:
    fifo = tmp_path / "sacct.fifo"
    os.mkfifo(fifo)
    # a shell starts what runs in the background with SIGINT ignored, and so would the tests be
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from ettr.sources import origin; origin.PATIENCE_S = 0.2; "
        "from ettr.cli.main import main; main()"
    )
    words = [sys.executable, "-c", code, "ingest", str(tmp_path / "s"), str(fifo)]
    spools = tmp_path / "tmp"
    spools.mkdir()
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(spools)}
    ) as running:
        assert running.stderr is not None
        first = running.stderr.readline()
        assert first == f"ettr: {fifo}: waiting, nothing has been written to it yet\n"
        running.send_signal(by)
        _, rest = running.communicate(timeout=60)
        assert running.returncode == (130 if by == signal.SIGINT else -by)
    assert "Traceback" not in rest
    if by == signal.SIGKILL:
        assert len(list(spools.iterdir())) == 1
        monkeypatch.setattr("tempfile.tempdir", str(spools))
        writer = threading.Thread(target=lambda: fifo.write_text(SACCT))
        writer.start()
        with origin.log_file(fifo):
            writer.join()
    assert list(spools.iterdir()) == []


def test_an_empty_stream_is_told_so(tmp_path: Path) -> None:
    done = ettr("ingest", tmp_path / "s", "-", "--timezone", "UTC")
    assert done.returncode == 1
    assert done.stderr == "ettr: stdin: is empty\n"


def test_standard_input_can_be_named_once(tmp_path: Path) -> None:
    done = ettr("ingest", tmp_path / "s", "-", "-", stdin=SACCT.encode())
    assert done.returncode == 2
    assert "- is given twice" in done.stderr
    assert not (tmp_path / "s").exists()


def test_a_stream_beyond_the_limit_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "SPOOL_LIMIT_BYTES", 1 << 20)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    with (
        open_store(tmp_path / "s", create=True) as store,
        pytest.raises(SourceError, match=r"/dev/zero: more than .* GiB come through it; write"),
    ):
        ingest_file(store, Path("/dev/zero"), UTC_SAID)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_stream_for_which_there_is_no_room_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(origin, "_copy", full)
    fifo = tmp_path / "f"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_text("x"))
    writer.start()
    with pytest.raises(SourceError, match=r"no room for it in .*; set TMPDIR to a folder"):  # noqa: SIM117
        with origin.log_file(fifo):
            pass
    writer.join()


def test_a_descriptors_name_is_no_nodes_name(tmp_path: Path) -> None:
    """Lines without a host take it from a file's name, and from no other."""
    line = "[Sun Mar  1 10:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, x\n"
    nodes = {}
    for name, stdin in (("-", line.encode()), (str(tmp_path / "n7.log"), b"")):
        (tmp_path / "n7.log").write_text(line)
        place = tmp_path / f"s{len(nodes)}"
        done = ettr("ingest", place, name, "--timezone", "UTC", stdin=stdin)
        assert done.returncode == 0, done.stderr
        with open_store(place) as store:
            (event,) = store.rows("events").to_pylist()
        nodes[name[-1]] = event["node"]
    assert nodes == {"-": None, "g": "n7"}
