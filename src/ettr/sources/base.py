"""What a source is: a name, a test on a log's first bytes, and a reader that yields batches.

A reader never raises for a bad record and never drops one silently: each record it finds is a row
of some table, a row of `rejects`, or counted as skipped by design. It raises `SourceError` only
where the log as a whole cannot be this format, and `UsageError` where an option is missing.
`docs/how-to/add-a-source.md` shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from ettr.taxonomy.rules import KernelForm

if TYPE_CHECKING:
    from ettr.sources.origin import Origin
    from ettr.tables.rows import Batch


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user said about a log; None means not said."""

    timezone: str | None = None
    cluster: str | None = None
    fields: tuple[str, ...] | None = None
    n_nodes: int | None = None
    gpus_per_node: int | None = None
    column_map: dict[str, str] | None = None
    table: str | None = None
    start: datetime | None = None
    job: str | None = None
    run: str | None = None
    series: str | None = None
    kernel: tuple[KernelForm, ...] | None = None
    accelerators: tuple[str, ...] | None = None
    followed: str | None = None


AMONG_OTHERS = 0.51
"""The score of a log of other lines with a record among them, which a job can have written."""

READERS: Mapping[str, int] = {
    "kernel-xid": 3,
    "kubernetes": 3,
    "nhc": 2,
    "prometheus": 2,
    "slurm-events": 3,
    "slurm-inventory": 2,
    "slurm-sacct": 3,
    "slurmctld-log": 2,
}
"""Versions of readers that are not the first, by source: a report loads no reader to know them."""


_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class Spreading(Protocol):
    """Gives items to several processes, and what they make of them in the order of the items."""

    def __call__(self, work: Callable[[_Item], _Made], items: Iterable[_Item]) -> Iterator[_Made]:
        """What the work makes of each item."""


@dataclass(frozen=True, slots=True)
class Source:
    """A log format: how to recognise it and how to read it.

    Attributes:
        matches: looks at the first bytes and the name of a file and returns a score: 0 not this
            format, 1 certain; from 0.5 the file may be taken for it.
        read_by: reads the same rows by several processes, a block of lines each. None where a line
            is read by what others say (a year, a repeat, a run): one process reads such a log.
        version: of its reader; a later one reads what an earlier one missed or misread.
    """

    name: str
    title: str
    tables: tuple[str, ...]
    matches: Callable[[bytes, str], float]
    read: Callable[[Origin, ReadOptions], Iterator[Batch]]
    local_time: bool = False
    prints_local: Callable[[bytes], bool] = lambda _head: True
    options: tuple[str, ...] = ()
    how_to_get: str = ""
    guide: str = ""
    version: int = 1
    read_by: Callable[[Origin, ReadOptions, Spreading], Iterator[Batch]] | None = None

    @property
    def guide_page(self) -> str:
        """Its page, relative to docs/how-to."""
        return self.guide or f"sources/{self.name}.md"
