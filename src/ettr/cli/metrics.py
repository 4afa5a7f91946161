"""Commands that print one part of the report: those registered with it, `failures` and `nodes`.

Each prints one section of the report as text, or its part of the report's JSON, and offers the
options that its numbers depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.groups import Input, Only, TypedOptions
from ettr.cli.output import Answering
from ettr.cli.selecting import OnEngine, Pricing, Selecting
from ettr.errors import UsageError
from ettr.report.registry import CAUSES, Command, Registered
from ettr.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from ettr.analysis.node_checks import JobToCome
    from ettr.metrics.run_rules import Scenario
    from ettr.plan.cost import Price


class Ranking(StrEnum):
    """What nodes can be ranked by; those of `ettr.analysis.node_history`."""

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
    from ettr.analysis import Analysis

    assumptions = metric.assumptions(metric.gpus_per_node)
    with on.open(store) as opened:
        analysis = Analysis(opened, assumptions, selecting.selection(), price)
        printing.show_part(name, analysis)


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
    from ettr.analysis.node_history import node_costs, xid_devices
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


# -- `ettr checks`: what health checks find before failures, and which to run before a job ---------


def checks(
    store: opt.StoreArgument,
    *,
    before: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            "--before",
            metavar="N nodes TIME",
            help="Job to protect: its number of nodes and its length. Choose the checks to "
            "run before it.",
        ),
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(
            "--catalogue",
            metavar="FILE.toml",
            help="With --before: file of available checks, with commands, minutes and coverage.",
        ),
    ] = None,
    incident: Annotated[
        str | None,
        typer.Option(
            "--incident",
            metavar="TIME",
            help="With --before: time that an incident costs the job. [default: half a "
            "checkpoint interval plus a restart]",
        ),
    ] = None,
    while_idle: Annotated[
        bool,
        typer.Option("--while-idle", help="With --before: check idle nodes, so no job waits."),
    ] = False,
    helped: Annotated[
        str | None,
        typer.Option(
            "--helped", metavar="CHECK", help="Compare failures before and after this check."
        ),
    ] = None,
    symptom: Annotated[
        str | None,
        typer.Option(
            "--symptom", metavar="NAME", help="With --helped: count failures of this symptom only."
        ),
    ] = None,
    horizon: Annotated[
        str,
        typer.Option(
            "--horizon",
            metavar="TIME",
            help="How long before a failure a firing of the check may be and still count as "
            "its warning.",
        ),
    ] = "24h",
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
    """Measure health checks: which failures each fired before, what it missed, and what it cost.

    With --before: the checks that cost less time than the incidents they prevent, and the nodes to
    run them on. "Nothing pays" is an answer.

    With --helped: failures of each node after it got the check, compared with those before.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.node_checks import check_advice, checks_report
    from ettr.checks.selector import read_catalogue
    from ettr.report.sections.node_checks import (
        advice_section,
        checks_section,
        coverage_findings,
        helped_section,
    )

    horizon_s = q.seconds("--horizon", horizon)
    if horizon_s <= 0:
        raise UsageError(f"--horizon {horizon}: give a time above 0")
    if symptom is not None and helped is None:
        raise UsageError(f"--symptom {symptom}: works only with --helped; give it too")
    _check_before(before, catalogue, incident, while_idle)
    offered = None if catalogue is None else read_catalogue(catalogue)
    with on.open(store) as opened:
        analysis = Analysis(opened, rating.assumptions(), selecting.selection())
        of_fleet = analysis
        if before is not None and analysis.selection.of_nodes:
            # nodes that are asked about are the job's; what is known of checks is the fleet's
            of_fleet = analysis.of(analysis.selection.without_nodes)
        found, logs = checks_report(of_fleet, horizon_s, helped, symptom, offered or ())
        if before is not None:
            job = _job(before, incident, analysis.assumptions.checkpoints.middle, not while_idle)
            asked_nodes = frozenset(analysis.facts.distinct("held", "cluster", "node"))
            advice = check_advice(of_fleet, logs, found.checks, offered, job, asked_nodes)
            found = replace(found, advice=advice)
        head = analysis.selection_head
    asked = [
        *([advice_section(found.advice, coverage_findings(found.checks))] if found.advice else []),
        *([helped_section(found.helped)] if found.helped else []),
    ]
    if asked and printing.as_text:
        printing.say_sections(asked, head)
        return
    printing.show("ettr-checks", found, checks_section, "checks", head)


def _check_before(
    before: tuple[str, str, str] | None,
    catalogue: Path | None,
    incident: str | None,
    while_idle: bool,
) -> None:
    given = (("--catalogue", catalogue), ("--incident", incident), ("--while-idle", while_idle))
    for flag, value in given:
        if value and before is None:
            raise UsageError(f"{flag}: works only with --before; give it too")


def _job(
    before: tuple[str, str, str], incident: str | None, usual: Scenario, waits: bool
) -> JobToCome:
    from ettr.analysis.node_checks import JobToCome

    nodes, word, hours = before
    if not nodes.isdecimal() or len(nodes) > 9 or int(nodes) < 1 or word not in ("nodes", "node"):
        raise UsageError(
            f"--before {' '.join(before)}: give a number of nodes and a time, such as 512 nodes 24h"
        )
    hours_s = q.seconds("--before", hours)
    if hours_s <= 0:
        raise UsageError(f"--before {' '.join(before)}: give a time above 0")
    usual_h = (usual.lost_share * usual.checkpoint_interval_min + usual.restart_min) / (
        SECONDS_PER_HOUR / SECONDS_PER_MINUTE
    )
    cost_h = usual_h if incident is None else q.seconds("--incident", incident) / SECONDS_PER_HOUR
    return JobToCome(int(nodes), hours_s / SECONDS_PER_HOUR, cost_h, waits)
