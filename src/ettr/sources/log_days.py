"""On which days a log of nodes was arriving, whatever its lines say: rows of `log_days`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime

from ettr.sources.log_rows import LogRows
from ettr.tables import LOG_DAYS

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

    def keep(self, nodes: set[str] | None = None) -> None:
        """Keep a row for each node and day; of these `nodes` alone, unless None.

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
            )
