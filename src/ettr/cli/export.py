"""`ettr export`: the tables of a store for other programs, with a card; whether a card holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.anonymising import Anonymising
from ettr.cli.computing import OnEngine
from ettr.cli.groups import OptionGroup
from ettr.cli.options import table_names
from ettr.cli.output import complain, complain_of_selection, end_of_selection, say
from ettr.cli.printing import Printing
from ettr.cli.selecting import Selecting
from ettr.errors import UsageError
from ettr.words import counted


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
