"""`ettr sources`: the logs that can be read."""

from __future__ import annotations

from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.output import FiledPrinting, say


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
    from ettr.errors import UsageError
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
