"""`ettr causes`: every interruption with the probabilities of its causes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.computing import OnEngine
from ettr.cli.groups import Only
from ettr.cli.output import complain, say_json
from ettr.cli.printing import Answering, say_csv
from ettr.cli.selecting import Selecting
from ettr.defaults import MOST_CAUSES_LISTED
from ettr.words import by_number

if TYPE_CHECKING:
    from ettr.report.rows import JsonValue


def causes(
    store: opt.StoreArgument,
    *,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            help="With --json or --csv: list the latest N interruptions; totals have all.",
        ),
    ] = MOST_CAUSES_LISTED,
    on: OnEngine,
    selecting: Selecting,
    rating: Annotated[
        opt.Rating,
        Only(
            *("taxonomy", "believe", "window", "burst_gap", "sticky_gap", "log_tolerance"),
            "confidence",
        ),
    ],
    printing: Answering,
) -> None:
    """Show the causes of every interruption as probabilities that sum to one.

    Causes are node hardware, what nodes share, system software, the user's program, operators, and
    unknown. A program that fails on many nodes speaks against the program, a node on which many
    users fail against the node, many at once against what they share. Preemptions are left out.

    With --taxonomy or --believe, totals with the catalogue as shipped stand next to them. --csv
    lists each interruption; --json has totals and list. A list that is cut says so.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.causes import CausedInterruption, cause_ledger
    from ettr.report.rows import flat_rows, plain, plain_fields
    from ettr.report.sections.attribution import causes_section

    given, selection = rating.assumptions(), selecting.selection()
    with on.open(store) as opened:
        analysis, default = Analysis(opened, given, selection), None
        if rating.taxonomy is not None or rating.believe is not None:
            shipped = replace(rating, taxonomy=None, believe=None).assumptions()
            default = Analysis(opened, shipped, selection)
        most = 0 if printing.as_text else limit
        ledger, head = (
            cause_ledger(analysis.given, None if default is None else default.given, most),
            analysis.selection_head,
        )
    if printing.as_text:
        printing.say_sections([causes_section(ledger.summary)], head)
        return
    listed: list[JsonValue] = [plain_fields(one) for one in ledger.interruptions]
    if printing.csv:
        if ledger.not_listed:
            complain(_cut(ledger.not_listed))
        say_csv(flat_rows(CausedInterruption, listed))
        return
    document = {
        **plain_fields(ledger.summary),
        "listed": listed,
        "not_listed": ledger.not_listed,
    }
    if ledger.not_listed:
        document["notes"] = [*ledger.summary.notes, _cut(ledger.not_listed)]
    say_json({"format": "ettr-causes", "version": 1, "selection": plain(head), **document})


def _cut(not_listed: int) -> str:
    return by_number(
        "{n} earlier [interruption is|interruptions are] not listed; the totals have [it|them] "
        "too. --limit takes more.",
        not_listed,
    )
