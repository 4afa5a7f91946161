"""One bad byte in a document of one line costs the record that it is in, and no other."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.sources.registry import named, recognise
from ettr.store import open_store
from source_samples import counts_of, read_all

N = 60
Document = dict[str, object] | list[dict[str, object]]


def sacct(n: int) -> Document:
    jobs = [
        {
            "account": f"team{k % 3}",
            "job_id": 100 + k,
            "state": {"current": ["COMPLETED"], "reason": "None"},
            "time": {"start": 1_770_000_000 + k, "submission": 1_770_000_000, "end": 1_770_009_000},
            "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 8}]},
            "nodes": "n1",
            "steps": [],
        }
        for k in range(n)
    ]
    return {"meta": {"slurm": {"version": {"major": "23", "minor": "11"}}}, "jobs": jobs}


def flux(n: int) -> Document:
    job = {"t_submit": 1_770_000_000.0, "state": "INACTIVE", "result": "COMPLETED", "nnodes": 1}
    return {"jobs": [{"id": 100 + k, **job, "annotations": [{"id": 1}]} for k in range(n)]}


def gpud(n: int) -> Document:
    event = {"component": "disk", "type": "Warning", "message": "slow"}
    times = [f"2026-01-01T00:{k // 60:02}:{k % 60:02}Z" for k in range(n)]
    return [
        {"component": "disk", "startTime": "x", "events": [{"time": t, **event} for t in times]},
        {"component": "cpu", "startTime": "x", "events": []},
    ]


def gcm(n: int) -> Document:
    check = {"result": 2, "_msg": "bad", "node": "n1"}
    return [{"health_check": f"c{k}", "start_time": 1.77e9 + k, **check} for k in range(n)]


def nvsentinel(n: int) -> Document:
    event = {"isFatal": True, "nodeName": "n1", "entitiesImpacted": [{"entityType": "GPU"}]}
    return [{"checkName": "c", "generatedTimestamp": 1.77e9 + k, **event} for k in range(n)]


def metrics(n: int) -> Document:
    return [{"step": k, "timestamp": 1.77e9 + 10 * k, "loss": 1.0, "lr": [0.1]} for k in range(n)]


def incidents(n: int) -> Document:
    entry = {"kind": "node failure", "hours_lost": 1.5, "note": "[x] {y}"}
    return [{"date": f"2026-01-{1 + k % 28:02}T{k % 24:02}:00:00Z", **entry} for k in range(n)]


def inventory(n: int) -> Document:
    node = {"cpus": 64, "real_memory": 1000, "gres": "gpu:8", "state": ["IDLE"], "partitions": []}
    return {"nodes": [{"name": f"n{k}", **node} for k in range(n)], "last_update": 1}


DOCUMENTS: dict[str, Callable[[int], Document]] = {
    "slurm-sacct-json": sacct,
    "flux": flux,
    "gpud": gpud,
    "gcm": gcm,
    "nvsentinel": nvsentinel,
    "incidents": incidents,
    "slurm-inventory": inventory,
}


def gpud_of_two(n: int) -> Document:
    (disk, cpu), more = gpud(n // 2), gpud(n - n // 2)[0]
    return [disk, cpu | {"events": more["events"]}]


# what is damaged: the source, its document, the bytes sought, and what is in place of the last one;
# the first such bytes, or where it says so those in the middle
STRUCTURE = {
    "gpud: its first component": ("gpud", gpud_of_two, b'"component"', b"\x00", 0),
    "gpud: another word": ("gpud", gpud_of_two, b'"componen', b"X", 0),
    "gpud: its first events": ("gpud", gpud_of_two, b'"events"', b"\x00", 0),
    "gpud: its first list": ("gpud", gpud_of_two, b'"event', b"X", 0),
    "gpud: a bracket of an event": ("gpud", gpud_of_two, b'"message": "slow"}', b"[", 0),
    "sacct: the first steps": ("slurm-sacct-json", sacct, b'"steps": []', b"{", 0),
    "sacct: steps": ("slurm-sacct-json", sacct, b'"steps": []', b"{", 0.5),
    "sacct: the list": ("slurm-sacct-json", sacct, b'"jobs": [', b"X", 0),
    "sacct: the first job": ("slurm-sacct-json", sacct, b'"state"', b"X", 0),
    "inventory: partitions": ("slurm-inventory", inventory, b'"partitions": []', b"{", 0.5),
    "inventory: the first node": ("slurm-inventory", inventory, b'"cpus"', b"X", 0),
    "nvsentinel: the first brace": ("nvsentinel", nvsentinel, b"[{", b"\x00", 0),
    "nvsentinel: the first key": ("nvsentinel", nvsentinel, b'"checkName"', b"\xff", 0),
    "nvsentinel: entities": ("nvsentinel", nvsentinel, b'"entityType": "GPU"}]', b"{", 0.5),
    "gcm: the first check": ("gcm", gcm, b'"start_time"', b"X", 0),
    "metrics: the first brace": ("metrics", metrics, b"[{", b"\x00", 0),
    "metrics: the first key": ("metrics", metrics, b'"step"', b"X", 0),
    "metrics: the first time": ("metrics", metrics, b'"timestamp":', b"}", 0),
    "metrics: a time": ("metrics", metrics, b'"timestamp":', b"\xff", 0.5),
    "flux: the list": ("flux", flux, b'"jobs": [', b"\xff", 0),
    "flux: its key": ("flux", flux, b'"job', b"X", 0),
    "flux: the first job": ("flux", flux, b'"t_submit"', b"X", 0),
}


@pytest.mark.parametrize("case", STRUCTURE)
def test_a_damaged_bracket_or_key_costs_a_record(tmp_path: Path, case: str):
    """The keys and brackets that hold records: hundreds were lost, and one was counted."""
    source, make, sought, bad, begin = STRUCTURE[case]
    data = json.dumps(make(N)).encode()
    at = data.index(sought, int(begin * len(data))) + len(sought) - 1
    path = tmp_path / "log.json"
    path.write_bytes(data[:at] + bad + data[at + 1 :])
    assert recognise(path.read_bytes(), path.name).name == source
    batches = read_all(named(source), path, ReadOptions(timezone="UTC"))
    _, rejected, _ = counts_of(batches)
    assert rejected <= 3
    assert kept(path, source) >= N - 1


@pytest.mark.parametrize(("source", "key"), [("nvsentinel", b"isFatal"), ("gcm", b"result")])
def test_records_in_a_stretch_that_cannot_be_read_are_counted_each(
    tmp_path: Path, source: str, key: bytes
):
    parts = json.dumps(DOCUMENTS[source](N)).encode().split(key)
    # a quote is missing in each of forty records in a row
    parts[11:51] = [part.replace(b'":', b":", 1) for part in parts[11:51]]
    path = tmp_path / "log.json"
    path.write_bytes(key.join(parts))
    batches = read_all(named(source), path)
    assert counts_of(batches) == [N, 40, 0]


def kept(path: Path, source: str) -> int:
    """Records kept; every other one that is read is rejected or skipped."""
    batches = read_all(named(source), path, ReadOptions(timezone="UTC"))
    found = sum(batch.rows_kept + batch.rows_folded for batch in batches)
    read, rejected, skipped = counts_of(batches)
    assert read == found + rejected + skipped
    if found < N:
        assert rejected > 0, "what is lost is counted"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("source", DOCUMENTS)
@pytest.mark.parametrize("bad", [b"\x00", b"\xff", b'"', b"}", b"{", b"]", b"\\", b"X"])
def test_one_bad_byte_costs_one_record(tmp_path: Path, source: str, bad: bytes):
    data = json.dumps(DOCUMENTS[source](N)).encode()
    # within the records: what is around them may say what the document is
    first = data.index(b"{", data.index(b"[") + 1) + 1
    rng = random.Random(f"{source} {bad!r}")
    for _ in range(25):
        at = rng.randrange(first, len(data) - 200)
        path = tmp_path / "log.json"
        path.write_bytes(data[:at] + bad + data[at + 1 :])
        assert kept(path, source) >= N - 1, (at, data[at - 60 : at + 60])


@pytest.mark.parametrize("source", DOCUMENTS)
def test_a_document_that_is_cut_off_keeps_the_records_before(tmp_path: Path, source: str):
    data = json.dumps(DOCUMENTS[source](N)).encode()
    path = tmp_path / "log.json"
    path.write_bytes(data[: len(data) * 3 // 4])
    assert N * 0.6 <= kept(path, source) < N


def test_control_characters_within_a_text_cost_nothing(tmp_path: Path):
    data = json.dumps(gpud(N)).encode().replace(b"slow", b"s\tow", 3)
    path = tmp_path / "log.json"
    path.write_bytes(data)
    assert kept(path, "gpud") == N


def test_a_bad_byte_leaves_other_texts_in_their_encoding(tmp_path: Path):
    text = json.dumps([{"checkName": "Prüfung", "isFatal": True, "generatedTimestamp": 1.77e9}] * 2)
    data = text.encode().decode("unicode_escape").encode().replace(b"Pr\xc3\xbc", b"Pr\xfc", 1)
    path = tmp_path / "log.json"
    path.write_bytes(data)
    (batch,) = read_all(named("nvsentinel"), path)
    assert batch.tables["events"]["check"].to_pylist() == ["Prüfung", "Prüfung"]


def test_a_document_without_its_list_is_refused_in_words(tmp_path: Path):
    path = tmp_path / "log.json"
    path.write_text('{"meta": {}, "jobz": [{"job_id": 1}]')
    with pytest.raises(SourceError, match="is not a complete JSON document"):
        read_all(named("slurm-sacct-json"), path)


@pytest.mark.parametrize(
    ("lines", "read"),
    [
        # a text that is cut off takes the record behind it along
        (["{check}", "{check}", "{", '{"node":"vm', "{check}", "{check}"], 3),
        (["[{check},{check},{check}]", "{", "{check}", "{check}"], 5),
        (["{", "{check}", "{check}", "{"], 2),
    ],
)
def test_records_of_a_broken_document_behind_lines_have_places_of_their_own(
    tmp_path: Path, lines: list[str], read: int
):
    """Two records of one place counted as one, and the file was refused as wrongly counted."""
    record = '{"node":"vm","health_check":"check ibstat","result":0,"start_time":1795253860.0}'
    text = "\n".join(lines).replace("{check}", record)
    (tmp_path / "log.ndjson").write_text(text)
    with open_store(tmp_path / "store", create=True) as store:
        done = ingest_file(store, tmp_path / "log.ndjson", ReadOptions(), "gcm")
    assert done.rows_kept + done.rows_folded == read
    assert done.rows_read == read + done.rows_rejected + done.rows_skipped
