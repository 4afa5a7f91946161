"""Batches on their way into a store: what every writer of rows does with them."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ettr.errors import AccountingError
from ettr.files import folder_aside
from ettr.store.base import Ingestion
from ettr.store.computing import Computing
from ettr.tables import ALLOCATIONS, ATTEMPTS, REJECTS, TABLES
from ettr.tables.rows import NOT_RECORDS, Batch
from ettr.words import by_number

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Written:
    """What some batches held; every record read is kept, rejected, folded or skipped.

    Attributes:
        rows_folded: records that are part of another record's row, or that a later record of the
            same key replaces.
        distinct: tables in which no two rows have the same key.
    """

    rows_read: int
    rows_kept: int
    rows_rejected: int
    rows_folded: int
    rows_skipped: int
    rows: tuple[tuple[str, int], ...]
    rejected: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]
    distinct: frozenset[str]

    def check(self) -> None:
        """Check that no record is lost and none is counted twice.

        Raises:
            AccountingError: the counts do not add up, or differ from the rows of `rejects`.
        """
        parts = (self.rows_kept, self.rows_rejected, self.rows_folded, self.rows_skipped)
        n_rejects = sum(count for _, count in self.rejected)
        if self.rows_read == sum(parts) and self.rows_rejected == n_rejects:
            return
        raise AccountingError(
            f"internal error: {self.rows_read:,} records were read, but {parts[0]:,} kept + "
            f"{parts[1]:,} rejected + {parts[2]:,} folded + {parts[3]:,} skipped = {sum(parts):,} "
            f"({n_rejects:,} rows of rejects). A record was lost or counted twice, so none was "
            "taken; please report it with the log's first lines and the options used"
        )


def write_batches(
    ingestion: Ingestion, batches: Iterable[Batch], progress: Callable[[int], None] | None = None
) -> Written:
    """Write batches as they come; the caller commits.

    Raises:
        StoreError: the store cannot be written.
        AccountingError: a record was lost or counted twice.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    rows: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    notes: dict[str, None] = {}
    counted_notes: Counter[str] = Counter()
    repeats = _Repeats(ingestion.computing)
    for batch in batches:
        repeats.see(batch)
        for name, table in batch.tables.items():
            ingestion.write(name, table)
            if name == REJECTS.name:
                for entry in pc.value_counts(table.column("reason")).to_pylist():
                    rejected[entry["values"]] += entry["counts"]
            else:
                rows[name] += table.num_rows
        counts["read"] += batch.rows_read
        counts["kept"] += batch.rows_kept
        counts["rejected"] += batch.rows_rejected
        counts["folded"] += batch.rows_folded
        counts["skipped"] += batch.rows_skipped
        notes.update(dict.fromkeys(batch.notes))
        counted_notes.update(batch.counted_notes)
        if progress:
            progress(counts["read"])
    repeated, distinct = repeats.count()
    del repeats  # and what it held is the system's again, before the store sorts what was written
    pa.default_memory_pool().release_unused()
    written = Written(
        rows_read=counts["read"],
        rows_kept=counts["kept"] - repeated,
        rows_rejected=counts["rejected"],
        rows_folded=counts["folded"] + repeated,
        rows_skipped=counts["skipped"],
        rows=tuple(rows.items()),
        rejected=tuple(rejected.most_common()),
        notes=(*notes, *(by_number(note, n) for note, n in counted_notes.items())),
        distinct=distinct,
    )
    written.check()
    return written


_MOST_KEY_BYTES = 1 << 28
"""Bytes of keys that are remembered in memory; of more the rest is put aside on disk."""


class _Repeats:
    """Finds the records of one log of which no row stands, as later ones have the same keys."""

    def __init__(self, computing: Computing) -> None:
        self._computing = computing
        self._keys: dict[str, list[pa.Table]] = {}
        self._n_bytes = 0
        self._aside: Path | None = None
        self._n_parts = 0
        self._nodes_once = True

    def see(self, batch: Batch) -> None:
        """Remember the keys and lines of the rows of one batch."""
        tables = batch.tables
        self._nodes_once &= batch.nodes_once or ALLOCATIONS.name not in tables
        for name, rows in tables.items():
            # an allocation is part of its attempt
            if name in NOT_RECORDS or (name == ALLOCATIONS.name and ATTEMPTS.name in tables):
                continue
            keys = rows.select([*TABLES[name].key, "line"])
            self._keys.setdefault(name, []).append(keys)
            self._n_bytes += keys.nbytes
        if self._n_bytes > _MOST_KEY_BYTES:
            self._put_aside()

    def count(self) -> tuple[int, frozenset[str]]:
        """Records whose rows are all replaced by those of others, and tables without any."""
        import pyarrow as pa

        if self._aside is not None:
            return self._count_aside(self._aside), frozenset()
        tables = {name: pa.concat_tables(parts) for name, parts in self._keys.items()}
        last = {name: _last_lines(name, keys) for name, keys in tables.items()}
        distinct = {name for name, keys in tables.items() if len(last[name]) == keys.num_rows}
        if len(distinct) == len(tables):
            repeated = 0
        else:
            every = [keys.column("line") for keys in tables.values()]
            repeated = _n_distinct(every) - _n_distinct([*last.values()])
        if self._nodes_once and ATTEMPTS.name in distinct and ALLOCATIONS.name not in tables:
            distinct.add(ALLOCATIONS.name)
        return repeated, frozenset(distinct)

    def _put_aside(self) -> None:
        """Write what is remembered to a temporary folder: a file may be larger than memory."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._aside is None:
            folder, remove = folder_aside()
            self._aside = Path(folder)
            weakref.finalize(self, remove)
        for name, parts in self._keys.items():
            path = self._aside / f"{name}-{self._n_parts}.parquet"
            pq.write_table(pa.concat_tables(parts), path)
        self._n_parts += 1
        self._keys, self._n_bytes = {}, 0

    def _count_aside(self, folder: Path) -> int:
        """The same count, by an engine that can put aside what does not fit its memory."""
        self._put_aside()
        names = sorted({path.stem.rpartition("-")[0] for path in folder.iterdir()})
        every, last = [], []
        for name in names:
            key = ", ".join(f'"{column}"' for column in TABLES[name].key)
            place = str(folder).replace("'", "''")
            rows = f"read_parquet('{place}/{name}-*.parquet')"
            every.append(f"SELECT line FROM {rows}")  # noqa: S608 - names of ours
            last.append(f"SELECT max(line) AS line FROM {rows} GROUP BY {key}")  # noqa: S608
        n_lines = "SELECT count(*) FROM (SELECT DISTINCT line FROM ({}))"
        with self._computing.connect() as duck:
            counted = [
                duck.execute(n_lines.format(" UNION ALL ".join(lines))).fetchall()[0][0]
                for lines in (every, last)
            ]
        return int(counted[0] - counted[1])


def _last_lines(name: str, keys: pa.Table) -> pa.ChunkedArray:
    """The last line of each key."""
    names = TABLES[name].key
    # what all rows share, mostly the cluster, distinguishes no rows and takes room in every group
    own = [key for key in names if not _is_one(keys.column(key))] or list(names[:1])
    # as in `backend`: one thread is quicker, and waits for no other
    found = keys.group_by(own, use_threads=False).aggregate([("line", "max")])
    return found.column("line_max")


def _is_one(column: pa.ChunkedArray) -> bool:
    """Whether all rows have the same value."""
    import pyarrow.compute as pc

    if column.null_count or not len(column):
        return False
    ends = pc.min_max(column)
    return bool(ends["min"] == ends["max"])


def _n_distinct(columns: list[pa.ChunkedArray]) -> int:
    return len(np.unique(np.concatenate([column.to_numpy() for column in columns])))
