"""`ettr lemons`, `ettr slow`, `ettr node`: nodes that fail or slow their jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.groups import Only
from ettr.cli.output import (
    Answering,
    check_writable,
    complain_of_selection,
    say,
    say_csv,
    say_json,
)
from ettr.cli.selecting import Anonymising, OnEngine, Selecting
from ettr.defaults import DRAIN_DAYS, FALSE_DISCOVERY
from ettr.errors import UsageError
from ettr.files import write_text
from ettr.report.registry import CAUSES

if TYPE_CHECKING:
    from ettr.analysis.lemon_evidence import LemonEvidence
    from ettr.analysis.selecting import SelectionHead


def lemons(
    store: opt.StoreArgument,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]",
            help="Write the evidence on this node, or CLUSTER/NODE, as a page and as JSON.",
        ),
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            "--html",
            metavar="FILE.html",
            help="With NODE: the page; the JSON file next to it has the same name.",
        ),
    ] = None,
    false_discovery: Annotated[
        float,
        typer.Option(
            "--false-discovery",
            metavar="SHARE",
            help="Largest share of ordinary nodes to expect among the claimed ones.",
        ),
    ] = FALSE_DISCOVERY,
    back_test: Annotated[
        bool,
        typer.Option(
            "--back-test",
            help="Test the claims on the past: fit on one period, score on the next, window "
            "after window.",
        ),
    ] = False,
    fit_days: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            help="With --back-test: length of each fit.  [default: 28, at most half of the logs]",
        ),
    ] = None,
    score_days: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            help="With --back-test: length of each score.  [default: 28, at most half of the logs]",
        ),
    ] = None,
    drain_days: Annotated[
        float,
        typer.Option(metavar="DAYS", help="With --back-test: how long a claimed node is out."),
    ] = DRAIN_DAYS,
    on: OnEngine,
    selecting: Selecting,
    rating: Annotated[
        opt.Rating,
        Only(*("taxonomy", "believe", "window"), *("burst_gap", "sticky_gap", "log_tolerance")),
    ],
    anonymising: Anonymising,
    printing: Annotated[Answering, Only("json", "csv", "detail", "table")],
) -> None:
    """Rank nodes by the probability that they are lemons, and claim those that stand out.

    A lemon fails several times as often as comparable nodes do. Probabilities allow for unequal
    exposure, unequal nodes, bursts, and failures of which no log names the culprit.

    With NODE: its failed jobs and their log lines, what the other nodes of those jobs did, what
    checks saw, and since when. Files are lemon-CLUSTER-NODE.html and .json if --output is absent.
    With --json or --csv it is printed instead.

    With --back-test: what claimed nodes did afterwards, and what jobs would have been spared.
    """
    from ettr.analysis import Analysis
    from ettr.report.sections.lemons import lemons_section

    if not 0 < false_discovery < 1:
        raise UsageError(f"--false-discovery {false_discovery}: give a share above 0 and below 1")
    _check_output(name, output, printing)
    _check_back_test(back_test, name, fit_days, score_days)
    with on.open(store) as opened:
        given, selection = rating.assumptions(), selecting.selection()
        analysis, masked = anonymising.analysis(
            opened,
            selection,
            lambda store, chosen: Analysis(store, given, chosen),
            name or "",
        )
        if name is not None:
            from ettr.analysis.lemon_evidence import lemon_evidence

            evidence = lemon_evidence(analysis, masked, false_discovery)
            _show_evidence(evidence, analysis.selection_head, output, printing)
            return
        if back_test:
            from ettr.analysis.back_test import lemon_back_test
            from ettr.report.sections.lemons import back_test_section

            scored = lemon_back_test(analysis, false_discovery, fit_days, score_days, drain_days)
            head = analysis.selection_head
            printing.show("ettr-lemons-back-test", scored, back_test_section, "sizes", head)
            return
        found, head = analysis.lemons(false_discovery), analysis.selection_head
    printing.show("ettr-lemons", found, lemons_section, "candidates", head)


def _check_back_test(
    back_test: bool, name: str | None, fit_days: float | None, score_days: float | None
) -> None:
    if back_test and name is not None:
        raise UsageError(f"--back-test {name}: it scores the claims of all nodes; leave one out")
    for flag, days in (("--fit-days", fit_days), ("--score-days", score_days)):
        if days is not None and not back_test:
            raise UsageError(f"{flag} {days:g}: only --back-test has windows; give it too")


def _check_output(name: str | None, output: Path | None, printing: Answering) -> None:
    if output is None:
        return
    if name is None:
        raise UsageError(f"--output {output}: works with one node; name it")
    if not printing.as_text:
        raise UsageError(f"--output {output}: --json and --csv write no file; leave one out")
    if output.suffix != ".html":
        raise UsageError(f"--output {output}: give a file name ending in .html")
    check_writable("--output", output)


def _show_evidence(
    evidence: LemonEvidence, head: SelectionHead, output: Path | None, printing: Answering
) -> None:
    from ettr.analysis.lemon_evidence import FailedJob
    from ettr.report.html import render
    from ettr.report.pages import evidence_document, evidence_file, evidence_page
    from ettr.report.rows import flat_rows, selection_text, with_selection
    from ettr.report.sections.lemons import verdict_section

    found = evidence_document(evidence)
    if printing.csv:
        complain_of_selection(head)
        say_csv(flat_rows(FailedJob, found["jobs"]))
        return
    document = with_selection(found, head)
    if printing.json:
        say_json(document)
        return
    page = output or Path(evidence_file(evidence.cluster, evidence.node))
    write_text(page, render(evidence_page(evidence, selection_text(head))))
    data = page.with_suffix(".json")
    write_text(data, json.dumps(document, indent=2, allow_nan=False) + "\n")
    printing.say_sections([verdict_section(evidence)], head)
    say()
    say(f"Evidence: {page} and {data}")


# -- `ettr slow`: nodes that slow their runs down without failing them -----------------------------


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
    from ettr.report.sections.lemons import slow_section

    if not 0 < false_discovery < 1:
        raise UsageError(f"--false-discovery {false_discovery}: give a share above 0 and below 1")
    with on.open(store) as opened:
        analysis = Analysis(opened, rating.assumptions(), selecting.selection())
        found, head = slow_report(analysis, false_discovery), analysis.selection_head
    printing.show("ettr-slow", found, slow_section, "candidates", head)


# -- `ettr node`: one node, or all nodes of a store ------------------------------------------------


def node(
    store: opt.StoreArgument,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Node, or CLUSTER/NODE; default all nodes."),
    ] = None,
    *,
    on: OnEngine,
    selecting: Selecting,
    metric: Annotated[opt.MetricOptions, Only(*CAUSES, "confidence", "fleet_nodes")],
    printing: Answering,
) -> None:
    """Show a node: failures against expected ones, outages, XIDs, repairs, its rack and switch.

    Without a name all nodes are listed, those first that have more failures than chance explains,
    with the times from an error to a node that works again.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.node_history import node_history
    from ettr.report.sections.node_records import node_section

    with on.open(store) as opened:
        analysis = Analysis(opened, metric.assumptions(None), selecting.selection())
        if name is None:
            printing.show_part("node_records", analysis)
            return
        history, head = node_history(analysis.given, name), analysis.selection_head
    printing.show("ettr-node", history, node_section, "", head)
