"""Garbage, damage and hostile text: counted rejects or a clear error, never anything else."""

import functools
import gzip
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from lzma import LZMAError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ettr.errors import EttrError, SourceError, UsageError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import numbered_lines
from ettr.sources.origin import HEAD_BYTES, Origin, open_bytes
from ettr.sources.registry import all_sources
from ettr.sources.times import time_of
from ettr.tables import TABLES
from ettr.tables.rows import Batch
from source_samples import SAMPLES, Sample, counts_of, rows_of, samples

SOURCES = all_sources()
OPTIONS = ReadOptions(
    timezone="Europe/Zurich",
    n_nodes=1000,
    table="events",
    column_map={"time": "ts", "node": "hostname", "check": "=site"},
    start=datetime(2024, 1, 1, tzinfo=UTC),
)
QUIET = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ALPHABET = st.characters(exclude_categories=("Cs",))
PIECES = [
    b"Nov 18 17:02:11 node17 kernel: NVRM: Xid (PCI:0000:18:00): 79, x",
    b"[Mon Feb 30 25:61:61 2024] NVRM: Xid (PCI:::): 999999, x",
    b"[99999999999999999999.5] NVRM: Xid (PCI:1:1): 79",
    b'{"health_check":"xid errors","result":2,"_msg":"XID error: 79","start_time":1e308}',
    b'{"sacct":{"JobID":"1","State":"X"}}',
    b'{"sacct":{}}',
    b'{"sacct":{"JobID":"1","State":"FAILED","Submit":"2024-01-01T00:00:00"}}',
    b'{"checkName":"\\ud800","isFatal":true,"generatedTimestamp":9e99,"errorCode":[[],{},null]}',
    b'{"checkName":"x","generatedTimestamp":"2024-01-01T00:00:00Z","errorCode":"\\ud800\\u0000"}',
    b'{"component":"c","time":"0001-01-01T00:00:00+23:59","type":[],"message":{}}',
    b'{"component":"c","events":[1,null,{"time":"2024-01-01T00:00:00Z"}]}',
    b'{"job_id":1,"cycle_number":0,"cycle_start_time":"2024-01-01T00:00:00Z","active_nodes":"n[1-"}',
    b'{"node_id":"a","event_time":NaN,"event_type":"fault_start","fault_type":{"Level":1}}',
    b'{"node_id":"a","event_time":1,"event_type":"fault_start","fault_type":{"Level":[]}}',
    b'{"MESSAGE":[300,-1,"x"],"__REALTIME_TIMESTAMP":"1"}',
    b"node | ERROR:  nhc:  Health check failed:  check_x:  y FaultCode: NHC2001",
    b"ts,hostname\n2024-01-01T00:00:00Z,a\nx",
    b"System,nodenum,nodenumz,Prob Started,Prob Fixed,Down Time\n1,1,1,1/1/0001 0:0,,",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"\xff\xfe\x00\x01",
    b'"',
    b"\n",
    b"1" * 5000,
]


@functools.cache
def logs(name: str) -> st.SearchStrategy[bytes]:
    """Any bytes, or lines: those of the source's own samples among all the others."""
    own = [line for sample in samples(name) for line in sample.path.read_bytes().split(b"\n")]
    lines = st.lists(st.sampled_from([*PIECES, *own[:40]]), max_size=6).map(b"\n".join)
    return st.binary(max_size=400) | lines


def read(source: Source, path: Path, options: ReadOptions = OPTIONS) -> list[Batch]:
    try:
        with open_bytes(path) as file:
            head = bytes(file.read(HEAD_BYTES))
    except (OSError, EOFError, LZMAError):
        # the ingest refuses such a file; a reader must cope with it all the same
        head = path.read_bytes()[:HEAD_BYTES]
    return list(source.read(Origin(path, "f", head), options))


def read_or_refuse(source: Source, path: Path) -> str | None:
    """The message with which the file was refused, if it was."""
    try:
        check(read(source, path))
    except EttrError as error:
        return str(error)
    return None


def check(batches: list[Batch]) -> None:
    kinds = ("rows_read", "rows_kept", "rows_rejected", "rows_folded", "rows_skipped")
    read, *others = (sum(getattr(batch, kind) for batch in batches) for kind in kinds)
    assert read == sum(others)
    for batch in batches:
        for name, rows in batch.tables.items():
            TABLES[name].check(rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
@QUIET
@given(data=st.data())
def test_any_bytes_are_scored_and_read_or_refused(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    source = SOURCES[name]
    log = data.draw(logs(name))
    path = tmp_path / "node1.log"
    path.write_bytes(log)
    assert 0 <= source.matches(log[:HEAD_BYTES], path.name) <= 1
    assert isinstance(source.prints_local(log), bool)
    message = read_or_refuse(source, path)
    assert message is None or str(path) in message


@pytest.mark.parametrize("sample", samples(), ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_a_sample_with_random_damage_is_read(tmp_path: Path, sample: Sample, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(sample.path.read_bytes())
    for _ in range(6):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path = tmp_path / sample.path.name
    path.write_bytes(bytes(data))
    message = read_or_refuse(sample.source, path)
    assert message is None or str(path) in message


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_of_the_truncated_is_lost_in_silence(tmp_path: Path, name: str) -> None:
    sample = samples(name)[0]
    path = tmp_path / (sample.path.name + ".gz")
    path.write_bytes(gzip.compress(sample.path.read_bytes() * 200)[:-12])
    with pytest.raises(SourceError, match=r"corrupt or truncated"):
        read(sample.source, path, sample.options)


def kernel_line(text: str) -> str:
    return f"2024-11-18T17:02:11Z n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, {text}"


def gcm_line(text: str) -> str:
    return json.dumps({"health_check": text, "result": 2, "start_time": 1.7e9, "_msg": text})


@pytest.mark.parametrize(("name", "line"), [("kernel-xid", kernel_line), ("gcm", gcm_line)])
@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "=cmd|'/c calc'!A0", "../../etc/passwd", "a\x1b[31mb"]
)
def test_hostile_text_is_kept_as_data(
    tmp_path: Path, name: str, line: Callable[[str], str], text: str
) -> None:
    path = tmp_path / "n1.log"
    path.write_text(line(text) + "\n")
    (batch,) = read(SOURCES[name], path)
    (row,) = batch.tables["events"].to_pylist()
    assert text in row["message"]


def test_ten_million_lines_would_fit_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "n1.log"
    filler = b"2024-11-18T17:02:11Z n1 kernel: eth0: link becomes ready\n" * 1000
    with path.open("wb") as file:
        for _ in range(60):
            file.write(filler)
        file.write(kernel_line("x").encode() + b"\n")
        for _ in range(60):
            file.write(filler)
    batches = read(SOURCES["kernel-xid"], path)
    assert sum(b.rows_read for b in batches) == 120_001
    (row,) = [
        r for b in batches for r in b.tables.get("events", TABLES["events"].empty()).to_pylist()
    ]
    assert row["line"] == 60_001


def test_a_line_without_end_does_not_fill_memory(tmp_path: Path) -> None:
    path = tmp_path / "n1.log"
    path.write_bytes(b"x" * (20 << 20) + b"\nlast\n")
    lines = list(numbered_lines(Origin(path, "f", b"")))
    assert [number for number, _ in lines] == [1, 2]
    assert len(lines[0][1]) <= 8 << 20
    assert lines[1][1] == b"last"


def test_local_time_without_a_zone_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "n1.log"
    path.write_text("Nov 18 17:02:11 n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, x\n")
    with pytest.raises(UsageError, match="--timezone"):
        read(SOURCES["kernel-xid"], path, ReadOptions())


@pytest.mark.parametrize(("n_nodes", "words"), [(None, "--nodes N"), (1, "at least the 2 nodes")])
def test_the_fleet_size_must_be_told_and_be_enough(n_nodes: int | None, words: str) -> None:
    path = SAMPLES / "infinitehbd" / "trace.json"
    with pytest.raises(UsageError, match=words):
        read(SOURCES["infinitehbd"], path, ReadOptions(n_nodes=n_nodes))


def test_a_table_without_its_columns_lists_all_problems(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="--table, one of attempts"):
        read(SOURCES["table"], path, ReadOptions())
    options = ReadOptions(table="events", column_map={"node": "host", "nod": "a"})
    with pytest.raises(UsageError) as caught:
        read(SOURCES["table"], path, options)
    text = str(caught.value)
    assert "node=host: the file has no column 'host'; it has: a, b" in text
    assert "nod: no column of `events`" in text
    assert "time: the file has no such column" in text


def test_a_parquet_of_attempts_with_our_names_needs_no_map(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "jobs.parquet"
    stamp = datetime(2024, 1, 1, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        {"job_id": "1", "submit": stamp, "state": "FAILED", "n_gpus": 8},
        {"job_id": None, "submit": stamp, "state": "FAILED", "n_gpus": 8},
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    (batch,) = read(SOURCES["table"], path, ReadOptions(cluster="c"))
    (row,) = batch.tables["attempts"].to_pylist()
    assert (row["attempt_id"], row["n_gpus"]) == ("c/1@2024-01-01T00:00:00Z", 8)
    assert batch.rows_rejected == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00+00:00"),
        ("2024-01-01T00:00:00.123456789+01:00", "2023-12-31T23:00:00.123456+00:00"),
        (1.7e9, "2023-11-14T22:13:20+00:00"),
        (1_700_000_000_000, "2023-11-14T22:13:20+00:00"),
        ("1700000000.5", "2023-11-14T22:13:20.500000+00:00"),
        ({"seconds": 1_700_000_000}, "2023-11-14T22:13:20+00:00"),
        ("2024-01-01T00:00:00", None),
        ("9999-12-31T23:59:59Z", None),
        (0, None),
        (True, None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_times(value: Any, expected: str | None) -> None:
    got = time_of(value)
    assert (got.isoformat() if got else None) == expected


@pytest.mark.parametrize(
    ("name", "sample", "cluster"),
    [
        ("gcm", "checks.ndjson", "fake"),
        ("nvsentinel", "cloudevents.json", "prod"),
        ("infinitehbd", "trace.json", "infinitehbd"),
        ("lanl", "records.csv", "lanl-9"),
    ],
)
def test_the_cluster_that_a_record_names_wins(name: str, sample: str, cluster: str) -> None:
    options = ReadOptions(cluster="other", n_nodes=9, timezone="UTC")
    batches = read(SOURCES[name], SAMPLES / name / sample, options)
    assert batches[0].tables["events"].column("cluster")[0].as_py() == cluster


@pytest.mark.slow
@pytest.mark.parametrize("sample", samples(), ids=str)
@settings(QUIET, max_examples=30)  # of each sample, of which most sources have several
@given(
    tail=st.binary(max_size=300) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace"))
)
def test_garbage_after_a_good_beginning_costs_only_itself(
    tmp_path: Path, sample: Sample, tail: bytes
) -> None:
    path = tmp_path / sample.path.name
    path.write_bytes(sample.path.read_bytes() + b"\n" + tail + b"\n")
    if is_one_document(sample):
        # read as a whole or not at all
        assert str(path) in (read_or_refuse(sample.source, path) or str(path))
        return
    # a tail that is a local time needs a zone, which the user is asked for
    options = replace(sample.options, timezone=sample.options.timezone or "UTC")
    after = read(sample.source, path, options)
    check(after)
    n_rows, (n_read, *_) = rows_by_table(after), counts_of(after)
    of_sample, n_read_of_sample = whole(sample)
    assert [one for one in sample.source.tables if n_rows[one] < of_sample[one]] == []
    assert n_read >= n_read_of_sample


def rows_by_table(batches: list[Batch]) -> Counter[str]:
    found: Counter[str] = Counter()
    for batch in batches:
        found.update({name: rows.num_rows for name, rows in batch.tables.items()})
    return found


@functools.cache
def whole(sample: Sample) -> tuple[Counter[str], int]:
    """Rows by table, and records, of a sample: the same from one example to the next."""
    batches = sample.read()
    return rows_by_table(batches), counts_of(batches)[0]


@functools.cache
def is_one_document(sample: Sample) -> bool:
    text = sample.path.read_bytes()
    if sample.path.suffix == ".yaml":
        return not re.search(rb"^(items:|---)", text, re.MULTILINE)
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("unit", [b"1", b"SwitchName=", b"\\", b"SwitchName=s1 Nodes=a"])
def test_a_line_of_a_megabyte_in_a_topology_ends_and_costs_itself(
    tmp_path: Path, unit: bytes
) -> None:
    path = tmp_path / "topology.conf"
    good = b"SwitchName=s0 Nodes=n[1-2]\n"
    path.write_bytes(good + unit * ((1 << 20) // len(unit)) + b"\n")
    batches = read(SOURCES["slurm-topology"], path)
    check(batches)
    assert {row["node"] for row in rows_of(batches, "nodes")} >= {"n1", "n2"}


@pytest.mark.parametrize("name", ["lanl", "table"])
def test_a_cell_of_a_megabyte_is_one_reject(tmp_path: Path, name: str) -> None:
    sample = {"lanl": "records.csv", "table": "site.csv"}[name]
    path = tmp_path / sample
    path.write_bytes((SAMPLES / name / sample).read_bytes() + b"\n9," + b"x" * (1 << 20) + b",,\n")
    before = read(SOURCES[name], SAMPLES / name / sample)
    after = read(SOURCES[name], path)
    check(after)
    assert sum(b.rows_rejected for b in after) == 1 + sum(b.rows_rejected for b in before)


@pytest.mark.parametrize(
    ("changed", "stamp", "expected"),
    [
        ("2025-01-02T00:00:00+00:00", "Dec 31 23:00:00", "2024-12-31T23:00:00"),
        ("2025-01-02T00:00:00+00:00", "Jan  1 01:00:00", "2025-01-01T01:00:00"),
        ("2025-03-01T00:00:00+00:00", "Feb 29 01:00:00", "2024-02-29T01:00:00"),
    ],
)
def test_a_stamp_without_year_is_the_last_before_the_file_was_changed(
    tmp_path: Path, changed: str, stamp: str, expected: str
) -> None:
    path = tmp_path / "syslog"
    path.write_text(f"{stamp} n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, x\n")
    moment = datetime.fromisoformat(changed).timestamp()
    os.utime(path, (moment, moment))
    (batch,) = read(SOURCES["kernel-xid"], path, ReadOptions(timezone="UTC"))
    (row,) = batch.tables["events"].to_pylist()
    assert row["time"].strftime("%Y-%m-%dT%H:%M:%S") == expected
    assert "stamps have no year" in " ".join(batch.notes)


def test_with_a_start_the_year_turns_after_it(tmp_path: Path) -> None:
    path = tmp_path / "syslog"
    lines = [
        f"{day} n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, x"
        for day in ("Dec 30 00:00:00", "Jan  2 00:00:00")
    ]
    path.write_text("\n".join(lines))
    options = ReadOptions(timezone="UTC", start=datetime(2022, 12, 30, tzinfo=UTC))
    (batch,) = read(SOURCES["kernel-xid"], path, options)
    years = [row["time"].year for row in batch.tables["events"].to_pylist()]
    assert years == [2022, 2023]
