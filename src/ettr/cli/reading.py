"""Log files read into a store, with progress on the terminal; shared by `ingest` and `report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ettr.cli.output import complain, reading_bar

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.sources.base import ReadOptions
    from ettr.sources.ingest import Ingested
    from ettr.store import Store


def ingest_all(
    store: Store,
    files: list[Path],
    options: ReadOptions,
    source: str | None,
    analysis: Analysis | None = None,
    jobs: int | None = 1,
) -> list[Ingested]:
    """Read each file into the store, with a bar on the terminal; notes go to stderr.

    An analysis of the store that is asked more later keeps what the notes take.
    """
    from ettr.analysis import reading

    return reading.ingest_all(store, files, options, source, complain, reading_bar, analysis, jobs)
