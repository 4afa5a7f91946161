"""What commands print is read once: sacct and sacctmgr since the last end, journalctl by cursor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ettr.analysis import Assumptions
from ettr.live.watching import JOURNAL, StoreWatch, WatchPlan
from ettr.sources.base import ReadOptions
from ettr.store import open_store
from live.test_following import batch, rows

SLURM = """#!/usr/bin/env -S python3 -SEs
import json, os, sys
folder = os.path.dirname(sys.argv[0])
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
site = json.load(open(f"{folder}/site.json"))
open(f"{folder}/calls", "a").write(json.dumps([name, *words]) + chr(10))
if name in site.get("down", []):
    sys.exit("slurm_persist_conn_open: Connection refused")
if name == "scontrol":
    print("NodeName=n1 Arch=x86_64 CPUTot=64" + chr(10) + "   State=IDLE Gres=gpu:8" + chr(10))
elif name == "sacctmgr":
    print("Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User")
else:
    begin, end = words[words.index("-S") + 1], words[words.index("-E") + 1]
    print(site["header"])
    for job in site["jobs"]:
        if job["start"] < end and job["end"] >= begin:
            print(job["line"])
"""
JOURNALCTL = """#!/usr/bin/env -S python3 -SEs
import json, os, sys
folder = os.path.dirname(sys.argv[0])
lines = open(f"{folder}/journal").read().splitlines()
open(f"{folder}/calls", "a").write(json.dumps(sys.argv[1:]) + chr(10))
after = [w.partition("=")[2] for w in sys.argv if w.startswith("--after-cursor=")]
cursors = [json.loads(line)["__CURSOR"] for line in lines]
new = lines[cursors.index(after[0]) + 1:] if after else lines
cut = os.path.exists(f"{folder}/cut")
text = "".join(line + chr(10) for line in new)
sys.stdout.write(text[:-20] if cut else text)
sys.exit(1 if cut else 0)
"""
HEADER = "Cluster|JobID|JobName|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList"
DAY = datetime(2026, 3, 1, tzinfo=UTC)


def job(number: int, day: float, hours: float) -> dict[str, str]:
    """As sacct prints it once it has ended."""
    start = DAY + timedelta(days=day)
    begin, end = (f"{t:%Y-%m-%dT%H:%M:%S}" for t in (start, start + timedelta(hours=hours)))
    line = f"c|{number}|train|ann|COMPLETED|0:0|{begin}|{begin}|{end}|{3600 * hours:.0f}|1|n1"
    return {"line": line, "start": begin, "end": end}


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    slurm = dict.fromkeys(("sacct", "sacctmgr", "scontrol"), SLURM)
    for name, text in {**slurm, "journalctl": JOURNALCTL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    # what is read is looked at here, and what is served in test_served.py
    monkeypatch.setattr(StoreWatch, "_compute", lambda _: None)
    return folder


def watch(
    folder: Path,
    clock: Callable[[], datetime],
    said: list[str],
    files: tuple[str, ...] = (),
    **plan: object,
) -> StoreWatch:
    open_store(folder / "site", create=True).close()
    options = ReadOptions(timezone="UTC", cluster="c")
    given = WatchPlan(folder / "site", files, options, with_page=False, **plan)  # type: ignore[arg-type]
    return StoreWatch(given, Assumptions(), clock, lambda _: None, said.append)


def test_accounting_is_asked_for_since_the_last_end(tmp_path: Path, commands: Path) -> None:
    now, said = [DAY + timedelta(days=2, hours=6)], []
    jobs = [job(1, 0.1, 5), job(2, 1.5, 11)]

    def site(**changed: object) -> None:
        answers = {"header": HEADER, "jobs": jobs, **changed}
        (commands / "site.json").write_text(json.dumps(answers))

    def attempts() -> list[tuple[str, str]]:
        with open_store(tmp_path / "site") as opened:
            table = opened.rows("attempts").to_pylist()
        return sorted((row["job_id"], row["state"]) for row in table)

    def asked(name: str) -> list[str]:
        calls = [json.loads(line) for line in (commands / "calls").read_text().splitlines()]
        (commands / "calls").unlink()
        return [call[call.index("-S") + 1] for call in calls if call[0] == name]

    watched = watch(tmp_path, lambda: now[0], said, collect_every_s=900.0, collect_since=DAY)
    site()
    watched.look()
    assert asked("sacct") == ["2026-03-01T00:00:00"]
    assert attempts() == [("1", "COMPLETED"), ("2", "COMPLETED")]
    now[0] += timedelta(minutes=5)
    watched.look()
    assert not (commands / "calls").exists()  # not every look
    # a later run begins a day before the last end that the store has, and forgets no older job
    jobs.append(job(3, 2.2, 1))
    now[0] += timedelta(minutes=15)
    site()
    watched.look()
    assert asked("sacct") == ["2026-03-01T00:00:00"]
    jobs.append(job(4, 3.1, 1))
    now[0] += timedelta(days=2)
    site()
    watched.look()
    assert asked("sacct") == ["2026-03-02T00:00:00"]
    assert [number for number, _ in attempts()] == ["1", "2", "3", "4"]
    # a database that does not answer is spoken of and counted, and asked again at the next look
    site(down=["sacct"])
    now[0] += timedelta(minutes=15)
    watched.look()
    assert any("Connection refused" in one for one in said)
    assert watched.served.health
    assert watched.served.health["ok"] is False
    assert b"ettr_watch_errors_total 1.0" in watched.served.metrics
    site()
    now[0] += timedelta(minutes=1)
    watched.look()
    assert watched.served.health["ok"] is True
    # more runs of a day are no more files of the store
    with open_store(tmp_path / "site") as opened:
        before = len(opened.files())
    now[0] += timedelta(minutes=15)
    watched.look()
    with open_store(tmp_path / "site") as opened:
        assert len(opened.files()) == before


def entry(number: int, message: str, node: str = "n1") -> str:
    """A line as journalctl prints it as JSON, one each 400 s."""
    time_us = int((DAY + timedelta(seconds=400 * number)).timestamp() * 1e6)
    held = {
        "__CURSOR": f"s=1;i={number}",
        "__REALTIME_TIMESTAMP": str(time_us),
        "_TRANSPORT": "kernel",
        "SYSLOG_IDENTIFIER": "kernel",
        "_HOSTNAME": node,
        "MESSAGE": message,
    }
    return json.dumps(held) + "\n"


def test_a_journal_is_read_behind_its_last_cursor(tmp_path: Path, commands: Path) -> None:
    said: list[str] = []
    journal, pieces = commands / "journal", tmp_path / "site" / JOURNAL
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    written = [entry(0, "usb 1-1: new device"), entry(1, xid)]

    def look(*more: str) -> None:
        written.extend(more)
        journal.write_text("".join(written))
        # each time a process that knows nothing but the store
        watch(tmp_path, lambda: DAY, said, journal=("--dmesg",)).look()

    look()
    look()
    look(entry(2, "usb 1-1: USB disconnect"), entry(3, xid, "n2"))
    # a kill while journalctl printed: the rest of its line is taken again
    (commands / "cut").touch()
    look(entry(4, xid), entry(5, xid, "n2"))
    assert any("status 1" in one for one in said)
    (commands / "cut").unlink()
    look()
    # an empty piece is nothing
    (pieces / "99990101T000000000000.json").touch()
    look(entry(6, xid, "n3"))
    (tmp_path / "whole.json").write_text("".join(written))
    assert rows(tmp_path / "site") == batch(tmp_path, tmp_path / "whole.json")
    assert len(rows(tmp_path / "site")["events"]) == 5
    calls = [json.loads(line) for line in (commands / "calls").read_text().splitlines()]
    after = [word for call in calls for word in call if word.startswith("--after")]
    assert after == [f"--after-cursor=s=1;i={n}" for n in (1, 1, 3, 4, 5)]
    assert all("--dmesg" in call and "--output=json" in call for call in calls)


def test_a_large_piece_of_a_journal_is_followed_by_another(
    tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ettr.live.watching as followed

    monkeypatch.setattr(followed, "_MOST_BYTES", 100)
    xid, written = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", []
    for number, day in enumerate((0, 2, 1, 3)):  # the clock is set back, too
        written.append(entry(number, xid, f"n{number}"))
        (commands / "journal").write_text("".join(written))
        watched = watch(tmp_path, lambda day=day: DAY + timedelta(days=day), [], journal=())
        watched.look()
        watched.look()
    assert len(list((tmp_path / "site" / JOURNAL).iterdir())) == 1
    assert len(rows(tmp_path / "site")["events"]) == 4
    assert '"--after-cursor=s=1;i=2"' in (commands / "calls").read_text().splitlines()[-2]


def test_without_journalctl_the_files_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from live.test_following import xid

    (tmp_path / "kernel.log").write_text(xid(0))
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    files = (str(tmp_path / "kernel.log"),)
    watched = watch(tmp_path, lambda: DAY, said, files, journal=())
    watched.look()
    assert any("journalctl: there is no such command" in one for one in said)
    assert len(rows(tmp_path / "site")["events"]) == 1
