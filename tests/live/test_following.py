"""Files that grow, rotate and are compressed give the rows of one reading of them all."""

from __future__ import annotations

import gzip
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ettr.errors import StoreError
from ettr.live.watching import Follower, only_watcher
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store import open_store
from ettr.tables import TABLES

OPTIONS = ReadOptions(timezone="UTC", cluster="c")
_OF_FILES = {"file_id", "line", "ingested"}


def xid(second: int, node: str = "n1", code: int = 79) -> str:
    stamp = f"2026-03-{1 + second // 86400:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}"
    return f"{stamp}:{second % 60:02}+00:00 {node} kernel: NVRM: Xid (PCI:0000:3b:00): {code}, x\n"


def rows(store: Path) -> dict[str, list[Any]]:
    """All rows but those of `files`, without where they were read."""
    found = {}
    with open_store(store) as opened:
        for name in TABLES.keys() - {"files"}:
            table = [
                tuple((k, v) for k, v in row.items() if k not in _OF_FILES)
                for row in opened.rows(name).to_pylist()
            ]
            found[name] = sorted(table, key=repr)
    return found


def batch(folder: Path, *logs: Path) -> dict[str, list[Any]]:
    with open_store(folder / "batch", create=True) as opened:
        for log in logs:
            ingest_file(opened, log, OPTIONS)
    return rows(folder / "batch")


def follower(logs: Path) -> Follower:
    return Follower((str(logs / "kernel.log"),), OPTIONS)


def made_store(path: Path) -> str:
    open_store(path, create=True).close()
    return str(path)


def test_rotated_and_compressed_files_are_read_once(tmp_path: Path) -> None:
    store, said = made_store(tmp_path / "site"), []
    logs = tmp_path / "logs"
    logs.mkdir()
    log, watched = logs / "kernel.log", follower(logs)

    def look(watched: Follower) -> int:
        return len(watched.read_new(store, said.append))

    log.write_text(xid(0) + xid(400)[:-10])  # its second line is under way
    assert look(watched) == 1
    with log.open("a") as file:
        file.write(xid(400)[-10:] + xid(800))
    assert look(watched) == 1
    assert look(watched) == 0
    with log.open("a") as file:
        file.write(xid(1200))
    log.rename(logs / "kernel.log.1")  # rotated with a line that nobody had read
    log.write_text(xid(1600, code=74))
    assert look(watched) == 2
    (logs / "kernel.log.1.gz").write_bytes(gzip.compress((logs / "kernel.log.1").read_bytes()))
    (logs / "kernel.log.1").unlink()
    # a process that knows nothing but the store
    assert look(follower(logs)) == 0
    assert said == []
    log.write_text(xid(2000, node="n2"))  # truncated in place: another file
    assert look(follower(logs)) == 1
    texts = (
        "".join(map(xid, (0, 400, 800, 1200))),
        xid(1600, code=74),
        xid(2000, node="n2"),
    )
    whole = [tmp_path / f"{place}.log" for place in range(3)]
    for path, text in zip(whole, texts, strict=True):
        path.write_text(text)
    assert rows(tmp_path / "site") == batch(tmp_path, *whole)
    with open_store(store) as opened:
        assert len(opened.files()) == 3  # one row a file, however often it grew


def test_a_last_line_without_an_end_is_read_once_nobody_writes_it(tmp_path: Path) -> None:
    store, watched = made_store(tmp_path / "site"), follower(tmp_path)
    (tmp_path / "kernel.log").write_text(xid(0) + xid(400).rstrip("\n"))
    assert len(watched.read_new(store, print)) == 1
    assert len(watched.read_new(store, print)) == 1
    assert watched.read_new(store, print) == []
    whole = tmp_path / "whole.log"
    whole.write_text(xid(0) + xid(400))
    assert rows(tmp_path / "site") == batch(tmp_path, whole)


def test_what_is_no_log_is_spoken_of_once_and_the_others_are_read(tmp_path: Path) -> None:
    store, said = made_store(tmp_path / "site"), []
    (tmp_path / "kernel.log").write_text(xid(0))
    (tmp_path / "kernel.log.bak").write_text("dear diary\nnothing happened\n")
    watched = follower(tmp_path)
    assert len(watched.read_new(store, said.append)) == 1
    assert watched.read_new(store, said.append) == []
    assert len(said) == 1
    assert "kernel.log.bak" in said[0]


LOOP = """
import sys
from ettr.live.watching import Follower
from ettr.sources.base import ReadOptions
watched = Follower((sys.argv[2],), ReadOptions(timezone="UTC", cluster="c"))
print("up", flush=True)
while True:
    watched.read_new(sys.argv[1], print)
"""


@pytest.mark.slow
def test_kills_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    kill_while_writing(tmp_path, kills=3, seed=5)


def kill_while_writing(folder: Path, kills: int, seed: int) -> None:
    """Kill -9 a follower at random moments while its file grows and rotates; compare at the end."""
    drawn = random.Random(seed)
    store, log = made_store(folder / "site"), folder / "kernel.log"
    written: list[str] = []
    for turn in range(kills):
        program = [sys.executable, "-c", LOOP, store, str(log)]
        with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            until = time.monotonic() + drawn.uniform(0.1, 0.7)
            while time.monotonic() < until:
                lines = [xid(400 * (len(written) + k), f"n{k}") for k in range(5)]
                written += lines
                with log.open("a") as file:
                    file.write("".join(lines))
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        if turn % 2:
            log.rename(f"{log}.{turn}")
            log.write_text("")
    follower(folder).read_new(store, print)
    files = sorted(folder.glob("kernel.log*"), key=lambda path: path.stat().st_mtime_ns)
    with_rows = [path for path in files if path.stat().st_size]
    assert "".join(path.read_text() for path in with_rows) == "".join(written)
    assert rows(folder / "site") == batch(folder, *with_rows)


def test_a_second_watcher_says_so_and_waits(tmp_path: Path) -> None:
    said: list[str] = []
    entered: list[int] = []
    spoke = threading.Event()

    def complain(text: str) -> None:
        said.append(text)
        spoke.set()

    def watch_too() -> None:
        with only_watcher(tmp_path / "site", complain):
            entered.append(1)

    second = threading.Thread(target=watch_too)
    with only_watcher(tmp_path / "site", complain):
        second.start()
        assert spoke.wait(60.0)
        assert not entered
    second.join(60.0)
    assert entered == [1]
    assert said == [f"{tmp_path / 'site'}: another process watches it; waiting until it ends"]


def test_a_full_disk_leaves_the_store_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ettr.store.folder as folder_store

    store, watched = made_store(tmp_path / "site"), follower(tmp_path)
    (tmp_path / "kernel.log").write_text(xid(0))
    with monkeypatch.context() as patched:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(folder_store, "flush", full)
        with pytest.raises(StoreError, match="No space left"):
            watched.read_new(store, print)
    assert rows(tmp_path / "site")["events"] == []
    assert len(watched.read_new(store, print)) == 1
    assert len(rows(tmp_path / "site")["events"]) == 1
