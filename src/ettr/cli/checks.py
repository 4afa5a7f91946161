"""`ettr checks`: what health checks find before failures, and which to run before a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.groups import Only
from ettr.cli.output import Answering
from ettr.cli.selecting import OnEngine, Selecting
from ettr.errors import UsageError
from ettr.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from ettr.analysis.node_checks import JobToCome
    from ettr.metrics.run_rules import Scenario


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
