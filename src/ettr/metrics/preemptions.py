"""Who was preempted so that a failed job could restart: from the controller's log, or by a rule.

The log is certain: an event of check `slurmctld`, code `PREEMPTED`, names the job that was
preempted and the one it made room for. The rule is for logs that lack it: an attempt that ended
PREEMPTED at most `rule_window_s` before a restart began, on one of the restart's nodes, was
preempted for it. A restart is the first attempt of a job after one that failed, or that of the next
job of its run, where the owner submitted it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import ibis
import numpy as np
import pyarrow as pa

from ettr.defaults import CONFIDENCE, PREEMPTION_TOLERANCE_S, PREEMPTION_WINDOW_S
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.metrics.instants import fetch, seconds_of
from ettr.metrics.selected import counted, in_period
from ettr.metrics.stitching import RunJobs
from ettr.selection import Selection
from ettr.tables.ibis_time import epoch_s
from ettr.tables.materialize import materialize

CLOCK_SLACK_S = 2


@dataclass(frozen=True, slots=True)
class PreemptionRule:
    """When a preemption counts as caused by a restart; both lengths in seconds.

    Attributes:
        rule_window_s: Longest time from the end of the preempted attempt to the restart.
        log_tolerance_s: Longest time between the end of the preempted attempt and its line in the
            controller's log; a restart may be as much later.
    """

    rule_window_s: float = PREEMPTION_WINDOW_S
    log_tolerance_s: float = PREEMPTION_TOLERANCE_S


# cluster and job id
JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Preemption:
    """An attempt that had to go so that a failed job could restart.

    `elapsed_s` and `n_gpus` are null where the log does not say.
    """

    attempt_id: str
    elapsed_s: float | None
    n_gpus: int | None
    failed_attempt_id: str
    failed_job_id: str
    from_log: bool


@dataclass(frozen=True, slots=True)
class RuleError:
    """The rule held against the log, over the attempts for which the log names the instigator.

    `precision` is the share of the rule's links that the log confirms, `recall` the share of the
    log's links that the rule finds. None where the log names nobody.
    """

    log_links: int
    rule_links: int
    agreeing_links: int
    precision: Interval
    recall: Interval


@dataclass(frozen=True, slots=True)
class PreemptionLinks:
    """All second-order preemptions, by whom they were found, and the rule's measured error.

    `named_by_log` counts the log's lines that name who was preempted for whom, whatever the reason.
    """

    links: tuple[Preemption, ...]
    preempted_attempts: int
    named_by_log: int = field(metadata={"json": "told_by_log"})
    rule_window_s: float
    rule_error: RuleError | None


@dataclass(frozen=True, slots=True)
class Restart:
    """The first attempt of a job, or of its owner's next, after one that failed.

    `job_id` is the job that restarts, `failed_job_id` the one that had failed.
    """

    attempt_id: str
    cluster: str
    job_id: str
    start_s: float
    failed_attempt_id: str
    failed_job_id: str

    @property
    def job(self) -> JobKey:
        """Cluster and id of the job that restarts."""
        return self.cluster, self.job_id


def restarts_after_failure(
    attempts: ibis.Table, failures: ibis.Table, runs: Mapping[str, RunJobs] | None = None
) -> tuple[Restart, ...]:
    """For each failure the next attempt of the same job or run, if it ever started again.

    Args:
        attempts: all attempts.
        failures: failures of the infrastructure.
        runs: by attempt, the jobs of runs of several jobs (`ettr.metrics.stitching.jobs_of_runs`).
    """
    runs = runs or {}
    failed = fetch(failures, "attempt_id", "cluster", "job_id", "end")
    again = _later_starts(attempts, failures, runs)
    found = []
    for row, end_s in zip(
        failed.drop("end").to_pylist(), seconds_of(failed["end"]).tolist(), strict=True
    ):
        attempt, own = row["attempt_id"], (row["cluster"], row["job_id"])
        run = runs[attempt].last if attempt in runs else own
        after = [start for start in again.get(run, []) if start[0] >= end_s and start[1] != attempt]
        if after:
            start_s, restart, job_id = min(after)
            found.append(Restart(restart, own[0], job_id, start_s, attempt, own[1]))
    return tuple(found)


def _later_starts(
    attempts: ibis.Table, failures: ibis.Table, runs: Mapping[str, RunJobs]
) -> dict[JobKey, list[tuple[float, str, str]]]:
    """When attempts of the failed jobs and of their runs began, by job or last job of the run."""
    jobs = fetch(failures.select("cluster", "job_id").distinct()).to_pylist()
    keys = {(row["cluster"], row["job_id"]) for row in jobs}
    keys |= {(run.cluster, job_id) for run in runs.values() for job_id in run.job_ids}
    wanted = _job_table(keys)
    started = attempts.filter(attempts["start"].notnull())
    rows = fetch(
        started.semi_join(wanted, ["cluster", "job_id"]), "attempt_id", "cluster", "job_id", "start"
    )
    starts: dict[JobKey, list[tuple[float, str, str]]] = {}
    for row, start_s in zip(
        rows.drop("start").to_pylist(), seconds_of(rows["start"]).tolist(), strict=True
    ):
        attempt, job_id = row["attempt_id"], row["job_id"]
        run = runs[attempt].last if attempt in runs else (row["cluster"], job_id)
        starts.setdefault(run, []).append((start_s, attempt, job_id))
    return starts


def _job_table(jobs: Iterable[JobKey], job_id: str = "job_id") -> ibis.Table:
    keys = sorted(set(jobs))
    return ibis.memtable(
        {"cluster": [key[0] for key in keys], job_id: [key[1] for key in keys]},
        schema={"cluster": "string", job_id: "string"},
    )


def preemption_links(
    attempts: ibis.Table,
    allocations: ibis.Table,
    failures: ibis.Table,
    events: ibis.Table,
    *,
    runs: Mapping[str, RunJobs] | None = None,
    rule_window_s: float = PREEMPTION_WINDOW_S,
    log_tolerance_s: float = PREEMPTION_TOLERANCE_S,
    confidence: float = CONFIDENCE,
) -> PreemptionLinks:
    """Preemptions that failures caused: by the log where it names them, by the rule elsewhere.

    Args:
        attempts: all attempts.
        allocations: which nodes each attempt held; the rule needs them.
        failures: failures of the infrastructure.
        events: observations, among them those of the controller's log.
        runs: by attempt, the jobs of runs of several jobs; without it only requeues are restarts.
        rule_window_s: how long before a restart a preemption may lie, in seconds.
        log_tolerance_s: how far from the end of the preempted attempt its line in the controller's
            log may lie, in seconds.
        confidence: of the intervals of the rule's error, between 0 and 1.
    """
    gone = attempts.filter((attempts["state"] == "PREEMPTED") & attempts["end"].notnull())
    lines = _preemption_lines(events)
    named_by_log = int(lines.count().to_pyarrow().as_py())
    restarts = restarts_after_failure(attempts, failures, runs)
    by_rule = _links_by_rule(attempts, allocations, restarts, rule_window_s)
    # Hundreds of thousands are preempted; only those that a restart or the rule names matter.
    asked = lines.semi_join(
        _job_table((r.job for r in restarts), "related_job_id"), ["cluster", "related_job_id"]
    )
    ids = ibis.memtable({"attempt_id": sorted(by_rule)}, schema={"attempt_id": "string"})
    ruled = gone.semi_join(ids, "attempt_id").select("cluster", "job_id")
    jobs = asked.select("cluster", "job_id").union(ruled).distinct()
    victims = fetch(
        gone.semi_join(jobs, ["cluster", "job_id"]),
        *("attempt_id", "cluster", "job_id", "end", "elapsed_s", "n_gpus"),
    )
    own_lines = lines.semi_join(jobs, ["cluster", "job_id"])
    named = _named_by_log(own_lines, victims, log_tolerance_s)
    by_log = _links_by_log(named, restarts, rule_window_s + log_tolerance_s)
    unnamed = {attempt: restart for attempt, restart in by_rule.items() if attempt not in named}
    return PreemptionLinks(
        links=(*_links(by_log, victims, True), *_links(unnamed, victims, False)),
        preempted_attempts=int(gone.count().to_pyarrow().as_py()),
        named_by_log=named_by_log,
        rule_window_s=rule_window_s,
        rule_error=_rule_error(named, by_log, by_rule, confidence) if named_by_log else None,
    )


def selected_links(
    links: PreemptionLinks,
    preempted: ibis.Table,
    failures: ibis.Table,
    events: ibis.Table,
    selection: Selection,
) -> PreemptionLinks:
    """The preemptions of a selection: the loss is that of the job that was preempted.

    It belongs to the period in which that job had to go, and to the job's own partition, account
    and user. Of chosen nodes it is what their failures drove out, wherever that ran.

    Args:
        links: all of them; the rule's error stays that over all of the log.
        preempted: attempts of the selection on any node.
        failures: those of the chosen nodes, at any time.
        events: observations, among them those of the controller's log.
        selection: which rows.
    """
    gone = _preempted(preempted)
    lines = _preemption_lines(events)
    lines = lines.filter(in_period(lines["time"], selection))
    named = lines.semi_join(gone, ["cluster", "job_id"]).count()
    return replace(
        links,
        links=selected_preemptions(links, preempted, failures),
        preempted_attempts=int(gone.count().to_pyarrow().as_py()),
        named_by_log=int(named.to_pyarrow().as_py()),
    )


def selected_preemptions(
    links: PreemptionLinks, preempted: ibis.Table, failures: ibis.Table
) -> tuple[Preemption, ...]:
    """The links that `selected_links` keeps, without its counts; arguments as there."""
    if not links.links:
        return ()
    ids = {"attempt_id": sorted({link.attempt_id for link in links.links})}
    asked = ibis.memtable(ids, schema={"attempt_id": "string"})
    gone = _preempted(preempted).semi_join(asked, "attempt_id")
    own = set(fetch(gone, "attempt_id")["attempt_id"].to_pylist())
    caused = set(fetch(failures, "attempt_id")["attempt_id"].to_pylist())
    return tuple(
        link for link in links.links if link.attempt_id in own and link.failed_attempt_id in caused
    )


def _preempted(attempts: ibis.Table) -> ibis.Table:
    """Attempts of a selection that were preempted within it."""
    gone = (attempts["state"] == "PREEMPTED") & attempts["end"].notnull()
    return attempts.filter(gone & counted(attempts))


def _preemption_lines(events: ibis.Table) -> ibis.Table:
    """Lines of the controller's log that name who was preempted for whom."""
    return events.filter(
        (events["check"] == "slurmctld")
        & (events["code"] == "PREEMPTED")
        & events["job_id"].notnull()
        & events["related_job_id"].notnull()
    ).select("cluster", "job_id", "related_job_id", "time")


def _links(found: dict[str, Restart], victims: pa.Table, from_log: bool) -> Iterator[Preemption]:
    """The preempted attempts with what they lost, in order of their ids."""
    held = {
        attempt: (elapsed_s, n_gpus)
        for attempt, elapsed_s, n_gpus in zip(
            victims["attempt_id"].to_pylist(),
            victims["elapsed_s"].to_pylist(),
            victims["n_gpus"].to_pylist(),
            strict=True,
        )
    }
    for attempt, restart in sorted(found.items(), key=lambda pair: pair[0]):
        yield Preemption(
            attempt, *held[attempt], restart.failed_attempt_id, restart.failed_job_id, from_log
        )


def _named_by_log(
    lines: ibis.Table, victims: pa.Table, tolerance_s: float
) -> dict[str, tuple[JobKey, float]]:
    """For each preempted attempt the job it made room for, and when, as the log has it."""
    rows = fetch(lines, "cluster", "job_id", "related_job_id", "time")
    by_job: dict[JobKey, list[tuple[float, str]]] = {}
    for row, end_s in zip(
        victims.select(["attempt_id", "cluster", "job_id"]).to_pylist(),
        seconds_of(victims["end"]).tolist(),
        strict=True,
    ):
        by_job.setdefault((row["cluster"], row["job_id"]), []).append((end_s, row["attempt_id"]))
    found: dict[str, tuple[JobKey, float]] = {}
    for row, time_s in zip(
        rows.drop("time").to_pylist(), seconds_of(rows["time"]).tolist(), strict=True
    ):
        ends = by_job.get((row["cluster"], row["job_id"]), [])
        near = [(abs(end_s - time_s), attempt) for end_s, attempt in ends]
        if near and min(near)[0] <= tolerance_s:
            found[min(near)[1]] = ((row["cluster"], row["related_job_id"]), time_s)
    return found


def _links_by_log(
    named: dict[str, tuple[JobKey, float]], restarts: tuple[Restart, ...], longest_s: float
) -> dict[str, Restart]:
    """Of those that the log names, the ones that made room for a restart after a failure.

    The controller preempts some time before the job that needs the room can start; the restart
    meant is the job's next one, at most `longest_s` after the line.
    """
    by_job: dict[JobKey, list[Restart]] = {}
    for restart in restarts:
        by_job.setdefault(restart.job, []).append(restart)
    found = {}
    for attempt, (job, time_s) in named.items():
        near = [
            restart
            for restart in by_job.get(job, [])
            if -CLOCK_SLACK_S <= restart.start_s - time_s <= longest_s
        ]
        if near:
            found[attempt] = min(near, key=lambda restart: restart.start_s)
    return found


def _links_by_rule(
    attempts: ibis.Table,
    allocations: ibis.Table,
    restarts: tuple[Restart, ...],
    window_s: float,
) -> dict[str, Restart]:
    """The rule: preempted within the window before a restart, on one of its nodes."""
    if not restarts:
        return {}
    width = int(window_s) + CLOCK_SLACK_S
    by_attempt = {restart.attempt_id: restart for restart in restarts}
    again = ibis.memtable(
        {"attempt_id": [r.attempt_id for r in restarts]}, schema={"attempt_id": "string"}
    ).distinct()
    gone = attempts.filter(attempts["state"] == "PREEMPTED").select("attempt_id")
    # one pass over all allocations; what is left of them is small
    asked = ibis.union(gone, again.cast(gone.schema()), distinct=True)
    held = materialize(
        allocations.semi_join(asked, "attempt_id").select(
            "cluster", "node", "attempt_id", "start", "end"
        )
    )
    starts = held.semi_join(again, "attempt_id")
    starts = starts.select(
        "cluster", "node", restart_id=starts["attempt_id"], start_s=epoch_s(starts["start"])
    )
    # Whoever ended within the window lies in the bucket of the start or the one before, and by
    # the clocks' slack in the one after.
    near = [
        starts.mutate(bucket=(starts["start_s"] // width).cast("int64") + step)
        for step in (-1, 0, 1)
    ]
    ends = held.semi_join(gone, "attempt_id").filter(lambda t: t["end"].notnull())
    ends = ends.select("cluster", "node", "attempt_id", end_s=epoch_s(ends["end"]))
    ends = ends.mutate(bucket=(ends["end_s"] // width).cast("int64"))
    met = ends.inner_join(ibis.union(*near), ["cluster", "node", "bucket"])
    met = met.filter(
        (met["end_s"] <= met["start_s"] + CLOCK_SLACK_S) & (met["start_s"] - met["end_s"] <= width)
    )
    pairs = fetch(met.select("attempt_id", "restart_id").distinct())
    found: dict[str, Restart] = {}
    for attempt, restart_id in zip(
        pairs["attempt_id"].to_pylist(), pairs["restart_id"].to_pylist(), strict=True
    ):
        restart = by_attempt[restart_id]
        if attempt not in found or restart.start_s < found[attempt].start_s:
            found[attempt] = restart
    return found


def _rule_error(
    named: dict[str, tuple[JobKey, float]],
    by_log: dict[str, Restart],
    by_rule: dict[str, Restart],
    confidence: float,
) -> RuleError:
    ruled = {attempt: r.job_id for attempt, r in by_rule.items() if attempt in named}
    logged = {attempt: r.job_id for attempt, r in by_log.items()}
    agreeing = int(np.sum([logged.get(attempt) == job for attempt, job in ruled.items()]))
    return RuleError(
        log_links=len(logged),
        rule_links=len(ruled),
        agreeing_links=agreeing,
        precision=share_interval(agreeing, len(ruled), confidence),
        recall=share_interval(agreeing, len(logged), confidence),
    )
