"""`ettr export`: the tables of a store for other programs, with a card; whether a card holds."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli import options as opt
from ettr.cli.groups import OptionGroup
from ettr.cli.options import table_names
from ettr.cli.output import (
    FiledPrinting,
    Printing,
    complain,
    complain_of_selection,
    csv_output,
    end_of_selection,
    say,
    say_json,
)
from ettr.cli.selecting import Anonymising, OnEngine, Selecting
from ettr.errors import UsageError
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.report.rows import JsonValue


@dataclass(frozen=True, slots=True)
class Carding(OptionGroup):
    """A card of what is exported, or the check of one."""

    card: Annotated[
        bool,
        typer.Option("--card", help="Write croissant.json, which describes the files."),
    ] = False
    licence: Annotated[
        str | None,
        typer.Option("--licence", metavar="ID|URL", help="Licence, as an SPDX name or a URL."),
    ] = None
    creator: Annotated[
        str, typer.Option("--creator", metavar="NAME", help="With --card: who made the data.")
    ] = ""
    check: Annotated[
        Path | None,
        typer.Option(
            "--check", metavar="DIR", help="Check the files of a folder against its card."
        ),
    ] = None


def export(
    store: opt.OptionalStoreArgument = None,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            "-o",
            "--output",
            metavar="FILE",
            help="File to write: .parquet, .csv or .duckdb; with {table} in the name, one "
            "file per table.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Only this table; repeatable.",
            autocompletion=table_names,
        ),
    ] = None,
    carding: Carding,
    on: OnEngine,
    selecting: Selecting,
    analysing: opt.AnalysisOptions,
    gpus_per_node: opt.LoggedGpusPerNodeOption = None,
    anonymising: Anonymising,
    printing: Printing,
) -> None:
    """Export tables, stored and derived, to Parquet, CSV or a DuckDB file.

    Derived are interruptions, failures, blame, runs, outages and node_summary: what dashboards
    and notebooks want. A DuckDB file has what `ettr sql` reads too, in its schema `facts`. Text in
    a CSV never begins like a formula. --card adds a card in the form Croissant 1.1; without --to it
    is of a folder that `ettr records` has packed.
    """
    if carding.check is not None:
        if store is not None or to is not None or carding.card:
            raise UsageError("--check reads only a folder; leave out STORE, --to and --card")
        _check(carding.check, printing)
        return
    if store is not None and to is None and carding.card:
        _card_of_records(Path(store), carding)
        return
    if store is None or to is None:
        raise UsageError("give a STORE and --to FILE, or --check DIR to check an existing card")
    from ettr.analysis import Analysis
    from ettr.analysis.masking import MaskedStore
    from ettr.report import cards
    from ettr.report import export as exporting
    from ettr.report.rows import plain_fields

    selection = selecting.selection()
    chosen = exporting.check_target(to, table or (), selection)
    if (carding.licence or carding.creator) and not carding.card:
        raise UsageError("--licence and --creator go into a card; give --card too")
    licence = cards.check_card(to, carding.licence) if carding.card else ""
    assumptions = analysing.assumptions(gpus_per_node)
    with on.open(store) as opened:
        analysis, _ = anonymising.analysis(
            opened, selection, lambda store, chosen: Analysis(store, assumptions, chosen)
        )
        done = exporting.export(analysis, to, chosen, with_facts=not table)
        head = analysis.selection_head
        place = None
        if carding.card:
            source = analysis.store
            words = cards.CardWords(
                licence, carding.creator, datetime.now(UTC).date(), head.simulated
            )
            masks = source.changes if isinstance(source, MaskedStore) else None
            place = cards.write_card(done, words, masks, source.file_mode)
        complain_of_selection(head)
    for one in done:
        if one.not_measured:
            complain(f"{one.table}: not measured, since {one.not_measured}; its rows say nothing")
    if not printing.listed([plain_fields(one) for one in done]):
        for one in done:
            say(f"{one.table}: {counted(one.rows, 'row')} -> {one.file}")
        if place is not None:
            say(f"Card: {place}")
    end_of_selection(head)


def _card_of_records(folder: Path, carding: Carding) -> None:
    """Write a card next to the shards of a folder of progressive records."""
    from ettr.records import open_records
    from ettr.report import cards

    licence = cards.check_card(None, carding.licence)
    opened = open_records(folder)
    words = cards.CardWords(licence, carding.creator, datetime.now(UTC).date())
    samples = {one.file: one.n_samples for one in opened.shards}
    say(f"Card: {cards.write_records_card(folder, opened.groups, samples, words)}")


def _check(folder: Path, printing: Printing) -> None:
    """Say what is off between a folder and its card; exits 1 if anything is."""
    from ettr.report.cards import check_folder
    from ettr.report.rows import plain_fields

    found = check_folder(folder)
    if not printing.listed([plain_fields(one) for one in found.problems]):
        for one in found.problems:
            say(f"{one.place}: {one.words}")
        read = f"{counted(found.files, 'file')} of {found.card}"
        if found.problems:
            say(f"{counted(len(found.problems), 'problem')} in {read}.")
        else:
            say(f"{read}: as the card says ({counted(found.records, 'record')}).")
        for note in found.notes:
            say(f"Not checked: {note}")
    if found.problems:
        raise typer.Exit(1)


# -- `ettr sql`: the facts of a store, and statements over them ------------------------------------


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
    from ettr.facts.duck import text_of

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
    from ettr.facts.duck import ask
    from ettr.report.rows import write_header, write_rows
    from ettr.report.section import TextTable, table_text
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
        say_json([dict(zip(found.columns, map(_plain, row), strict=True)) for row in found.rows])
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
