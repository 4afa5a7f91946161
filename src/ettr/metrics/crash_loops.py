"""Jobs that failed repeatedly, and whether chance explains it.

A large job that runs for weeks fails several times at the rate of any fleet. It is a crash loop
only where its failures come faster than the rate of the other jobs makes likely, all blame one of
its many nodes, or all have one cause that is rare elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import ibis

from ettr.metrics.instants import fetch, first_row
from ettr.taxonomy.symptoms import UNATTRIBUTED
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

CHANCE = 0.05
"""How likely it is that chance alone marks any job of a store, by each pattern."""
FAST, SAME_NODE, SAME_CAUSE = "fast", "same-node", "same-cause"

JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RepeatedFailures:
    """The failures of one job, and what sets them apart from chance.

    Attributes:
        run_hours: Runtime of the job over all its attempts; None where it is not known.
        expected_failures: In the job's node-days, at the rate of the other jobs; None likewise.
        node: The one node that all failures blame; None where there are several, or none.
        symptoms: Of the failures, the most frequent first.
        patterns: What chance does not explain, of `fast`, `same-node` and `same-cause`.
    """

    run_hours: float | None
    expected_failures: float | None
    node: str | None
    symptoms: tuple[str, ...]
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobFailure:
    """What is asked about one failure."""

    job: JobKey
    symptom: str
    node: str | None
    n_nodes: int | None


@dataclass(frozen=True, slots=True)
class JobRuntime:
    """Runtime and node-days of the jobs asked about, and of all jobs together."""

    hours: dict[JobKey, float]
    node_days: dict[JobKey, float]
    all_node_days: float
    n_jobs: int


def job_runtime(attempts: ibis.Table, exposed: ibis.Table, jobs: list[JobKey]) -> JobRuntime:
    """Runtime of some jobs over all their attempts, and of all jobs together.

    Args:
        attempts: all attempts.
        exposed: `Exposure.by_attempt` of the same.
        jobs: cluster and id of each.
    """
    keys = ibis.memtable(
        {"cluster": [job[0] for job in jobs], "job_id": [job[1] for job in jobs]},
        schema={"cluster": "string", "job_id": "string"},
    )
    mine = attempts.semi_join(keys, ["cluster", "job_id"])
    mine = mine.select("attempt_id", "cluster", "job_id", "elapsed_s").left_join(
        exposed.select("attempt_id", "node_s"), "attempt_id"
    )
    sums = mine.group_by("cluster", "job_id").aggregate(
        run_s=mine["elapsed_s"].sum(), node_s=mine["node_s"].sum()
    )
    rows = {(row["cluster"], row["job_id"]): row for row in fetch(sums).to_pylist()}
    whole = first_row(exposed.aggregate(node_s=exposed["node_s"].sum()))
    ran = attempts.filter(attempts["elapsed_s"] > 0).select("cluster", "job_id").distinct()
    return JobRuntime(
        hours={job: (row["run_s"] or 0.0) / SECONDS_PER_HOUR for job, row in rows.items()},
        node_days={job: (row["node_s"] or 0.0) / SECONDS_PER_DAY for job, row in rows.items()},
        all_node_days=(whole["node_s"] or 0.0) / SECONDS_PER_DAY,
        n_jobs=int(ran.count().to_pyarrow().as_py()),
    )


def repeated_failures(
    failures: list[JobFailure], jobs: list[JobKey], ran: JobRuntime | None
) -> dict[JobKey, RepeatedFailures]:
    """What sets the failures of each job apart from chance.

    Args:
        failures: all failures of the store.
        jobs: those to judge, which failed several times.
        ran: how long they ran; None where it is not known, so that no job counts as failing fast.

    Source:
        Given the total, failures in a job's share of the exposure are binomial at equal rates;
        each pattern's level is divided by the number of jobs it is looked for in (Bonferroni).
    """
    by_job: dict[JobKey, list[JobFailure]] = {job: [] for job in jobs}
    for failure in failures:
        if failure.job in by_job:
            by_job[failure.job].append(failure)
    causes = Counter(failure.symptom for failure in failures)
    return {
        job: _judge(job, mine, causes, ran, CHANCE / max(1, len(jobs)))
        for job, mine in by_job.items()
    }


def _judge(
    job: JobKey,
    mine: list[JobFailure],
    causes: Counter[str],
    ran: JobRuntime | None,
    level: float,
) -> RepeatedFailures:
    own = Counter(failure.symptom for failure in mine)
    nodes = {failure.node for failure in mine}
    node = nodes.pop() if len(nodes) == 1 else None
    patterns = []
    if ran is not None and _chance_of_so_many(job, len(mine), causes.total(), ran) < (
        CHANCE / max(1, ran.n_jobs)
    ):
        patterns.append(FAST)
    n_nodes = max((failure.n_nodes or 1 for failure in mine), default=1)
    if node is not None and n_nodes > 1 and n_nodes ** (1.0 - len(mine)) < level:
        patterns.append(SAME_NODE)
    if len(own) == 1 and _chance_of_one_cause(own, causes) < level:
        patterns.append(SAME_CAUSE)
    return RepeatedFailures(
        run_hours=None if ran is None else ran.hours.get(job),
        expected_failures=_expected(job, len(mine), causes.total(), ran),
        node=node,
        symptoms=tuple(name for name, _ in own.most_common()),
        patterns=tuple(patterns),
    )


def _chance_of_so_many(job: JobKey, n_own: int, n_all: int, ran: JobRuntime) -> float:
    """Of that many failures or more in the job's share of the exposure, at equal rates."""
    from scipy.special import betainc

    share = ran.node_days.get(job, 0.0) / ran.all_node_days if ran.all_node_days > 0 else 1.0
    if not 0.0 < share < 1.0:
        return 1.0
    return float(betainc(n_own, n_all - n_own + 1.0, share))


def _chance_of_one_cause(own: Counter[str], causes: Counter[str]) -> float:
    """Of one cause in all failures of a job; the cause is that of the other jobs' failures."""
    ((symptom, count),) = own.items()
    if symptom == UNATTRIBUTED:
        return 1.0
    others = causes.total() - count
    return float(((causes[symptom] - count + 1.0) / (others + 2.0)) ** count)


def _expected(job: JobKey, n_own: int, n_all: int, ran: JobRuntime | None) -> float | None:
    if ran is None:
        return None
    node_days = ran.node_days.get(job, 0.0)
    others = ran.all_node_days - node_days
    return (n_all - n_own) * node_days / others if others > 0 else None
