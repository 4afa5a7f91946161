"""`ettr slow`: nodes that slow their runs down without failing them."""

from __future__ import annotations

from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.computing import OnEngine
from ettr.cli.groups import Only
from ettr.cli.printing import Answering
from ettr.cli.selecting import Selecting
from ettr.defaults import FALSE_DISCOVERY
from ettr.errors import UsageError


def slow(
    store: opt.StoreArgument,
    *,
    false_discovery: Annotated[
        float,
        typer.Option(
            "--false-discovery",
            metavar="SHARE",
            help="Largest share of ordinary nodes to expect among the claimed ones of a run.",
        ),
    ] = FALSE_DISCOVERY,
    on: OnEngine,
    selecting: Selecting,
    rating: Annotated[opt.Rating, Only("confidence")],
    printing: Answering,
) -> None:
    """Rank nodes by the probability that they slow their runs down.

    From progress records of each rank with `wait_s`, the part of a step that the rank waited for
    others: its work is the rest. Nodes are compared within a run and step by step.

    From tables of nccl-tests, the bus bandwidth of tests with a node against those without it.

    Without waits, from the step times of runs that went on as another attempt on other nodes: those
    with a node against those without it. Where no run changed its nodes, nothing can be said.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.slow_nodes import slow_report
    from ettr.report.sections.slow_nodes import slow_section

    if not 0 < false_discovery < 1:
        raise UsageError(f"--false-discovery {false_discovery}: give a share above 0 and below 1")
    with on.open(store) as opened:
        analysis = Analysis(opened, rating.assumptions(), selecting.selection())
        found, head = slow_report(analysis, false_discovery), analysis.selection_head
    printing.show("ettr-slow", found, slow_section, "candidates", head)
