"""`ettr sources`: the logs that can be read."""

from __future__ import annotations

from ettr.cli.output import say
from ettr.cli.printing import FiledPrinting


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
