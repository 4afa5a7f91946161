"""Jobs that failed repeatedly, and whether chance explains it.

A large job that runs for weeks fails several times at the rate of any fleet. It is a crash loop
only where some of its failures follow each other faster than the rate of the other jobs makes
likely, where all blame one of its many nodes, or where all have one cause that is rare elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ettr.facts import Facts
from ettr.metrics.instants import Floats
from ettr.metrics.stitching import RunJobs, with_run_jobs
from ettr.taxonomy.rules import UNATTRIBUTED
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

CHANCE = 0.05
"""How likely it is that chance alone marks any job of a store, by each pattern."""
LEAST_IN_A_ROW = 3
FAST, SAME_NODE, SAME_CAUSE = "fast", "same-node", "same-cause"

JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FailureBurst:
    """Failures of one job in a row, the runtime in which they came, and what was to be expected.

    Attributes:
        run_hours: Runtime from the failure before the first of them, or the job's start.
    """

    failures: int
    run_hours: float
    expected_failures: float


@dataclass(frozen=True, slots=True)
class RepeatedFailures:
    """The failures of one job, and what sets them apart from chance.

    Attributes:
        run_hours: Runtime of the job over all its attempts; None where it is not known.
        burst: The least likely failures in a row; None where no row is beyond chance.
        node: The one node that all failures blame; None where there are several, or none.
        patterns: What chance does not explain, of `fast`, `same-node` and `same-cause`.
    """

    run_hours: float | None
    expected_failures: float | None
    burst: FailureBurst | None
    node: str | None
    symptoms: tuple[str, ...]
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobFailure:
    """What is asked about one failure."""

    job: JobKey
    attempt_id: str
    symptom: str
    node: str | None
    n_nodes: int | None


@dataclass(frozen=True, slots=True)
class JobAttempts:
    """The attempts of one job in order of time: their ids, runtimes and node-days."""

    attempt_ids: tuple[str, ...]
    hours: Floats
    node_days: Floats


@dataclass(frozen=True, slots=True)
class JobRuntimes:
    """Runtime of the jobs asked about, and node-days of all jobs together."""

    jobs: dict[JobKey, JobAttempts]
    all_node_days: float


def job_runtimes(
    facts: Facts, jobs: list[JobKey], runs: Mapping[str, RunJobs] | None = None
) -> JobRuntimes:
    """Runtime of some jobs by attempt, and the exposure of all jobs, within the period."""
    runs = runs or {}
    found: dict[JobKey, list[tuple[str, float, float]]] = {job: [] for job in jobs}
    for row in with_run_jobs(facts, runs).rows("failed_jobs_ran"):
        attempt_id = row["attempt_id"]
        job = runs[attempt_id].last if attempt_id in runs else (row["cluster"], row["job_id"])
        if job in found:
            found[job].append((attempt_id, row["elapsed_s"] or 0.0, row["node_s"] or 0.0))
    node_s = np.nan_to_num(facts.columns("exposure_shapes")["node_s"].astype(np.float64))
    return JobRuntimes(
        jobs={
            job: JobAttempts(
                tuple(attempt_id for attempt_id, _, _ in rows),
                np.array([run_s for _, run_s, _ in rows]) / SECONDS_PER_HOUR,
                np.array([node_s for _, _, node_s in rows]) / SECONDS_PER_DAY,
            )
            for job, rows in found.items()
        },
        all_node_days=float(node_s.sum()) / SECONDS_PER_DAY,
    )


def repeated_failures(
    failures: list[JobFailure], jobs: list[JobKey], ran: JobRuntimes | None
) -> dict[JobKey, RepeatedFailures]:
    """What sets the failures of each job apart from chance.

    Args:
        ran: how long they ran; None where it is not known, so that no job counts as failing fast.

    Source:
        At equal rates, of the failures in a row and those of the other jobs, the row's share is
        binomial with the row's share of the exposure. Each pattern's level is divided by the number
        of places it is looked for in (Bonferroni).
    """
    by_job: dict[JobKey, list[JobFailure]] = {job: [] for job in jobs}
    for failure in failures:
        if failure.job in by_job:
            by_job[failure.job].append(failure)
    causes = Counter(failure.symptom for failure in failures)
    return {
        job: _judge(mine, causes, None if ran is None else ran.jobs[job], ran, len(jobs))
        for job, mine in by_job.items()
    }


def _judge(
    mine: list[JobFailure],
    causes: Counter[str],
    run: JobAttempts | None,
    ran: JobRuntimes | None,
    n_judged: int,
) -> RepeatedFailures:
    own = Counter(failure.symptom for failure in mine)
    nodes = {failure.node for failure in mine}
    node = nodes.pop() if len(nodes) == 1 else None
    rate = burst = None
    if run is not None and ran is not None:
        others = _Others(causes.total() - len(mine), ran.all_node_days - float(run.node_days.sum()))
        rate = others.per_node_day
        burst = _burst({failure.attempt_id for failure in mine}, run, others)
    level = CHANCE / max(1, n_judged)
    n_nodes = max((failure.n_nodes or 1 for failure in mine), default=1)
    patterns = []
    if burst is not None:
        patterns.append(FAST)
    if node is not None and n_nodes > 1 and n_nodes ** (1.0 - len(mine)) < level:
        patterns.append(SAME_NODE)
    if len(own) == 1 and _chance_of_one_cause(own, causes) < level:
        patterns.append(SAME_CAUSE)
    return RepeatedFailures(
        run_hours=None if run is None else float(run.hours.sum()),
        expected_failures=(
            None if run is None or rate is None else rate * float(run.node_days.sum())
        ),
        burst=burst,
        node=node,
        symptoms=tuple(name for name, _ in own.most_common()),
        patterns=tuple(patterns),
    )


@dataclass(frozen=True, slots=True)
class _Others:
    """Failures and exposure of the other jobs."""

    failures: int
    node_days: float

    @property
    def per_node_day(self) -> float | None:
        return self.failures / self.node_days if self.node_days > 0 else None


def _burst(failed: set[str], run: JobAttempts, others: _Others) -> FailureBurst | None:
    """The least likely failures in a row, if chance does not explain them in any job's row."""
    from ettr.estimates.special import betainc

    rate = others.per_node_day
    at = [place for place, attempt_id in enumerate(run.attempt_ids) if attempt_id in failed]
    if rate is None or len(at) < LEAST_IN_A_ROW:
        return None
    # before the first failure, and after each
    node_days = np.concatenate([[0.0], np.cumsum(run.node_days)[at]])
    hours = np.concatenate([[0.0], np.cumsum(run.hours)[at]])
    first, last = np.triu_indices(len(node_days), LEAST_IN_A_ROW)
    count, exposure = last - first, node_days[last] - node_days[first]
    share = exposure / (exposure + others.node_days)
    chance = betainc(count, others.failures + 1.0, share)
    least = int(np.argmin(chance))
    n_rows = (others.failures + len(at)) * len(at)
    if chance[least] >= CHANCE / n_rows:
        return None
    return FailureBurst(
        failures=int(count[least]),
        run_hours=float(hours[last[least]] - hours[first[least]]),
        expected_failures=rate * float(exposure[least]),
    )


def _chance_of_one_cause(own: Counter[str], causes: Counter[str]) -> float:
    """Of one cause in all failures of a job; the cause is that of the other jobs' failures."""
    ((symptom, count),) = own.items()
    if symptom == UNATTRIBUTED:
        return 1.0
    others = causes.total() - count
    return float(((causes[symptom] - count + 1.0) / (others + 2.0)) ** count)
