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
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ettr.facts import Facts, made
from ettr.facts.files import Rows
from ettr.metrics.run_rules import RunRule
from ettr.selection import Selection
from ettr.tables import ATTEMPTS
from ettr.tables.columns import Kind
from ettr.units import SECONDS_PER_HOUR


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
