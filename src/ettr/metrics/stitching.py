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

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.facts import Facts, made
from ettr.facts.files import Rows
from ettr.metrics.dependencies import JobKey
from ettr.selection import Selection
from ettr.tables import ATTEMPTS
from ettr.tables.columns import Kind
from ettr.units import SECONDS_PER_HOUR

GAP_H = 12.0


@dataclass(frozen=True, slots=True)
class RunRule:
    """How attempts become runs.

    `id_column` names a column of `attempts` that holds the user's run id; `comment_pattern` is a
    regular expression whose first group is the run id within the comment.
    """

    gap_h: float = GAP_H
    id_column: str | None = None
    comment_pattern: str | None = None

    def check(self) -> None:
        """Accept the rule.

        Raises:
            UsageError: a negative gap, a column that is not there, a pattern without a group.
        """
        import re

        if self.gap_h < 0:
            raise UsageError(f"gap_h {self.gap_h} is negative; give hours, such as 12")
        if self.id_column is not None and self.id_column not in ATTEMPTS.names:
            raise UsageError(
                f"no column {self.id_column!r} in `attempts`; give one of "
                f"{', '.join(ATTEMPTS.names)}"
            )
        if self.comment_pattern is None:
            return
        try:
            groups = re.compile(self.comment_pattern).groups
        except re.error as error:
            raise UsageError(f"comment pattern {self.comment_pattern!r}: {error}") from error
        if not groups:
            raise UsageError(
                f"comment pattern {self.comment_pattern!r} has no group; put the run id in "
                "brackets, as in run=([a-z0-9-]+)"
            )


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
    reads=("attempts", "het_attempts", "run_attempts_recorded"),
    takes=("of_record", "logs_end_us", "small", "het_jobs"),
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
