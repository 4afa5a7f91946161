"""`ettr sql`: the facts of a store, and statements over them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli import options as opt
from ettr.cli.output import complain, end_of_selection, say, say_json
from ettr.cli.printing import FiledPrinting, Printing, csv_output
from ettr.cli.selecting import Selecting
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.report.rows import JsonValue

_MEMORY_SHARE = 0.5


def sql(
    store: opt.StoreArgument,
    statement: Annotated[
        str | None,
        typer.Argument(metavar="[SELECT]", help="One SELECT over facts; without it, their list."),
    ] = None,
    *,
    show: Annotated[
        str | None,
        typer.Option("--show", metavar="NAME", help="Print the SQL file behind this fact."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of rows to print.")
    ] = 1000,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0.1, help="Stop after this many seconds.")
    ] = 60.0,
    selecting: Selecting,
    printing: FiledPrinting,
) -> None:
    """Read the facts of a store in SQL: what every figure of a report rests on.

    Facts are tables: the stored ones, and those that SQL files make of them (episodes, endings,
    failures, exposure ...). Times are microseconds since 1970, UTC, in columns that end in _us. A
    statement can read the store and nothing else. Selections hold for facts of what is selected.
    """
    from ettr.analysis.given_facts import documented_facts, know_every_fact
    from ettr.facts.asking import text_of

    know_every_fact()
    if show is not None:
        if statement is not None:
            raise UsageError("--show prints the SQL of a fact; leave the statement out")
        text = text_of(show)
        if not printing.listed([{"name": show, "text": text}]):
            say(text)
        return
    if statement is None:
        known: list[dict[str, JsonValue]] = [
            {"name": one.name, "means": one.means} for one in documented_facts()
        ]
        if not printing.listed(known):
            width = max(len(str(one["name"])) for one in known)
            for one in known:
                say(f"{one['name']:<{width}}  {one['means']}")
        return
    _answer(store, statement, limit, seconds, selecting, printing)


def _answer(
    store: str,
    statement: str,
    limit: int,
    seconds: float,
    selecting: Selecting,
    printing: Printing,
) -> None:
    from ettr.analysis import Analysis
    from ettr.facts.asking import ask
    from ettr.report.rows import write_header, write_rows
    from ettr.report.section import TextTable
    from ettr.report.text import table_text
    from ettr.store import open_store

    with open_store(store) as opened:
        analysis = Analysis(opened, None, selecting.selection())
        found = ask(
            analysis.facts,
            statement,
            most_rows=limit,
            memory_bytes=int(_free_bytes() * _MEMORY_SHARE),
            seconds=seconds,
        )
        head = analysis.selection_head
    if found.is_cut:
        complain(f"the first {limit:,} rows; --limit takes more")
    if printing.json:
        say_json([_object(found.columns, row) for row in found.rows])
    elif printing.csv:
        output = csv_output()
        write_header(output, found.columns)
        write_rows(output, (tuple(map(_plain, row)) for row in found.rows))
    else:
        cells = tuple(
            tuple("" if value is None else str(value) for value in row) for row in found.rows
        )
        numeric = {
            place
            for place in range(len(found.columns))
            if any(isinstance(row[place], int | float) for row in found.rows)
        }
        say(table_text(TextTable("", found.columns, cells, frozenset(numeric), len(cells))))
    end_of_selection(head)


def _object(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(columns, map(_plain, row), strict=True))


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers without a value are null."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _free_bytes() -> int:
    """Memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
