"""Heterogeneous jobs: one job in several parts, which Slurm accounts for one by one.

The store keeps one row for each part, as the log has it (`100+0`, `100+1`). Whoever counts jobs,
failures or runs wants one row for each submission of the whole: job `100` with the nodes and GPUs
of all parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import ibis
import pyarrow as pa
from ibis.expr.types import Table

from ettr.tables.rows import attempt_id
from ettr.tables.schemas import ATTEMPTS

# parts are submitted and requeued together, but not always within one second
SAME_SUBMISSION = timedelta(seconds=5)

# of the parts' states the first here is that of the whole: an open one, else the worst end
_STATES = (
    *("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "CONFIGURING", "PENDING"),
    *("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "OUT_OF_MEMORY", "FAILED", "TIMEOUT"),
    *("DEADLINE", "PREEMPTED", "REQUEUED", "CANCELLED", "COMPLETED"),
)
_STATE_RANK = {state: rank for rank, state in enumerate(_STATES)}
# what the part with the worst end says of it
_ENDING = (
    *("state", "exit_code", "exit_signal", "derived_exit_code", "derived_exit_signal"),
    *("step_state", "source", "file_id", "line"),
)
_SUMS = ("n_nodes", "n_cpus", "n_gpus", "requested_nodes", "requested_gpus")
_JOINED = ("node_list", "excluded_nodes")
PARTS_HELD_S = {"n_nodes": "parts_node_s", "n_gpus": "parts_gpu_s"}
"""Added columns of `attempts`, by what they count: seconds that parts of different length held."""

_Row = dict[str, Any]
JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WholeJobs:
    """The tables with each heterogeneous job as one, and the ids under which its parts go.

    Attributes:
        tables: all tables by name.
        ids: cluster and id of a part (`100+1`, or `101` in Slurm's own numbering) to the job's id.
        whole_of: attempt of a part to that of the whole.
    """

    tables: dict[str, Table]
    ids: dict[JobKey, str]
    whole_of: dict[str, str] = field(default_factory=dict)

    def job_of(self, job_id: str) -> str:
        """The id of the job that an id means: `100+1`, `101` and `cluster/100+1` are job 100."""
        cluster, slash, part = job_id.rpartition("/")
        jobs = {
            job
            for (of, each), job in self.ids.items()
            if each == part and (of == cluster or not slash)
        }
        return f"{cluster}{slash}{jobs.pop()}" if len(jobs) == 1 else job_id


def whole_jobs(tables: Mapping[str, Table]) -> WholeJobs:
    """The same tables, where the parts of a heterogeneous job are one job.

    The whole has the nodes and GPUs of all parts, and runs as long as the longest. Where parts ran
    for different times, what they held is less than that product: the columns of `PARTS_HELD_S`
    have it, null elsewhere. Events and progress that name a part name the job.

    Args:
        tables: the store's tables by name: attempts, allocations, events and progress among them.
    """
    attempts = tables["attempts"]
    of_parts = attempts.filter(attempts.het_job_id.notnull())
    rows = of_parts.to_pyarrow().to_pylist()
    if not rows:
        return WholeJobs(dict(tables), {})
    wholes: list[_Row] = []
    whole_of: dict[str, str] = {}
    for parts in _submissions(rows):
        whole = _whole(parts)
        wholes.append(whole)
        whole_of |= {part["attempt_id"]: whole["attempt_id"] for part in parts}
    ids = _ids(rows, attempts)
    schema = ATTEMPTS.arrow_schema
    for name in PARTS_HELD_S.values():
        schema = schema.append(pa.field(name, pa.float64()))
    others = attempts.filter(attempts.het_job_id.isnull())
    others = others.mutate(**{name: ibis.null("float64") for name in PARTS_HELD_S.values()})
    made = ibis.memtable(
        pa.Table.from_pylist(wholes, schema=schema).select(list(others.columns))
    ).cast(others.schema())
    return WholeJobs(
        {
            **tables,
            "attempts": ibis.union(others, made, distinct=False),
            "allocations": _of_wholes(tables["allocations"], whole_of),
            "events": _renamed(tables["events"], ids, ("job_id", "related_job_id")),
            "progress": _renamed_progress(tables["progress"], ids),
        },
        ids,
        whole_of,
    )


def _submissions(rows: Iterable[_Row]) -> Iterable[list[_Row]]:
    """The parts of each submission of each job, the leader first."""
    by_job: dict[JobKey, list[_Row]] = defaultdict(list)
    for row in rows:
        by_job[row["cluster"], row["het_job_id"]].append(row)
    for parts in by_job.values():
        parts.sort(key=lambda row: (row["submit"], _offset(row)))
        together: list[_Row] = []
        for part in parts:
            again = any(part["job_id"] == other["job_id"] for other in together)
            if together and (again or part["submit"] - together[-1]["submit"] > SAME_SUBMISSION):
                yield sorted(together, key=_offset)
                together = []
            together.append(part)
        yield sorted(together, key=_offset)


def _offset(row: _Row) -> tuple[int, str]:
    """Order of the parts: 100+2 comes before 100+10."""
    job_id: str = row["job_id"]
    return len(job_id), job_id


def _whole(parts: Sequence[_Row]) -> _Row:
    """One row for the parts of one submission."""
    leader = parts[0]
    worst = min(parts, key=lambda part: _STATE_RANK.get(part["state"], len(_STATES)))
    job_id, submit = leader["het_job_id"], min(part["submit"] for part in parts)
    is_open = any(part["end"] is None for part in parts)
    elapsed_s, differ = _elapsed(parts)
    suspended_s = _largest(parts, "suspended_s")
    return {
        **leader,
        **{name: worst[name] for name in _ENDING},
        **{name: _total(parts, name) for name in _SUMS},
        **{sums: _held_s(parts, name) if differ else None for name, sums in PARTS_HELD_S.items()},
        **{name: _listed(parts, name) for name in _JOINED},
        **{name: _largest(parts, name) for name in ("time_limit_s", "restarts", "eligible")},
        "attempt_id": attempt_id(leader["cluster"], job_id, submit),
        "job_id": job_id,
        "submit": submit,
        "start": min(_known(parts, "start"), default=None),
        "end": None if is_open else max(part["end"] for part in parts),
        "elapsed_s": elapsed_s,
        # a part that ended early was not suspended
        "suspended_s": suspended_s or 0.0 if differ else suspended_s,
        "cancelled_by": worst["cancelled_by"] or _largest(parts, "cancelled_by"),
        "failed_node": worst["failed_node"] or _largest(parts, "failed_node"),
    }


def _known(parts: Iterable[_Row], name: str) -> list[Any]:
    return [part[name] for part in parts if part[name] is not None]


def _largest(parts: Iterable[_Row], name: str) -> Any:
    return max(_known(parts, name), default=None)


def _total(parts: Sequence[_Row], name: str) -> int | None:
    """The sum over all parts; None where one of them is not known."""
    known = _known(parts, name)
    return sum(known) if len(known) == len(parts) else None


def _listed(parts: Iterable[_Row], name: str) -> str | None:
    return ",".join(dict.fromkeys(_known(parts, name))) or None


def _elapsed(parts: Sequence[_Row]) -> tuple[float | None, bool]:
    """Runtime of the part that ran longest, and whether others ran for less."""
    known = _known(parts, "elapsed_s")
    if not known:
        return None, False
    return max(known), min(known) < max(known) or len(known) < len(parts)


def _held_s(parts: Sequence[_Row], name: str) -> float | None:
    """Seconds of nodes or GPUs that the parts held; None where the number of one is not known."""
    if _total(parts, name) is None:
        return None
    return float(sum((part["elapsed_s"] or 0.0) * part[name] for part in parts))


def _ids(rows: Iterable[_Row], attempts: Table) -> dict[JobKey, str]:
    """The job of each id of a part; ids that another job has too stay that job's."""
    ids: dict[JobKey, str] = {}
    for row in rows:
        for part in (row["job_id"], row["job_id_raw"]):
            if part and part != row["het_job_id"]:
                ids[row["cluster"], part] = row["het_job_id"]
    plain = attempts.filter(attempts.het_job_id.isnull())
    plain = plain.filter(plain.job_id.isin(sorted({part for _, part in ids})))
    for row in plain.select("cluster", "job_id").distinct().to_pyarrow().to_pylist():
        ids.pop((row["cluster"], row["job_id"]), None)
    return ids


def _of_wholes(allocations: Table, whole_of: Mapping[str, str]) -> Table:
    known = ibis.memtable(
        {"attempt_id": list(whole_of), "whole_id": list(whole_of.values())},
        schema={"attempt_id": "string", "whole_id": "string"},
    )
    joined = allocations.left_join(known, "attempt_id")
    return joined.mutate(attempt_id=ibis.coalesce(joined.whole_id, joined.attempt_id)).select(
        *allocations.columns
    )


def _renamed(table: Table, ids: Mapping[JobKey, str], columns: Sequence[str]) -> Table:
    """Rows in which those columns name the job, where they named a part of it."""
    for column in columns:
        joined = table.left_join(_id_table(ids, column), ["cluster", column])
        table = _with_job(joined, column).select(*table.columns)
    return table


def _renamed_progress(progress: Table, ids: Mapping[JobKey, str]) -> Table:
    """The same for progress, where a record that names no cluster means the only one it can."""
    named = _renamed(progress.filter(progress.cluster.notnull()), ids, ("job_id",))
    clusters: dict[str, set[JobKey]] = defaultdict(set)
    for (cluster, part), job in ids.items():
        clusters[part].add((cluster, job))
    sure = {("", part): next(iter(jobs))[1] for part, jobs in clusters.items() if len(jobs) == 1}
    unnamed = progress.filter(progress.cluster.isnull())
    joined = unnamed.left_join(_id_table(sure, "job_id").drop("cluster"), "job_id")
    return ibis.union(named, _with_job(joined, "job_id").select(*progress.columns), distinct=False)


def _id_table(ids: Mapping[JobKey, str], column: str) -> Table:
    return ibis.memtable(
        {
            "cluster": [cluster for cluster, _ in ids],
            column: [part for _, part in ids],
            "whole_job": list(ids.values()),
        },
        schema={"cluster": "string", column: "string", "whole_job": "string"},
    )


def _with_job(joined: Table, column: str) -> Table:
    return joined.mutate(**{column: ibis.coalesce(joined.whole_job, joined[column])})
