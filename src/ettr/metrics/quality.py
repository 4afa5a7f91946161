"""How far the logs can be trusted: rejects, open jobs, gaps, clocks, and what they do not say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ibis
import numpy as np

from ettr.facts.naming import Naming
from ettr.metrics.availability import named_nodes
from ettr.metrics.clock_shifts import ClockShift
from ettr.metrics.coverage import Coverage, coverage
from ettr.metrics.dump_window import DumpWindow
from ettr.metrics.early_start import EarlyStart
from ettr.metrics.exposure import ExposureBasis
from ettr.metrics.instants import fetch, first_row, in_utc, seconds_of
from ettr.metrics.left_out import LeftOut
from ettr.metrics.runaway import Runaways
from ettr.metrics.selected import held_s
from ettr.metrics.status import share
from ettr.metrics.unended_states import UnendedStates
from ettr.metrics.unknown_checks import UnknownCheck
from ettr.metrics.unknown_reasons import UnknownReason
from ettr.tables.ibis_time import epoch_s
from ettr.tables.rows import SITE_NOTE, still_taken
from ettr.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

ELAPSED_SLACK_S = SECONDS_PER_MINUTE
LAG_REACH_S = SECONDS_PER_HOUR
DATED_TABLES = ("attempts", "node_states", "events", "progress")
LISTED_NODES = 20


@dataclass(frozen=True, slots=True)
class FileQuality:
    """One ingested file: what was found in it and what was assumed to read it.

    `rows_folded` is None where an older ettr read the file.
    """

    name: str
    source: str
    rows_read: int
    rows_rejected: int
    rows_skipped: int
    rows_folded: int | None
    timezone: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RejectReason:
    """Rejected rows of one reason; file and line are those of the first of them."""

    source: str
    reason: str
    rows: int
    first_file_id: str
    first_line: int
    first_detail: str


@dataclass(frozen=True, slots=True)
class Clocks:
    """Signs of clocks that disagree.

    `node_down_lag_s` is by how much a node's DOWN state begins after the end that the scheduler
    writes for an attempt which that node's failure ended: the median over `node_down_pairs`.
    `shifts` are constant shifts between two logs that name the same jobs or nodes.
    """

    attempts_started_before_submit: int
    attempts_ended_before_start: int
    attempts_elapsed_mismatch: int
    events_before_first_job: int
    events_after_last_job: int
    node_down_lag_s: float | None
    node_down_pairs: int
    shifts: tuple[ClockShift, ...] = ()


@dataclass(frozen=True, slots=True)
class DataQuality:
    """What a reader must know before trusting a number."""

    rows_read: int
    rows_rejected: int
    rows_skipped: int
    rows_folded: int | None
    files: tuple[FileQuality, ...]
    rejected: tuple[RejectReason, ...]
    running_attempts: int
    pending_attempts: int
    coverage: tuple[Coverage, ...]
    clocks: Clocks
    nodes_not_in_inventory: int
    nodes_not_in_inventory_first: tuple[str, ...]
    attempts_without_nodes: int
    attempts_without_nodes_share: float | None
    attempts_without_gpu_count: int
    attempts_without_gpu_count_share: float | None
    attempt_node_hours: float
    allocation_node_hours: float
    exposure: ExposureBasis
    assumptions: tuple[str, ...]
    unknown_checks: tuple[UnknownCheck, ...] = ()
    # texts of the site on its own logs (source `note`)
    site_notes: tuple[str, ...] = ()
    runaways: Runaways | None = None
    left_out: LeftOut | None = None
    windows: tuple[DumpWindow, ...] = ()
    early_start: EarlyStart | None = None
    unknown_reasons: tuple[UnknownReason, ...] = ()
    unended_states: UnendedStates | None = None


def data_quality(
    tables: Mapping[str, ibis.Table],
    failures: ibis.Table,
    exposure: ExposureBasis,
    assumptions: tuple[str, ...] = (),
    unknown_checks: tuple[UnknownCheck, ...] = (),
    shifts: tuple[ClockShift, ...] = (),
    census: ibis.Table | None = None,
    job_nodes: frozenset[tuple[str, str]] | None = None,
    runaways: Runaways | None = None,
    left_out: LeftOut | None = None,
    windows: tuple[DumpWindow, ...] = (),
    early_start: EarlyStart | None = None,
    unknown_reasons: tuple[UnknownReason, ...] = (),
    naming: Naming | None = None,
    has_clusters: bool = False,
    unended_states: UnendedStates | None = None,
) -> DataQuality:
    """Rejects by reason, open jobs, gaps, clock skew, unknown nodes, and assumptions.

    Args:
        tables: the store's tables by name.
        failures: failures of the infrastructure, for the lag of node states.
        exposure: what the denominator of the rates rests on.
        assumptions: what the analysis itself assumed, one sentence each; those made in reading
            the files are added.
        unknown_checks: events of which the taxonomy knows nothing.
        shifts: constant shifts between the clocks of logs (`clock_shifts`).
        census: of the events (`event_census`), where it is at hand.
        job_nodes: nodes that ran jobs (`named_nodes`), where they are at hand.
        runaways: attempts that are over and have no end.
        left_out: what a dump of the accounting was made without.
        windows: clusters whose dump begins in the middle of their jobs.
        early_start: what makes the period begin long before the logs do.
        unknown_reasons: reasons of node states of which the taxonomy knows nothing.
        naming: of which clusters those rows are that name none.
        has_clusters: whether the logs are of several clusters.
        unended_states: states of nodes that are over and have no end.
    """
    read = _files(tables["files"], naming or Naming(), has_clusters)
    counts = first_row(_counts(tables["attempts"]))
    started = int(counts["started"])
    allocations = tables["allocations"]
    worked = named_nodes(allocations) if job_nodes is None else job_nodes
    unknown = sorted(node for _, node in worked - named_nodes(tables["nodes"]))
    held_s = allocations["elapsed_s"].sum().to_pyarrow().as_py() or 0.0
    notes = dict.fromkeys(note for file in read if file.source != SITE_NOTE for note in file.notes)
    site_notes = dict.fromkeys(
        note for file in read if file.source == SITE_NOTE for note in file.notes
    )
    return DataQuality(
        rows_read=sum(file.rows_read for file in read),
        rows_rejected=sum(file.rows_rejected for file in read),
        rows_skipped=sum(file.rows_skipped for file in read),
        rows_folded=_sum_known([file.rows_folded for file in read]),
        files=read,
        rejected=_rejected(tables["rejects"]),
        running_attempts=int(counts["running"]),
        pending_attempts=int(counts["pending"]),
        coverage=coverage({name: tables[name] for name in DATED_TABLES}, census),
        clocks=_clocks(tables, failures, counts, shifts),
        nodes_not_in_inventory=len(unknown),
        nodes_not_in_inventory_first=tuple(unknown[:LISTED_NODES]),
        attempts_without_nodes=int(counts["no_nodes"]),
        attempts_without_nodes_share=share(int(counts["no_nodes"]), started),
        attempts_without_gpu_count=int(counts["no_gpus"]),
        attempts_without_gpu_count_share=share(int(counts["no_gpus"]), started),
        attempt_node_hours=float(counts["node_s"] or 0.0) / SECONDS_PER_HOUR,
        allocation_node_hours=float(held_s) / SECONDS_PER_HOUR,
        exposure=exposure,
        assumptions=(*assumptions, *exposure.sentences, *notes),
        unknown_checks=unknown_checks,
        site_notes=tuple(site_notes),
        runaways=runaways,
        left_out=left_out,
        windows=windows,
        early_start=early_start,
        unknown_reasons=unknown_reasons,
        unended_states=unended_states,
    )


def _sum_known(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _files(files: ibis.Table, naming: Naming, has_clusters: bool) -> tuple[FileQuality, ...]:
    """The files by name, so that the order in which they were read changes nothing."""
    rows = files.order_by(["name", "file_id"]).to_pyarrow().to_pylist()
    return tuple(
        FileQuality(
            name=row["name"],
            source=row["source"],
            rows_read=row["rows_read"],
            rows_rejected=row["rows_rejected"],
            rows_skipped=row["rows_skipped"],
            rows_folded=row["rows_folded"],
            timezone=row["timezone"],
            notes=tuple(
                naming.words(still_taken(note, has_clusters))
                for note in (row["notes"] or "").splitlines()
            ),
        )
        for row in rows
    )


def _rejected(rejects: ibis.Table) -> tuple[RejectReason, ...]:
    counts = rejects.group_by("source", "reason").aggregate(lambda t: t.count().name("rows"))
    order = ibis.window(group_by=["source", "reason"], order_by=["file_id", "line"])
    firsts = rejects.mutate(place=ibis.row_number().over(order)).filter(lambda t: t["place"] == 0)
    rows = counts.inner_join(
        firsts.select("source", "reason", "file_id", "line", "detail"), ["source", "reason"]
    )
    found = [
        RejectReason(
            row["source"],
            row["reason"],
            int(row["rows"]),
            row["file_id"],
            row["line"],
            row["detail"],
        )
        for row in rows.to_pyarrow().to_pylist()
    ]
    return tuple(sorted(found, key=lambda row: (-row.rows, row.source, row.reason)))


def _counts(attempts: ibis.Table) -> ibis.Table:
    start, end = attempts["start"], attempts["end"]
    began = start.notnull()
    ran = began & (attempts["elapsed_s"] > 0)
    lasted_s = epoch_s(end) - epoch_s(start)
    stated_s = attempts["elapsed_s"] + attempts["suspended_s"].fill_null(0.0)
    no_nodes = ran & attempts["node_list"].isnull()
    return attempts.aggregate(
        started=ran.sum().fill_null(0),
        running=(began & end.isnull()).sum().fill_null(0),
        pending=(start.isnull() & end.isnull()).sum().fill_null(0),
        early=(began & (start < attempts["submit"])).sum().fill_null(0),
        backward=(began & end.notnull() & (end < start)).sum().fill_null(0),
        mismatch=(began & end.notnull() & ((lasted_s - stated_s).abs() > ELAPSED_SLACK_S))
        .sum()
        .fill_null(0),
        no_nodes=no_nodes.sum().fill_null(0),
        no_gpus=(ran & attempts["n_gpus"].isnull()).sum().fill_null(0),
        node_s=held_s(attempts, "n_nodes").sum(),
        first=start.min(),
        last=ibis.greatest(end.max(), start.max()),
    )


def _clocks(
    tables: Mapping[str, ibis.Table],
    failures: ibis.Table,
    counts: Mapping[str, Any],
    shifts: tuple[ClockShift, ...],
) -> Clocks:
    events = tables["events"]
    first, last = counts["first"], counts["last"]
    # filters, not sums: an engine skips the blocks of rows that lie between the two moments
    before = 0 if first is None else _rows(events.filter(events["time"] < in_utc(first)))
    after = 0 if last is None else _rows(events.filter(events["time"] > in_utc(last)))
    lags_s = node_down_lags_s(failures, tables["node_states"])
    return Clocks(
        attempts_started_before_submit=_int(counts["early"]),
        attempts_ended_before_start=_int(counts["backward"]),
        attempts_elapsed_mismatch=_int(counts["mismatch"]),
        events_before_first_job=before,
        events_after_last_job=after,
        node_down_lag_s=float(np.median(lags_s)) if lags_s else None,
        node_down_pairs=len(lags_s),
        shifts=shifts,
    )


def _rows(table: ibis.Table) -> int:
    return int(table.count().to_pyarrow().as_py())


def _int(value: object) -> int:
    return int(str(value))


def node_down_lags_s(failures: ibis.Table, node_states: ibis.Table) -> list[float]:
    """For each failure blamed on a node: seconds from its end to that node's nearest DOWN.

    Positive where the node's state followed. Only those within an hour count.
    """
    down = fetch(node_states.filter(node_states["state"] == "DOWN"), "cluster", "node", "start")
    by_node: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cluster, node, start_s in zip(
        down["cluster"].to_pylist(),
        down["node"].to_pylist(),
        seconds_of(down["start"]).tolist(),
        strict=True,
    ):
        by_node[cluster, node].append(start_s)
    ended = fetch(failures.filter(failures["node"].notnull()), "cluster", "node", "end")
    lags_s = []
    for cluster, node, end_s in zip(
        ended["cluster"].to_pylist(),
        ended["node"].to_pylist(),
        seconds_of(ended["end"]).tolist(),
        strict=True,
    ):
        near = [start_s - end_s for start_s in by_node.get((cluster, node), [])]
        if near:
            lag_s = min(near, key=abs)
            if abs(lag_s) <= LAG_REACH_S:
                lags_s.append(lag_s)
    return lags_s
