"""Log files read into a store, with progress on the terminal; shared by `ingest` and `report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ettr.cli.output import complain, progress_bar

if TYPE_CHECKING:
    from ettr.sources.base import ReadOptions
    from ettr.sources.ingest import Ingested
    from ettr.store import Store


def ingest_all(
    store: Store, files: list[Path], options: ReadOptions, source: str | None
) -> list[Ingested]:
    """Read each file into the store, with a bar on the terminal; notes go to stderr.

    Files that name their cluster come first, so that those which do not can take it from them.
    """
    from ettr.sources.ingest import ingest_file, naming_first

    done = []
    for path in naming_first(files, source):
        with progress_bar(0, "records") as tell:
            one = ingest_file(store, path, options, source, tell)
        for note in one.notes:
            complain(f"{one.name}: {note}")
        done.append(one)
    return done
