"""Mean time to failure by job size, and the line that a constant rate per node projects.

The scheduler's counts attempts that a failure ended. The time between interruptions also counts
restarts within an attempt, which only the job itself has seen: a job under an in-job launcher
fails and goes on without the scheduler noticing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate, mean_time_interval
from ettr.estimates.spread import Spread
from ettr.facts import Facts
from ettr.metrics.instants import Floats
from ettr.metrics.rates import (
    PER_NODE_DAYS,
    EstimatedRate,
    FailuresByConfidence,
    failures_by_confidence,
)
from ettr.metrics.sizes import (
    UNKNOWN_SIZE,
    SizeClass,
    SizeUnit,
    known_sum,
    size_class,
    size_end_of,
    size_ends_of,
)
from ettr.metrics.stitching import JobKey
from ettr.units import HOURS_PER_DAY, MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

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
    facts: Facts,
    rate_used: EstimatedRate,
    *,
    unit: SizeUnit = SizeUnit.GPUS,
    gpus_per_node: float | None = None,
    of_nodes: Sequence[float] = (),
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
) -> MttfBySize:
    """MTTF of each size class, and the projected line.

    Args:
        gpus_per_node: to turn GPUs into nodes on the line; None takes what the inventory says of
            all nodes alike, else the ratio of GPUs to nodes over the attempts on more than one.
        spread: how all failures cluster; intervals are exact where None.

    Source:
        Kokolis et al. (2025): MTTF = 1 / (N_nodes * r_f).
    """
    rows = _held_by_size(facts, unit)
    failed_on = facts.columns("failures")
    failed = Counter(size_ends_of(failed_on[unit.column]).tolist())
    failed_s = np.sort(failed_on["end_us"].astype(np.float64) / MICROSECONDS_PER_SECOND)
    restarted = Counter(map(size_end_of, restarts_within_attempts(facts, unit)))
    gpus_per_node = gpus_of_a_node(facts, unit, gpus_per_node, of_nodes)
    hours = sum(row["job_s"] for row in rows) / SECONDS_PER_HOUR
    recorded_h, recorded_failed = _recorded(facts, unit)
    return MttfBySize(
        size_unit=unit.value,
        confidence=confidence,
        gpus_per_node=gpus_per_node,
        rate_used=rate_used,
        classes=tuple(
            _class(
                *(row, failed, failed_s, restarted, recorded_h, recorded_failed),
                *(rate_used, confidence, spread),
            )
            for row in rows
        ),
        line=projected_line(rate_used, gpus_per_node if unit is SizeUnit.GPUS else 1.0),
        scheduler_mttf_h=_mean_time_h(failed.total(), hours, failed.total(), confidence, spread),
        interruption_mttf_h=_mean_time_h(
            recorded_failed.total() + restarted.total(),
            sum(recorded_h.values()),
            failed.total(),
            confidence,
            spread,
        ),
        by_confidence=failures_by_confidence(facts),
        recorded_job_hours=sum(recorded_h.values()),
    )


def _recorded(facts: Facts, unit: SizeUnit) -> tuple[dict[int, float], Counter[int]]:
    """By size class, hours and failures of the jobs that record their progress."""
    if not facts.rows("progress_runs"):
        return {}, Counter()
    shapes = facts.columns("recorded_shapes")
    hours: dict[int, float] = {}
    for end, job_s in zip(size_ends_of(shapes[unit.column]).tolist(), shapes["job_s"], strict=True):
        if job_s:
            hours[end] = hours.get(end, 0.0) + float(job_s) / SECONDS_PER_HOUR
    jobs = set(facts.distinct("progress_owned", "cluster", "job_id"))
    failed = facts.columns("failures")
    ends = size_ends_of(failed[unit.column]).tolist()
    places = zip(failed["cluster"].tolist(), failed["job_id"].tolist(), ends, strict=True)
    return hours, Counter(end for cluster, job, end in places if (cluster, job) in jobs)


def _held_by_size(facts: Facts, unit: SizeUnit) -> list[dict[str, float]]:
    """Attempts, job-seconds and node-seconds of each size class, the unknown size last."""
    shapes = facts.columns("exposure_shapes")
    began = shapes["began"].astype(np.bool_)
    ends = size_ends_of(shapes[unit.column])
    rows = []
    for end in np.unique(ends[began]).tolist():
        own = {name: values[began & (ends == end)] for name, values in shapes.items()}
        sums = {
            name: known_sum(own[name]) or 0.0
            for name in ("attempts", "job_s", "known_node_s", "known_s", "without_nodes")
        }
        # what still runs has no end
        is_open = own["is_open"].astype(np.bool_).any()
        end_s = np.inf if is_open else float(own["end_us"].max() // MICROSECONDS_PER_SECOND)
        rows.append(
            sums
            | {
                "size_end": end,
                "node_s": sums["known_node_s"],
                "begin_s": float(own["begin_us"].min() // MICROSECONDS_PER_SECOND),
                "end_s": end_s,
            }
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


def _class(
    row: dict[str, float],
    failed: Counter[int],
    failed_s: Floats,
    restarted: Counter[int],
    recorded_h: Mapping[int, float],
    recorded_failed: Counter[int],
    rate_used: EstimatedRate,
    confidence: float,
    spread: Spread | None,
) -> SizeMttf:
    end = int(row["size_end"])
    # of a burst it has a share of what failed while it ran: a size may run for a month of a year
    first = np.searchsorted(failed_s, row["begin_s"], "left")
    total = max(failed[end], int(np.searchsorted(failed_s, row["end_s"], "right") - first))
    hours = row["job_s"] / SECONDS_PER_HOUR
    own_h = recorded_h.get(end, 0.0)
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
        recorded_job_hours=own_h,
        in_job_restarts=restarted[end] if own_h else None,
        interruption_mttf_h=_mean_time_h(
            recorded_failed[end] + restarted[end], own_h, total, confidence, spread
        ),
        projected_mttf_h=project(rate_used, nodes) if nodes else Interval.unknown(),
    )


def gpus_of_a_node(
    facts: Facts, unit: SizeUnit, given: float | None, of_nodes: Sequence[float] = ()
) -> float | None:
    """What turns GPUs into nodes; arguments and result as for `mttf_by_size`."""
    if unit is not SizeUnit.GPUS or given is not None:
        return given
    if len(set(of_nodes)) == 1:
        return of_nodes[0]
    shapes = facts.columns("exposure_shapes")
    gpus, nodes = (np.nan_to_num(shapes[name].astype(np.float64)) for name in ("n_gpus", "n_nodes"))
    with_gpus = shapes["began"].astype(np.bool_) & (gpus > 0)
    whole = with_gpus & (nodes > 1)
    if not whole.any():
        if of_nodes:
            return float(np.median(of_nodes))
        whole = with_gpus
    n_rows = shapes["n_rows"][whole]
    n_gpus, n_nodes = (gpus[whole] * n_rows).sum(), (nodes[whole] * n_rows).sum()
    return float(n_gpus / n_nodes) if n_gpus and n_nodes else None


def restarts_within_attempts(facts: Facts, unit: SizeUnit = SizeUnit.GPUS) -> list[int | None]:
    """Restarts within attempts that their scheduler did not see, each by the size of its job.

    Those in the period, of attempts of the selection. Of the ranks of a job the one that reports
    most restarts is believed, so that a restart counts
    once, whichever ranks report it. The first event of an attempt that follows an earlier attempt
    of the same job is the echo of a requeue, and does not count.
    """
    lines = facts.rows("restart_lines") if facts.rows("progress_runs") else []
    if not lines:
        return []
    by_job: dict[JobKey, list[tuple[float, float, int | None, bool]]] = {}
    for row in facts.rows("restarted_attempts"):
        end_us = row["end_us"]
        by_job.setdefault((row["cluster"], row["job_id"]), []).append(
            (
                row["start_us"] / MICROSECONDS_PER_SECOND,
                np.inf if end_us is None else end_us / MICROSECONDS_PER_SECOND,
                row[unit.column],
                row["is_asked"],
            )
        )
    by_time: dict[JobKey, list[tuple[float, str]]] = {}
    for row in lines:
        by_time.setdefault((row["cluster"], row["job_id"]), []).append(
            (row["time_us"] / MICROSECONDS_PER_SECOND, row["event"])
        )
    since_us, until_us = facts.given("since_us"), facts.given("until_us")
    since_s = -np.inf if since_us is None else since_us / MICROSECONDS_PER_SECOND
    until_s = np.inf if until_us is None else until_us / MICROSECONDS_PER_SECOND
    found: list[int | None] = []
    for job, events in by_time.items():
        events.sort()
        for place, span in enumerate(sorted(by_job.get(job, []), key=itemgetter(0))):
            start_s, end_s, size, is_asked = span
            inside = [event for event in events if start_s <= event[0] <= end_s]
            if place > 0 and inside and inside[0][1] == "restart":
                del inside[0]
            if is_asked:
                found += [
                    size for t, event in inside if event == "restart" and since_s <= t < until_s
                ]
    return found
