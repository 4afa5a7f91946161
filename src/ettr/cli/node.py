"""`ettr node`: one node, or all nodes of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.computing import OnEngine
from ettr.cli.groups import Only
from ettr.cli.output import complain_of_selection, end_of_selection, say_json
from ettr.cli.printing import Answering, say_csv
from ettr.cli.selecting import Selecting
from ettr.report.registry import CAUSES


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
    from ettr.report.parts import part_document, part_rows
    from ettr.report.rows import plain_fields, summary_rows
    from ettr.report.sections.node_records import node_section, records_section
    from ettr.report.text import with_selection

    with on.open(store) as opened:
        analysis = Analysis(opened, metric.assumptions(None), selecting.selection())
        history = None if name is None else node_history(analysis.given, name)
        if printing.csv:
            complain_of_selection(analysis.selection_head)
            rows = part_rows("node_records", analysis, printing.table)
            say_csv(rows if history is None else summary_rows(plain_fields(history)))
            end_of_selection(analysis.selection_head)
            return
        if printing.json:
            part = (
                part_document("node_records", analysis)
                if history is None
                else {"format": "ettr-node", "version": 1, **plain_fields(history)}
            )
            say_json(with_selection(part, analysis.selection_head))
            end_of_selection(analysis.selection_head)
            return
        if history is None:
            section = records_section(analysis.node_records, analysis.recovery_times)
        else:
            section = node_section(history)
        printing.say_sections([section], analysis.selection_head)
        end_of_selection(analysis.selection_head)
