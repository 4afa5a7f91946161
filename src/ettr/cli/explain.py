"""`ettr explain`: the history of one job, or the verdict on its flight records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.computing import OnEngine
from ettr.cli.groups import Input, TypedOptions, needs
from ettr.cli.output import complain, complain_of_selection, say, say_json, say_selection
from ettr.cli.printing import Answering, say_csv
from ettr.cli.time_rules import OF_LOGS, limited_time_s
from ettr.defaults import LOOK_BACK_S
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.flight import FlightFolder

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
    from ettr.analysis.job_arrays import job_array
    from ettr.report.job_history import job_array_section, job_history_text, job_section
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
