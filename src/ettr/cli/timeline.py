"""`ettr timeline`: nodes and large jobs over time, as a page that zooms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.anonymising import Anonymising
from ettr.cli.computing import OnEngine
from ettr.cli.groups import Input, Only, TypedOptions, needs
from ettr.cli.output import check_writable, say
from ettr.cli.printing import Printing
from ettr.cli.selecting import Selecting
from ettr.defaults import TIMELINE_JOBS, TIMELINE_NODES
from ettr.files import write_text
from ettr.report.registry import CAUSES

_LIMIT = 100_000


def timeline(
    store: opt.StoreArgument,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", "--html", metavar="FILE.html", help="File to write."),
        needs(Input.REPORT_PAGE),
    ] = Path("timeline.html"),
    min_gpus: Annotated[
        int | None,
        typer.Option("--min-gpus", metavar="N", min=0, help="Only jobs of N GPUs or more."),
    ] = None,
    most_jobs: Annotated[
        int,
        typer.Option(
            "--most-jobs",
            metavar="N",
            min=0,
            max=_LIMIT,
            help="Most attempts to draw: the largest first, then the longest.",
        ),
    ] = TIMELINE_JOBS,
    most_nodes: Annotated[
        int,
        typer.Option(
            "--most-nodes",
            metavar="N",
            min=1,
            max=_LIMIT,
            help="Most nodes to draw: those with most outages and failures, then with most work.",
        ),
    ] = TIMELINE_NODES,
    *,
    on: OnEngine,
    selecting: Selecting,
    metric: Annotated[opt.MetricOptions, Only(*CAUSES, "fleet_nodes", "gpus_per_node")],
    typed: TypedOptions,
    anonymising: Anonymising,
    printing: Printing,
) -> None:
    """Draw nodes over time: outages, large jobs, what ended them; a page to zoom.

    The page says what it leaves out, and has the same spans as tables. --json prints the spans,
    --csv the jobs among them.
    """
    from ettr.analysis import Analysis
    from ettr.analysis import timeline as spans
    from ettr.report.html import render
    from ettr.report.sections.timeline import timeline_section
    from ettr.report.timeline_page import timeline_page

    typed.check({Input.STORE: True, Input.REPORT_PAGE: printing.as_text})
    if printing.as_text:
        check_writable("--output", output)
    limits = spans.TimelineLimits(min_gpus, most_jobs, most_nodes)
    with on.open(store) as opened:
        assumptions, selection = metric.assumptions(metric.gpus_per_node), selecting.selection()
        analysis, _ = anonymising.analysis(
            opened, selection, lambda store, chosen: Analysis(store, assumptions, chosen)
        )
        found, head = spans.timeline(analysis, limits), analysis.selection_head
    if printing.as_text:
        write_text(output, render(timeline_page(found, head)))
    printing.show("ettr-timeline", found, timeline_section, "jobs", head)
    if printing.as_text:
        say(f"\nTimeline: {output}")
