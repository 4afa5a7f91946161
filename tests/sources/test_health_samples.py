"""Dirty samples of each health-side source, and what must come of them.

The samples are written by hand after the formats' own documentation; each twin
`NAME.expected.json` was written by hand from the sample, not by the reader.
"""

import importlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ettr.errors import SourceError
from ettr.sources.base import HEAD_BYTES, RawFile, ReadOptions, Source, open_bytes
from ettr.sources.registry import recognise
from ettr.tables import TABLES
from ettr.tables.rows import Batch

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
MODULES = {
    "kernel-xid": "ettr.sources.node_health.kernel_xid",
    "gcm": "ettr.sources.node_health.gcm",
    "nvsentinel": "ettr.sources.node_health.nvsentinel",
    "gpud": "ettr.sources.node_health.gpud",
    "nhc": "ettr.sources.node_health.nhc",
    "nvrx": "ettr.sources.node_health.nvrx",
    "infinitehbd": "ettr.sources.traces.infinitehbd",
    "lanl": "ettr.sources.traces.lanl",
    "table": "ettr.sources.table",
}
TWINS = sorted(twin for name in MODULES for twin in (SAMPLES / name).glob("*.expected.json"))


def source(name: str) -> Source:
    found: Source = importlib.import_module(MODULES[name]).SOURCE
    return found


def head_of(path: Path) -> bytes:
    with open_bytes(path) as file:
        return bytes(file.read(HEAD_BYTES))


def read_all(name: str, path: Path, **options: Any) -> list[Batch]:
    if "start" in options:
        options["start"] = datetime.fromisoformat(options["start"])
    raw = RawFile(path, "f", head_of(path))
    return list(source(name).read(raw, ReadOptions(**options)))


def rows_of(batches: list[Batch], table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in batches:
        if table in batch.tables:
            rows.extend(TABLES[table].check(batch.tables[table]).to_pylist())
    return rows


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_sample_gives_its_twin(twin: Path) -> None:
    expected = json.loads(twin.read_text())
    path = twin.with_name(twin.name.removesuffix(".expected.json"))
    batches = read_all(twin.parent.name, path, **expected["options"])
    counts = [
        sum(getattr(b, f"rows_{k}") for b in batches) for k in ("read", "rejected", "skipped")
    ]
    assert counts == expected["read_rejected_skipped"]
    for table, (names, *rows) in expected["tables"].items():
        got = [[plain(row[name]) for name in names] for row in rows_of(batches, table)]
        assert got == rows, table
    written = {name for batch in batches for name, t in batch.tables.items() if t.num_rows}
    assert written == set(expected["tables"])
    notes = " ".join(note for batch in batches for note in batch.notes)
    for words in expected.get("notes", []):
        assert words in notes


@pytest.mark.parametrize("name", MODULES)
def test_every_source_has_a_twin(name: str) -> None:
    assert any(twin.parent.name == name for twin in TWINS)


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_other_of_these_sources_claims_the_sample(twin: Path) -> None:
    path = twin.with_name(twin.name.removesuffix(".expected.json"))
    own = twin.parent.name
    scores = {name: source(name).matches(head_of(path), path.name) for name in MODULES}
    if own != "table":
        assert scores.pop(own) >= 0.5
        assert max(scores.values()) < 0.5, scores
    else:
        scores.pop("table")
        assert max(scores.values()) == 0.0


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_batch_keeps_schema_and_counts(twin: Path) -> None:
    expected = json.loads(twin.read_text())
    path = twin.with_name(twin.name.removesuffix(".expected.json"))
    for batch in read_all(twin.parent.name, path, **expected["options"]):
        rejects = batch.tables["rejects"].num_rows if "rejects" in batch.tables else 0
        assert rejects == batch.rows_rejected
        assert 0 <= batch.rows_rejected + batch.rows_skipped <= batch.rows_read
        lines = batch.tables["rejects"].column("line").to_pylist() if rejects else []
        assert len(set(lines)) == len(lines), "rejects of one file are keyed by line"


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_registry_recognises_the_sample(twin: Path) -> None:
    path = twin.with_name(twin.name.removesuffix(".expected.json"))
    if twin.parent.name == "table":
        with pytest.raises(SourceError, match="no known log format"):
            recognise(head_of(path), path.name)
    else:
        assert recognise(head_of(path), path.name).name == twin.parent.name
