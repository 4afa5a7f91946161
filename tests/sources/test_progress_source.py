"""Progress lines into the `progress` table: dirty sample and expected rows."""

import bz2
import gzip
import lzma
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ettr.progress import read_progress
from ettr.sources.base import ReadOptions
from ettr.sources.origin import Origin
from ettr.sources.progress import SOURCE, matches, read
from ettr.tables import PROGRESS, REJECTS

# Made by hand after the recorder's format: a tear in the middle (the process was killed and the
# next one began a new line), a foreign line, and values that no recorder writes.
DIRTY = b"""\
{"v":1,"run":"r1","cluster":"c1","job":"17","rank":0,"time":1700000000.250000,"event":"start","step":0,"duration_s":null}
{"v":1,"run":"r1","cluster":"c1","job":"17","rank":0,"time":1700000001.0,"event":"step","step":1,"duration_s":0.43,"detail":{"loss":2.5}}
{"v":1,"run":"r1","cluster":"c1","job":"17","rank":0,"ti

hello
{"v":2,"run":"r1","time":1,"event":"step","step":1}
{"v":1,"run":"r1","time":1700000002,"event":"epoch","step":1}
{"v":1,"run":"","time":1700000002,"event":"step","step":1}
{"v":1,"run":"r1","time":"late","event":"step","step":1}
{"v":1,"run":"r1","time":1e300,"event":"step","step":1}
{"v":1,"run":"r1","time":1700000002,"event":"step","step":1.5}
{"v":1,"run":"r1","time":1700000002,"event":"step","step":1,"duration_s":-1}
[1]
{"v":1,"run":"r1","time":1700000003,"event":"end","step":1}"""


def raw(tmp_path: Path, data: bytes) -> Origin:
    path = tmp_path / "progress.jsonl"
    path.write_bytes(data)
    return Origin(path, "f1", data[:65536])


def test_dirty_lines_become_rows_and_rejects(tmp_path: Path) -> None:
    (batch,) = read(raw(tmp_path, DIRTY), ReadOptions(cluster="told"))
    rows = PROGRESS.check(batch.tables["progress"]).to_pylist()
    assert [(r["event"], r["step"], r["line"], r["cluster"]) for r in rows] == [
        ("start", 0, 1, "c1"),
        ("step", 1, 2, "c1"),
        ("end", 1, 14, "told"),
    ]
    assert rows[0]["time"] == datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)
    assert (rows[0]["duration_s"], rows[1]["duration_s"]) == (None, 0.43)
    assert (rows[0]["detail"], rows[1]["detail"]) == (None, '{"loss":2.5}')
    assert (rows[1]["run_id"], rows[1]["job_id"], rows[1]["rank"]) == ("r1", "17", 0)
    rejects = REJECTS.check(batch.tables["rejects"]).to_pylist()
    assert [(r["line"], r["reason"]) for r in rejects] == [
        (3, "bad-json"),
        (5, "bad-json"),
        (6, "bad-version"),
        (7, "bad-event"),
        (8, "bad-run"),
        (9, "bad-timestamp"),
        (10, "bad-timestamp"),
        (11, "bad-step"),
        (12, "bad-duration"),
        (13, "not-an-object"),
    ]
    assert (batch.rows_read, batch.rows_rejected, batch.rows_skipped) == (14, 10, 1)


def test_an_empty_file_has_no_batch(tmp_path: Path) -> None:
    assert list(read(raw(tmp_path, b""), ReadOptions())) == []


def test_the_format_is_known_by_its_keys() -> None:
    assert matches(DIRTY, "x.log") == 1.0
    assert matches(b'{"v":1,"ti\n' + DIRTY, "x") == 1.0
    assert matches(b'{"event":"start","t":1}\n', "events.jsonl") == 0.0
    assert matches(b"JobID|State\n1|COMPLETED\n", "progress.jsonl") == 0.0
    assert (SOURCE.name, SOURCE.tables) == ("progress", ("progress",))


GOOD = b'{"v":1,"run":"r1","time":1700000000.5,"event":"step","step":1,"duration_s":0.5}\n'
HOSTILE = {
    "an event that is a list": (b'{"v":1,"run":"r","time":1,"event":[],"step":1}', "bad-event"),
    "brackets without end": (b"[" * 100_000, "bad-json"),
    "half a character": (b'{"v":1,"run":"\\ud800","time":1,"event":"end","step":1}', "bad-run"),
    "a job that is none": (
        b'{"v":1,"run":"r","job":"\\udfff","time":1,"event":"end","step":1}',
        "bad-job",
    ),
    "a step of a thousand digits": (
        b'{"v":1,"run":"r","time":1,"event":"end","step":' + b"9" * 1000 + b"}",
        "bad-step",
    ),
    "a time of a thousand digits": (
        b'{"v":1,"run":"r","time":' + b"9" * 1000 + b',"event":"end","step":1}',
        "bad-timestamp",
    ),
    "a year that no calendar has": (
        b'{"v":1,"run":"r","time":9e11,"event":"end","step":1}',
        "bad-timestamp",
    ),
    "a duration without end": (
        b'{"v":1,"run":"r","time":1,"event":"step","step":1,"duration_s":1e999}',
        "bad-duration",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_line_costs_itself(tmp_path: Path, name: str) -> None:
    line, reason = HOSTILE[name]
    (batch,) = read(raw(tmp_path, GOOD + line + b"\n" + GOOD), ReadOptions())
    assert batch.tables["rejects"].to_pylist()[0]["reason"] == reason
    assert (batch.rows_read, batch.rows_rejected) == (3, 1)
    assert matches(line + b"\n" + GOOD, "kernel.log") in {0.0, 1.0}  # and does not end here


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_is_read(tmp_path: Path, pack) -> None:
    path = tmp_path / "progress.jsonl.packed"
    path.write_bytes(pack(GOOD * 3))
    (batch,) = read(Origin(path, "f1", GOOD), ReadOptions())
    assert (batch.rows_read, batch.tables["progress"].num_rows) == (3, 3)


def test_the_table_holds_what_the_codec_reads(tmp_path: Path) -> None:
    (batch,) = read(raw(tmp_path, DIRTY), ReadOptions())
    rows = batch.tables["progress"].to_pylist()
    events = list(read_progress(tmp_path / "progress.jsonl"))
    assert [
        (row["run_id"], row["rank"], row["time"].timestamp(), row["event"], row["step"])
        for row in rows
    ] == [(e.run, e.rank, e.time_s, e.event, e.step) for e in events]
