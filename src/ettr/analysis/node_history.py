"""One node: its record, the failures of jobs on it, its outages, the places it is in."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import datetime

from ettr.analysis.analysis import Analysis
from ettr.errors import UsageError
from ettr.metrics.availability import Service, outages_in_service
from ettr.metrics.instants import Period, in_utc, to_datetime
from ettr.metrics.node_records import (
    NodeRecord,
    NodeRecords,
    NodeTables,
    PlaceRate,
    node_records,
)
from ettr.metrics.outages import Outage
from ettr.metrics.recovery_times import SymptomTimes, recovery_times

_SIMILAR = 5


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """An attempt that ended as a failure while it held the node.

    `blamed` is the node that the failure is blamed on; None where no single one can be.
    """

    end: datetime
    job_id: str
    user: str | None
    state: str
    n_nodes: int | None
    symptom: str
    confidence: str
    blamed: str | None


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """One outage; `end` is None where it is not over."""

    start: datetime
    end: datetime | None
    hours: float
    is_planned: bool
    reason_class: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """What the logs hold of one node, in order of time."""

    record: NodeRecord
    nodes_compared: int
    failures: tuple[NodeFailure, ...]
    outages: tuple[NodeOutage, ...] | None
    places: tuple[PlaceRate, ...]


def records_of(analysis: Analysis) -> NodeRecords:
    """Every selected node, with what is selected of it."""
    t, events = analysis.tables, analysis.tables["events"]
    if analysis.selected is not None:
        start, end = analysis.period.start, analysis.period.end
        events = events.filter(events["time"].between(start, end))
    return node_records(
        NodeTables(
            t["nodes"], analysis.exposure.by_node, analysis.failures, t["allocations"], events
        ),
        analysis.fleet,
        _outages(analysis, analysis.period, analysis.fleet),
        only_fleet=analysis.selected is not None,
        has_jobs=analysis.logs_read.jobs,
        confidence=analysis.assumptions.confidence,
    )


def recovery_of(analysis: Analysis) -> tuple[SymptomTimes, ...]:
    """From the first error to a node that works again, by symptom.

    Of the selected failures; what followed them is read beyond the ends of a period.
    """
    t = analysis.tables
    return recovery_times(
        analysis.failures,
        t["attempts"],
        t["allocations"],
        analysis.evidence_events,
        _outages(analysis, analysis.logs_period, analysis.logs_fleet),
        analysis.logs_period,
        analysis.assumptions.confidence,
    )


def _outages(analysis: Analysis, period: Period, fleet: Service) -> list[Outage] | None:
    if not analysis.logs_read.node_states:
        return None
    known = analysis.outages
    if period != analysis.logs_period:
        known = analysis.outages_in(period)
    return outages_in_service(known, fleet)


def node_history(analysis: Analysis, name: str) -> NodeHistory:
    """The history of a node.

    Args:
        analysis: of the store.
        name: as its scheduler writes it; with its cluster, `CLUSTER/NODE`, where several have it.

    Raises:
        UsageError: no log names such a node, or nodes of several clusters have the name.
    """
    records = analysis.node_records
    record = _named(records.nodes, name)
    outages = _outages(analysis, analysis.period, analysis.fleet)
    places = {("rack", record.rack), ("pod", record.pod), ("switch", record.switch)}
    return NodeHistory(
        record,
        sum(1 for one in records.nodes if one.node_days),
        _failures(analysis, record),
        None
        if outages is None
        else tuple(
            _outage(one)
            for one in outages
            if (one.cluster, one.node) == (record.cluster, record.node)
        ),
        tuple(
            one
            for one in records.places
            if one.cluster == record.cluster and (one.kind, one.name) in places
        ),
    )


def _named(records: tuple[NodeRecord, ...], name: str) -> NodeRecord:
    matching = [one for one in records if name in {one.node, f"{one.cluster}/{one.node}"}]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(f"{one.cluster}/{one.node}" for one in matching)
        raise UsageError(f"node {name!r} is in several clusters; give one of {names}")
    similar = difflib.get_close_matches(name, [one.node for one in records], _SIMILAR)
    hint = f"similar names: {', '.join(similar)}" if similar else "`ettr node STORE` lists all"
    raise UsageError(f"no log names a node {name!r}; {hint}")


def _failures(analysis: Analysis, record: NodeRecord) -> tuple[NodeFailure, ...]:
    if not analysis.logs_read.jobs:
        return ()
    held, attempts = analysis.tables["allocations"], analysis.tables["attempts"]
    on_node = held.filter((held["cluster"] == record.cluster) & (held["node"] == record.node))
    failed = analysis.failures.semi_join(on_node, "attempt_id")
    owners = attempts.select("attempt_id", "user")
    columns = ("end", "job_id", "user", "state", "n_nodes", "symptom", "confidence", "node")
    rows = failed.left_join(owners, "attempt_id").select(*columns).order_by("end", "job_id")
    return tuple(
        NodeFailure(
            end=in_utc(row["end"]),
            blamed=row["node"],
            **{name: row[name] for name in columns if name not in {"end", "node"}},
        )
        for row in rows.to_pyarrow().to_pylist()
    )


def _outage(one: Outage) -> NodeOutage:
    return NodeOutage(
        to_datetime(one.start_s),
        None if one.is_open else to_datetime(one.end_s),
        one.hours,
        one.is_planned,
        one.reason_class,
        one.reason,
    )
