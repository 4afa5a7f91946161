"""What a file is taken for where its first lines are odd, and how loud a wrong guess is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import Ingested, ingest_file
from ettr.sources.origin import HEAD_BYTES, head_of
from ettr.sources.registry import recognise
from ettr.store import open_store
from source_samples import samples

UTC = ReadOptions(timezone="UTC")
EVENT = '{"v":1,"run":"r","time":1794789640,"event":"step","step":1}\n'
NHC = "20261121 10:16:25 n{n} /usr/sbin/nhc: ERROR:  nhc:  Health check failed:  check_fs: full\n"
RECORDS = {
    "gcm": {"node": "n", "health_check": "c", "result": 2, "start_time": 1795253860.0},
    "kernel-xid": {
        "__REALTIME_TIMESTAMP": "1795253860000000",
        "_HOSTNAME": "n1",
        "MESSAGE": "NVRM: Xid (PCI:0000:c1:00): 79, pid=1",
    },
    "nvsentinel": {"checkName": "c", "isFatal": True, "generatedTimestamp": 1795253860},
    "nvrx": {"job_id": "7", "cycle_number": 0, "cycle_start_time": "2026-11-21T10:00:00"},
    "incidents": {"date": "2026-11-21", "kind": "network", "lost_h": 2},
}


def ingested(tmp_path: Path, text: str, source: str | None = None) -> Ingested:
    path = tmp_path / "log"
    path.write_text(text)
    with open_store(tmp_path / "store", create=True) as store:
        return ingest_file(store, path, UTC, source)


def test_most_lines_decide_and_not_the_first_one(tmp_path: Path):
    done = ingested(tmp_path, EVENT + "".join(NHC.format(n=n) for n in range(40)))
    assert (done.source, done.rows_kept) == ("nhc", 40)


@pytest.mark.parametrize("n_first", [1, 3])
def test_some_events_before_another_log_or_in_it_do_not_decide(tmp_path: Path, n_first: int):
    text = EVENT * n_first + "".join(NHC.format(n=n) for n in range(40)) + EVENT
    assert recognise(text.encode(), "log").name == "nhc"


def test_events_among_lines_of_no_log_are_still_events():
    text = EVENT + "loss 1.0\n" * 30 + EVENT
    assert recognise(text.encode(), "log").name == "progress"


@pytest.mark.parametrize("sample", samples(), ids=str)
def test_an_event_before_a_log_of_lines_does_not_hide_it(sample):
    """Where its lines say what they are; a header must come first, and a document be whole."""
    if sample.source.name not in {"kernel-xid", "nhc", "slurmctld", "pbs", "lsf", "gcm"}:
        return
    body = sample.head.removeprefix(b"\xef\xbb\xbf").rpartition(b"\n")[0]
    many = b"\n".join([body] * 10)
    if body.lstrip()[:1] != b"[":
        try:
            found = recognise(EVENT.encode() + many, sample.path.name).name
        except SourceError as error:  # two alike are refused, in words
            found = str(error)
        assert found != "progress"


@pytest.mark.parametrize("first", ['"c": 1, "x": 2}', '{"a": "b', "hello world"])
@pytest.mark.parametrize("source", RECORDS)
def test_a_torn_first_line_does_not_hide_what_a_file_is(tmp_path: Path, source: str, first: str):
    done = ingested(tmp_path, "\n".join([first, *[json.dumps(RECORDS[source])] * 5]) + "\n")
    assert (done.source, done.rows_kept + done.rows_folded) == (source, 5)


@pytest.mark.parametrize("source", RECORDS)
def test_lines_behind_a_very_long_first_line_are_looked_at(tmp_path: Path, source: str):
    first = '{"x": "' + "y" * (3 * HEAD_BYTES) + '"}'
    done = ingested(tmp_path, "\n".join([first, *[json.dumps(RECORDS[source])] * 5]) + "\n")
    assert (done.source, done.rows_kept + done.rows_folded) == (source, 5)


def test_the_look_behind_a_long_first_line_is_bounded(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * (8 << 20) + b"\n" + NHC.encode())
    assert len(head_of(path)) == HEAD_BYTES
    path.write_bytes(b"x" * (512 << 10) + b"\n" + NHC.encode() * 10_000)
    assert len(head_of(path)) <= 2 * HEAD_BYTES + 1


def test_more_records_rejected_than_kept_are_a_loud_note(tmp_path: Path):
    gpud = {"component": "disk", "health": "Healthy", "time": "2026-11-21T10:00:00Z"}
    lines = [json.dumps(one) for one in (RECORDS["nvsentinel"], gpud, gpud)]
    done = ingested(tmp_path, "\n".join(lines * 5))
    assert (done.source, done.rows_kept, done.rows_rejected) == ("nvsentinel", 5, 10)
    assert done.notes[0] == (
        "MOST RECORDS WERE REJECTED: it was read as nvsentinel, and of 15 records 10 could not be "
        "used (10 missing-field); it looks like gpud, too; if it is another kind of log, name it "
        "with --source"
    )


def test_a_source_that_the_user_names_is_not_doubted(tmp_path: Path):
    done = ingested(tmp_path, EVENT * 2 + "no event\n" * 12, "progress")
    assert (done.rows_rejected, done.notes) == (12, ())
