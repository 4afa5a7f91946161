"""Lost goodput in GPU-hours by cause, first and second order, and jobs that failed repeatedly.

First order is what a failed job loses, second order what is lost by the jobs preempted so that it
could restart. Either loses min(runtime, cap) times its GPUs, with a cap of half an hour for hourly
checkpoints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ibis

from ettr.errors import UsageError
from ettr.metrics.crash_loops import (
    FailureBurst,
    JobFailure,
    JobKey,
    job_runtimes,
    repeated_failures,
)
from ettr.metrics.instants import fetch
from ettr.metrics.preemptions import Preemption, PreemptionLinks
from ettr.metrics.sizes import SizeClass, size_class, size_end_of
from ettr.metrics.status import share
from ettr.metrics.stitching import RunJobs
from ettr.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

LOST_CAP_MIN = 30.0
CRASH_LOOP_FAILURES = 3


@dataclass(frozen=True, slots=True)
class CauseLoss:
    """What one symptom cost. Preemptions are those that its failures caused."""

    symptom: str
    failures: int
    first_order_gpu_hours: float
    preemptions: int
    second_order_gpu_hours: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class SizeLoss:
    """What failures of jobs of one size cost, preemptions for their sake included."""

    size: SizeClass
    failures: int
    first_order_gpu_hours: float
    preemptions: int
    second_order_gpu_hours: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """A job that failed repeatedly: its size, what it cost, whom it drove out.

    `patterns` says what chance does not explain of its failures (`crash_loops`); where it is empty,
    a job of that size and runtime may fail so often, and nothing is to be done about the job.
    Where its owner submitted it again, `job_ids` are all jobs of that run, and `job_id` the last.
    """

    cluster: str
    job_id: str
    failures: int
    n_gpus: int | None
    preemptions: int
    preempted_gpus: int
    lost_gpu_hours: float
    symptoms: tuple[str, ...]
    run_hours: float | None
    expected_failures: float | None
    burst: FailureBurst | None
    node: str | None
    patterns: tuple[str, ...]
    job_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LostGoodput:
    """GPU-hours lost to failures; `cap_min` is the most that one interruption can lose.

    Failures whose GPUs the log does not name lose nothing here; `failures_without_gpus` counts
    them.
    """

    cap_min: float
    first_order_gpu_hours: float
    second_order_gpu_hours: float
    second_order_share: float | None
    by_cause: tuple[CauseLoss, ...]
    by_size: tuple[SizeLoss, ...]
    crash_loops: tuple[CrashLoop, ...]
    failures_without_gpus: int
    preemption_links: PreemptionLinks


@dataclass(slots=True)
class _Loss:
    failures: int = 0
    first_gpu_s: float = 0.0
    preemptions: int = 0
    preempted_gpus: int = 0
    second_gpu_s: float = 0.0


def lost_goodput(
    failures: ibis.Table,
    links: PreemptionLinks,
    *,
    cap_min: float = LOST_CAP_MIN,
    crash_loop_failures: int = CRASH_LOOP_FAILURES,
    attempts: ibis.Table | None = None,
    exposed: ibis.Table | None = None,
    runs: Mapping[str, RunJobs] | None = None,
    chosen: ibis.Table | None = None,
) -> LostGoodput:
    """GPU-hours lost by cause and by size of the failed job, and the jobs that failed repeatedly.

    Args:
        failures: failures of the infrastructure.
        links: preemptions that they caused (`preemption_links`).
        cap_min: the most that one interruption loses, in minutes: half a checkpoint interval.
        crash_loop_failures: jobs with this many failures or more are listed.
        attempts: all attempts, and
        exposed: `Exposure.by_attempt` of them: without both it is not known how long those jobs
            ran, so that none counts as failing fast.
        runs: by attempt, the jobs of runs of several jobs (`jobs_of_runs`); a job that was
            submitted again counts as one with them.
        chosen: failures that count, where not all do; the others only name the cause of the
            preemptions in `links`.

    Raises:
        UsageError: a cap that is negative, or a crash loop of fewer than two failures.

    Source:
        Kokolis et al. (2025): lost goodput as min(runtime, 30 min) times GPUs, once for failed
        jobs and again for those preempted to reschedule them.
    """
    if cap_min < 0 or crash_loop_failures < 2:
        raise UsageError(
            f"cap_min {cap_min} must be 0 or more and crash_loop_failures {crash_loop_failures} "
            "2 or more; give 30 and 3 for the usual ones"
        )
    cap_s = cap_min * SECONDS_PER_MINUTE
    rows = fetch(
        failures,
        "attempt_id",
        "cluster",
        "job_id",
        "symptom",
        "node",
        "elapsed_s",
        "n_nodes",
        "n_gpus",
    ).to_pylist()
    runs = runs or {}
    for row in rows:
        own = (row["cluster"], row["job_id"])
        row["run"] = runs[row["attempt_id"]].last if row["attempt_id"] in runs else own
    counting = None
    if chosen is not None:
        counting = set(fetch(chosen, "attempt_id")["attempt_id"].to_pylist())
    by_symptom, by_size, by_job = _losses(rows, links, cap_s, counting)
    rows = [row for row in rows if counting is None or row["attempt_id"] in counting]
    repeated = {job: loss for job, loss in by_job.items() if loss.failures >= crash_loop_failures}
    first = sum(loss.first_gpu_s for loss in by_symptom.values()) / SECONDS_PER_HOUR
    second = sum(loss.second_gpu_s for loss in by_symptom.values()) / SECONDS_PER_HOUR
    return LostGoodput(
        cap_min=cap_min,
        first_order_gpu_hours=first,
        second_order_gpu_hours=second,
        second_order_share=share(second, first + second),
        by_cause=tuple(
            CauseLoss(symptom, *_columns(loss))
            for symptom, loss in sorted(by_symptom.items(), key=lambda i: (-_lost(i[1]), i[0]))
        ),
        by_size=tuple(
            SizeLoss(size_class(end), *_columns(loss)) for end, loss in sorted(by_size.items())
        ),
        crash_loops=_crash_loops(repeated, rows, attempts, exposed, runs),
        failures_without_gpus=sum(row["n_gpus"] is None for row in rows),
        preemption_links=links,
    )


def loss_of_each(
    failures: ibis.Table, preemptions: Iterable[Preemption], cap_min: float
) -> list[float]:
    """GPU-hours that each failure lost, with those of jobs preempted for its sake.

    Args:
        failures: the failures that count.
        preemptions: those that failures caused; a failure that is not among them adds its own.
        cap_min: the most that one interruption loses, in minutes.
    """
    cap_s = cap_min * SECONDS_PER_MINUTE
    lost_gpu_s = {
        row["attempt_id"]: min(row["elapsed_s"] or 0.0, cap_s) * (row["n_gpus"] or 0)
        for row in fetch(failures, "attempt_id", "elapsed_s", "n_gpus").to_pylist()
    }
    for link in preemptions:
        lost = min(link.elapsed_s, cap_s) * link.n_gpus
        lost_gpu_s[link.failed_attempt_id] = lost_gpu_s.get(link.failed_attempt_id, 0.0) + lost
    return [lost / SECONDS_PER_HOUR for lost in lost_gpu_s.values()]


def _losses(
    rows: list[dict[str, Any]], links: PreemptionLinks, cap_s: float, counting: set[str] | None
) -> tuple[dict[str, _Loss], dict[int, _Loss], dict[JobKey, _Loss]]:
    """The loss of each failure and of what it drove out, summed by symptom, size and job."""
    by_symptom: dict[str, _Loss] = defaultdict(_Loss)
    by_size: dict[int, _Loss] = defaultdict(_Loss)
    by_job: dict[JobKey, _Loss] = defaultdict(_Loss)
    by_id = {row["attempt_id"]: row for row in rows}

    def of(row: dict[str, Any]) -> tuple[_Loss, ...]:
        size = size_end_of(row["n_gpus"])
        return by_symptom[row["symptom"]], by_size[size], by_job[row["run"]]

    for row in rows:
        if counting is not None and row["attempt_id"] not in counting:
            continue
        for loss in of(row):
            loss.failures += 1
            loss.first_gpu_s += min(row["elapsed_s"] or 0.0, cap_s) * (row["n_gpus"] or 0)
    for link in links.links:
        for loss in of(by_id[link.failed_attempt_id]):
            loss.preemptions += 1
            loss.preempted_gpus += link.n_gpus
            loss.second_gpu_s += min(link.elapsed_s, cap_s) * link.n_gpus
    return by_symptom, by_size, by_job


def _lost(loss: _Loss) -> float:
    return loss.first_gpu_s + loss.second_gpu_s


def _columns(loss: _Loss) -> tuple[int, float, int, float, float]:
    return (
        loss.failures,
        loss.first_gpu_s / SECONDS_PER_HOUR,
        loss.preemptions,
        loss.second_gpu_s / SECONDS_PER_HOUR,
        _lost(loss) / SECONDS_PER_HOUR,
    )


def _crash_loops(
    repeated: dict[JobKey, _Loss],
    rows: list[dict[str, Any]],
    attempts: ibis.Table | None,
    exposed: ibis.Table | None,
    runs: Mapping[str, RunJobs],
) -> tuple[CrashLoop, ...]:
    """The jobs that failed repeatedly, the one with the most failures first."""
    if not repeated:
        return ()
    gpus: dict[JobKey, int | None] = {}
    for row in rows:
        key = row["run"]
        gpus[key] = max(row["n_gpus"] or 0, gpus.get(key) or 0) or None
    failures = [
        JobFailure(
            row["run"],
            row["attempt_id"],
            row["symptom"],
            row["node"],
            row["n_nodes"],
        )
        for row in rows
    ]
    jobs = sorted(repeated)
    ran = None
    if attempts is not None and exposed is not None:
        ran = job_runtimes(attempts, exposed, jobs, runs)
    found = repeated_failures(failures, jobs, ran)
    ids = {run.last: run.job_ids for run in runs.values()}
    loops = [
        CrashLoop(
            cluster=job[0],
            job_id=job[1],
            failures=loss.failures,
            n_gpus=gpus[job],
            preemptions=loss.preemptions,
            preempted_gpus=loss.preempted_gpus,
            lost_gpu_hours=_lost(loss) / SECONDS_PER_HOUR,
            symptoms=found[job].symptoms,
            run_hours=found[job].run_hours,
            expected_failures=found[job].expected_failures,
            burst=found[job].burst,
            node=found[job].node,
            patterns=found[job].patterns,
            job_ids=ids.get(job, (job[1],)),
        )
        for job, loss in repeated.items()
    ]
    return tuple(sorted(loops, key=lambda loop: (-loop.failures, loop.cluster, loop.job_id)))
