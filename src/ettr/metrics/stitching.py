"""Job runs: attempts of one logical task, stitched over requeues and resubmissions.

The rule, in order:

1. An id that the user gives (a column, or a pattern in the comment), or one training run id that
   `progress` shows in several jobs, makes one run of all attempts that carry it.
2. Else jobs of one user and name of which each waits for the one before it (`dependencies`) are one
   run, however they end and however long it takes.
3. Else attempts of the same cluster, user, name and work folder belong together while each was
   submitted at most `gap_h` after everything before it had ended. An attempt that COMPLETED ends
   its run, unless the scheduler requeued that very job. A chain of rule 2 counts as one job here.
4. Where different jobs of such a group ran at the same time, the name may be that of a sweep: only
   requeues of one job, or jobs of one chain, are stitched there.
5. Attempts without a user or name are stitched over requeues only.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from ettr.defaults import CONFIDENCE, PREEMPTION_TOLERANCE_S, PREEMPTION_WINDOW_S
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.facts import Facts, made
from ettr.facts.files import Rows
from ettr.metrics.run_rules import RunRule
from ettr.selection import Selection
from ettr.tables import ATTEMPTS
from ettr.tables.columns import Kind
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class RunJobs:
    """The jobs of one run in the order in which they first ran."""

    cluster: str
    job_ids: tuple[str, ...]

    @property
    def last(self) -> JobKey:
        """Cluster and id of the last of them."""
        return self.cluster, self.job_ids[-1]


def under_rule(
    facts: Facts,
    rule: RunRule,
    *,
    of: str = "long",
    min_gpus: int = 0,
    min_scheduled_h: float = 0.0,
    of_record: bool = False,
) -> Facts:
    """The facts in which attempts become runs by a rule.

    Args:
        of: `long` for the runs that were scheduled for long enough; `failed` for those of which
            the infrastructure failed an attempt.
    """
    rule.check()
    return facts.under(
        run_rule=rule,
        run_gap_s=int(rule.gap_h * SECONDS_PER_HOUR),
        runs_of=of,
        run_min_gpus=min_gpus,
        run_min_scheduled_s=min_scheduled_h * SECONDS_PER_HOUR,
        of_record=of_record,
    )


def jobs_of_runs(facts: Facts, rule: RunRule) -> dict[str, RunJobs]:
    """By attempt, the jobs of its run, for runs of several jobs of which one failed."""
    every = under_rule(facts, rule, of="failed").under(selection=Selection(), every_cluster=True)
    found = every.rows("resubmitted")
    members: dict[int, list[tuple[str, str]]] = defaultdict(list)
    clusters: dict[int, str] = {}
    for row in found:
        members[row["run"]].append((row["attempt_id"], row["job_id"]))
        clusters[row["run"]] = row["cluster"]
    jobs: dict[str, RunJobs] = {}
    for run, attempts in members.items():
        one = RunJobs(clusters[run], tuple(dict.fromkeys(job_id for _, job_id in attempts)))
        jobs.update((attempt_id, one) for attempt_id, _ in attempts)
    return jobs


def with_run_jobs(facts: Facts, runs: Mapping[str, RunJobs]) -> Facts:
    """The facts that ask about the jobs of some runs too (`failed_jobs_attempts`)."""
    jobs = {(run.cluster, job_id) for run in runs.values() for job_id in run.job_ids}
    return facts.under(run_jobs=tuple(sorted(jobs)))


@made("run_jobs", (("cluster", "VARCHAR"), ("job_id", "VARCHAR")), takes=("run_jobs",))
def _run_jobs(facts: Facts) -> Rows:
    """One row is a job of a run of several jobs that a question is about."""
    jobs: Rows = facts.given("run_jobs")
    return jobs


@made("run_keys", (), reads=("run_keys_long", "run_keys_failed"), takes=("runs_of",))
def _run_keys(facts: Facts) -> str:
    """The keys of the runs that are asked for."""
    return facts.table(f"run_keys_{facts.given('runs_of')}")


@made(
    "run_attempts",
    (),
    reads=("attempts", "het_attempts", "run_attempts_recorded", "allocations", "moved_attempts"),
    takes=("of_record", "logs_end_us", "small", "het_jobs", "all_listed"),
)
def _run_attempts(facts: Facts) -> str:
    """All that ran, by the scheduler or by the record."""
    if facts.given("of_record"):
        return facts.table("run_attempts_recorded")
    return facts.under(selection=Selection(), since_us=None, until_us=None).table("chosen")


_TIMES = {column.name for column in ATTEMPTS.columns if column.kind is Kind.TIME}
_OF_RECORD = ("cluster", "attempt_id", "job_id", "name", "state")


@made(
    "run_own_ids",
    (("attempt_id", "VARCHAR"), ("own_id", "VARCHAR")),
    reads=("attempts", "run_attempts"),
    takes=("run_rule", "of_record"),
)
def _own_ids(facts: Facts) -> Rows | str:
    """The run id that the user gives each attempt: a column, or a pattern in the comment."""
    rule: RunRule = facts.given("run_rule")
    of_record = facts.given("of_record")
    column, pattern = rule.id_column, rule.comment_pattern
    if of_record:  # a record has no comment
        column, pattern = column if column in _OF_RECORD else None, None
    if column is None and pattern is None:
        return []
    own = "NULL"
    if column is not None:
        stored = f"{column}_us" if column in _TIMES else column
        own = f'CAST("{stored}" AS VARCHAR)'
    if pattern is not None:
        own = f"coalesce({own}, nullif(regexp_extract(comment, $pattern, 1), ''))"
    source = facts.table("run_attempts" if of_record else "attempts")
    sql = f"SELECT attempt_id, {own} AS own_id FROM {source} WHERE {own} IS NOT NULL"  # noqa: S608
    return facts.keep("run_own_ids", sql, view=False, bound={"pattern": pattern} if pattern else {})


@made("asked_clusters", (("cluster", "VARCHAR"),), takes=("selection",))
def _asked_clusters(facts: Facts) -> Rows:
    """The names of the selected clusters; none where all are."""
    return [(name,) for name in facts.given("selection").cluster]


# -- Chains of jobs that their owner made with `--dependency`: each waits for the one before it ---
#
# The commonest way to train for longer than a time limit is a job that submits its successor, or
# ten jobs of one name submitted at once. A chain is one task, although each job of it may
# COMPLETE.

# the waits for an end; `after` waits for a beginning and joins nothing
_AFTER_END = ("afterany", "afternotok", "afterok", "aftercorr")
_CONDITION = re.compile(r"\s*([a-z]+)((?::[^:,?()]+)*)(?:\([^)]*\))?\s*")
_ID = re.compile(r"(\d+(?:_\d+)?(?:\+\d+)?)")

JobKey = tuple[str, str]
_Row = Mapping[str, Any]
_Owner = tuple[str, str, str]
# when it was submitted, its id as numbers, the job, and when it ended
_Place = tuple[int, tuple[int, ...], JobKey, int | None]


@dataclass(frozen=True, slots=True)
class Dependency:
    """What a job waits for: ends of jobs by id, and of whatever has its name (`singleton`)."""

    job_ids: tuple[str, ...]
    is_singleton: bool


def parse_dependency(text: str, job_id: str = "") -> Dependency:
    """What a dependency names, as Slurm writes it.

    Args:
        job_id: of the job that waits; a task of an array waits for the same task (`aftercorr`).

    Source:
        man sbatch, --dependency.
    """
    ids: list[str] = []
    is_singleton = False
    for part in re.split(r"[,?]", text):
        found = _CONDITION.fullmatch(part)
        if found is None:
            continue
        kind = found[1]
        is_singleton = is_singleton or kind == "singleton"
        if kind in _AFTER_END:
            named = [each[0] for each in map(_ID.match, found[2].split(":")[1:]) if each]
            task = job_id.partition("_")[2]
            corresponds = kind == "aftercorr" and task.isdigit()
            ids += [f"{each}_{task}" if corresponds else each for each in named]
    return Dependency(tuple(dict.fromkeys(ids)), is_singleton)


def chains(facts: Facts) -> dict[JobKey, JobKey]:
    """Jobs of a chain, each with the chain's first job; cluster and id of both.

    A job continues the one that it waits for where user and name are the same. By `singleton` it
    continues the job of its user and name that was submitted last before it, if that had not ended
    when it was submitted: who submits the next slice only after the last has ended gains nothing
    from the word, and uses it to keep a nightly job from running twice.
    """
    return {
        (row["cluster"], row["job_id"]): (row["cluster"], row["chain"])
        for row in facts.rows("chained")
    }


@made(
    "chained",
    [(name, "VARCHAR") for name in ("cluster", "job_id", "chain", "chain_dir")],
    reads=("waiting_jobs", "awaited_jobs"),
)
def _chained(facts: Facts) -> Rows:
    """Jobs of a chain with the id of its first job and that job's folder."""
    rows, asked = _waiting(facts)
    if not rows:
        return []
    named = _jobs(facts.rows("awaited_jobs"))
    by_owner = _by_owner(named)
    links: dict[JobKey, JobKey] = {}
    for key, one in asked.items():
        before = list(_by_id(key, rows[key], one, named))
        if one.is_singleton:
            before += _by_name(key, rows[key], by_owner)
        if before:
            links[key] = max(before, key=lambda job: named[job]["submit_us"])
    return [
        (*job, root[1], named[root]["work_dir"] if root in named else None)
        for job, root in _first_of(links).items()
    ]


@made("awaited_ids", [("cluster", "VARCHAR"), ("job_id", "VARCHAR")], reads=("waiting_jobs",))
def _awaited_ids(facts: Facts) -> Rows:
    """The jobs that others wait for by id."""
    _, asked = _waiting(facts)
    return sorted({(key[0], each) for key, one in asked.items() for each in one.job_ids})


@made(
    "awaited_names",
    [("cluster", "VARCHAR"), ("user", "VARCHAR"), ("name", "VARCHAR")],
    reads=("waiting_jobs",),
)
def _awaited_names(facts: Facts) -> Rows:
    """Users and names of the singletons."""
    rows, asked = _waiting(facts)
    return sorted({_owner(key, rows[key]) for key, one in asked.items() if one.is_singleton})


def _waiting(facts: Facts) -> tuple[dict[JobKey, dict[str, Any]], dict[JobKey, Dependency]]:
    """Each job that waits for others, and what for."""
    rows = _jobs(facts.rows("waiting_jobs"))
    return rows, {key: parse_dependency(row["dependency"], key[1]) for key, row in rows.items()}


def _jobs(rows: Iterable[_Row]) -> dict[JobKey, dict[str, Any]]:
    """One row for each job: its first submission, its last end (None while it is open)."""
    jobs: dict[JobKey, dict[str, Any]] = {}
    for row in rows:
        known = jobs.setdefault((row["cluster"], row["job_id"]), dict(row))
        known["submit_us"] = min(known["submit_us"], row["submit_us"])
        if "end_us" in row:
            ends = known["end_us"], row["end_us"]
            known["end_us"] = None if None in ends else max(ends)
    return jobs


def _by_id(
    key: JobKey, row: _Row, dependency: Dependency, named: Mapping[JobKey, _Row]
) -> Iterator[JobKey]:
    """Jobs of the same user and name that a job waits for by their ids."""
    for job_id in dependency.job_ids:
        other = named.get((key[0], job_id))
        if other is not None and job_id != key[1] and _owner(key, row) == _owner(key, other):
            yield key[0], job_id


def _owner(key: JobKey, row: _Row) -> _Owner:
    return key[0], row["user"], row["name"]


def _by_owner(named: Mapping[JobKey, _Row]) -> dict[_Owner, list[_Place]]:
    """The jobs of each user and name in the order of their submission, with their ends."""
    found: dict[_Owner, list[_Place]] = defaultdict(list)
    for key, row in named.items():
        found[_owner(key, row)].append((row["submit_us"], _number(key[1]), key, row["end_us"]))
    return {owner: sorted(jobs, key=itemgetter(0, 1)) for owner, jobs in found.items()}


def _by_name(key: JobKey, row: _Row, by_owner: Mapping[_Owner, list[_Place]]) -> Iterator[JobKey]:
    """The job of that name submitted last before, where it had not ended when this one was."""
    jobs = by_owner.get(_owner(key, row), [])
    at = bisect_left(jobs, (row["submit_us"], _number(key[1])), key=itemgetter(0, 1))
    if at:
        _, _, before, end = jobs[at - 1]
        if end is None or end > row["submit_us"]:
            yield before


def _number(job_id: str) -> tuple[int, ...]:
    """Order of ids: jobs submitted within one second have ids that grow."""
    return tuple(int(digits) for digits in re.findall(r"\d+", job_id))


def _first_of(links: Mapping[JobKey, JobKey]) -> dict[JobKey, JobKey]:
    """Every job of each chain with the first of its chain."""
    followers = Counter(links.values())
    kept = {job: before for job, before in links.items() if followers[before] == 1}
    first: dict[JobKey, JobKey] = {}
    for job in kept:
        path = [job]
        while (before := kept.get(path[-1])) is not None and before not in path:
            if before in first:
                before = first[before]
                path.append(before)
                break
            path.append(before)
        first |= dict.fromkeys(path, path[-1])
    return first


# -- who was preempted so that a failed job could restart: from the controller's log, or by a rule
# The log is certain: an event of check `slurmctld`, code `PREEMPTED`, names the job that was
# preempted and the one it made room for. The rule is for logs that lack it: an attempt that ended
# PREEMPTED at most `rule_window_s` before a restart began, on one of the restart's nodes, was
# preempted for it. A restart is the first attempt of a job after one that failed, or that of the
# next job of its run, where the owner submitted it again.


CLOCK_SLACK_S = 2


# cluster and job id


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
