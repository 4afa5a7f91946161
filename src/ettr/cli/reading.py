"""Log files read into a store, with progress on the terminal; shared by `ingest` and `report`."""

from __future__ import annotations

from contextlib import ExitStack
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

    Files that name their cluster come first, so that those which do not can take it from them. What
    comes through standard input and pipes is kept in temporary files until all are read.
    """
    from ettr.sources.ingest import ingest_log, naming_first, refuse_idle_options
    from ettr.sources.spool import log_file

    done = []
    with ExitStack() as spools:
        logs = [spools.enter_context(log_file(path, complain)) for path in files]
        refuse_idle_options(logs, options, source)
        for log in naming_first(logs, source):
            with progress_bar(0, "records") as advance:
                one = ingest_log(store, log, options, source, advance)
            for note in one.notes:
                complain(f"{one.name}: {note}")
            done.append(one)
    complain_of_clocks(store)
    return done


def complain_of_clocks(store: Store) -> None:
    """A loud sentence for each pair of logs in the store whose clocks differ by a constant."""
    from ettr.sources.registry import all_sources

    known = all_sources()
    names = {file.source for file in store.files()} & set(known)
    tables = [set(known[name].tables) for name in names]
    if not (
        any("attempts" in some for some in tables)
        and any(some & {"events", "node_states", "progress"} for some in tables)
    ):
        return
    from ettr.analysis import Analysis

    for shift in Analysis(store).clock_shifts:
        complain(shift.sentence)
