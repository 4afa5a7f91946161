"""What a store says that holds no jobs: runs from progress records, rates from faults of nodes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

import numpy as np

from ettr.analysis.assumptions import Assumptions
from ettr.estimates import Interval
from ettr.estimates.exact import mean_time_interval
from ettr.facts import Facts
from ettr.metrics.availability import LogsRead, Service
from ettr.metrics.faults import FleetFaults
from ettr.metrics.mttf import MttfBySize, projected_line
from ettr.metrics.rates import EstimatedRate, estimated_rate
from ettr.metrics.run_rules import RunRule
from ettr.metrics.runs import JobRun, JobRuns, job_runs
from ettr.metrics.sizes import SizeUnit


def recorded_runs(facts: Facts, given: Assumptions, long_enough_h: float, listed: int) -> JobRuns:
    """The runs that progress records name, with what they measure.

    How long a run waited before its first event is not known: its ETTR has an upper end alone, and
    `ettr_without_queue_ratio` is the productive share of the time from the first event to the
    last.
    """
    found = job_runs(
        facts,
        rule=given.run_rule,
        assumptions=given.checkpoints,
        min_scheduled_h=long_enough_h,
        min_gpus=0,
        listed=listed,
        of_record=True,
    )
    runs = tuple(_without_queue(run) for run in found.runs)
    return replace(found, runs=runs, by_size=())


def _without_queue(run: JobRun) -> JobRun:
    recorded, productive_h = run.ettr_without_queue_ratio, run.productive_h
    scheduled_h = run.scheduled_h
    if run.split is not None and run.split.clock_set_back:
        # Nothing says how long it was between two lines of such a clock: time has no upper end.
        scheduled_h = run.split.scheduled_h
        if run.split.open_steps:
            productive_h = Interval(productive_h.estimate, productive_h.low, math.inf)
        most = productive_h.high / scheduled_h if scheduled_h > 0 else 1.0
        recorded = Interval(None, 0.0, min(most, 1.0))
    bounded = Interval.unknown()
    if recorded.high <= 1.0:
        bounded = Interval(None, 0.0, recorded.high)
    return replace(
        run,
        queue_h=None,
        between_h=None,
        wallclock_h=None,
        scheduled_h=scheduled_h,
        gpu_hours=None,
        interruptions=None,
        ettr_ratio=bounded,
        ettr_without_queue_ratio=recorded,
        productive_h=productive_h,
    )


def recorded_restarts(facts: Facts) -> int:
    """How often recorded runs began again."""
    return int(facts.row("recorded_restarts")["restarts"])


def recorded_hours(facts: Facts, rule: RunRule) -> float:
    """Hours from the first event to the last, over all recorded runs: long and listed ones or not.

    As many as the restarts are of.
    """
    found = job_runs(facts, rule=rule, min_scheduled_h=0.0, min_gpus=0, listed=0, of_record=True)
    # none of them was in a queue: each was submitted as it began
    return sum(size.wallclock_h for size in found.by_size)


class OfFaultRates(Protocol):
    """What the time to failure takes where there are no jobs."""

    assumptions: Assumptions
    logs_read: LogsRead
    fleet: Service
    faults: FleetFaults | None


def mttf_without_jobs(facts: Facts, of: OfFaultRates) -> MttfBySize:
    """Time to failure from faults of nodes; time between restarts from progress records.

    Without jobs there are no sizes and nothing that the scheduler saw; the line projects the rate
    of faults of nodes, where that is known.
    """
    given = of.assumptions
    rate = _fault_rate(of)
    per_node = gpus_of_a_node(given.gpus_per_node, of.fleet)
    between = Interval.unknown()
    if of.logs_read.progress:
        restarts, hours = recorded_restarts(facts), recorded_hours(facts, given.run_rule)
        between = mean_time_interval(restarts, hours, given.confidence)
    unit = SizeUnit.NODES if per_node is None else SizeUnit.GPUS
    return MttfBySize(
        size_unit=unit.value,
        confidence=given.confidence,
        gpus_per_node=per_node,
        rate_used=rate,
        classes=(),
        line=projected_line(rate, per_node or 1.0) if rate.node_days > 0 else (),
        scheduler_mttf_h=Interval.unknown(),
        interruption_mttf_h=between,
    )


def _fault_rate(of: OfFaultRates) -> EstimatedRate:
    faults = of.faults
    if faults is None or not faults.fleet_is_known:
        return estimated_rate(0, 0.0, of.assumptions.confidence)
    return faults.in_service


def gpus_of_a_node(assumed: float | None, fleet: Service) -> float | None:
    """GPUs in a node of the fleet: as given, else the median of those known; None without any."""
    if assumed is not None:
        return assumed
    known = [gpus for gpus in fleet.gpus.values() if not np.isnan(gpus) and gpus > 0]
    return float(np.median(known)) if known else None
