"""`ettr explain`: the history of one job."""

from __future__ import annotations

from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.output import say, say_json
from ettr.cli.printing import Printing, say_csv
from ettr.cli.time_rules import limited_time_s
from ettr.defaults import LOOK_BACK_S


def explain(
    store: opt.StoreArgument,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="Job id: 17, 7 (array), 7_1 (its task), 30 or 30+1 (heterogeneous), CLUSTER/17.",
        ),
    ],
    *,
    explaining: opt.Explaining,
    look_back: Annotated[
        str,
        typer.Option(
            "--look-back",
            metavar="TIME",
            help="How long before the job's first end an episode of errors may have begun.",
        ),
    ] = q.typed_time(LOOK_BACK_S),
    printing: Printing,
) -> None:
    """Show one job's history: attempts, nodes, events in the window, verdict, evidence.

    A heterogeneous job is one job, whichever of its parts is named. The id of an array lists its
    tasks with how each ended; a task's id explains it.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.evidence import evidence_of_job
    from ettr.analysis.job_arrays import job_array
    from ettr.report.document import plain, plain_fields
    from ettr.report.job_history import job_history_text
    from ettr.report.rows import rows_of
    from ettr.report.sections.job_array import job_array_section
    from ettr.store import open_store

    look_back_s = limited_time_s("--look-back", look_back)
    with open_store(store) as opened:
        analysis = Analysis(opened, explaining.assumptions())
        array = job_array(analysis, job)
        if array is not None:
            printing.show("ettr-explain-array", array, job_array_section, "tasks")
            return
        history = analysis.explain(job, look_back_s)
        evidence = evidence_of_job(analysis, history)
    document = plain_fields(history)
    if printing.csv:
        say_csv(rows_of(history, document, "attempts"))
    elif printing.json:
        say_json({**document, "evidence": plain(evidence)})
    else:
        say(job_history_text(history, evidence))
