"""`ettr ingest`, and what can be read: `ettr sources` and `ettr catalog`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.file_options import Reading, existing_files, ingest_all
from ettr.cli.groups import Only
from ettr.cli.output import FiledPrinting, Printing, say
from ettr.cli.selecting import OnEngine
from ettr.errors import UsageError
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.sources.ingest import Ingested


def ingest(
    store: opt.StoreArgument,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Logs to read; - is standard input.")
    ],
    *,
    reading: Reading,
    judging: Annotated[opt.Judging, Only("taxonomy")],
    readable_by: Annotated[
        str | None,
        typer.Option(
            "--readable-by",
            metavar="WHOM",
            help="Who may read the store's files: owner, group or all; default owner. An "
            "existing store keeps its setting.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            max=1024,
            help="Processes that read files; where given, also blocks of one large `sacct` file. "
            "Default one a core for large files.",
        ),
    ] = None,
    on: Annotated[OnEngine, Only("memory_limit")],
    printing: Printing,
) -> None:
    """Read logs into a store, which is created if absent.

    Reading the same file again changes nothing; a later dump of the same jobs updates them. Every
    record read is kept, folded into another's row, rejected with a reason, or skipped by design;
    the four are printed. What comes through a pipe (`sacct ... | ettr ingest STORE -`) is kept in a
    temporary file while it is read.
    """
    from ettr.report.rows import plain_fields
    from ettr.store import Access

    judging.check()
    options = reading.read_options(judging.taxonomy)
    access = None if readable_by is None else q.one_of("--readable-by", readable_by, Access)
    there = existing_files(files)  # first, so that a slip makes no store
    with on.open(store, create=True, readable_by=access) as opened:
        done = ingest_all(opened, there, options, reading.source, jobs=jobs)
    if not printing.listed([plain_fields(one) for one in done]):
        for one in done:
            say(_line(one))


def compact(store: opt.StoreArgument, *, printing: Printing) -> None:
    """Make few files of the many that small ingestions leave; every answer stays the same.

    `ettr ingest` does so by itself, a few files at a time. Who reads meanwhile is not disturbed. A
    database looks after its own tables, and nothing is done.
    """
    from ettr.store import open_store

    with open_store(store) as opened:
        before, after = opened.compact()
    if not printing.summary({"store": opened.where, "parts_before": before, "parts": after}):
        say(f"{opened.where}: {counted(before, 'part')} before, {after:,} now")


def _line(one: Ingested) -> str:
    if one.unchanged:
        return f"{one.name}: {one.source}, already in the store, unchanged"
    rows = ", ".join(f"{name} ({count:,})" for name, count in one.rows)
    text = f"{one.name}: {one.source}, {counted(one.rows_read, 'record')}"
    # rows as they were read: of several of one key one stands
    text += f" read as rows of {rows}" if rows else ", no rows"
    text += f"; {one.rows_kept:,} kept"
    if one.rows_folded:
        text += f", {one.rows_folded:,} folded into others"
    if one.rows_skipped:
        text += f", {one.rows_skipped:,} skipped by design"
    if one.rows_rejected:
        why = ", ".join(f"{count:,} {reason}" for reason, count in one.rejected)
        text += f", {one.rows_rejected:,} rejected ({why})"
    return text


# -- `ettr sources`: the logs that can be read -----------------------------------------------------


def sources(printing: FiledPrinting) -> None:
    """List the log formats that can be read, and how to get each."""
    from ettr.sources.registry import all_sources

    found = list(all_sources().values())
    if printing.listed(
        [
            {
                "name": source.name,
                "title": source.title,
                "tables": list(source.tables),
                "needs_timezone": source.local_time,
                "how_to_get": source.how_to_get,
            }
            for source in found
        ]
    ):
        return
    width = max(len(source.name) for source in found)
    for source in found:
        zone = "; needs --timezone" if source.local_time else ""
        fills = f" -> {', '.join(source.tables)}" if source.tables else ""
        say(f"{source.name:<{width}}  {source.title}{fills}{zone}")
        if source.how_to_get:
            say(f"{'':<{width}}  get it: {source.how_to_get}")


# -- `ettr catalog`: what the taxonomy holds, and where vendors disagree ---------------------------


def catalog(
    code: Annotated[
        int | None, typer.Argument(metavar="[XID]", help="Only this XID code, in full.")
    ] = None,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="Only codes on which the vendors disagree.")
    ] = False,
    *,
    judging: opt.Judging,
    printing: FiledPrinting,
) -> None:
    """Show the XID catalogue: the verdict of each vendor, with its source.

    The question is whether the code is a fault of the node. --believe says whose verdict decides
    in a report; re-run a report with another to see what the choice does to the failure rate.
    """
    from ettr.taxonomy import load_taxonomy

    judging.check()
    taxonomy = load_taxonomy(judging.taxonomy, believe=judging.believe)
    rows = taxonomy.catalog_rows(code=code, conflicts_only=conflicts)
    if code is not None and not rows:
        raise UsageError(f"XID {code} is not in the catalogue; `ettr catalog` lists those that are")
    if printing.listed(rows):
        return
    if code is not None:
        for key, value in rows[0].items():
            say(f"{key:<20} {'-' if value is None else value}")
    else:
        from ettr.report.sections.attribution import catalog_table
        from ettr.report.text import table_text

        say(table_text(catalog_table(rows)))
