"""Mean time to failure by job size, and the line that a constant rate per node projects.

There are two such times. The scheduler's counts attempts that a failure ended. The time between
interruptions also counts restarts within an attempt, which only the job itself has seen: a job
under an in-job launcher fails and goes on without the scheduler noticing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import ibis
import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate, mean_time_interval
from ettr.estimates.spread import Spread
from ettr.metrics.confidences import FailuresByConfidence, failures_by_confidence
from ettr.metrics.instants import Floats, fetch, has_rows, seconds_of
from ettr.metrics.rates import PER_NODE_DAYS, EstimatedRate
from ettr.metrics.run_progress import JobKey, with_cluster
from ettr.metrics.selected import n_counted
from ettr.metrics.sizes import (
    UNKNOWN_SIZE,
    SizeClass,
    SizeUnit,
    size_class,
    size_end,
    size_end_of,
)
from ettr.selection import Selection
from ettr.tables.ibis_time import epoch_s
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY, SECONDS_PER_HOUR

LINE_ENDS = tuple(2**power for power in range(3, 18))


@dataclass(frozen=True, slots=True)
class SizeMttf:
    """One size class: what ran, what failed, and the times between.

    `projected_mttf_h` is 1 / (N r_f) at the class's mean nodes N, weighted by runtime. Restarts
    within jobs, and the time between interruptions, are of the `recorded_job_hours`, those of jobs
    with progress records; null where there are none. `node_days` and `mean_nodes` are of the
    attempts whose nodes are known, null where those of none are; `attempts_without_nodes` ran and
    are not among them, also where their nodes are known and not how long they ran.
    """

    size: SizeClass
    attempts: int
    job_hours: float
    node_days: float | None
    mean_nodes: float | None
    attempts_without_nodes: int
    failures: int
    scheduler_mttf_h: Interval
    recorded_job_hours: float
    in_job_restarts: int | None
    interruption_mttf_h: Interval
    projected_mttf_h: Interval


@dataclass(frozen=True, slots=True)
class ProjectedMttf:
    """One point of the projected line."""

    size: int
    nodes: float
    mttf_h: Interval


@dataclass(frozen=True, slots=True)
class MttfBySize:
    """MTTF by job size, and the projected line. `line` has no points without GPUs per node.

    `interruption_mttf_h` is of the `recorded_job_hours`, as that of each class.
    """

    size_unit: str
    confidence: float
    gpus_per_node: float | None
    rate_used: EstimatedRate
    classes: tuple[SizeMttf, ...]
    line: tuple[ProjectedMttf, ...]
    scheduler_mttf_h: Interval
    interruption_mttf_h: Interval
    by_confidence: FailuresByConfidence | None = None
    recorded_job_hours: float | None = None


def mttf_by_size(
    attempts: ibis.Table,
    exposed: ibis.Table,
    failures: ibis.Table,
    progress: ibis.Table,
    rate_used: EstimatedRate,
    *,
    unit: SizeUnit = SizeUnit.GPUS,
    gpus_per_node: float | None = None,
    of_nodes: Sequence[float] = (),
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
    selection: Selection | None = None,
) -> MttfBySize:
    """MTTF of each size class, and the projected line.

    Args:
        attempts: all attempts.
        exposed: those of the selection with their node-seconds (`Exposure.by_attempt`).
        failures: failures of the infrastructure.
        progress: events from inside the jobs; `restart` events are interruptions that the
            scheduler did not see.
        rate_used: failure rate that the line projects, in failures per node-day.
        unit: what a size counts.
        gpus_per_node: to turn GPUs into nodes on the line; None takes what the inventory says of
            all nodes alike, else the ratio of GPUs to nodes over the attempts on more than one.
        of_nodes: GPUs of each node of which an inventory says so; those without any are left out.
        confidence: of the intervals, between 0 and 1.
        spread: how all failures cluster; intervals are exact where None.
        selection: of the exposure and the failures; everything where None.

    Source:
        Kokolis et al. (2025): MTTF = 1 / (N_nodes * r_f).
    """
    ran = exposed.filter(exposed["start"].notnull())
    rows = _held_by_size(ran, unit)
    of_failures = fetch(failures, unit.column, "end")
    failed = Counter(size_end_of(n) for n in of_failures[unit.column].to_pylist())
    failed_s = np.sort(seconds_of(of_failures["end"]))
    sizes = (
        restart.size
        for restart in restarts_within_attempts(attempts, progress, exposed, unit)
        if selection is None or selection.holds(restart.time_s)
    )
    restarted = Counter(size_end_of(size) for size in sizes)
    gpus_per_node = gpus_of_a_node(exposed, unit, gpus_per_node, of_nodes)
    hours = sum(row["job_s"] for row in rows) / SECONDS_PER_HOUR
    recorded = _recorded(attempts, ran, failures, with_cluster(progress, attempts), unit)
    return MttfBySize(
        size_unit=unit.value,
        confidence=confidence,
        gpus_per_node=gpus_per_node,
        rate_used=rate_used,
        classes=tuple(
            _class(row, failed, failed_s, restarted, recorded, rate_used, confidence, spread)
            for row in rows
        ),
        line=projected_line(rate_used, gpus_per_node if unit is SizeUnit.GPUS else 1.0),
        scheduler_mttf_h=_mean_time_h(failed.total(), hours, failed.total(), confidence, spread),
        interruption_mttf_h=_between_interruptions_h(
            recorded.failed.total() + restarted.total(),
            sum(recorded.hours.values()),
            failed.total(),
            confidence,
            spread,
        ),
        by_confidence=failures_by_confidence(failures),
        recorded_job_hours=sum(recorded.hours.values()),
    )


@dataclass(frozen=True, slots=True)
class _Recorded:
    """By size class, hours and failures of the jobs that record their progress."""

    hours: dict[int, float]
    failed: Counter[int]


def _recorded(
    attempts: ibis.Table,
    ran: ibis.Table,
    failures: ibis.Table,
    named: ibis.Table,
    unit: SizeUnit,
) -> _Recorded:
    if not has_rows(named):
        return _Recorded({}, Counter())
    mine = attempts.semi_join(named, ["cluster", "job_id"]).select("attempt_id")
    held = _held_by_size(ran.semi_join(mine, "attempt_id"), unit)
    sizes = fetch(failures.semi_join(mine, "attempt_id"), unit.column)[unit.column].to_pylist()
    hours = {int(row["size_end"]): row["job_s"] / SECONDS_PER_HOUR for row in held if row["job_s"]}
    return _Recorded(hours, Counter(map(size_end_of, sizes)))


def _between_interruptions_h(
    count: int, hours: float, failures: int, confidence: float, spread: Spread | None
) -> Interval:
    if not hours:
        return Interval.unknown()
    return _mean_time_h(count, hours, failures, confidence, spread)


def _held_by_size(ran: ibis.Table, unit: SizeUnit) -> list[dict[str, float]]:
    """Attempts, job-seconds and node-seconds of each size class, the unknown size last.

    `node_s` is of the attempts whose nodes are known, which ran for `known_s`; `without_nodes` are
    the others that ran; `begin_s` and `end_s` say from when to when any of them did.
    """
    # what ran held a node: 0 of them is no number either
    is_known = ((ran["node_s"] > 0) | (ran["elapsed_s"] == 0)).fill_null(False)
    rows: list[dict[str, float]] = (
        ran.mutate(
            size_end=size_end(ran[unit.column]),
            run_s=ran["elapsed_s"].fill_null(0.0),
            is_known=is_known,
        )
        .group_by("size_end")
        .aggregate(
            lambda t: n_counted(t).name("attempts"),
            lambda t: t["run_s"].sum().name("job_s"),
            lambda t: t["node_s"].sum(where=t["is_known"]).fill_null(0.0).name("node_s"),
            lambda t: t["run_s"].sum(where=t["is_known"]).fill_null(0.0).name("known_s"),
            lambda t: (~t["is_known"]).sum().name("without_nodes"),
            lambda t: epoch_s(t["start"].min()).cast("float64").name("begin_s"),
            # what still runs has no end
            lambda t: epoch_s(t["end"].max()).cast("float64").name("ended_s"),
            lambda t: t["end"].isnull().any().name("is_open"),
        )
        .mutate(end_s=ibis._.is_open.ifelse(float("inf"), ibis._.ended_s))
        .drop("ended_s", "is_open")
        .to_pyarrow()
        .to_pylist()
    )
    return sorted(rows, key=lambda row: (row["size_end"] == UNKNOWN_SIZE, row["size_end"]))


def projected_line(rate_used: EstimatedRate, per_node: float | None) -> tuple[ProjectedMttf, ...]:
    """MTTF at sizes that double, in jobs of whole nodes; empty without GPUs per node."""
    if not per_node:
        return ()
    return tuple(
        ProjectedMttf(end, end / per_node, project(rate_used, end / per_node))
        for end in LINE_ENDS
        if end >= per_node
    )


def project(rate_used: EstimatedRate, n_nodes: float) -> Interval:
    """MTTF in hours of a job on `n_nodes` nodes in series at a constant rate."""
    if rate_used.node_days <= 0:
        return Interval.unknown()
    per_node_day = rate_used.per_1000_node_days.scaled(1.0 / PER_NODE_DAYS)
    return per_node_day.scaled(n_nodes).inverse(HOURS_PER_DAY)


def _mean_time_h(
    count: int, hours: float, failures: int, confidence: float, spread: Spread | None
) -> Interval:
    """Hours between `count` ends, where the spread of all `failures` is known."""
    if spread is None or hours <= 0:
        return mean_time_interval(count, hours, confidence)
    part = spread.thinned(min(1.0, count / failures) if failures else 1.0)
    return part.interval(FailureRate(count, hours), confidence).inverse()


def _failed_within(failed_s: Floats, begin_s: float, end_s: float) -> int:
    """How many failures came from one moment to another; times ascending."""
    places = np.searchsorted(failed_s, begin_s, "left"), np.searchsorted(failed_s, end_s, "right")
    return int(places[1] - places[0])


def _class(
    row: dict[str, float],
    failed: Counter[int],
    failed_s: Floats,
    restarted: Counter[int],
    recorded: _Recorded,
    rate_used: EstimatedRate,
    confidence: float,
    spread: Spread | None,
) -> SizeMttf:
    end = int(row["size_end"])
    # of a burst it has a share of what failed while it ran: a size may run for a month of a year
    total = max(failed[end], _failed_within(failed_s, row["begin_s"], row["end_s"]))
    hours = row["job_s"] / SECONDS_PER_HOUR
    recorded_h = recorded.hours.get(end, 0.0)
    nodes = row["node_s"] / row["known_s"] if row["known_s"] else None
    is_unknown = row["without_nodes"] and not row["known_s"]
    return SizeMttf(
        size=size_class(end),
        attempts=int(row["attempts"]),
        job_hours=hours,
        node_days=None if is_unknown else row["node_s"] / SECONDS_PER_DAY,
        mean_nodes=nodes,
        attempts_without_nodes=int(row["without_nodes"]),
        failures=failed[end],
        scheduler_mttf_h=_mean_time_h(failed[end], hours, total, confidence, spread),
        recorded_job_hours=recorded_h,
        in_job_restarts=restarted[end] if recorded_h else None,
        interruption_mttf_h=_between_interruptions_h(
            recorded.failed[end] + restarted[end], recorded_h, total, confidence, spread
        ),
        projected_mttf_h=project(rate_used, nodes) if nodes else Interval.unknown(),
    )


def gpus_of_a_node(
    exposed: ibis.Table, unit: SizeUnit, given: float | None, of_nodes: Sequence[float] = ()
) -> float | None:
    """What turns GPUs into nodes; arguments and result as for `mttf_by_size`."""
    if unit is not SizeUnit.GPUS or given is not None:
        return given
    if len(set(of_nodes)) == 1:
        return of_nodes[0]
    ran = exposed.filter(exposed["start"].notnull())
    whole = ran.filter((ran["n_nodes"] > 1) & (ran["n_gpus"] > 0))
    if not has_rows(whole):
        if of_nodes:
            return float(np.median(of_nodes))
        whole = ran.filter(ran["n_gpus"] > 0)
    ratio = (whole["n_gpus"].sum() / whole["n_nodes"].sum()).to_pyarrow().as_py()
    return float(ratio) if ratio else None


@dataclass(frozen=True, slots=True)
class InJobRestart:
    """A restart within an attempt: when, in seconds since 1970, and the size of the job."""

    time_s: float
    size: int | None


def in_job_restarts(
    attempts: ibis.Table, progress: ibis.Table, unit: SizeUnit = SizeUnit.GPUS
) -> list[int | None]:
    """Size of the job at each restart within an attempt that its scheduler did not see."""
    return [one.size for one in restarts_within_attempts(attempts, progress, attempts, unit)]


def restarts_within_attempts(
    attempts: ibis.Table,
    progress: ibis.Table,
    chosen: ibis.Table,
    unit: SizeUnit = SizeUnit.GPUS,
) -> list[InJobRestart]:
    """Restarts within attempts that their scheduler did not see.

    Of the ranks of a job the one that reports most restarts is believed, so that a restart counts
    once, whichever ranks report it. The first event of an attempt that follows
    an earlier attempt of the same job is the echo of a requeue, and does not count.

    Args:
        attempts: all attempts.
        progress: events from inside the jobs.
        chosen: the attempts whose restarts are asked for.
        unit: what a size counts.
    """
    key = ("cluster", "job_id")
    named = with_cluster(progress, attempts)
    named = named.mutate(rank=named["rank"].fill_null(0))
    restarts = named.filter(named["event"] == "restart")
    jobs = restarts.select(*key).distinct()
    by_rank = restarts.group_by("run_id", *key, "rank").aggregate(n=restarts.count())
    most = by_rank.group_by("run_id", *key).aggregate(n=by_rank["n"].max())
    believed = by_rank.semi_join(most, ["run_id", *key, "n"])
    believed = believed.group_by("run_id", *key).aggregate(rank=believed["rank"].min())
    reported = fetch(named.semi_join(believed, ["run_id", *key, "rank"]), *key, "time", "event")
    if not reported.num_rows:
        return []
    started = attempts.filter(attempts["start"].notnull())
    of_jobs = started.semi_join(jobs, key)
    spans = fetch(of_jobs, *key, "attempt_id", "start", "end", unit.column)
    asked = set(spans["attempt_id"].to_pylist())
    if chosen is not attempts:
        asked &= set(
            fetch(chosen.semi_join(of_jobs, "attempt_id"), "attempt_id")["attempt_id"].to_pylist()
        )
    by_job: dict[JobKey, list[tuple[float, float, int | None, bool]]] = {}
    ends = np.nan_to_num(seconds_of(spans["end"]), nan=np.inf)
    for row, start_s, end_s in zip(
        spans.drop(["start", "end"]).to_pylist(), seconds_of(spans["start"]), ends, strict=True
    ):
        by_job.setdefault((row["cluster"], row["job_id"]), []).append(
            (start_s, end_s, row[unit.column], row["attempt_id"] in asked)
        )
    by_time: dict[JobKey, list[tuple[float, str]]] = {}
    for row, time_s in zip(
        reported.drop("time").to_pylist(), seconds_of(reported["time"]), strict=True
    ):
        by_time.setdefault((row["cluster"], row["job_id"]), []).append((time_s, row["event"]))
    found: list[InJobRestart] = []
    for job, events in by_time.items():
        events.sort()
        for place, span in enumerate(sorted(by_job.get(job, []), key=_start)):
            start_s, end_s, size, is_asked = span
            inside = [event for event in events if start_s <= event[0] <= end_s]
            if place > 0 and inside and inside[0][1] == "restart":
                del inside[0]
            if is_asked:
                found += [InJobRestart(t, size) for t, event in inside if event == "restart"]
    return found


def _start(span: tuple[float, float, int | None, bool]) -> float:
    return span[0]
