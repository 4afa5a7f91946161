"""Who was preempted so that a failed job could restart: from the controller's log, or by a rule.

The log is certain: an event of check `slurmctld`, code `PREEMPTED`, names the job that was
preempted and the one it made room for. The rule is for logs that lack it: an attempt that ended
PREEMPTED at most `rule_window_s` before a restart began, on one of the restart's nodes, was
preempted for it. A restart is the first attempt of a job after one that failed, or that of the
next job of its run, where the owner submitted it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ettr.defaults import CONFIDENCE, PREEMPTION_TOLERANCE_S, PREEMPTION_WINDOW_S
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.facts import Facts, made
from ettr.facts.files import Rows
from ettr.metrics.stitching import RunJobs, with_run_jobs
from ettr.selection import Selection
from ettr.units import MICROSECONDS_PER_SECOND

CLOCK_SLACK_S = 2


# cluster and job id
JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Preemption:
    """An attempt that had to go so that a failed job could restart; None is not logged."""

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
    facts: Facts, runs: Mapping[str, RunJobs] | None = None
) -> tuple[Restart, ...]:
    """The next attempt of the same job or run after each failure of all logs, if any started."""
    runs = runs or {}
    again = _later_starts(facts, runs)
    found = []
    for row in facts.rows("all_failures"):
        attempt, own = row["attempt_id"], (row["cluster"], row["job_id"])
        run = runs[attempt].last if attempt in runs else own
        after = [
            start
            for start in again.get(run, [])
            if start[0] >= row["end_us"] and start[1] != attempt
        ]
        if after:
            start_us, restart, job_id = min(after)
            start_s = start_us / MICROSECONDS_PER_SECOND
            found.append(Restart(restart, own[0], job_id, start_s, attempt, own[1]))
    return tuple(found)


def _later_starts(
    facts: Facts, runs: Mapping[str, RunJobs]
) -> dict[JobKey, list[tuple[int, str, str]]]:
    """When attempts of the failed jobs and of their runs began, by job or last job of the run."""
    starts: dict[JobKey, list[tuple[int, str, str]]] = {}
    for row in with_run_jobs(facts, runs).rows("failed_jobs_attempts"):
        if row["start_us"] is not None:
            attempt, job_id = row["attempt_id"], row["job_id"]
            run = runs[attempt].last if attempt in runs else (row["cluster"], job_id)
            starts.setdefault(run, []).append((row["start_us"], attempt, job_id))
    return starts


def preemption_links(
    facts: Facts,
    *,
    runs: Mapping[str, RunJobs] | None = None,
    rule_window_s: float = PREEMPTION_WINDOW_S,
    log_tolerance_s: float = PREEMPTION_TOLERANCE_S,
    confidence: float = CONFIDENCE,
) -> PreemptionLinks:
    """Preemptions that failures caused: by the log where it names them, by the rule elsewhere.

    Args:
        rule_window_s: how long before a restart a preemption may lie, in seconds.
        log_tolerance_s: how far from the end of the preempted attempt its line in the controller's
            log may lie, in seconds.
    """
    counts = facts.under(selection=Selection(), since_us=None, until_us=None).row(
        "preemption_counts"
    )
    restarts = restarts_after_failure(facts, runs)
    asked = facts.under(
        restarts=restarts,
        preempted_within_s=int(rule_window_s) + CLOCK_SLACK_S,
        clock_slack_s=CLOCK_SLACK_S,
        preemption_line_us=round(log_tolerance_s * MICROSECONDS_PER_SECOND),
    )
    by_rule = _links_by_rule(asked, restarts)
    near = asked.rows("preempted_near") if restarts else []
    held = {row["attempt_id"]: (row["elapsed_s"], row["n_gpus"]) for row in near}
    named = _named_by_log(near)
    by_log = _links_by_log(named, restarts, rule_window_s + log_tolerance_s)
    unnamed = {attempt: restart for attempt, restart in by_rule.items() if attempt not in named}
    return PreemptionLinks(
        links=(*_links(by_log, held, True), *_links(unnamed, held, False)),
        preempted_attempts=int(counts["preempted"]),
        named_by_log=counts["named"],
        rule_window_s=rule_window_s,
        rule_error=_rule_error(named, by_log, by_rule, confidence) if counts["named"] else None,
    )


def selected_links(facts: Facts, links: PreemptionLinks) -> PreemptionLinks:
    """The preemptions of a selection: the loss is that of the job that was preempted.

    It belongs to the period in which that job had to go, and to the job's own partition, account
    and user. Of chosen nodes it is what their failures drove out, wherever that ran.
    """
    counts = facts.row("preemption_counts")
    return replace(
        links,
        links=selected_preemptions(facts, links),
        preempted_attempts=int(counts["preempted"]),
        named_by_log=counts["named_of_jobs"],
    )


def selected_preemptions(facts: Facts, links: PreemptionLinks) -> tuple[Preemption, ...]:
    """The links that `selected_links` keeps, without its counts; arguments as there."""
    selection: Selection = facts.given("selection")
    if not links.links or selection.is_everything:
        return links.links
    linked = facts.under(linked=tuple(link.attempt_id for link in links.links))
    own = {row["attempt_id"] for row in linked.rows("linked_ends")}
    of_nodes = facts.under(selection=selection.only_nodes, since_us=None, until_us=None)
    caused = {row["attempt_id"] for row in of_nodes.rows("failures")}
    return tuple(
        link for link in links.links if link.attempt_id in own and link.failed_attempt_id in caused
    )


@made(
    "restarts",
    (("attempt_id", "VARCHAR"), ("cluster", "VARCHAR"), ("job_id", "VARCHAR")),
    takes=("restarts",),
)
def _restarts(facts: Facts) -> Rows:
    """One row is an attempt with which a failed job or its run began again."""
    found: tuple[Restart, ...] = facts.given("restarts")
    return sorted({(one.attempt_id, one.cluster, one.job_id) for one in found})


@made("linked", (("attempt_id", "VARCHAR"),), takes=("linked",))
def _linked(facts: Facts) -> Rows:
    """One row is a preempted attempt that a question is about."""
    return [(attempt,) for attempt in facts.given("linked")]


def _links(
    found: dict[str, Restart], held: Mapping[str, tuple[float | None, int | None]], from_log: bool
) -> Iterator[Preemption]:
    """The preempted attempts with what they lost, in order of their ids."""
    for attempt, restart in sorted(found.items(), key=lambda pair: pair[0]):
        yield Preemption(
            attempt, *held[attempt], restart.failed_attempt_id, restart.failed_job_id, from_log
        )


def _named_by_log(near: list[dict[str, Any]]) -> dict[str, tuple[JobKey, float]]:
    """For each preempted attempt the job it made room for, and when, as the log has it."""
    of_lines: dict[tuple[str, str, str, int], list[tuple[int, str]]] = {}
    for row in near:
        if row["time_us"] is not None:
            line = (row["cluster"], row["job_id"], row["related_job_id"], row["time_us"])
            distance_us = abs(row["end_us"] - row["time_us"])
            of_lines.setdefault(line, []).append((distance_us, row["attempt_id"]))
    return {
        min(ends)[1]: ((cluster, related_job_id), time_us / MICROSECONDS_PER_SECOND)
        for (cluster, _, related_job_id, time_us), ends in of_lines.items()
    }


def _links_by_log(
    named: dict[str, tuple[JobKey, float]], restarts: tuple[Restart, ...], longest_s: float
) -> dict[str, Restart]:
    """Of those that the log names, the ones that made room for a restart after a failure."""
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


def _links_by_rule(asked: Facts, restarts: tuple[Restart, ...]) -> dict[str, Restart]:
    """The rule: preempted within the window before a restart, on one of its nodes."""
    by_attempt = {restart.attempt_id: restart for restart in restarts}
    found: dict[str, Restart] = {}
    for row in asked.rows("preempted_before") if restarts else ():
        attempt, restart = row["attempt_id"], by_attempt[row["restart_id"]]
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
    agreeing = sum(logged.get(attempt) == job for attempt, job in ruled.items())
    return RuleError(
        log_links=len(logged),
        rule_links=len(ruled),
        agreeing_links=agreeing,
        precision=share_interval(agreeing, len(ruled), confidence),
        recall=share_interval(agreeing, len(logged), confidence),
    )
