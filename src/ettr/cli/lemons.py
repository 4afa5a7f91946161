"""`ettr lemons`: nodes that fail their jobs again and again, with what speaks against each."""

from __future__ import annotations

from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.groups import Only
from ettr.cli.printing import Printing
from ettr.cli.selecting import Selecting
from ettr.defaults import FALSE_DISCOVERY
from ettr.errors import UsageError


def lemons(
    store: opt.StoreArgument,
    *,
    false_discovery: Annotated[
        float,
        typer.Option(
            "--false-discovery",
            metavar="SHARE",
            help="Largest expected share of ordinary nodes among the claimed ones.",
        ),
    ] = FALSE_DISCOVERY,
    selecting: Selecting,
    rating: Annotated[
        opt.Rating,
        Only(*("taxonomy", "believe", "window"), *("burst_gap", "sticky_gap", "log_tolerance")),
    ],
    printing: Printing,
) -> None:
    """Rank nodes by the probability that they are lemons, and claim those that stand out.

    A lemon fails several times as often as comparable nodes do. Probabilities allow for unequal
    exposure, unequal nodes, bursts, and failures of which no log names the culprit.
    """
    from ettr.analysis import Analysis
    from ettr.report.sections.lemons import lemons_section
    from ettr.store import open_store

    if not 0 < false_discovery < 1:
        raise UsageError(
            f"--false-discovery {false_discovery}: give a share between 0 and 1, not either end"
        )
    with open_store(store) as opened:
        analysis = Analysis(opened, rating.assumptions(), selecting.selection())
        found, head = analysis.lemons(false_discovery), analysis.selection_head
    printing.show("ettr-lemons", found, lemons_section, "candidates", head)
