"""One file into a store: recognised, counted to the last record, and refused in words."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from ettr.errors import SourceError, StoreError, UsageError
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.sources.registry import all_sources
from ettr.store import Store, open_store
from ettr.tables import TABLES
from ettr.tables import rows as table_rows
from ettr.tables.rows import Batch, EventRows

UTC_SAID = ReadOptions(timezone="UTC")
HEADER = "JobID|State|Submit|Start|End|NodeList|AllocTRES\n"


def row(number: int, state: str = "COMPLETED") -> str:
    return (
        f"{number}|{state}|2026-01-01T00:00:00|2026-01-01T00:00:01|2026-01-01T01:00:01|n1|"
        "node=1,gres/gpu=8\n"
    )


SACCT = HEADER + "".join(row(number) for number in range(1, 400))
KERNEL = "".join(
    f"2026-01-01T00:{n // 60:02}:{n % 60:02}+00:00 n{n % 7} kernel: NVRM: Xid (PCI:0000:{n % 8}b:00"
    f"): 48, pid=1, name=x, DBE seen {n}\n"
    for n in range(400)
)
JSON_LINES = "".join(
    f'{{"v": 1, "time": {1.8e9 + n}, "kind": "step", "job_id": "1", "step": {n}}}\n'
    for n in range(400)
)

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with open_store(tmp_path / "store", create=True) as opened:
        yield opened


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def n_rows(store: Store, table: str) -> int:
    return store.rows(table).num_rows


@pytest.mark.parametrize("codec", ["plain", *COMPRESS])
def test_compressed_files_read_as_plain_ones_do(store: Store, tmp_path: Path, codec: str):
    data = SACCT.encode()
    path = write(tmp_path, "sacct", COMPRESS[codec](data) if codec in COMPRESS else data)
    done = ingest_file(store, path, UTC_SAID)
    assert (done.source, done.rows_read, done.rows_rejected) == ("slurm-sacct", 399, 0)


@pytest.mark.slow
@pytest.mark.parametrize("content", [SACCT, KERNEL], ids=["sacct", "kernel"])
@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("cut", ["half", "head only", "noise after the magic"])
def test_a_damaged_file_is_refused_and_leaves_the_store_as_it_was(
    store: Store, tmp_path: Path, content: str, codec: str, cut: str
):
    whole = COMPRESS[codec](content.encode())
    parts = {"half": whole[: len(whole) // 2], "head only": whole[:12]}
    path = write(tmp_path, f"log.{codec}", parts.get(cut, whole[:6] + b"\x99" * 200))
    with pytest.raises(SourceError, match=r"damaged|cut off|cannot be read|empty|no known log"):
        ingest_file(store, path, UTC_SAID)
    assert store.files() == ()
    assert all(n_rows(store, name) == 0 for name in TABLES)


def test_what_is_no_file_is_told_by_name(store: Store, tmp_path: Path):
    with pytest.raises(SourceError, match="is a folder; name the files in it"):
        ingest_file(store, tmp_path, UTC_SAID)
    dangling = tmp_path / "gone.log"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"gone.log: cannot be read: No such file"):
        ingest_file(store, dangling, UTC_SAID)


@pytest.mark.parametrize("content", [b"", b"\n\n  \n", gzip.compress(b"", mtime=0)])
def test_an_empty_log_is_told_so(store: Store, tmp_path: Path, content: bytes):
    with pytest.raises(SourceError, match="is empty"):
        ingest_file(store, write(tmp_path, "sacct.psv", content), UTC_SAID)


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, b"Dear all,\nthe node is ill.\n"]
)
def test_an_unknown_format_says_what_to_do(store: Store, tmp_path: Path, content: bytes):
    with pytest.raises(SourceError, match=r"no known log format; name it with --source"):
        ingest_file(store, write(tmp_path, "thing", content), UTC_SAID)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(all_sources()))
def test_a_wrong_format_under_any_source_is_an_error_or_counted(
    store: Store, tmp_path: Path, name: str
):
    """A letter to the admins given to each reader by force."""
    path = write(tmp_path, "letter", b"Dear all,\n\nnode n1 is ill; \xe9\xff help.\n" * 5)
    _refused_or_counted(store, path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(all_sources()))
def test_a_binary_under_any_source_is_an_error_or_counted(store: Store, tmp_path: Path, name: str):
    path = write(tmp_path, "core", bytes(range(256)) * 40)
    _refused_or_counted(store, path, name)


def _refused_or_counted(store: Store, path: Path, source: str) -> None:
    try:
        done = ingest_file(store, path, UTC_SAID, source)
    except (SourceError, UsageError) as error:
        said = str(error)
    else:
        assert done.rows_read == done.rows_rejected + done.rows_folded + done.rows_skipped
        said = path.name
    assert path.name in said or "--" in said


def test_a_missing_column_is_named(store: Store, tmp_path: Path):
    path = write(tmp_path, "sacct.psv", "JobID|State|NodeList\n1|COMPLETED|n1\n")
    with pytest.raises(SourceError, match=r"(?i)submit|start"):
        ingest_file(store, path, UTC_SAID, "slurm-sacct")


def test_a_header_without_rows_is_told(store: Store, tmp_path: Path):
    with pytest.raises(SourceError, match="holds no record of slurm-sacct"):
        ingest_file(store, write(tmp_path, "sacct.psv", HEADER), UTC_SAID)


def test_two_encodings_in_one_log_lose_nothing(store: Store, tmp_path: Path):
    text = "JobID|JobName|State|Submit|Start|End|NodeList\n"
    lines = [text.encode()]
    for number, name in enumerate(["für".encode(), "für".encode("latin-1"), b"\xff\xfe\x00x"], 1):
        stamp = b"2026-01-01T00:00:00"
        lines.append(
            b"|".join([str(number).encode(), name, b"FAILED", *[stamp] * 3, b"n1"]) + b"\n"
        )
    done = ingest_file(store, write(tmp_path, "mixed.psv", b"".join(lines)), UTC_SAID)
    assert done.rows_read == 3
    assert n_rows(store, "attempts") + done.rows_rejected == 3
    names = store.rows("attempts").sort_by("job_id")["name"].to_pylist()
    assert names[:2] == ["für", "für"]


def test_one_bad_record_among_many_is_counted_with_its_line(store: Store, tmp_path: Path):
    lines = [HEADER, *(row(n) for n in range(1, 50)), "what?|is|this\n", row(50)]
    done = ingest_file(store, write(tmp_path, "sacct.psv", "".join(lines)), UTC_SAID)
    assert (done.rows_read, done.rows_rejected, n_rows(store, "attempts")) == (51, 1, 50)
    rejected = store.rows("rejects").to_pylist()
    assert [(entry["line"], entry["raw"]) for entry in rejected] == [(51, "what?|is|this")]


def test_the_same_file_changes_nothing_and_a_later_dump_updates(store: Store, tmp_path: Path):
    path = write(tmp_path, "sacct.psv", HEADER + row(1) + row(2, "RUNNING"))
    first = ingest_file(store, path, UTC_SAID)
    before = store.rows("attempts").sort_by("job_id")
    again = ingest_file(store, path, UTC_SAID)
    assert not first.unchanged
    assert again.unchanged
    assert store.rows("attempts").sort_by("job_id").equals(before)
    ingest_file(store, write(tmp_path, "later.psv", HEADER + row(2, "FAILED")), UTC_SAID)
    found = store.rows("attempts").sort_by("job_id")
    assert found["job_id"].to_pylist() == ["1", "2"]
    assert found["state"].to_pylist() == ["COMPLETED", "FAILED"]


def test_the_zone_is_asked_for(store: Store, tmp_path: Path):
    path = write(tmp_path, "sacct.psv", HEADER + row(1))
    with pytest.raises(UsageError, match=r"local time without a zone; say which with --timezone"):
        ingest_file(store, path, ReadOptions())
    with pytest.raises(UsageError, match=r"'Mars/Olympus' is no IANA zone; give one such as"):
        ingest_file(store, path, ReadOptions(timezone="Mars/Olympus"))


def test_a_source_that_does_not_exist_is_answered_with_those_that_do(store: Store, tmp_path: Path):
    with pytest.raises(UsageError, match=r"no source named 'abacus'; there are: slurm-sacct, "):
        ingest_file(store, write(tmp_path, "sacct.psv", SACCT), UTC_SAID, "abacus")


def test_a_full_disk_is_told_and_leaves_the_store_as_it_was(tmp_path: Path):
    path = write(tmp_path, "sacct.psv", SACCT)
    with open_store(tmp_path / "store", create=True) as store:
        ingest_file(store, write(tmp_path, "one.psv", HEADER + row(9000)), UTC_SAID)
        parts = tmp_path / "store" / "parts" / "attempts"
        before = store.rows("attempts")
        full = pytest.MonkeyPatch()
        full.setattr("pyarrow.parquet.ParquetWriter", _FullDisk)
        try:
            with pytest.raises(StoreError, match=r"cannot be written: .*No space left"):
                ingest_file(store, path, UTC_SAID)
        finally:
            full.undo()
        assert store.rows("attempts").equals(before)
        assert len(list(parts.iterdir())) == 1
        assert ingest_file(store, path, UTC_SAID).rows_read == 399


def test_a_log_that_cannot_be_read_is_no_trouble_of_the_store(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(origin: object, options: object) -> Iterator[Batch]:
        yield from real.read(origin, options)
        raise OSError(5, os.strerror(5))

    real = all_sources()["slurm-sacct"]
    monkeypatch.setitem(all_sources(), "slurm-sacct", replace(real, read=broken))
    with pytest.raises(SourceError, match=r"sacct.psv: cannot be read: .*Input/output error"):
        ingest_file(store, write(tmp_path, "sacct.psv", SACCT), UTC_SAID)
    assert not store.files()


class _FullDisk:
    def __init__(self, *_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))


def test_equal_lines_near_each_other_are_all_kept_and_read_alike_again():
    def ids() -> list[str]:
        rows = EventRows("kernel-xid", "f", "c")
        for line in range(4):
            rows.add(line=line, time=datetime(2026, 1, 1, tzinfo=UTC), check="xid", node="n1")
        return rows.take()["event_id"].to_pylist()

    assert len(set(ids())) == 4
    assert ids() == ids()


@pytest.mark.slow
def test_ids_of_a_long_log_take_bounded_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_rows, "REPEATS_WITHIN_EVENTS", 500)
    rows = EventRows("kernel-xid", "f", "c")
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def add(first: int, last: int) -> None:
        for line in range(first, last):
            rows.add(line=line, time=start + timedelta(seconds=line // 2), check="xid", node="n1")
            if len(rows) >= 100:
                assert len(set(rows.take()["event_id"].to_pylist())) == 100

    add(0, 2000)
    tracemalloc.start()
    add(2000, 4000)
    middle, _ = tracemalloc.get_traced_memory()
    add(4000, 12000)
    end, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert end - middle < 300_000


@pytest.mark.parametrize("codec", ["plain", *COMPRESS])
def test_progress_names_the_log_and_counts_the_bytes_of_its_file(
    store: Store, tmp_path: Path, codec: str
):
    data = (HEADER + "".join(row(number) for number in range(3000))).encode()
    path = write(tmp_path, "sacct.psv", COMPRESS.get(codec, bytes)(data))
    seen: list[tuple[str, int, int]] = []
    done = ingest_file(
        store, path, UTC_SAID, progress=lambda name, records, n: seen.append((name, records, n))
    )
    assert seen[0] == ("sacct.psv", 0, 0)
    assert seen[-1] == ("sacct.psv", done.rows_read, path.stat().st_size)
