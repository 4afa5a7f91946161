"""Commands that print one part of the report: those registered with it, and `ettr failures`.

Each prints one section of the report as text, or its part of the report's JSON, and offers the
options that its numbers depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.groups import Input, Only, TypedOptions
from ettr.cli.output import complain_of_selection, end_of_selection, say, say_json, say_selection
from ettr.cli.pricing import Pricing
from ettr.cli.printing import Printing, say_csv
from ettr.cli.selecting import Selecting
from ettr.errors import UsageError
from ettr.report.registry import CAUSES, Command, Registered

if TYPE_CHECKING:
    from ettr.plan.cost import Price


def metric_command(part: Registered, registered: Command) -> Callable[..., None]:
    """The command that prints a part of the report, as it was registered."""

    def command(
        store: opt.StoreArgument,
        *,
        selecting: Selecting,
        metric: opt.MetricOptions,
        pricing: Pricing,
        printing: Printing,
    ) -> None:
        _print_part(part.name, store, selecting, metric, printing, pricing.price())

    command.__doc__ = registered.help
    command.__annotations__["metric"] = Annotated[opt.MetricOptions, Only(*registered.options)]
    if not registered.priced:
        command.__annotations__["pricing"] = Annotated[Pricing, Only()]
    return command


def _print_part(
    name: str,
    store: str,
    selecting: Selecting,
    metric: opt.MetricOptions,
    printing: Printing,
    price: Price | None,
) -> None:
    """Print one part of the report of a selection."""
    from ettr.analysis import Analysis
    from ettr.report.head import with_selection
    from ettr.report.money import with_price
    from ettr.report.parts import part_alone, part_document, part_rows
    from ettr.report.text import joined
    from ettr.store import open_store

    assumptions = metric.assumptions(metric.gpus_per_node)
    with open_store(store) as opened:
        analysis = Analysis(opened, assumptions, selecting.selection(), price)
        head = analysis.selection_head
        if printing.csv:
            complain_of_selection(head)
            say_csv(part_rows(name, analysis))
        elif printing.json:
            say_json(with_selection(with_price(part_document(name, analysis), price), head))
        else:
            say_selection(head)
            say(joined(part_alone(name, analysis)))
    end_of_selection(head)


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
        opt.MetricOptions,
        Only(*CAUSES, "above_gpus", "confidence", "interval", "gpus_per_node"),
    ],
    pricing: Pricing,
    typed: TypedOptions,
    printing: Printing,
) -> None:
    """Failures per 1,000 node-days, by symptom and over time; with --list one by one."""
    typed.check({Input.LIST: listed})
    price = pricing.price()
    if price is not None and not listed:
        raise UsageError(
            "--gpu-hour-price: rates by symptom hold no GPU-hours; give --list as well, or ask "
            "`ettr goodput`"
        )
    part = "failure_list" if listed else "failures"
    _print_part(part, store, selecting, metric, printing, price)
