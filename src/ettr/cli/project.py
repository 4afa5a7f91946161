"""`ettr project`: a fleet's failure rate at another scale, with bands and warnings."""

from __future__ import annotations

from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.output import say, say_json
from ettr.cli.plan import (
    ASSUMED_RESTART,
    ASSUMED_WRITE,
    FailuresOption,
    IntervalOption,
    NodeDaysOption,
    QueueOption,
    RestartOption,
    StoreOrNothing,
    WriteOption,
)
from ettr.errors import UsageError


def project(
    store: StoreOrNothing = None,
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", metavar="LIST", help="Scales, such as 4096,16384,131072."),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="LIST", help="The same in nodes.")
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option("--gpus-per-node", metavar="G", min=1, help="GPUs of the planned nodes."),
    ] = None,
    failures: FailuresOption = None,
    node_days: NodeDaysOption = None,
    seen_gpus: Annotated[
        int | None,
        typer.Option("--seen-gpus", metavar="N", min=1, help="GPUs of the jobs they were seen in."),
    ] = None,
    seen_gpus_per_node: Annotated[
        int | None,
        typer.Option("--seen-gpus-per-node", metavar="G", min=1, help="GPUs of the nodes seen."),
    ] = None,
    spares: Annotated[
        int, typer.Option("--spares", metavar="S", min=0, help="Nodes held ready.")
    ] = 0,
    repair: Annotated[
        str | None,
        typer.Option("--repair", metavar="TIME", help="Mean time until a failed node is back."),
    ] = None,
    days: Annotated[
        float | None, typer.Option("--days", metavar="D", help="Length of the run in days.")
    ] = None,
    interval: IntervalOption = None,
    write: WriteOption = None,
    restart: RestartOption = None,
    queue: QueueOption = "0s",
    taxonomy: opt.TaxonomyOption = None,
    believe: opt.BelieveOption = None,
    above_gpus: opt.AboveGpusOption = 128,
    confidence: opt.ConfidenceOption = 0.9,
    window: opt.WindowOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Project failures to other scales: MTTF and ETTR with bands, spares, and warnings.

    From a store, or from typed failures and node-days. Without --gpus or --nodes: powers of two
    from the largest job seen up.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.planning import RunShape
    from ettr.analysis.projecting import project_fleet, scales_for
    from ettr.analysis.records import (
        USUAL_GPUS_PER_NODE,
        record_to_plan_with,
        typed_record,
    )
    from ettr.plan.run import nodes_of
    from ettr.report.document import plain
    from ettr.report.sections.projection import projection_section
    from ettr.report.text import section_text
    from ettr.store import open_store

    if gpus is not None and nodes is not None:
        raise UsageError("give --gpus or --nodes, not both")
    assumptions = opt.assumptions(
        taxonomy=taxonomy,
        believe=believe,
        above_gpus=above_gpus,
        confidence=confidence,
        window=window,
    )
    if store is not None and failures is None and node_days is None:
        with open_store(store) as opened:
            record = record_to_plan_with(Analysis(opened, assumptions), store)
    elif store is None and failures is not None and node_days is not None:
        seen_nodes = seen_gpus and nodes_of(seen_gpus, seen_gpus_per_node or USUAL_GPUS_PER_NODE)
        record = typed_record("the fleet", failures, node_days, seen_nodes, seen_gpus_per_node)
    else:
        raise UsageError("give a STORE, or --failures K with --node-days T")
    per_node = gpus_per_node or record.gpus_per_node or USUAL_GPUS_PER_NODE
    if gpus is not None:
        scales = tuple(
            nodes_of(n, max(1, round(per_node))) for n in q.whole_numbers("--gpus", gpus)
        )
    elif nodes is not None:
        scales = q.whole_numbers("--nodes", nodes)
    else:
        scales = scales_for(record, per_node)
    shape = RunShape(
        1,
        None if interval is None else q.seconds("--interval", interval),
        q.seconds("--write", write or ASSUMED_WRITE),
        q.seconds("--restart", restart or ASSUMED_RESTART),
        q.seconds("--queue", queue),
    )
    found = project_fleet(
        record,
        scales,
        shape,
        gpus_per_node=per_node,
        spares=spares,
        repair_days=None if repair is None else q.seconds("--repair", repair) / 86400.0,
        run_days=days,
        confidence=confidence,
    )
    if json:
        say_json({"format": "ettr-projection", "version": 1, **plain(found)})
    else:
        say(section_text(projection_section(found)))
