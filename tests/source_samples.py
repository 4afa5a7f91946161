"""The dirty samples of each source: tests/samples/SOURCE/FILE and its twin FILE.expected.json.

tests/samples/README.md says what a twin holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ettr.sources.base import ReadOptions, Source
from ettr.sources.origin import Origin, head_of
from ettr.sources.registry import named
from ettr.tables import TABLES
from ettr.tables.rows import Batch

SAMPLES = Path(__file__).resolve().parent / "samples"
_TWIN = ".expected.json"


@dataclass(frozen=True)
class Sample:
    """One dirty log, and what must become of it."""

    path: Path

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def source(self) -> Source:
        return named(self.path.parent.name)

    @property
    def head(self) -> bytes:
        return head_of(self.path)

    @property
    def expected(self) -> dict[str, Any]:
        twin: dict[str, Any] = json.loads(self.path.with_name(self.path.name + _TWIN).read_text())
        return twin

    @property
    def options(self) -> ReadOptions:
        given = dict(self.expected["options"])
        if "start" in given:
            given["start"] = datetime.fromisoformat(given["start"])
        return ReadOptions(**given)

    def read(self) -> list[Batch]:
        return read_all(self.source, self.path, self.options)


def samples(source: str = "*") -> list[Sample]:
    """The samples of one source, or of all."""
    twins = sorted(SAMPLES.glob(f"{source}/*{_TWIN}"))
    return [Sample(twin.with_name(twin.name.removesuffix(_TWIN))) for twin in twins]


def read_all(source: Source, path: Path, options: ReadOptions | None = None) -> list[Batch]:
    """Every batch of a file."""
    return list(source.read(Origin(path, "f", head_of(path)), options or ReadOptions()))


def rows_of(batches: list[Batch], table: str) -> list[dict[str, Any]]:
    """The rows of one table over all batches."""
    found = (batch.tables[table] for batch in batches if table in batch.tables)
    return [row for rows in found for row in TABLES[table].check(rows).to_pylist()]


def counts_of(batches: list[Batch]) -> list[int]:
    """Records read, rejected and skipped over all batches."""
    kinds = ("rows_read", "rows_rejected", "rows_skipped")
    return [sum(getattr(batch, kind) for batch in batches) for kind in kinds]


def is_as_expected(batches: list[Batch], expected: dict[str, Any]) -> None:
    """Check counts, the rows of every table, and the notes against a twin."""
    read, rejected, skipped = counts_of(batches)
    kept, folded = (sum(getattr(b, kind) for b in batches) for kind in ("rows_kept", "rows_folded"))
    assert [read, rejected, skipped] == expected["read_rejected_skipped"]
    assert folded == expected.get("folded", 0)
    assert read == kept + rejected + folded + skipped
    filled = {name for batch in batches for name, rows in batch.tables.items() if rows.num_rows}
    assert filled == set(expected["tables"])
    for table, wanted in expected["tables"].items():
        want = _as_objects(wanted)
        got = rows_of(batches, table)
        assert len(got) == len(want), table
        shown = [{name: _plain(row[name]) for name in w} for row, w in zip(got, want, strict=True)]
        assert shown == want, table
    notes = " ".join(note for batch in batches for note in batch.notes)
    for words in expected.get("notes", []):
        assert words in notes


def _as_objects(rows: list[Any]) -> list[dict[str, Any]]:
    """Rows as objects; in the short form the first row names the columns of the others."""
    if rows and isinstance(rows[0], dict):
        return rows
    names, *cells = rows
    return [dict(zip(names, row, strict=True)) for row in cells]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value
