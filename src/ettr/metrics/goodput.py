"""Lost goodput in GPU-hours by cause, first and second order, and jobs that failed repeatedly.

First order is what a failed job loses, second order what is lost by the jobs preempted so that it
could restart. Either loses min(runtime, cap) times its GPUs, with a cap of half an hour for hourly
checkpoints.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ettr.errors import UsageError
from ettr.facts import Facts
from ettr.metrics.instants import Floats
from ettr.metrics.rates import FailuresByConfidence, counted_confidences
from ettr.metrics.run_rules import LOST_CAP_MIN
from ettr.metrics.sizes import SizeClass, size_class, size_end_of
from ettr.metrics.status import share
from ettr.metrics.stitching import Preemption, PreemptionLinks, RunJobs, with_run_jobs
from ettr.taxonomy.rules import UNATTRIBUTED
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

# -- jobs that failed repeatedly, and whether chance explains it -----------------------------------
# A large job that runs for weeks fails several times at the rate of any fleet. It is a crash loop
# only where some of its failures follow each other faster than the rate of the other jobs makes
# likely, where all blame one of its many nodes, or where all have one cause that is rare elsewhere.


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


# -- lost goodput in GPU-hours by cause, first and second order, and jobs that failed repeatedly


CRASH_LOOP_FAILURES = 3


@dataclass(frozen=True, slots=True)
class CauseLoss:
    """What one symptom cost. Preemptions are those that its failures caused.

    GPU-hours are those of jobs whose GPUs and runtime the log names; null where there are jobs and
    it names those of none.
    """

    symptom: str
    failures: int
    first_order_gpu_hours: float | None
    preemptions: int
    second_order_gpu_hours: float | None
    gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class SizeLoss:
    """What failures of jobs of one size cost, preemptions for their sake included.

    GPU-hours as in `CauseLoss`.
    """

    size: SizeClass
    failures: int
    first_order_gpu_hours: float | None
    preemptions: int
    second_order_gpu_hours: float | None
    gpu_hours: float | None


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
    preempted_gpus: int | None
    lost_gpu_hours: float | None
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

    `by_confidence` says how sure the failures are.

    What failed or was preempted without a word on its GPUs loses nothing here, and
    `failures_without_gpus` and `preemptions_without_gpus` count it; `failures_without_runtime` and
    `preemptions_without_runtime` count likewise what held GPUs for a time that no log says.
    GPU-hours are null where that is all there is.
    """

    cap_min: float
    first_order_gpu_hours: float | None
    second_order_gpu_hours: float | None
    second_order_share: float | None
    by_cause: tuple[CauseLoss, ...]
    by_size: tuple[SizeLoss, ...]
    crash_loops: tuple[CrashLoop, ...]
    failures_without_gpus: int
    preemptions_without_gpus: int
    failures_without_runtime: int
    preemptions_without_runtime: int
    preemption_links: PreemptionLinks
    by_confidence: FailuresByConfidence | None = None


@dataclass(frozen=True, slots=True)
class EachLoss:
    """GPU-hours that each failure lost, of those of which any are known; how many are not."""

    gpu_hours: tuple[float, ...]
    failures_without_gpus: int
    preemptions_without_gpus: int
    failures_without_runtime: int
    preemptions_without_runtime: int

    @property
    def is_unknown(self) -> bool:
        """Whether something was lost, and the log says of none of it how much."""
        return not self.gpu_hours and bool(
            self.failures_without_gpus
            or self.preemptions_without_gpus
            or self.failures_without_runtime
            or self.preemptions_without_runtime
        )


def lost_gpu_s(elapsed_s: float | None, n_gpus: int | None, cap_s: float) -> float | None:
    """What an attempt loses that ends after so long: min(runtime, cap) times its GPUs.

    Returns:
        GPU-seconds; None where the runtime or the GPUs are not known. Without GPUs none are lost,
        however long it ran.
    """
    if n_gpus == 0:
        return 0.0
    if n_gpus is None or elapsed_s is None:
        return None
    return min(elapsed_s, cap_s) * n_gpus


@dataclass(slots=True)
class LossSum:
    """What jobs lost that failed, or that were preempted: GPU-seconds of those that say it.

    `gpus` are those of jobs that name them; `without_gpus` and `without_runtime` count the jobs
    that add nothing to `gpu_s`, the latter those that name their GPUs.
    """

    jobs: int = 0
    without_gpus: int = 0
    without_runtime: int = 0
    gpus: int = 0
    gpu_s: float = 0.0

    def add(self, lost_gpu_s: float | None, n_gpus: int | None) -> None:
        """A job on so many GPUs that loses so much."""
        self.jobs += 1
        self.without_gpus += n_gpus is None
        self.without_runtime += lost_gpu_s is None and n_gpus is not None
        self.gpus += n_gpus or 0
        self.gpu_s += lost_gpu_s or 0.0

    @property
    def unmeasured(self) -> int:
        """Jobs of which it is not known what they lost."""
        return self.without_gpus + self.without_runtime

    @property
    def gpu_hours(self) -> float | None:
        """What is known of it; None where there are jobs and it is known of none."""
        return _gpu_hours(self)


def _gpu_hours(*parts: LossSum) -> float | None:
    unknown = 0 < sum(one.jobs for one in parts) == sum(one.unmeasured for one in parts)
    return None if unknown else sum(one.gpu_s for one in parts) / SECONDS_PER_HOUR


@dataclass(slots=True)
class _Loss:
    """What failed jobs lost, and those that were preempted for their sake."""

    failures: LossSum = field(default_factory=LossSum)
    preemptions: LossSum = field(default_factory=LossSum)

    @property
    def preempted_gpus(self) -> int | None:
        """GPUs of preempted jobs; None where those of none are known."""
        preempted = self.preemptions
        return None if 0 < preempted.jobs == preempted.without_gpus else preempted.gpus

    @property
    def gpu_hours(self) -> float | None:
        """Lost by both, as far as known; None where it is known of none."""
        return _gpu_hours(self.failures, self.preemptions)

    @property
    def known_gpu_s(self) -> float:
        """What is known of it, in GPU-seconds: the order of lists."""
        return self.failures.gpu_s + self.preemptions.gpu_s


def lost_goodput(
    facts: Facts,
    links: PreemptionLinks,
    *,
    cap_min: float = LOST_CAP_MIN,
    runs: Mapping[str, RunJobs] | None = None,
) -> LostGoodput:
    """GPU-hours lost by cause and by size of the failed job, and the jobs that failed repeatedly.

    Args:
        facts: of a store; the failures of its selection count, and the others only name the cause
            of the preemptions in `links`.
        runs: by attempt, the jobs of runs of several jobs (`jobs_of_runs`); a job that was
            submitted again counts as one with them.

    Source:
        Kokolis et al. (2025): lost goodput as min(runtime, 30 min) times GPUs, once for failed
        jobs and again for those preempted to reschedule them.
    """
    if cap_min < 0:
        raise UsageError(f"cap_min {cap_min} must be 0 or more; give 30 for the usual one")
    cap_s = cap_min * SECONDS_PER_MINUTE
    runs = runs or {}
    rows = [
        row | {"run": runs[row["attempt_id"]].last}
        if row["attempt_id"] in runs
        else row | {"run": (row["cluster"], row["job_id"])}
        for row in facts.rows("all_failures")
    ]
    counting = {row["attempt_id"] for row in facts.rows("failures")}
    whole, by_symptom, by_size, by_job = _losses(rows, links, cap_s, counting)
    rows = [row for row in rows if row["attempt_id"] in counting]
    repeated = {
        job: loss for job, loss in by_job.items() if loss.failures.jobs >= CRASH_LOOP_FAILURES
    }
    first, second = whole.failures.gpu_hours, whole.preemptions.gpu_hours
    second_share = None
    if first is not None and second is not None:
        second_share = share(second, first + second)
    return LostGoodput(
        cap_min=cap_min,
        first_order_gpu_hours=first,
        second_order_gpu_hours=second,
        second_order_share=second_share,
        by_cause=tuple(
            CauseLoss(symptom, *_columns(loss))
            for symptom, loss in sorted(
                by_symptom.items(), key=lambda named: (-named[1].known_gpu_s, named[0])
            )
        ),
        by_size=tuple(
            SizeLoss(size_class(end), *_columns(loss)) for end, loss in sorted(by_size.items())
        ),
        crash_loops=_crash_loops(facts, repeated, rows, runs),
        failures_without_gpus=whole.failures.without_gpus,
        preemptions_without_gpus=whole.preemptions.without_gpus,
        failures_without_runtime=whole.failures.without_runtime,
        preemptions_without_runtime=whole.preemptions.without_runtime,
        preemption_links=links,
        by_confidence=counted_confidences(row["confidence"] for row in rows),
    )


def loss_of_each(facts: Facts, preemptions: Iterable[Preemption], cap_min: float) -> EachLoss:
    """GPU-hours that each failure lost, with those of jobs preempted for its sake.

    Args:
        preemptions: those that failures caused; a failure that is not among them adds its own.
    """
    cap_s = cap_min * SECONDS_PER_MINUTE
    of_each: dict[str, _Loss] = defaultdict(_Loss)
    for row in facts.rows("failures"):
        lost = lost_gpu_s(row["elapsed_s"], row["n_gpus"], cap_s)
        of_each[row["attempt_id"]].failures.add(lost, row["n_gpus"])
    for link in preemptions:
        lost = lost_gpu_s(link.elapsed_s, link.n_gpus, cap_s)
        of_each[link.failed_attempt_id].preemptions.add(lost, link.n_gpus)
    hours = (loss.gpu_hours for loss in of_each.values())
    return EachLoss(
        tuple(one for one in hours if one is not None),
        sum(loss.failures.without_gpus for loss in of_each.values()),
        sum(loss.preemptions.without_gpus for loss in of_each.values()),
        sum(loss.failures.without_runtime for loss in of_each.values()),
        sum(loss.preemptions.without_runtime for loss in of_each.values()),
    )


def _losses(
    rows: list[dict[str, Any]], links: PreemptionLinks, cap_s: float, counting: set[str]
) -> tuple[_Loss, dict[str, _Loss], dict[int, _Loss], dict[JobKey, _Loss]]:
    """The loss of each failure and of what it drove out: the sum, and by symptom, size and job."""
    whole = _Loss()
    by_symptom: dict[str, _Loss] = defaultdict(_Loss)
    by_size: dict[int, _Loss] = defaultdict(_Loss)
    by_job: dict[JobKey, _Loss] = defaultdict(_Loss)
    by_id = {row["attempt_id"]: row for row in rows}

    def of(row: dict[str, Any]) -> tuple[_Loss, ...]:
        size = size_end_of(row["n_gpus"])
        return whole, by_symptom[row["symptom"]], by_size[size], by_job[row["run"]]

    for row in rows:
        if row["attempt_id"] in counting:
            lost = lost_gpu_s(row["elapsed_s"], row["n_gpus"], cap_s)
            for loss in of(row):
                loss.failures.add(lost, row["n_gpus"])
    for link in links.links:
        lost = lost_gpu_s(link.elapsed_s, link.n_gpus, cap_s)
        for loss in of(by_id[link.failed_attempt_id]):
            loss.preemptions.add(lost, link.n_gpus)
    return whole, by_symptom, by_size, by_job


def _columns(loss: _Loss) -> tuple[int, float | None, int, float | None, float | None]:
    return (
        loss.failures.jobs,
        loss.failures.gpu_hours,
        loss.preemptions.jobs,
        loss.preemptions.gpu_hours,
        loss.gpu_hours,
    )


def _crash_loops(
    facts: Facts,
    repeated: dict[JobKey, _Loss],
    rows: list[dict[str, Any]],
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
        JobFailure(row["run"], row["attempt_id"], row["symptom"], row["node"], row["n_nodes"])
        for row in rows
    ]
    jobs = sorted(repeated)
    found = repeated_failures(failures, jobs, job_runtimes(facts, jobs, runs))
    ids = {run.last: run.job_ids for run in runs.values()}
    loops = [
        CrashLoop(
            cluster=job[0],
            job_id=job[1],
            failures=loss.failures.jobs,
            n_gpus=gpus[job],
            preemptions=loss.preemptions.jobs,
            preempted_gpus=loss.preempted_gpus,
            lost_gpu_hours=loss.gpu_hours,
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
