"""Dirty samples of every registered source, and what must become of them.

A new source needs no change here: its folder of samples bears its name.
"""

import json
import os
from pathlib import Path

import pytest

from ettr.errors import SourceError
from ettr.sources.registry import LEAST_SCORE, all_sources, recognise
from ettr.taxonomy import load_taxonomy
from source_samples import SAMPLES, Sample, is_as_expected, read_all, rows_of, samples

every_sample = pytest.mark.parametrize("sample", samples(), ids=str)


def test_every_source_has_a_sample_and_every_sample_a_source() -> None:
    assert {folder.name for folder in SAMPLES.iterdir() if folder.is_dir()} == set(all_sources())
    assert {sample.source.name for sample in samples()} == set(all_sources())


def test_every_file_among_the_samples_is_a_sample_or_a_twin() -> None:
    known = {sample.path.name for sample in samples()}
    for path in SAMPLES.glob("*/*"):
        assert path.name.removesuffix(".expected.json") in known, path


@every_sample
def test_a_sample_gives_its_twin(sample: Sample) -> None:
    is_as_expected(sample.read(), sample.expected)


@every_sample
def test_a_sample_is_recognised_as_its_own_source_alone(sample: Sample) -> None:
    scores = {s.name: s.matches(sample.head, sample.path.name) for s in all_sources().values()}
    own = scores.pop(sample.source.name)
    assert max(scores.values()) < LEAST_SCORE, scores
    if sample.options.table:  # a table of the site's own: --table says what it is
        with pytest.raises(SourceError, match="no known log format"):
            recognise(sample.head, sample.path.name)
    else:
        assert own >= LEAST_SCORE
        assert recognise(sample.head, sample.path.name) is sample.source


@every_sample
def test_a_batch_keeps_schema_and_counts(sample: Sample) -> None:
    for batch in sample.read():
        assert set(batch.tables) <= {*sample.source.tables, "rejects"}
        rejects = batch.tables["rejects"].num_rows if "rejects" in batch.tables else 0
        assert rejects == batch.rows_rejected
        assert 0 <= batch.rows_rejected + batch.rows_skipped <= batch.rows_read
        lines = batch.tables["rejects"].column("line").to_pylist() if rejects else []
        assert len(set(lines)) == len(lines), "rejects of one file are keyed by line"


@every_sample
def test_rows_fit_together(sample: Sample) -> None:
    batches = sample.read()
    attempts, allocations = rows_of(batches, "attempts"), rows_of(batches, "allocations")
    assert {row["state"] for row in attempts} <= set(load_taxonomy().states)
    assert {row["attempt_id"] for row in allocations} <= {row["attempt_id"] for row in attempts}
    for row in (*attempts, *allocations, *rows_of(batches, "node_states")):
        assert row["start"] is None or row["end"] is None or row["start"] <= row["end"]
    for table in sample.source.tables:
        assert {row["source"] for row in rows_of(batches, table)} <= {sample.source.name}


@every_sample
def test_a_sample_that_prints_local_time_is_of_a_source_that_asks_for_the_zone(
    sample: Sample,
) -> None:
    if sample.source.local_time and sample.source.prints_local(sample.head):
        assert sample.options.timezone is not None


@every_sample
def test_a_twin_says_where_its_sample_comes_from(sample: Sample) -> None:
    expected = sample.expected
    assert expected["origin"].strip()
    known = {"origin", "options", "read_rejected_skipped", "folded", "tables", "notes"}
    assert set(expected) <= known
    json.dumps(expected)


@pytest.mark.parametrize("name", all_sources())
def test_the_samples_of_a_source_hold_dirt(name: str) -> None:
    counts = [sample.expected["read_rejected_skipped"] for sample in samples(name)]
    folded = [sample.expected.get("folded", 0) for sample in samples(name)]
    assert any(rejected or skipped for _, rejected, skipped in counts) or any(folded)


TEXTS = frozenset(
    {
        "kernel-xid",
        "nhc",
        "lsf",
        "slurm-inventory",
        "slurm-jobs",
        "slurm-topology",
        "mlflow",
        "slurmctld-log",
    }
)
COMPRESSED = {b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08\x00"}
"""First bytes of zstd and of gzip."""


@pytest.mark.parametrize(
    "sample",
    [
        sample
        for sample in samples()
        if sample.source.name in TEXTS and sample.path.read_bytes()[:4] not in COMPRESSED
    ],
    ids=str,
)
def test_a_byte_order_mark_costs_no_record(tmp_path: Path, sample: Sample) -> None:
    path = tmp_path / sample.path.name
    path.write_bytes(b"\xef\xbb\xbf" + sample.path.read_bytes())
    os.utime(path, (sample.path.stat().st_mtime,) * 2)
    is_as_expected(read_all(sample.source, path, sample.options), sample.expected)
