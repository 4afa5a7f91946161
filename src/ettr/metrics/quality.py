"""The quality of the logs: rejects, open jobs, gaps, clocks, and what is missing or left open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from ettr.facts import Facts
from ettr.facts.facts import at, to_moment
from ettr.facts.naming import Naming
from ettr.metrics.availability import nodes_of
from ettr.metrics.clock_shifts import ClockShift
from ettr.metrics.coverage import (
    Coverage,
    CoveredTime,
    DumpWindow,
    UnknownCheck,
    UnknownReason,
    coverage,
)
from ettr.metrics.exposure import ExposureBasis
from ettr.metrics.instants import Period
from ettr.metrics.status import StatusMix, share
from ettr.selection import Selection
from ettr.tables import EVENTS
from ettr.tables.rows import SITE_NOTE, still_taken
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import counted

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


def data_quality(
    facts: Facts,
    exposure: ExposureBasis,
    assumptions: tuple[str, ...] = (),
    naming: Naming | None = None,
    has_clusters: bool = False,
    shifts: tuple[ClockShift, ...] = (),
    **doubts: Any,
) -> DataQuality:
    """Rejects by reason, open jobs, gaps, clock skew, unknown nodes, and assumptions.

    All but the lag of node states behind `failures` is of all of the logs, whatever is selected.

    Args:
        assumptions: what the analysis itself assumed, one sentence each; those made in reading the
            files are added.
        doubts: fields of `DataQuality` that other questions fill.
    """
    read = _files(facts.rows("files"), naming or Naming(), has_clusters)
    counts = facts.under(selection=Selection()).row("attempt_checks")
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
        clocks=_clocks(facts, counts, shifts),
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
        site_notes=tuple(site_notes),
        **doubts,
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


def _events_outside(facts: Facts, first_us: int | None, last_us: int | None) -> tuple[int, int]:
    """Events before a moment, and after another; none of either where there are no such moments.

    By the stored column, of which Parquet has statistics: most files are not read.
    """
    if first_us is None or last_us is None:
        return 0, 0
    source = facts.given("sources")(EVENTS.name)
    before, after = (
        facts.engine.rows(
            f'SELECT count(*) AS n FROM {source} WHERE "time" {side} make_timestamptz({us})',  # noqa: S608 - names of ours
            {},
        )[0]["n"]
        for side, us in (("<", first_us), (">", last_us))
    )
    return int(before), int(after)


def _clocks(facts: Facts, counts: Mapping[str, Any], shifts: tuple[ClockShift, ...]) -> Clocks:
    lags_s = node_down_lags_s(facts)
    before, after = _events_outside(facts, counts["first_us"], counts["last_us"])
    return Clocks(
        attempts_started_before_submit=int(counts["early"]),
        attempts_ended_before_start=int(counts["backward"]),
        attempts_elapsed_mismatch=int(counts["mismatch"]),
        events_before_first_job=before,
        events_after_last_job=after,
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


# -- States of nodes that no log ends, though they are over ---------------------------------------
#
# A dump that is older than others, an inventory of one day, or an event that slurmdbd never
# closed leaves a node DOWN or drained for good: one outage to the end of the logs, into which
# every later one falls. That it is over shows where a job began on the node long after, or where
# the same log goes on with another state of it (`known_ends`).


@dataclass(frozen=True, slots=True)
class UnendedStates:
    """States without an end that are over.

    Attributes:
        by_jobs: Those of them that a later job on the node ends; the others a later state.
        since: From when, in UTC.
    """

    node_states: int
    by_jobs: int
    node: str
    state: str
    since: datetime

    @property
    def sentence(self) -> str:
        """What is wrong, what counts instead, and what to do."""
        several = self.node_states != 1
        return (
            f"{counted(self.node_states, 'state')} of nodes without an end (such as {self.node}, "
            f"{self.state} since {self.since:%Y-%m-%d %H:%M}) {'are' if several else 'is'} over: "
            "jobs began on the node more than a day later, or the log goes on with another state. "
            f"{'They count' if several else 'It counts'} until the first of these, and the node "
            "may have been back before. Dump the states of all of the time again "
            "(`sacctmgr show event`)."
        )


def unended_states(facts: Facts) -> UnendedStates | None:
    """States without an end that are over; None: there is none."""
    rows = facts.rows("known_ends")
    if not rows:
        return None
    first = min(rows, key=lambda row: (row["start_us"], row["cluster"], row["node"], row["state"]))
    return UnendedStates(
        node_states=len(rows),
        by_jobs=sum(row["by_job_us"] == row["end_us"] for row in rows),
        node=first["node"],
        state=first["state"],
        since=at(first["start_us"]),
    )


# -- Attempts that accounting holds for running, though they are over -----------------------------
#
# slurmctld that dies, or that loses its connection to slurmdbd, leaves the record of a job
# without an end: such a runaway job "runs" in every later dump, and its nodes gain exposure that
# no job used. `sacctmgr show runawayjobs` lists them.


@dataclass(frozen=True, slots=True)
class Runaways:
    """Attempts without an end that are over."""

    attempts: int
    node_days: float
    longest: str

    @property
    def sentence(self) -> str:
        """What is wrong, by how much, and what to do."""
        are = "is" if self.attempts == 1 else "are"
        return (
            f"{counted(self.attempts, 'attempt')} (such as job {self.longest}) {are} still running "
            "by the accounting, more than a day beyond the time limit or on GPUs that later jobs "
            f"held. Their {self.node_days:,.1f} node-days of runtime make rates too low. "
            "`sacctmgr show runawayjobs` lists and ends such jobs; then dump the accounting and "
            "ingest it again."
        )


def runaways(facts: Facts) -> Runaways | None:
    """Attempts without an end that outlast their limit, or whose GPUs later attempts held.

    None where there is none. Slurm ends a job some minutes after its limit, and two records of one
    hour may well overlap: a day too many shows it.
    """
    rows = facts.rows("runaways")
    if not rows:
        return None
    longest = max(rows, key=lambda row: row["node_s"] or 0.0)
    node_s = sum(row["node_s"] or 0.0 for row in rows)
    return Runaways(len(rows), node_s / SECONDS_PER_DAY, longest["job_id"])


# -- What a dump of the accounting was made without: attempts before a requeue, jobs of other
#    states
#
# `sacct` lists the last attempt of a job alone unless it is given `--duplicates`, and only jobs
# of some states where it is given `--state`. Such a dump looks like any other.

# sources that hold earlier attempts of a job where the site asked for them
ASKED_FOR = frozenset({"slurm-sacct", "slurm-sacct-json"})
_UNSUCCESSFUL = frozenset(
    {"FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "PREEMPTED", "BOOT_FAIL"}
)
# a run that only ever fails has dozens of attempts; no cluster has thousands of jobs and no failure
LEAST_UNSUCCESSFUL = 100
LEAST_SUCCESSFUL = 1_000
LEAST_JOBS = 1_000
LEAST_UNSEEN = 5
_FEW_ROWS, _ALL_ROWS = 100_000, (1 << 31) - 1  # Spark takes no larger LIMIT


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What seems to be missing from a dump; all zero and False where nothing does.

    Attributes:
        unseen_attempts: Earlier attempts that jobs count as restarts and the logs lack, where they
            are most of those; 0 where they are not.
        never_requeued: No job has a second attempt, which is what a dump looks like that lacks
            them.
    """

    ended: int
    none_completed: bool
    none_failed: bool
    unseen_attempts: int
    never_requeued: bool

    @property
    def certain(self) -> tuple[str, ...]:
        """What makes every rate doubtful, a sentence each."""
        if not self.none_completed:
            return self.too_few_failures
        return (
            f"None of the {self.ended:,} attempts that ended is COMPLETED. If the dump was "
            "selected by state (`sacct --state`), the runtime of all others is missing and every "
            "rate and share is too high: dump all states and ingest again.",
            *self.too_few_failures,
        )

    @property
    def too_few_failures(self) -> tuple[str, ...]:
        """What makes rates too low, a sentence each."""
        sentences = []
        if self.none_failed:
            sentences.append(
                f"All of the {self.ended:,} attempts that ended are COMPLETED. If the dump was "
                "selected by state (`sacct --state`), failures are missing, and every rate is too "
                "low: dump all states and ingest again."
            )
        if self.unseen_attempts:
            sentences.append(
                f"The restart counts of jobs show {counted(self.unseen_attempts, 'attempt')} more "
                "than the logs hold: attempts that a node failure, a preemption or a requeue ended "
                "are missing, so failures are too few. Dump with `sacct --duplicates` (-D) and "
                "ingest again."
            )
        return tuple(sentences)

    @property
    def doubtful(self) -> str | None:
        """What the dump may lack, where that cannot be known; None: nothing."""
        if not self.never_requeued:
            return None
        return (
            "No job has a second attempt. Either jobs are never requeued here, or the "
            "dump lacks `sacct --duplicates` (-D) and so the attempts that a node "
            "failure or a preemption ended."
        )


def left_out(facts: Facts, status: StatusMix) -> LeftOut:
    """What a dump of the accounting seems to have been made without.

    Args:
        facts: of a whole store: a selection of jobs looks like a part of a dump.
    """
    by_state = {one.state: one.attempts for one in status.states}
    completed = by_state.get("COMPLETED", 0)
    unsuccessful = sum(by_state.get(state, 0) for state in _UNSUCCESSFUL)
    restarts = facts.row("unseen_attempts")
    unseen = restarts["unseen"] or 0
    is_most = unseen >= LEAST_UNSEEN and 2 * unseen > restarts["restarts"]
    return LeftOut(
        ended=completed + unsuccessful,
        none_completed=not completed and unsuccessful >= LEAST_UNSUCCESSFUL,
        none_failed=not unsuccessful and completed >= LEAST_SUCCESSFUL,
        unseen_attempts=unseen if is_most else 0,
        never_requeued=(
            not restarts["known"]
            and not ASKED_FOR.isdisjoint(row["source"] for row in facts.rows("files"))
            and sum(by_state.values()) >= LEAST_JOBS
            and _each_once(facts)
        ),
    )


def _each_once(facts: Facts) -> bool:
    """Whether no job has two attempts; where jobs do, one mostly shows among a few rows already."""
    found = (facts.under(first_rows=n).row("repeated_jobs") for n in (_FEW_ROWS, _ALL_ROWS))
    return all(row["n"] == row["jobs"] for row in found)


# -- A period that begins long before the logs do, with what was going on when they began ---------
#
# `sacctmgr show event` and `sacct` list an outage, a job and its submission with the time when
# they began, however long before the dump. The period of the logs reaches back to it, and every
# node counts as in service since then, though nothing else of that time is known.

LEAST = timedelta(days=1)
LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class EarlyStart:
    """What lies before the logs in their period.

    Attributes:
        what: Began then: a node's state, a job, or the submission of one.
        known_from: First sign of anything else: an event, the end of an outage, the start of a job
            or, where a dump of the accounting begins in the middle of jobs, the end of one.
    """

    what: str
    start: datetime
    known_from: datetime

    @property
    def sentence(self) -> str:
        """What is wrong, by how much, and what to do."""
        days = (self.known_from - self.start).total_seconds() / SECONDS_PER_DAY
        return (
            f"The period begins with {self.what} at {self.start:%Y-%m-%dT%H:%M:%SZ}, {days:,.1f} "
            "days before anything else is known. Nodes count as in service in these days: rates "
            "and shares by time in service are too low. Of earlier outages and jobs only the long "
            "ones are here. "
            f"`--since {self.known_from:%Y-%m-%dT%H:%M:%SZ}` leaves them out."
        )


def early_start(facts: Facts, period: Period, windows: Iterable[DumpWindow]) -> EarlyStart | None:
    """What makes the period begin long before the logs do; None where nothing does.

    Long is more than a day, and more than a twentieth of the time that is known.

    Args:
        windows: clusters whose dump of the accounting begins in the middle of jobs.
    """
    jobs = facts.rows("cluster_starts")
    moments = {row["table_name"]: row for row in facts.rows("log_moments")}
    states = moments["node_states"]
    began = {row["cluster"]: to_moment(row["start_us"]) for row in jobs}
    ends = {one.cluster: one.first_end for one in windows if one.first_end is not None}
    signs = [
        to_moment(states["first_b_us"]),
        to_moment(moments["events"]["first_a_us"]),
        *(began | ends).values(),
    ]
    known = [sign for sign in signs if sign is not None]
    if not known:
        return None
    known_from = min(known)
    lead = known_from - period.start
    if lead < LEAST or lead < LEAST_SHARE * (period.end - known_from):
        return None
    firsts = {
        "a node's state": [states["first_a_us"]],
        "a job": [row["start_us"] for row in jobs],
        "a job's submission": [row["submit_us"] for row in jobs],
    }
    what = next(
        (name for name, found in firsts.items() if period.start in map(to_moment, found)), None
    )
    # an inventory that says since when nodes are in service is no accident of a dump
    return None if what is None else EarlyStart(what, period.start, known_from)
