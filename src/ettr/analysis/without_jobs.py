"""What a store says that holds no jobs: runs from progress records, rates from faults of nodes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import ibis
import numpy as np
import pyarrow as pa

from ettr.analysis.analysis import FULL_WEEK_DAYS, Analysis
from ettr.analysis.fleet import FLEET
from ettr.analysis.node_faults import fault_counts, faults_of
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate, mean_time_interval
from ettr.estimates.spread import FleetSpread
from ettr.metrics.instants import fetch, floats_of, seconds_of, to_datetime
from ettr.metrics.mttf import MttfBySize, projected_line
from ettr.metrics.rates import EstimatedRate, estimated_rate
from ettr.metrics.runs import MIN_SCHEDULED_H, JobRun, JobRuns, job_runs
from ettr.metrics.selected import in_period
from ettr.metrics.sizes import SizeUnit
from ettr.models.data import Counts
from ettr.tables import ATTEMPTS
from ettr.tables.ibis_time import epoch_s
from ettr.units import HOURS_PER_DAY

UNNAMED_CLUSTER = "unnamed"
ENDED, NOT_ENDED = "COMPLETED", "UNKNOWN"
FAULTS = "faults of nodes in service, whether or not a job ran"
RESTARTS = "restarts within recorded runs, whatever their cause"


def _recorded_attempts(progress: ibis.Table) -> tuple[ibis.Table, ibis.Table]:
    """Each job of the progress records as one attempt, and the records with its names filled in.

    The attempt lasts from the first event to the last. Only an `end` shows that it completed.
    """
    named = progress.mutate(
        cluster=progress["cluster"].fill_null(UNNAMED_CLUSTER),
        job_id=progress["job_id"].fill_null(progress["run_id"]),
    )
    begun = epoch_s(named["time"]) - named["duration_s"].fill_null(0.0)
    spans = (
        named.mutate(begun_s=begun)
        .group_by("cluster", "job_id")
        .aggregate(
            lambda t: t["run_id"].min().name("run_id"),
            lambda t: t["begun_s"].min().name("first_s"),
            lambda t: t["time"].max().name("last"),
            lambda t: (t["event"] == "end").any().name("ended"),
        )
        .to_pyarrow()
    )
    rows = [
        _attempt(*row)
        for row in zip(
            spans["cluster"].to_pylist(),
            spans["job_id"].to_pylist(),
            spans["run_id"].to_pylist(),
            floats_of(spans["first_s"]).tolist(),
            seconds_of(spans["last"]).tolist(),
            spans["ended"].to_pylist(),
            strict=True,
        )
    ]
    return ibis.memtable(pa.Table.from_pylist(rows, schema=ATTEMPTS.arrow_schema)), named


def _attempt(
    cluster: str, job_id: str, run_id: str, first_s: float, last_s: float, ended: bool
) -> dict[str, Any]:
    start_s, end_s = math.floor(first_s), math.ceil(last_s)
    return {
        **dict.fromkeys(ATTEMPTS.names),
        "cluster": cluster,
        "attempt_id": f"{cluster}/{job_id}",
        "job_id": job_id,
        "name": run_id,
        "state": ENDED if ended else NOT_ENDED,
        "submit": to_datetime(start_s),
        "start": to_datetime(start_s),
        "end": to_datetime(end_s),
        "elapsed_s": float(end_s - start_s),
        "source": "progress",
        "file_id": "",
        "line": 0,
    }


def recorded_runs(analysis: Analysis, listed: int) -> JobRuns:
    """The runs that progress records name, with what they measure.

    How long a run waited before its first event is not known: its ETTR has an upper end alone, and
    `ettr_without_queue_ratio` is the productive share of the time from the first event to the last.
    So many are `listed`.
    """
    attempts, progress = _recorded_attempts(selected_progress(analysis))
    given = analysis.assumptions
    found = job_runs(
        attempts,
        progress,
        rule=given.run_rule,
        assumptions=given.checkpoints,
        min_scheduled_h=MIN_SCHEDULED_H if analysis.logs_period.days >= FULL_WEEK_DAYS else 0.0,
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


def selected_progress(analysis: Analysis) -> ibis.Table:
    """The records of the runs that ended in the selected period, on the selected clusters.

    Records name no partition, account, user or QOS and no nodes: none are of a selection by those.
    """
    progress, chosen = analysis.tables["progress"], analysis.selection
    if chosen.of_nodes or chosen.of_jobs.keys() - {"cluster"}:
        return progress.filter(ibis.literal(False))
    if chosen.cluster:
        progress = progress.filter(progress["cluster"].isin(chosen.cluster).fill_null(False))
    if not chosen.has_period:
        return progress
    last = progress.group_by("run_id").aggregate(time=progress["time"].max())
    ended = last.filter(in_period(last["time"], chosen))
    return progress.semi_join(ended, "run_id")


def recorded_restarts(progress: ibis.Table) -> int:
    """How often recorded runs began again: a later `start`, or a `restart` that follows none.

    The lowest rank that reports of each job counts.
    """
    named = progress.mutate(job=progress["job_id"].fill_null(progress["run_id"]))
    lowest = named.group_by("run_id", "job").aggregate(rank=named["rank"].min())
    begun = named.filter(named["event"].isin(["start", "restart", "step"]))
    rows = fetch(
        begun.semi_join(lowest, ["run_id", "job", "rank"]).order_by("time"), "run_id", "event"
    ).to_pylist()
    before: dict[str, str] = {}
    restarts: Counter[str] = Counter()
    for row in rows:
        run, event = row["run_id"], row["event"]
        again = run in before if event == "start" else before.get(run) != "start"
        restarts[run] += event != "step" and again
        before[run] = event
    return restarts.total()


def recorded_hours(analysis: Analysis) -> float:
    """Hours from the first event to the last, over all recorded runs: long and listed ones or not.

    As many as the restarts are of.
    """
    attempts, progress = _recorded_attempts(selected_progress(analysis))
    rule = analysis.assumptions.run_rule
    found = job_runs(attempts, progress, rule=rule, min_scheduled_h=0.0, min_gpus=0, listed=0)
    # none of them was in a queue: each was submitted as it began
    return sum(size.wallclock_h for size in found.by_size)


def mttf_without_jobs(analysis: Analysis) -> MttfBySize:
    """Time to failure from faults of nodes; time between restarts from progress records.

    Without jobs there are no sizes and nothing that the scheduler saw; the line projects the rate
    of faults of nodes, where that is known.
    """
    given = analysis.assumptions
    rate = _fault_rate(analysis)
    per_node = gpus_of_a_node(analysis)
    between = Interval.unknown()
    if analysis.logs_read.progress:
        restarts = recorded_restarts(selected_progress(analysis))
        between = mean_time_interval(restarts, recorded_hours(analysis), given.confidence)
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


def _fault_rate(analysis: Analysis) -> EstimatedRate:
    faults = analysis.faults
    if faults is None or not faults.fleet_is_known:
        return estimated_rate(0, 0.0, analysis.assumptions.confidence)
    return faults.in_service


def gpus_of_a_node(analysis: Analysis) -> float | None:
    """GPUs in a node of the fleet: as given, else the median of those known; None without any."""
    if analysis.assumptions.gpus_per_node is not None:
        return analysis.assumptions.gpus_per_node
    known = [gpus for gpus in analysis.fleet.gpus.values() if not np.isnan(gpus) and gpus > 0]
    return float(np.median(known)) if known else None


def counts_without_jobs(
    analysis: Analysis, name: str
) -> tuple[Counts, str, dict[str, int], FleetSpread | None]:
    """Failures and exposure of a store without jobs: counts, of what, by category, clustering.

    Args:
        analysis: of the store.
        name: what to call it in a message.

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
        recorded_restarts(selected_progress(analysis)),
        recorded_hours(analysis) * n_nodes / HOURS_PER_DAY,
    )
    if not rate.node_days > 0:
        raise UsageError(f"{name}: the progress records span no time, so there is no exposure")
    return Counts([rate.failures], [rate.node_days], unit=FLEET)
