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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ibis

from ettr.errors import UsageError
from ettr.facts.het_jobs import PARTS_HELD_S
from ettr.metrics.dependencies import JobKey, chains
from ettr.metrics.instants import fetch, has_rows
from ettr.metrics.selected import held_s
from ettr.tables import ATTEMPTS
from ettr.tables.ibis_time import epoch_s
from ettr.tables.materialize import as_view, materialize
from ettr.units import SECONDS_PER_HOUR

GAP_H = 12.0
_KEY = ("cluster", "run_key")
_RUN = (*_KEY, "run_part", "run_job")
"""The columns that name a run."""
_OF_KEYS = frozenset(
    {
        *("cluster", "attempt_id", "job_id", "user", "name", "state", "n_gpus", "n_nodes"),
        *("submit", "eligible", "start", "end", "elapsed_s", "suspended_s", "work_dir", "comment"),
    }
)
"""The columns of attempts from which runs are made."""


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


def stitched(
    attempts: ibis.Table,
    progress: ibis.Table,
    rule: RunRule,
    *,
    min_gpus: int = 1,
    min_scheduled_h: float = 0.0,
    keys: ibis.Table | None = None,
    near: ibis.Table | None = None,
) -> ibis.Table:
    """Attempts that ran, each with the run it belongs to and its times in seconds since 1970.

    Added columns: run_key, run_part, run_job (the three name a run), start_s, end_s, suspended_s,
    submit_s, eligible_s, queue_s (eligible or left by its predecessor, and not running), between_s
    (not even submitted), concurrent_s (from its start, while one that began before it still ran). A
    running attempt ends where the log was taken.

    Args:
        attempts: all attempts.
        progress: training-side events of jobs whose cluster is known; only their run and job ids
            are used.
        rule: how attempts become runs.
        min_gpus: leave out attempts of fewer GPUs (0 keeps those without any).
        min_scheduled_h: leave out attempts that even with all that might belong to their run ran
            for less; cheap, and spares most of the work.
        keys: only attempts with these values of cluster and run_key.
        near: leave out attempts that can be in no run with one of these; it spares most of the
            work where these are few.
    """
    rule.check()
    first_of = chains(attempts)
    attempts = _narrow(attempts, rule)
    some = attempts if near is None else _of_same_owners(attempts, progress, rule, near)
    # no view: it is used twice, and the engine would make the keys of all attempts twice
    keyed = _keyed(some, progress, rule, min_gpus, first_of, attempts)
    if min_scheduled_h > 0:
        held = keyed.group_by("cluster", "run_key").aggregate(
            lambda t: (t["end_s"] - t["start_s"]).sum().name("held_s")
        )
        long = held.filter(held["held_s"] >= min_scheduled_h * SECONDS_PER_HOUR)
        keyed = keyed.semi_join(long.view(), ["cluster", "run_key"]).select(*keyed.columns)
    if keys is not None:
        keyed = keyed.semi_join(keys, ["cluster", "run_key"]).select(*keyed.columns)
    return _queued(_in_runs(keyed, rule.gap_h, bool(first_of)))


@dataclass(frozen=True, slots=True)
class RunJobs:
    """The jobs of one run in the order in which they first ran."""

    cluster: str
    job_ids: tuple[str, ...]

    @property
    def last(self) -> tuple[str, str]:
        """Cluster and id of the last of them."""
        return self.cluster, self.job_ids[-1]


def jobs_of_runs(
    attempts: ibis.Table, progress: ibis.Table, rule: RunRule, asked: ibis.Table
) -> dict[str, RunJobs]:
    """By attempt, the jobs of its run, for the runs of some attempts that have several jobs.

    Args:
        attempts: all attempts.
        progress: training-side events, as `stitched` takes them.
        rule: how attempts become runs.
        asked: attempts whose runs are asked for, by `attempt_id`.
    """
    rule.check()
    first_of = chains(attempts)
    attempts = _narrow(attempts, rule)
    some = materialize(attempts.semi_join(asked, "attempt_id"))
    near = _of_same_owners(attempts, progress, rule, some)
    keyed = as_view(_keyed(near, progress, rule, 0, first_of, attempts))
    # few are asked for: the keys of all would be made a second time
    own = _keyed(some, progress, rule, 0, first_of, attempts)
    keys = own.select("cluster", "run_key").distinct()
    # to sort by numbers costs a third of what it costs by the keys, which are long texts
    keys = materialize(keys.mutate(run_number=ibis.row_number()))
    several = keyed.inner_join(keys, ["cluster", "run_key"])
    several = several.select(*keyed.columns, "run_number")
    parts = _in_runs(several, rule.gap_h, bool(first_of), ("run_number",))
    parts = _with_several_jobs(parts)
    rows = fetch(parts.order_by("start_s", "attempt_id"), *_RUN, "attempt_id", "job_id")
    by_run: dict[tuple[object, ...], list[tuple[str, str]]] = defaultdict(list)
    *run_of, attempt_ids, job_ids = (column.to_pylist() for column in rows.columns)
    members_of = zip(attempt_ids, job_ids, strict=True)
    for run, member in zip(zip(*run_of, strict=True), members_of, strict=True):
        by_run[run].append(member)
    found: dict[str, RunJobs] = {}
    for (cluster, *_), members in by_run.items():
        jobs = RunJobs(str(cluster), tuple(dict.fromkeys(job_id for _, job_id in members)))
        found.update((attempt_id, jobs) for attempt_id, _ in members)
    return found


def _narrow(attempts: ibis.Table, rule: RunRule) -> ibis.Table:
    """The columns of attempts that runs need: each one more is translated at every step."""
    columns = {*_OF_KEYS, PARTS_HELD_S["n_gpus"], rule.id_column}
    return attempts.select(*(name for name in attempts.columns if name in columns))


def _with_several_jobs(parts: ibis.Table) -> ibis.Table:
    """Attempts of the runs that have several jobs."""
    run = ibis.window(group_by=["run_number", "run_part", "run_job"])
    parts = parts.mutate(
        first_job=parts["job_id"].min().over(run), last_job=parts["job_id"].max().over(run)
    )
    return parts.filter(parts["first_job"] != parts["last_job"])


def _of_same_owners(
    attempts: ibis.Table, progress: ibis.Table, rule: RunRule, asked: ibis.Table
) -> ibis.Table:
    """Attempts among which are all of the runs of those asked for.

    The keys of runs are long texts: they are made only where user and name, or the job, are those
    of an attempt that is asked for. Ids of runs may join attempts of any owner.
    """
    if rule.id_column or rule.comment_pattern or has_rows(progress):
        return attempts
    owners = materialize(asked.select("cluster", "user", "name", "job_id").distinct())
    is_named = attempts["user"].notnull() & attempts["name"].notnull()
    by_name = attempts.filter(is_named).semi_join(owners, ["cluster", "user", "name"])
    by_job = attempts.filter(~is_named).semi_join(owners, ["cluster", "job_id"])
    return ibis.union(by_name, by_job, distinct=False)


def _in_runs(
    keyed: ibis.Table, gap_h: float, has_chains: bool, named_by: Sequence[str] = _KEY
) -> ibis.Table:
    """Attempts of one key in parts (a gap or an end between them) and, in a sweep, by job.

    `named_by`: the columns that make a key.
    """
    key = list(named_by)
    order = ["start_s", "attempt_id"]
    if has_chains:
        keyed, order = _with_places(keyed, key), ["place_s", "place_id", *order]
    before = ibis.window(group_by=key, order_by=order, rows=(None, -1))
    along = ibis.window(group_by=key, order_by=order)
    task = keyed["chain"].fill_null(keyed["job_id"])
    prior_end_s = keyed["end_s"].max().over(before)
    other_task = task.lag().over(along) != task
    goes_on = (keyed["chain"].lag().over(along) == keyed["chain"]).fill_null(False)
    late = keyed["submit_s"] > prior_end_s + int(gap_h * SECONDS_PER_HOUR)
    over = (keyed["state"].lag().over(along) == "COMPLETED") & other_task
    breaks = keyed["by_name"] & ~goes_on & (late | over)
    meets = keyed["by_name"] & other_task & (keyed["start_s"] < prior_end_s)
    # few steps: each translates all columns again
    ordered = keyed.mutate(
        task=task,
        breaks=ibis.cases((breaks.fill_null(False), 1), else_=0),
        meets=ibis.cases((meets.fill_null(False), 1), else_=0),
    )
    parts = ordered.mutate(
        run_part=ordered["breaks"]
        .sum()
        .over(ibis.window(group_by=key, order_by=order, rows=(None, 0)))
    )
    swept = parts["meets"].max().over(ibis.window(group_by=[*key, "run_part"]))
    rest = {"chain", "task", "breaks", "meets", *order[:-2]}
    return parts.select(
        *(name for name in parts.columns if name not in rest),
        run_job=ibis.cases((swept == 1, parts["task"]), else_=""),
    )


def _with_places(keyed: ibis.Table, key: list[str]) -> ibis.Table:
    """A chain stands where its first job began, so that its attempts follow each other."""
    began_s = keyed["start_s"].min().over(ibis.window(group_by=[*key, "chain"]))
    return keyed.mutate(
        place_s=ibis.cases((keyed["chain"].notnull(), began_s), else_=keyed["start_s"]),
        place_id=keyed["chain"].fill_null(""),
    )


def _keyed(
    attempts: ibis.Table,
    progress: ibis.Table,
    rule: RunRule,
    min_gpus: int,
    first_of: Mapping[JobKey, JobKey],
    every: ibis.Table,
) -> ibis.Table:
    """Attempts that ran, each with the key of its run; `every` attempt may be first in a chain."""
    ran = attempts.filter(attempts["start"].notnull())
    if min_gpus > 0:
        ran = ran.filter(ran["n_gpus"] >= min_gpus)
    ran = ran.left_join(_recorded_runs(progress), ["cluster", "job_id"])
    ran = _with_chain(ran, every, first_of)
    nothing = ibis.null("string")
    column = ran[rule.id_column].cast("string") if rule.id_column else nothing
    pattern = nothing
    if rule.comment_pattern:
        pattern = ran["comment"].re_extract(rule.comment_pattern, 1).nullif("")
    run_id = ibis.coalesce(column, pattern, ran["recorded_run"])
    named = ran["user"].notnull() & ran["name"].notnull()
    by_name = run_id.isnull() & named
    folder = ibis.cases((ran["chain"].notnull(), ran["chain_dir"]), else_=ran["work_dir"])
    by_task = _joined("name", ran["user"], ran["name"], folder.fill_null(""))
    by_job = _joined("job", ran["job_id"], ran["user"].fill_null(""))
    run_key = ibis.cases((run_id.notnull(), _joined("id", run_id)), (named, by_task), else_=by_job)
    start_s = epoch_s(ran["start"])
    submit_s = epoch_s(ran["submit"])
    suspended_s = ran["suspended_s"].cast("float64")
    running_s = ran["elapsed_s"] + suspended_s.fill_null(0.0)
    end_s = epoch_s(ran["end"]).fill_null(start_s + running_s.cast("int64"))
    keyed = ran.select(
        "cluster",
        "attempt_id",
        "job_id",
        "user",
        "name",
        "state",
        "elapsed_s",
        "n_gpus",
        "n_nodes",
        "chain",
        gpu_s=held_s(ran, "n_gpus"),
        run_key=run_key,
        by_name=by_name,
        start_s=start_s,
        end_s=end_s,
        # Slurm's time run is that from start to end without the time suspended.
        suspended_s=suspended_s.fill_null(ibis.greatest(end_s - start_s - ran["elapsed_s"], 0.0)),
        submit_s=submit_s,
        eligible_s=epoch_s(ran["eligible"]).fill_null(submit_s),
    )
    # The filter stands here, not above, because Ibis cannot join again what is still a join.
    return keyed.filter(keyed["elapsed_s"] > 0)


def _with_chain(
    ran: ibis.Table, attempts: ibis.Table, first_of: Mapping[JobKey, JobKey]
) -> ibis.Table:
    """Added columns: `chain`, the id of the first job of a chain, and `chain_dir`, its folder."""
    if not first_of:
        return ran.mutate(chain=ibis.null("string"), chain_dir=ibis.null("string"))
    roots = sorted(set(first_of.values()))
    first = ibis.memtable(
        {"cluster": [root[0] for root in roots], "job_id": [root[1] for root in roots]},
        schema={"cluster": "string", "job_id": "string"},
    )
    folders = attempts.semi_join(first, ["cluster", "job_id"])
    rows = fetch(folders, "cluster", "job_id", "work_dir").to_pylist()
    folder_of = {(row["cluster"], row["job_id"]): row["work_dir"] for row in rows}
    columns = {
        "cluster": [job[0] for job in first_of],
        "job_id": [job[1] for job in first_of],
        "chain": [root[1] for root in first_of.values()],
        "chain_dir": [folder_of.get(root) for root in first_of.values()],
    }
    known = ibis.memtable(columns, schema=dict.fromkeys(columns, "string"))
    joined = ran.left_join(known, ["cluster", "job_id"])
    return joined.select(*ran.columns, "chain", "chain_dir")


def _recorded_runs(progress: ibis.Table) -> ibis.Table:
    """The training run of each job whose run id `progress` shows in several jobs."""
    shared = progress.select("cluster", "run_id", "job_id").distinct()
    several = (
        shared.group_by("cluster", "run_id")
        .having(lambda t: t.count() > 1)
        .aggregate(jobs=ibis._.count())
    )
    return (
        shared.semi_join(several, ["cluster", "run_id"])
        .group_by("cluster", "job_id")
        .aggregate(recorded_run=ibis._["run_id"].min())
    )


def _joined(kind: str, *columns: ibis.expr.types.StringColumn) -> ibis.expr.types.StringColumn:
    """A key of that kind, its parts separated by a character that no log holds."""
    key = ibis.literal(kind)
    for column in columns:
        key = key + "\x1f" + column
    return key


def _queued(runs: ibis.Table) -> ibis.Table:
    """The first attempt queues from when it was eligible, a later one from its predecessor's end.

    A later one that was submitted only after that end left a time in between, which is neither
    queue nor run.
    """
    before = ibis.window(
        group_by=["cluster", "run_key", "run_part", "run_job"],
        order_by=["start_s", "attempt_id"],
        rows=(None, -1),
    )
    runs = runs.mutate(left_s=runs["end_s"].max().over(before))
    later_s = ibis.greatest(runs["submit_s"], runs["left_s"])
    ready_s = ibis.cases((runs["left_s"].isnull(), runs["eligible_s"]), else_=later_s)
    between_s = ibis.greatest(runs["submit_s"] - runs["left_s"], 0)
    concurrent_s = ibis.greatest(ibis.least(runs["left_s"], runs["end_s"]) - runs["start_s"], 0)
    return runs.mutate(
        queue_s=ibis.greatest(runs["start_s"] - ready_s, 0),
        between_s=ibis.cases((runs["left_s"].isnull(), 0), else_=between_s),
        concurrent_s=ibis.cases((runs["left_s"].isnull(), 0), else_=concurrent_s),
    )
