"""`ettr status`, `sizes`, `failures`, `mttf`, `runs`, `goodput`, `nodes`, `quality`.

Each prints one section of the report as text, or its part of the report's JSON, and offers the
options that its numbers depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.groups import Only
from ettr.cli.output import complain_of_selection, say, say_json, say_selection
from ettr.cli.printing import Printing, say_csv
from ettr.cli.selecting import Selecting


def _metric(name: str, help_text: str, *options: str) -> Callable[..., None]:
    """The command that prints one section of the report, with these of `MetricOptions`."""

    def command(
        store: opt.StoreArgument,
        *,
        selecting: Selecting,
        metric: opt.MetricOptions,
        printing: Printing,
    ) -> None:
        _print_part(name, store, selecting, metric, printing)

    command.__doc__ = help_text
    command.__annotations__["metric"] = Annotated[opt.MetricOptions, Only(*options)]
    return command


def _print_part(
    name: str, store: str, selecting: Selecting, metric: opt.MetricOptions, printing: Printing
) -> None:
    """Print one part of the report of a selection."""
    from ettr.analysis import Analysis
    from ettr.report.head import with_selection
    from ettr.report.parts import PARTS, part_document, part_rows
    from ettr.report.text import joined
    from ettr.store import open_store

    assumptions = metric.assumptions(metric.gpus_per_node)
    with open_store(store) as opened:
        analysis = Analysis(opened, assumptions, selecting.selection())
        head = analysis.selection_head
        if printing.csv:
            complain_of_selection(head)
            say_csv(part_rows(name, analysis))
        elif printing.json:
            say_json(with_selection(part_document(name, analysis), head))
        else:
            say_selection(head)
            say(joined(PARTS[name].sections(analysis)))


CAUSES = ("taxonomy", "believe", "window", "burst_gap", "sticky_gap", "log_tolerance")

status = _metric("status", "How jobs end, by count and by the GPU time they held.", "gpus_per_node")
user_failures = _metric(
    "user_failures",
    "Failures of users' own making by user, account, exit code and node, and what they held.",
    *CAUSES,
    "gpus_per_node",
)
sizes = _metric("sizes", "Job sizes, by count and by the GPU time they held.", "gpus_per_node")


def failures(
    store: opt.StoreArgument,
    *,
    listed: Annotated[
        bool,
        typer.Option(
            "--list", help="List each failure: when, whose, where, why, its cost and its log lines."
        ),
    ] = False,
    selecting: Selecting,
    metric: Annotated[
        opt.MetricOptions, Only(*CAUSES, "above_gpus", "confidence", "gpus_per_node")
    ],
    printing: Printing,
) -> None:
    """Failures per 1,000 node-days, by symptom and over time; with --list one by one."""
    _print_part("failure_list" if listed else "failures", store, selecting, metric, printing)


mttf = _metric(
    "mttf",
    "Time to failure by job size with exact intervals, and the projected line.",
    *CAUSES,
    "above_gpus",
    "confidence",
    "gpus_per_node",
    "fleet_nodes",
)
runs = _metric(
    "runs",
    "Job runs over requeues and resubmissions, and the ETTR of each.",
    *CAUSES,
    "run_id",
    "interval",
    "restart",
    "write",
    "gpus_per_node",
)
goodput = _metric(
    "goodput",
    "GPU-hours lost to failures, by cause: in failed jobs, and in jobs preempted for them.",
    *CAUSES,
    "confidence",
    "interval",
    "preemption_window",
    "preemption_tolerance",
    "gpus_per_node",
)
nodes = _metric(
    "nodes",
    "Node availability: repair times, time in drain, capacity lost; faults of nodes.",
    *CAUSES,
    "confidence",
    "gpus_per_node",
    "fleet_nodes",
)
quality = _metric(
    "quality",
    "Data quality: rejects, open jobs, gaps, clock skew, assumptions.",
    *CAUSES,
    "above_gpus",
)
