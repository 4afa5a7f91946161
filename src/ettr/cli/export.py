"""`ettr export`: the tables of a store for other programs."""

from __future__ import annotations

from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.anonymising import Anonymising
from ettr.cli.options import table_names
from ettr.cli.output import complain, complain_of_selection, end_of_selection, say
from ettr.cli.printing import Printing
from ettr.cli.selecting import Selecting
from ettr.words import counted


def export(
    store: opt.StoreArgument,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            "-o",
            "--output",
            metavar="FILE",
            help="Ends in .parquet, .csv or .duckdb; {table} in it makes a file for each table.",
        ),
    ],
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Only this table; repeatable.",
            autocompletion=table_names,
        ),
    ] = None,
    selecting: Selecting,
    analysing: opt.AnalysisOptions,
    gpus_per_node: opt.LoggedGpusPerNodeOption = None,
    anonymising: Anonymising,
    printing: Printing,
) -> None:
    """Export tables, stored and derived, to Parquet, CSV or a DuckDB file.

    Derived are interruptions, failures, blame, runs, outages and node_summary: what dashboards
    and notebooks want. A DuckDB file has what `ettr sql` reads too, in its schema `facts`. Text in
    a CSV never begins like a formula.
    """
    from ettr.analysis import Analysis
    from ettr.report import export as exporting
    from ettr.report.document import plain_fields
    from ettr.store import open_store

    selection = selecting.selection()
    chosen = exporting.check_target(to, table or (), selection)
    assumptions = analysing.assumptions(gpus_per_node)
    with open_store(store) as opened:
        analysis, _ = anonymising.analysis(
            opened, selection, lambda store, chosen: Analysis(store, assumptions, chosen)
        )
        done = exporting.export(analysis, to, chosen, with_facts=not table)
        head = analysis.selection_head
        complain_of_selection(head)
    for one in done:
        if one.not_measured:
            complain(f"{one.table}: not measured, since {one.not_measured}; its rows say nothing")
    if not printing.listed([plain_fields(one) for one in done]):
        for one in done:
            say(f"{one.table}: {counted(one.rows, 'row')} -> {one.file}")
    end_of_selection(head)
