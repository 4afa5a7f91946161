"""How far the logs can be trusted: rejects, open jobs, gaps, clocks, and what they do not say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ettr.facts import Facts
from ettr.facts.naming import Naming
from ettr.metrics.availability import nodes_of
from ettr.metrics.clock_shifts import ClockShift
from ettr.metrics.coverage import Coverage, coverage
from ettr.metrics.covered_time import CoveredTime
from ettr.metrics.dump_window import DumpWindow
from ettr.metrics.early_start import EarlyStart
from ettr.metrics.exposure import ExposureBasis
from ettr.metrics.left_out import LeftOut
from ettr.metrics.runaway import Runaways
from ettr.metrics.status import share
from ettr.metrics.unended_states import UnendedStates
from ettr.metrics.unknown_checks import UnknownCheck
from ettr.metrics.unknown_reasons import UnknownReason
from ettr.selection import Selection
from ettr.tables.rows import SITE_NOTE, still_taken
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR

LAG_REACH_S = SECONDS_PER_HOUR
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
    covered: CoveredTime | None = None


@dataclass(frozen=True, slots=True)
class Doubts:
    """What other questions have found that a reader must know before trusting a number."""

    unknown_checks: tuple[UnknownCheck, ...] = ()
    unknown_reasons: tuple[UnknownReason, ...] = ()
    shifts: tuple[ClockShift, ...] = ()
    runaways: Runaways | None = None
    left_out: LeftOut | None = None
    windows: tuple[DumpWindow, ...] = ()
    early_start: EarlyStart | None = None
    unended_states: UnendedStates | None = None
    covered: CoveredTime | None = None


def data_quality(
    facts: Facts,
    exposure: ExposureBasis,
    assumptions: tuple[str, ...] = (),
    doubts: Doubts | None = None,
    naming: Naming | None = None,
    has_clusters: bool = False,
) -> DataQuality:
    """Rejects by reason, open jobs, gaps, clock skew, unknown nodes, and assumptions.

    All but the lag of node states behind `failures` is of all of the logs, whatever is selected.

    Args:
        assumptions: what the analysis itself assumed, one sentence each; those made in reading the
            files are added.
    """
    doubts = doubts or Doubts()
    read = _files(facts.rows("files"), naming or Naming(), has_clusters)
    whole = facts.under(selection=Selection())
    counts = whole.row("attempt_checks")
    started = counts["started"]
    inventory = zip(*(facts.columns("nodes")[name] for name in ("cluster", "node")), strict=True)
    unknown = sorted(node for _, node in nodes_of(facts, "allocations") - set(inventory))
    held_s = facts.row("held_hours")["held_s"] or 0.0
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
        rejected=_rejected(facts),
        running_attempts=int(counts["running"]),
        pending_attempts=int(counts["pending"]),
        coverage=coverage(facts),
        clocks=_clocks(facts, whole, counts, doubts.shifts),
        nodes_not_in_inventory=len(unknown),
        nodes_not_in_inventory_first=tuple(unknown[:LISTED_NODES]),
        attempts_without_nodes=int(counts["no_nodes"]),
        attempts_without_nodes_share=share(counts["no_nodes"], started),
        attempts_without_gpu_count=int(counts["no_gpus"]),
        attempts_without_gpu_count_share=share(counts["no_gpus"], started),
        attempt_node_hours=float(counts["node_s"] or 0.0) / SECONDS_PER_HOUR,
        allocation_node_hours=float(held_s) / SECONDS_PER_HOUR,
        exposure=exposure,
        assumptions=(*assumptions, *exposure.sentences, *notes),
        unknown_checks=doubts.unknown_checks,
        site_notes=tuple(site_notes),
        runaways=doubts.runaways,
        left_out=doubts.left_out,
        windows=doubts.windows,
        early_start=doubts.early_start,
        unknown_reasons=doubts.unknown_reasons,
        unended_states=doubts.unended_states,
        covered=doubts.covered,
    )


def _sum_known(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _files(
    rows: Sequence[Mapping[str, Any]], naming: Naming, has_clusters: bool
) -> tuple[FileQuality, ...]:
    """The files by name, so that the order in which they were read changes nothing."""
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
        for row in sorted(rows, key=lambda row: (row["name"], row["file_id"]))
    )


def _rejected(facts: Facts) -> tuple[RejectReason, ...]:
    found = [
        RejectReason(
            row["source"], row["reason"], row["n_rows"], row["file_id"], row["line"], row["detail"]
        )
        for row in facts.rows("rejects_by_reason")
    ]
    return tuple(sorted(found, key=lambda row: (-row.rows, row.source, row.reason)))


def _clocks(
    facts: Facts, whole: Facts, counts: Mapping[str, Any], shifts: tuple[ClockShift, ...]
) -> Clocks:
    outside = whole.row("events_outside_jobs")
    lags_s = node_down_lags_s(facts)
    return Clocks(
        attempts_started_before_submit=int(counts["early"]),
        attempts_ended_before_start=int(counts["backward"]),
        attempts_elapsed_mismatch=int(counts["mismatch"]),
        events_before_first_job=outside["before"],
        events_after_last_job=outside["after"],
        node_down_lag_s=float(np.median(lags_s)) if lags_s else None,
        node_down_pairs=len(lags_s),
        shifts=shifts,
    )


def node_down_lags_s(facts: Facts) -> list[float]:
    """For each failure blamed on a node: seconds from its end to that node's nearest DOWN.

    Positive where the node's state followed. Only those within an hour count.
    """
    states = facts.columns("out_states")
    down = states["state"] == "DOWN"
    by_node: dict[tuple[str, str], list[float]] = defaultdict(list)
    starts_s = states["start_us"] / MICROSECONDS_PER_SECOND
    columns = (states["cluster"], states["node"], starts_s)
    for cluster, node, start_s in zip(*(one[down].tolist() for one in columns), strict=True):
        by_node[cluster, node].append(start_s)
    failures = facts.columns("failures")
    ends_s = failures["end_us"] / MICROSECONDS_PER_SECOND
    columns = (failures["cluster"], failures["node"], ends_s)
    lags_s = []
    for cluster, node, end_s in zip(*(one.tolist() for one in columns), strict=True):
        near = [start_s - end_s for start_s in by_node.get((cluster, node), [])]
        if near:
            lag_s = min(near, key=abs)
            if abs(lag_s) <= LAG_REACH_S:
                lags_s.append(lag_s)
    return lags_s
