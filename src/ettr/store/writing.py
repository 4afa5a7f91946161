"""Batches of rows on their way into a store: what every writer of rows does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow.compute as pc

from ettr.store.base import Ingestion
from ettr.tables import REJECTS
from ettr.tables.rows import Batch


@dataclass(frozen=True, slots=True)
class Written:
    """What some batches held.

    Attributes:
        rows_read: records, with those rejected and skipped.
        rows_rejected: records that could not be read.
        rows_skipped: records that are no rows by design.
        rows: number of rows by table, without `rejects`.
        rejected: number of rejects by reason, the most frequent first.
        notes: assumptions made, each once.
    """

    rows_read: int
    rows_rejected: int
    rows_skipped: int
    rows: tuple[tuple[str, int], ...]
    rejected: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]


def write_batches(
    ingestion: Ingestion,
    batches: Iterable[Batch],
    progress: Callable[[int], None] | None = None,
) -> Written:
    """Write batches as they come; the caller commits.

    Args:
        ingestion: of the store to write to.
        batches: from a log source, a simulator, a collector.
        progress: called after each batch with the number of records so far.

    Raises:
        StoreError: the store cannot be written.
    """
    rows: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    notes: dict[str, None] = {}
    n_read = n_rejected = n_skipped = 0
    for batch in batches:
        for name, table in batch.tables.items():
            ingestion.write(name, table)
            if name == REJECTS.name:
                for entry in pc.value_counts(table.column("reason")).to_pylist():
                    rejected[entry["values"]] += entry["counts"]
            else:
                rows[name] += table.num_rows
        n_read += batch.rows_read
        n_rejected += batch.rows_rejected
        n_skipped += batch.rows_skipped
        notes.update(dict.fromkeys(batch.notes))
        if progress:
            progress(n_read)
    by_table, by_reason = tuple(rows.items()), tuple(rejected.most_common())
    return Written(n_read, n_rejected, n_skipped, by_table, by_reason, tuple(notes))
