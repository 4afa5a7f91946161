"""`ettr forecast`: how many failures will come, and how well such forecasts held in the past."""

from __future__ import annotations

from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.computing import OnEngine
from ettr.cli.groups import Only
from ettr.cli.printing import Answering
from ettr.cli.selecting import Selecting


def forecast(
    store: opt.StoreArgument,
    *,
    ahead: Annotated[
        str,
        typer.Option("--ahead", metavar="LIST", help="How far ahead, such as 1d,7d,28d."),
    ] = "7d,28d",
    nodes: Annotated[
        float | None,
        typer.Option("--nodes", metavar="N", help="Nodes that will run; default as last."),
    ] = None,
    on: OnEngine,
    selecting: Selecting,
    rating: Annotated[
        opt.Rating,
        Only(
            *("taxonomy", "believe", "window"),
            *("burst_gap", "sticky_gap", "log_tolerance", "confidence"),
        ),
    ],
    printing: Answering,
) -> None:
    """Forecast failures: how many will come, with bands, and how often such bands held.

    Each length of time is forecast from windows of that length in the store's past, twelve at
    least. Every past window from the thirteenth on is forecast from what came before it alone.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.forecasting import forecast_failures
    from ettr.report.sections.projection import forecast_section

    lengths = [q.time_days("--ahead", part.strip()) for part in ahead.split(",")]
    q.positive("--nodes", nodes, "nodes")
    with on.open(store) as opened:
        analysis = Analysis(opened, rating.assumptions(), selecting.selection())
        found = forecast_failures(analysis, opened.where, lengths, nodes)
        head = analysis.selection_head
    printing.show("ettr-forecast", found, forecast_section, "ahead", head)
