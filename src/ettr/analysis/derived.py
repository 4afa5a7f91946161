"""Stored and derived tables by name, for export and for whoever goes on with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from ettr.analysis.analysis import Analysis
from ettr.analysis.causes import causes_table
from ettr.analysis.lemon_nodes import blame_table, summed
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.facts.stored import stored_sql
from ettr.metrics.availability import outages_in_service
from ettr.metrics.node_records import blamed_failures, outage_facts, outages_by_node
from ettr.metrics.outages import Outage
from ettr.metrics.runs import JobRun
from ettr.tables import DERIVED, TABLES
from ettr.tables.schemas import NODE_SUMMARY, OUTAGES, RUNS
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    import pyarrow as pa


Row = dict[str, Any]
_EVERY_RUN = 1 << 40
_NUMBER = count()
_FACTS = {"interruptions": "endings", "failures": "failure_texts"}
"""Derived tables that are facts of another name."""


def table_sql(analysis: Analysis, name: str) -> str:
    """A SELECT, for the facts' engine, of a stored or derived table in the columns of its schema.

    Derived tables are those of the selection, outages cut at the ends of its period. Stored tables
    are whole, since what lies beyond the ends is evidence. They are as the analysis reads them:
    the parts of a heterogeneous job are one job, and who cancelled a job is known where any log
    says it.

    Raises:
        UsageError: there is no such table.
    """
    tables = TABLES | DERIVED
    if name not in tables:
        raise UsageError(f"no table named {name!r}; there are: {', '.join(tables)}")
    facts = analysis.facts
    if name in TABLES:
        return stored_sql(tables[name], facts.table(name))
    if name in _FACTS:
        return f'{stored_sql(tables[name], facts.table(_FACTS[name]))} ORDER BY "end", attempt_id'
    place = f"derived_{name}_{next(_NUMBER)}"
    facts.engine.put_arrow(place, _MADE[name](analysis))
    return f"SELECT * FROM {place}"  # noqa: S608 - a name of ours


def runs_table(analysis: Analysis) -> pa.Table:
    """The table `runs`: every run, those beyond the report's list too."""
    import pyarrow as pa

    rows = [_run_row(run) for run in analysis.runs_listed(_EVERY_RUN).runs]
    if not analysis.gpus_are_known:
        rows = [{**row, "gpu_hours": None} for row in rows]
    return RUNS.check(pa.Table.from_pylist(rows, RUNS.arrow_schema))


def outages_table(analysis: Analysis) -> pa.Table:
    """The table `outages`."""
    import pyarrow as pa

    rows = [_outage_row(one) for one in _outages(analysis)]
    return OUTAGES.check(pa.Table.from_pylist(rows, OUTAGES.arrow_schema))


def node_summary(analysis: Analysis) -> pa.Table:
    """The table `node_summary`: every node that a log names, and what is known of it."""
    import pyarrow as pa

    days = {
        (row["cluster"], row["node"]): (row["node_s"] or 0.0) / SECONDS_PER_DAY
        for row in analysis.facts.rows("node_hours")
        if row["node"] is not None
    }
    failed = blamed_failures(analysis.facts)
    records = {(one.cluster, one.node): one for one in analysis.node_records.nodes}
    blame = summed(analysis.blame) if analysis.logs_read.jobs else {}
    out = outages_by_node(_outages(analysis)) if analysis.logs_read.node_states else None
    fleet, has_jobs = analysis.fleet, analysis.logs_read.jobs
    spans_s = fleet.spans_s
    rows = [
        {
            "cluster": cluster,
            "node": node,
            "in_service_h": fleet.served_s((cluster, node)) / SECONDS_PER_HOUR
            if (cluster, node) in spans_s
            else None,
            "node_days": days.get((cluster, node), 0.0) if has_jobs else None,
            "failures": failed.get((cluster, node), 0) if has_jobs else None,
            "blame": blame.get((cluster, node), 0.0) if has_jobs else None,
            **{
                name: getattr(records.get((cluster, node)), name, None)
                for name in ("expected_failures", "lost_gpu_hours")
            },
            **{
                name: value
                for name, value in outage_facts(None if out is None else out[cluster, node]).items()
                if name in NODE_SUMMARY.names
            },
        }
        for cluster, node in sorted({*spans_s, *days, *failed})
    ]
    return NODE_SUMMARY.check(pa.Table.from_pylist(rows, NODE_SUMMARY.arrow_schema))


def _outages(analysis: Analysis) -> list[Outage]:
    return outages_in_service(analysis.outages, analysis.fleet)


def _outage_row(one: Outage) -> Row:
    return {
        "cluster": one.cluster,
        "node": one.node,
        "start": datetime.fromtimestamp(one.start_s, UTC),
        "end": None if one.is_open else datetime.fromtimestamp(one.end_s, UTC),
        "hours": one.hours,
        "is_planned": one.is_planned,
        "reason_class": one.reason_class,
        "reason": one.reason,
    }


def _run_row(run: JobRun) -> Row:
    row: Row = {
        name: getattr(run, name)
        for name in RUNS.names
        if hasattr(run, name) and not isinstance(getattr(run, name), (Interval, tuple))
    }
    row["job_ids"] = ",".join(run.job_ids)
    for name in ("ettr_ratio", "ettr_without_queue_ratio", "productive_h", "input_stall"):
        bounds: Interval = getattr(run, name) or Interval.unknown()
        row[name] = bounds.estimate
        row[f"{name}_low"] = bounds.low if math.isfinite(bounds.low) else None
        row[f"{name}_high"] = bounds.high if math.isfinite(bounds.high) else None
    return row


_MADE: dict[str, Callable[[Analysis], pa.Table]] = {
    "blame": lambda analysis: blame_table(analysis.blame),
    "causes": lambda analysis: causes_table(analysis.given),
    "runs": runs_table,
    "outages": outages_table,
    "node_summary": node_summary,
}
