"""The rows of one log, with what the log's name and age say where its lines do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from ettr.sources.base import ReadOptions
from ettr.sources.json_records import JsonObject, JsonRecord, RecordShape, json_records
from ettr.sources.lines import BadRecordError, cells_of, node_of_name
from ettr.sources.origin import Origin
from ettr.sources.times import (
    LocalClock,
    LogYears,
    need_zone,
    utc_to_local,
    within_years,
    year_of_stamp,
)
from ettr.tables import LOG_DAYS
from ettr.tables.rows import Batch, BatchBuilder

_DAY = timedelta(days=1)
RecordT = TypeVar("RecordT")
# whether a batch is full is looked at once in so many records
_LOOKED_AT = 16


class LogRows(BatchBuilder):
    """Collects the rows of one log, and hands them out in batches."""

    def __init__(self, source: str, origin: Origin, options: ReadOptions) -> None:
        super().__init__(source, origin.file_id, options.cluster)
        self.origin, self.options = origin, options
        self._clock: LocalClock | None = None
        self._years: LogYears | None = None

    def each(
        self,
        records: Iterable[tuple[int, RecordT]],
        keep: Callable[[int, RecordT], object],
        raw: Callable[[RecordT], str | bytes] = str,
    ) -> Iterator[Batch]:
        """Count each record, hand it to `keep` and reject it where that raises `BadRecordError`.

        Batches as they are full: the last one is for the caller to take.

        Args:
            records: each with its line.
            raw: what a reject shows of a record.
        """
        for n, (line, record) in enumerate(records):
            self.count_read()
            self.keep_or_reject(line, record, keep, raw)
            if not n % _LOOKED_AT and self.is_full:
                yield self.batch()

    def keep_or_reject(
        self,
        line: int,
        record: RecordT,
        keep: Callable[[int, RecordT], object],
        raw: Callable[[RecordT], str | bytes] = str,
    ) -> None:
        """Hand a record that was counted to `keep`, and reject it where that raises."""
        try:
            keep(line, record)
        except BadRecordError as bad:
            self.reject(line, bad.reason, str(bad), raw(record))

    def each_object(
        self,
        keep: Callable[[int, JsonObject], object],
        shape: RecordShape | None = None,
    ) -> Iterator[Batch]:
        """The same of the JSON objects of the log; what is no object is rejected."""

        def checked(line: int, record: JsonRecord) -> None:
            if not isinstance(record.value, dict):
                raise BadRecordError("bad-json", record.error or "no JSON object")
            keep(line, record.value)

        records = ((record.line, record) for record in json_records(self.origin, shape))
        yield from self.each(records, checked, attrgetter("raw"))

    def each_row(
        self,
        keep: Callable[[int, dict[str, str]], object],
        names: list[str],
        lines: Iterable[tuple[int, str]],
        torn: int | None = None,
        *,
        by_hand: bool = False,
    ) -> Iterator[Batch]:
        """The same of the lines of a CSV file with these columns; empty ones are skipped.

        Args:
            torn: a line that is rejected as cut off.
            by_hand: people write the file: a line may lack cells at its end, have more, or an open
                quote.
        """

        def checked(line: int, text: str) -> None:
            cells = cells_of(text, strict=not by_hand)
            if line == torn:
                raise BadRecordError("torn-line", "the file ends within the line")
            if cells is not None and by_hand:
                cells += [""] * (len(names) - len(cells))
            elif cells is None or (any(cells) and len(cells) != len(names)):
                reason = "bad-csv" if by_hand else "wrong-width"
                raise BadRecordError(reason, f"not a line of {len(names)} cells")
            if not any(cells):
                self.count_skipped()
                return
            record: dict[str, str] = {}
            for name, cell in zip(names, cells, strict=not by_hand):
                record.setdefault(name, cell)  # of two columns of a name the first counts
            keep(line, record)

        yield from self.each(lines, checked)

    def node_of_file(self) -> str | None:
        """The node that the log's name says, with a note on it; None where it says none."""
        node = None if self.origin.is_nameless else node_of_name(Path(str(self.origin)).name)
        self.note(
            f"the lines name no node; {node!r} was taken from the file's name"
            if node
            else "the lines name no node, and neither does the file's name, so they count for "
            "no node; name the file after its node, such as node17.dmesg"
        )
        return node

    def note_time_of_file(self, what: str) -> None:
        """Note that the time of what the log holds is that of its file."""
        self.note(
            f"{what} state no time; it was taken from when the file was last changed "
            f"({self.origin.changed:%Y-%m-%d})"
        )

    def utc(self, stamp: datetime, *, is_ordered: bool = True) -> datetime:
        """The moment of a local time; those that the zone has twice or never are counted.

        Args:
            is_ordered: whether the lines of the log follow each other in time.

        Raises:
            UsageError: the user gave no zone.
        """
        if self._clock is None:
            self._clock = LocalClock(self.zone())
        return self._clock.utc(stamp, is_ordered=is_ordered)

    def local_time(self, text: str) -> datetime | None:
        """The moment of a local time as text; None where it is no time of these years."""
        try:
            stamp = datetime.fromisoformat(text.replace(",", "."))
            return within_years(self.utc(stamp))
        except (ValueError, OverflowError):
            return None

    def batch(self, **more: pa.Table) -> Batch:
        """What was collected since the last batch, with the counts of its local times."""
        made = super().batch(**more)
        counts = self._clock.take_counts() if self._clock else {}
        return replace(made, counted_notes=counts)

    def zone(self) -> str:
        """The zone of local times. Raises UsageError: the user gave none."""
        return need_zone(self.options.timezone, str(self.origin))

    def time_without_year(self, text: str, number: int, line: str) -> datetime | None:
        """The moment of local `MM-DDTHH:MM:SS`, its year from --start or the log's age.

        Where the log is longer than a year, or holds a 29th of February, the order of its lines
        decides.

        Raises:
            UsageError: the user gave no zone.
        """
        start, changed = self.options.start, self.origin.changed
        zone = self.zone()
        start_utc = start.astimezone(UTC) if start else None
        if self._years is None:
            self._years = LogYears(self.origin, *self.days_of_stamps())
        year = self._years.year(number, line)
        if year is not None:
            self.note(
                "stamps have no year; it was taken from the order of the lines, which pass New "
                f"Year or hold a 29th of February, and {_basis(start, changed)}"
            )
        else:
            self.note(
                "stamps have no year; it was taken from the start given"
                if start
                else "stamps have no year; each was taken as the last such day before the file was "
                f"changed ({changed:%Y-%m-%d}), unless --start says otherwise"
            )
            year = year_of_stamp(text, zone, start=start_utc, changed=changed)
        return None if year is None else self.local_time(f"{year}-{text}")

    def days_of_stamps(self) -> tuple[date | None, date]:
        """Local days before which (None: not known) and after which no stamp of the log lies.

        Raises:
            UsageError: the user gave no zone.
        """
        start, zone = self.options.start, self.zone()
        earliest = utc_to_local(start.astimezone(UTC) - _DAY, zone).date() if start else None
        return earliest, utc_to_local(self.origin.changed + _DAY, zone).date()


def _basis(start: datetime | None, changed: datetime) -> str:
    return "the start given" if start else f"the day the file was changed ({changed:%Y-%m-%d})"


OF_FILE = ""
"""The node of lines that name none: it is the one that the file is from."""


@dataclass(slots=True)
class _Lines:
    """Lines of one node on one day: how many, and the first."""

    n_lines: int
    line: int


class LogDays:
    """Counts the lines of each node on each UTC day of one log."""

    def __init__(self, file: LogRows) -> None:
        self._file = file
        self._days: dict[tuple[str, date], _Lines] = {}

    def see(self, node: str, day: date, line: int, n_lines: int = 1) -> None:
        """Count lines of a node, of which `line` is the first."""
        known = self._days.get((node, day))
        if known is None:
            self._days[node, day] = _Lines(n_lines, line)
        else:
            known.n_lines += n_lines
            known.line = min(known.line, line)

    def keep(
        self, nodes: set[str] | None = None, kinds: Mapping[str, set[str]] | None = None
    ) -> None:
        """Keep a row for each node and day; of these `nodes` alone, unless None.

        `kinds` are of each node, as the table has them.

        Next to lines that name a node those that name none are of nobody.
        """
        names = {name for name, _ in self._days}
        own = self._file.node_of_file() if names == {OF_FILE} else None
        for (name, day), lines in sorted(self._days.items()):
            node = name or own
            if node is None or (nodes is not None and name not in nodes):
                continue
            self._file.derive(
                LOG_DAYS.name,
                line=lines.line,
                node=node,
                day=datetime(day.year, day.month, day.day, tzinfo=UTC),
                n_lines=lines.n_lines,
                kinds=",".join(sorted((kinds or {}).get(name, ()))) or None,
            )
