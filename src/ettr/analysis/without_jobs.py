"""What a store says that holds no jobs: runs from progress records, rates from faults of nodes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.fleet import FLEET
from ettr.analysis.node_faults import fault_counts, faults_of
from ettr.analysis.questions import FULL_WEEK_DAYS, OfMttf, OfRuns
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate, mean_time_interval
from ettr.estimates.spread import FleetSpread
from ettr.facts import Facts
from ettr.metrics.availability import Service
from ettr.metrics.mttf import MttfBySize, projected_line
from ettr.metrics.rates import EstimatedRate, estimated_rate
from ettr.metrics.runs import MIN_SCHEDULED_H, JobRun, JobRuns, job_runs
from ettr.metrics.sizes import SizeUnit
from ettr.metrics.stitching import RunRule
from ettr.models.data import Counts
from ettr.units import HOURS_PER_DAY

FAULTS = "faults of nodes in service, whether or not a job ran"
RESTARTS = "restarts within recorded runs, whatever their cause"


def recorded_runs(facts: Facts, of: OfRuns, listed: int) -> JobRuns:
    """The runs that progress records name, with what they measure.

    How long a run waited before its first event is not known: its ETTR has an upper end alone, and
    `ettr_without_queue_ratio` is the productive share of the time from the first event to the
    last.
    """
    given = of.assumptions
    found = job_runs(
        facts,
        rule=given.run_rule,
        assumptions=given.checkpoints,
        min_scheduled_h=MIN_SCHEDULED_H if of.logs_period.days >= FULL_WEEK_DAYS else 0.0,
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


def mttf_without_jobs(facts: Facts, of: OfMttf) -> MttfBySize:
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


def _fault_rate(of: OfMttf) -> EstimatedRate:
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


def counts_without_jobs(
    analysis: Analysis, name: str
) -> tuple[Counts, str, dict[str, int], FleetSpread | None]:
    """Failures and exposure of a store without jobs: counts, of what, by category, clustering.

    Raises:
        UsageError: neither faults nor restarts are recorded, or not on how many nodes.
    """
    logs = analysis.logs_read
    if logs.progress and not (logs.errors or logs.node_states):
        return _restart_counts(analysis, name), RESTARTS, {}, None
    counts = fault_counts(analysis, name)
    faults, _ = faults_of(analysis)
    rates = analysis.faults
    return (
        counts,
        FAULTS,
        dict(Counter(faults.category.tolist())),
        None if rates is None else rates.clustering,
    )


def _restart_counts(analysis: Analysis, name: str) -> Counts:
    n_nodes = analysis.assumptions.n_nodes
    if n_nodes is None:
        raise UsageError(
            f"{name}: progress records do not say on how many nodes the runs were; say so with "
            "--fleet-nodes N"
        )
    rate = FailureRate(
        recorded_restarts(analysis.facts),
        recorded_hours(analysis.facts, analysis.assumptions.run_rule) * n_nodes / HOURS_PER_DAY,
    )
    if not rate.node_days > 0:
        raise UsageError(f"{name}: the progress records span no time, so there is no exposure")
    return Counts([rate.failures], [rate.node_days], unit=FLEET)
