"""`ettr explain`, `ettr causes`, `ettr timeline`: what ended jobs, one by one and over time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.groups import Input, Only, TypedOptions, needs
from ettr.cli.options import OF_LOGS, limited_time_s
from ettr.cli.output import (
    Answering,
    Printing,
    check_writable,
    complain,
    complain_of_selection,
    say,
    say_csv,
    say_json,
    say_selection,
)
from ettr.cli.selecting import Anonymising, OnEngine, Selecting
from ettr.defaults import LOOK_BACK_S, MOST_CAUSES_LISTED, TIMELINE_JOBS, TIMELINE_NODES
from ettr.errors import UsageError
from ettr.files import write_text
from ettr.report.registry import CAUSES
from ettr.words import by_number

if TYPE_CHECKING:
    from ettr.flight import FlightFolder
    from ettr.report.rows import JsonValue


_MOST_RANKS = 200_000


def explain(
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE", help="A folder, a file ending in .duckdb, or postgres://USER@HOST/DB."
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Job id: 17, 7 (array), 7_1 (its task), 30 or 30+1 (heterogeneous), CLUSTER/17.",
        ),
    ] = None,
    *,
    flight: Annotated[
        Path | None,
        typer.Option(
            "--flight",
            metavar="DIR",
            help="Folder of PyTorch flight records, instead of STORE and JOB: find the rank "
            "that the others wait for.",
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks",
            metavar="N",
            min=1,
            max=_MOST_RANKS,
            help="Number of ranks of the job, if the flight records do not say.",
        ),
        needs(Input.FLIGHT),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="LIST",
            help="Nodes in the order of their ranks, as in SLURM_JOB_NODELIST; every node has "
            "the same number of ranks.",
        ),
        needs(Input.FLIGHT),
    ] = None,
    on: OnEngine,
    explaining: opt.Explaining,
    look_back: Annotated[
        str,
        typer.Option(
            "--look-back",
            metavar="TIME",
            help="How long before the job's first end an episode of errors may have started.",
        ),
        OF_LOGS,
    ] = q.typed_time(LOOK_BACK_S),
    typed: TypedOptions,
    printing: Answering,
) -> None:
    """Show one job's history: attempts, nodes, events in the window, verdict, evidence.

    A heterogeneous job is one job, whichever of its parts is named. The id of an array lists its
    tasks with how each ended; a task's id explains it. With --flight, the records of
    a job that hangs say which rank the others wait for.
    """
    typed.check({Input.STORE: store is not None, Input.FLIGHT: flight is not None})
    if flight is not None:
        if store is not None:
            raise UsageError("--flight takes no STORE and no JOB; leave them out")
        _explain_flight(flight, ranks, nodes, printing)
    elif store is None or job is None:
        raise UsageError("give a STORE and a JOB, or --flight DIR")
    else:
        _explain_job(store, job, on, explaining, limited_time_s("--look-back", look_back), printing)


def _explain_job(
    store: str,
    job: str,
    on: OnEngine,
    explaining: opt.Explaining,
    look_back_s: float,
    printing: Answering,
) -> None:
    from ettr.analysis import Analysis
    from ettr.analysis.evidence import evidence_of_job
    from ettr.report.job_history import job_array, job_array_section, job_history_text, job_section
    from ettr.report.rows import plain, plain_fields, rows_of

    with on.open(store) as opened:
        analysis = Analysis(opened, explaining.assumptions())
        array = job_array(analysis, job)
        if array is not None:
            head = analysis.selection_head
            printing.show("ettr-explain-array", array, job_array_section, "tasks", head)
            return
        head, history = analysis.selection_head, analysis.explain(job, look_back_s)
        evidence = evidence_of_job(analysis.facts, analysis.given, history)
    document = plain_fields(history)
    if printing.csv:
        complain_of_selection(head)
        say_csv(rows_of(history, document, "attempts"))
    elif printing.json:
        say_json({"selection": plain(head), **document, "evidence": plain(evidence)})
    elif printing.detail:
        say_selection(head)
        say(job_history_text(history, evidence))
    else:
        printing.say_sections([job_section(history, evidence)], head)


def _explain_flight(path: Path, ranks: int | None, nodes: str | None, printing: Answering) -> None:
    from ettr.flight import judge, read_folder
    from ettr.report.job_history import flight_text
    from ettr.report.rows import plain, plain_fields, rows_of

    folder = read_folder(path)
    verdict = judge(folder, ranks, _nodes_of_ranks(nodes, ranks, folder))
    document = plain_fields(verdict)
    if printing.csv:
        for one in folder.refused:
            complain(f"{one.file}: {one.reason}")
        say_csv(rows_of(verdict, document, "culprits"))
    elif printing.json:
        document["refused_files"] = plain(folder.refused)
        say_json({"format": "ettr-flight", "version": 1, **document})
    else:
        say(flight_text(verdict, folder.refused))


def _nodes_of_ranks(
    nodes: str | None, ranks: int | None, folder: FlightFolder
) -> dict[int, str] | None:
    """The node of each rank, from a list of nodes with as many ranks on each.

    Raises:
        UsageError: no list of nodes, or the ranks cannot be divided among them.
    """
    if nodes is None:
        return None
    from ettr.sources.node_lists import expand_nodes

    try:
        names = expand_nodes(nodes)
    except ValueError as error:
        raise UsageError(f"--nodes {nodes[:100]!r}: no list of nodes ({error})") from error
    size = max(ranks or 0, folder.world_size or 0, 1 + max(folder.records))
    if not names or size % len(names):
        raise UsageError(
            f"--nodes: {size} ranks cannot be split evenly over {len(names)} nodes; list "
            "every node of the job, and give the number of ranks with --ranks"
        )
    per_node = size // len(names)
    return {rank: names[rank // per_node] for rank in range(size)}


# -- `ettr timeline`: nodes and large jobs over time, as a page that zooms -------------------------


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
    from ettr.report.pages import timeline_page
    from ettr.report.sections.timeline import timeline_section

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


# -- `ettr causes`: every interruption with the probabilities of its causes ------------------------


def causes(
    store: opt.StoreArgument,
    *,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            help="With --json or --csv: list the latest N interruptions; totals have all.",
        ),
    ] = MOST_CAUSES_LISTED,
    on: OnEngine,
    selecting: Selecting,
    rating: Annotated[
        opt.Rating,
        Only(
            *("taxonomy", "believe", "window", "burst_gap", "sticky_gap", "log_tolerance"),
            "confidence",
        ),
    ],
    printing: Answering,
) -> None:
    """Show the causes of every interruption as probabilities that sum to one.

    Causes are node hardware, what nodes share, system software, the user's program, operators, and
    unknown. A program that fails on many nodes speaks against the program, a node on which many
    users fail against the node, many at once against what they share. Preemptions are left out.

    With --taxonomy or --believe, totals with the catalogue as shipped stand next to them. --csv
    lists each interruption; --json has totals and list. A list that is cut says so.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.causes import CausedInterruption, cause_ledger
    from ettr.report.rows import flat_rows, plain, plain_fields
    from ettr.report.sections.attribution import causes_section

    given, selection = rating.assumptions(), selecting.selection()
    with on.open(store) as opened:
        analysis, default = Analysis(opened, given, selection), None
        if rating.taxonomy is not None or rating.believe is not None:
            shipped = replace(rating, taxonomy=None, believe=None).assumptions()
            default = Analysis(opened, shipped, selection)
        most = 0 if printing.as_text else limit
        ledger, head = (
            cause_ledger(analysis.given, None if default is None else default.given, most),
            analysis.selection_head,
        )
    if printing.as_text:
        printing.say_sections([causes_section(ledger.summary)], head)
        return
    listed: list[JsonValue] = [plain_fields(one) for one in ledger.interruptions]
    if printing.csv:
        if ledger.not_listed:
            complain(_cut(ledger.not_listed))
        say_csv(flat_rows(CausedInterruption, listed))
        return
    document = {
        **plain_fields(ledger.summary),
        "listed": listed,
        "not_listed": ledger.not_listed,
    }
    if ledger.not_listed:
        document["notes"] = [*ledger.summary.notes, _cut(ledger.not_listed)]
    say_json({"format": "ettr-causes", "version": 1, "selection": plain(head), **document})


def _cut(not_listed: int) -> str:
    return by_number(
        "{n} earlier [interruption is|interruptions are] not listed; the totals have [it|them] "
        "too. --limit takes more.",
        not_listed,
    )
