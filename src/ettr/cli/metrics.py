"""Commands that print one part of the report: those registered with it, `failures` and `nodes`.

Each prints one section of the report as text, or its part of the report's JSON, and offers the
options that its numbers depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.groups import Input, Only, TypedOptions
from ettr.cli.output import Answering, complain_of_selection, end_of_selection, say_csv, say_json
from ettr.cli.selecting import OnEngine, Pricing, Selecting
from ettr.errors import UsageError
from ettr.report.registry import CAUSES, Command, Registered

if TYPE_CHECKING:
    from ettr.plan.cost import Price


class Ranking(StrEnum):
    """What nodes can be ranked by; those of `ettr.analysis.node_costs`."""

    LOST = "lost-gpu-hours"
    FAILURES = "failures"
    HOURS_OUT = "hours-out"


def metric_command(part: Registered, registered: Command) -> Callable[..., None]:
    """The command that prints a part of the report, as it was registered."""

    def command(
        store: opt.StoreArgument,
        *,
        on: OnEngine,
        selecting: Selecting,
        metric: opt.MetricOptions,
        pricing: Pricing,
        printing: Answering,
    ) -> None:
        _print_part(part.name, store, on, selecting, metric, printing, pricing.price())

    command.__doc__ = registered.help
    command.__annotations__["metric"] = Annotated[opt.MetricOptions, Only(*registered.options)]
    if not registered.priced:
        command.__annotations__["pricing"] = Annotated[Pricing, Only()]
    return command


def _print_part(
    name: str,
    store: str,
    on: OnEngine,
    selecting: Selecting,
    metric: opt.MetricOptions,
    printing: Answering,
    price: Price | None,
) -> None:
    """Print one part of the report of a selection."""
    from ettr.analysis import Analysis
    from ettr.report.money import with_price
    from ettr.report.parts import part_alone, part_document, part_rows
    from ettr.report.text import with_selection

    assumptions = metric.assumptions(metric.gpus_per_node)
    with on.open(store) as opened:
        analysis = Analysis(opened, assumptions, selecting.selection(), price)
        head = analysis.selection_head
        if printing.csv:
            complain_of_selection(head)
            say_csv(part_rows(name, analysis, printing.table))
        elif printing.json:
            say_json(with_selection(with_price(part_document(name, analysis), price), head))
        else:
            printing.say_sections(part_alone(name, analysis), head)
    end_of_selection(head)


def failures(
    store: opt.StoreArgument,
    *,
    listed: Annotated[
        bool,
        typer.Option("--list", help="List each failure: time, job, nodes, cause, cost, log lines."),
    ] = False,
    on: OnEngine,
    selecting: Selecting,
    metric: Annotated[
        opt.MetricOptions,
        Only(*CAUSES, "above_gpus", "confidence", "interval", "gpus_per_node"),
    ],
    pricing: Pricing,
    typed: TypedOptions,
    printing: Answering,
) -> None:
    """Failures per 1,000 node-days, by symptom and over time; with --list one by one."""
    typed.check({Input.LIST: listed})
    price = pricing.price()
    if price is not None and not listed:
        raise UsageError(
            "--gpu-hour-price: rates by symptom have no GPU-hours to price; give --list "
            "as well, or run `ettr goodput`"
        )
    part = "failure_list" if listed else "failures"
    _print_part(part, store, on, selecting, metric, printing, price)


def nodes(
    store: opt.StoreArgument,
    *,
    by: Annotated[
        Ranking | None,
        typer.Option(
            "--by",
            help="Rank nodes by this: what their failures lost, their failures, or their time out "
            "of service.",
        ),
    ] = None,
    xid: Annotated[
        int | None,
        typer.Option("--xid", metavar="CODE", min=0, help="List the GPUs that reported this XID."),
    ] = None,
    on: OnEngine,
    selecting: Selecting,
    metric: Annotated[
        opt.MetricOptions,
        Only(*CAUSES, "confidence", "interval", "gpus_per_node", "fleet_nodes"),
    ],
    pricing: Pricing,
    printing: Answering,
) -> None:
    """Node availability: repair times, time in drain, capacity lost; what each node cost.

    With --by the nodes are ranked, with --xid the GPUs are listed that reported an XID.
    """
    price = pricing.price()
    if by is None and xid is None:
        _print_part("nodes", store, on, selecting, metric, printing, price)
        return
    if by is not None and xid is not None:
        raise UsageError("--by and --xid print different lists; give one of them")
    from ettr.analysis import Analysis
    from ettr.analysis.node_costs import node_costs, xid_devices
    from ettr.report.sections.nodes import costs_section, xid_section

    with on.open(store) as opened:
        given = metric.assumptions(metric.gpus_per_node)
        analysis = Analysis(opened, given, selecting.selection(), price)
        head = analysis.selection_head
        if xid is not None:
            found = xid_devices(analysis, xid)
            printing.show("ettr-xid-devices", found, xid_section, "devices", head)
        elif by is not None:
            costs = node_costs(analysis, by.value)
            printing.show("ettr-node-costs", costs, costs_section, "nodes", head, price)
