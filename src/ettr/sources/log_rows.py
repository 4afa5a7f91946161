"""The rows of one log, with what the log's name and age say where its lines do not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from ettr.sources.base import ReadOptions
from ettr.sources.lines import file_stem
from ettr.sources.origin import Origin
from ettr.sources.times import need_zone, time_without_year
from ettr.tables.rows import BatchBuilder


class LogRows(BatchBuilder):
    """Collects the rows of one log, and hands them out in batches."""

    def __init__(self, source: str, origin: Origin, options: ReadOptions) -> None:
        super().__init__(source, origin.file_id, options.unnamed_cluster)
        self.origin, self.options = origin, options

    def node_of_file(self) -> str | None:
        """The node that the log's name says, with a note on it; None where it has no name."""
        node = None if self.origin.is_nameless else file_stem(Path(str(self.origin)).name)
        if node:
            self.note(f"the lines name no node; {node!r} was taken from the file's name")
        return node

    def zone(self) -> str:
        """The zone of local times.

        Raises:
            UsageError: the user gave none.
        """
        return need_zone(self.options.timezone, str(self.origin))

    def time_without_year(self, text: str) -> datetime | None:
        """The moment of local `MM-DDTHH:MM:SS`, its year from --start or the log's age.

        Raises:
            UsageError: the user gave no zone.
        """
        start, changed = self.options.start, self.origin.changed
        self.note(
            "stamps have no year; it was taken from the start given"
            if start
            else "stamps have no year; each was taken as the last such day before the file was "
            f"changed ({changed:%Y-%m-%d}), unless --start says otherwise"
        )
        start_utc = start.astimezone(UTC) if start else None
        return time_without_year(text, self.zone(), start=start_utc, changed=changed)
