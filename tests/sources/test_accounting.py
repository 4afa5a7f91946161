"""Every record read is kept, rejected, folded into another or skipped, and the sum is checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ettr.errors import AccountingError, SourceError
from ettr.sources import ingest
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import Ingested, ingest_file
from ettr.sources.registry import named
from ettr.store import Store, open_store
from ettr.tables.rows import Batch
from source_samples import Sample, samples

SINFO = """NODELIST NODES PARTITION STATE CPUS MEMORY
n1 1 batch* idle 64 1000
n1 1 debug idle 64 1000
n2 1 batch* idle 64 1000
n2 1 debug idle 64 1000

n3 1 batch* idle many 1000
"""
STEP = '{"v":1,"run":"r","time":%d.0,"event":"step","step":%d,"duration_s":1.0}\n'
SACCT = """JobID|State|Submit|Start|End|NodeList
7.batch|COMPLETED|2026-01-01T00:00:00Z|2026-01-01T00:00:00Z|2026-01-01T01:00:00Z|n1
8|COMPLETED|2026-01-01T00:00:00Z|2026-01-01T00:00:00Z|2026-01-01T01:00:00Z|n1
8.0|COMPLETED|2026-01-01T00:00:00Z|2026-01-01T00:00:00Z|2026-01-01T01:00:00Z|n1
8|COMPLETED|2026-01-01T00:00:00Z|2026-01-01T00:00:00Z|2026-01-01T02:00:00Z|n1
9|LOST|2026-01-01T00:00:00Z|2026-01-01T00:00:00Z|2026-01-01T02:00:00Z|n1
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with open_store(tmp_path / "store", create=True) as opened:
        yield opened


def counts(done: Ingested) -> dict[str, int | None]:
    """Records by what became of them."""
    kinds = ("read", "kept", "rejected", "folded", "skipped")
    return {kind: getattr(done, f"rows_{kind}") for kind in kinds}


def read_text(store: Store, folder: Path, name: str, text: str) -> Ingested:
    path = folder / name
    path.write_text(text)
    return ingest_file(store, path, ReadOptions(timezone="UTC"))


def test_a_node_listed_once_for_each_partition_is_kept_once(store: Store, tmp_path: Path):
    done = read_text(store, tmp_path, "sinfo.txt", SINFO)
    assert counts(done) == {"read": 6, "kept": 2, "rejected": 1, "folded": 2, "skipped": 1}


def test_of_records_with_one_key_the_earlier_are_folded(store: Store, tmp_path: Path):
    text = "".join(STEP % (1_770_000_000 + n % 3, n % 3) for n in range(5)) + "\nnoise\n"
    done = read_text(store, tmp_path, "run.jsonl", text)
    assert counts(done) == {"read": 7, "kept": 3, "rejected": 1, "folded": 2, "skipped": 1}
    assert store.rows("progress").num_rows == 3


def test_steps_are_folded_into_their_job_and_skipped_without_one(store: Store, tmp_path: Path):
    done = read_text(store, tmp_path, "sacct.psv", SACCT)
    assert counts(done) == {"read": 5, "kept": 1, "rejected": 1, "folded": 2, "skipped": 1}
    assert "1 job step does not follow its job in this log; it was skipped" in done.notes


@pytest.mark.slow
@pytest.mark.parametrize("sample", samples(), ids=str)
def test_the_counts_of_each_sample_add_up_and_are_known_again(sample: Sample, store: Store):
    if sample.expected["tables"].keys() == {"rejects"}:
        with pytest.raises(SourceError, match="no row could be made of it"):
            ingest_file(store, sample.path, sample.options, sample.source.name)
        return
    done = ingest_file(store, sample.path, sample.options, sample.source.name)
    found = counts(done)
    assert done.rows_read == sum(found.values()) - done.rows_read
    again = ingest_file(store, sample.path, sample.options, sample.source.name)
    assert again.unchanged
    assert counts(again) == found


def test_one_file_read_as_two_tables_is_counted_twice_and_adds_up(store: Store, tmp_path: Path):
    path = tmp_path / "site.csv"
    path.write_text("node,time,check,start,state\nn1,1770000000,x,1770000000,DOWN\nn1,soon,x,,\n")
    for table in ("events", "node_states"):
        done = ingest_file(store, path, ReadOptions(table=table, timezone="UTC"))
        assert counts(done) == {"read": 2, "kept": 1, "rejected": 1, "folded": 0, "skipped": 0}


@pytest.mark.parametrize("n_read", [1, 3])
def test_a_reader_that_loses_a_record_or_counts_one_twice_is_found_out(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_read: int
):
    source = named("progress")

    def wrong(origin, options):
        for batch in source.read(origin, options):
            yield Batch(batch.tables, n_read)

    monkeypatch.setattr(ingest, "recognise", lambda *_: replace(source, read=wrong))
    text = "".join(STEP % (1_770_000_000 + n, n) for n in range(2))
    with pytest.raises(
        AccountingError, match=rf"run.jsonl: progress: internal error: {n_read} rec"
    ):
        read_text(store, tmp_path, "run.jsonl", text)
    assert store.files() == ()
    assert store.rows("progress").num_rows == 0
