"""Heterogeneous jobs: one job in several parts, which Slurm accounts for one by one.

The store keeps one row for each part, as the log has it (`100+0`, `100+1`). Whoever counts jobs,
failures or runs wants one row for each submission of the whole: job `100` with the nodes and GPUs
of all parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ettr.facts.facts import EPOCH, Facts
from ettr.facts.files import made
from ettr.facts.stored import kept, narrow_columns, selected
from ettr.tables import TABLES
from ettr.tables.rows import attempt_id
from ettr.tables.schemas import ATTEMPTS

# parts are submitted and requeued together, but not always within one second
SAME_SUBMISSION_US = 5_000_000

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
_JOINED = ("node_list", "excluded_nodes", "gpu_type")
PARTS_HELD_S = {"n_nodes": "parts_node_s", "n_gpus": "parts_gpu_s"}
"""Added columns of `attempts`, by what they count: seconds that parts of different length held."""
_COLUMNS = (
    *narrow_columns(ATTEMPTS).items(),
    *((name, "DOUBLE") for name in PARTS_HELD_S.values()),
)

_Row = dict[str, Any]
JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class HetJobs:
    """The heterogeneous jobs of a store."""

    wholes: tuple[_Row, ...] = ()
    ids: Mapping[JobKey, str] = field(default_factory=dict)
    whole_of: Mapping[str, str] = field(default_factory=dict)

    def job_of(self, job_id: str) -> str:
        """The id of the job that an id means: `100+1`, `101` and `cluster/100+1` are job 100."""
        cluster, slash, part = job_id.rpartition("/")
        jobs = {
            job
            for (of, each), job in self.ids.items()
            if each == part and (of == cluster or not slash)
        }
        return f"{cluster}{slash}{jobs.pop()}" if len(jobs) == 1 else job_id


def het_jobs_of(facts: Facts) -> HetJobs:
    """The heterogeneous jobs of a store, put together from the parts of each submission.

    The whole has the nodes and GPUs of all parts, and runs as long as the longest. Where parts ran
    for different times, what they held is less than that product: the columns of `PARTS_HELD_S`
    have it, null elsewhere.
    """
    rows = facts.rows("het_parts")
    if not rows:
        return HetJobs()
    wholes: list[_Row] = []
    whole_of: dict[str, str] = {}
    for parts in _submissions(rows):
        whole = _whole(parts)
        wholes.append(whole)
        whole_of |= {part["attempt_id"]: whole["attempt_id"] for part in parts}
    return HetJobs(tuple(wholes), _ids(rows, facts.rows("plain_ids")), whole_of)


def _submissions(rows: Iterable[_Row]) -> Iterable[list[_Row]]:
    """The parts of each submission of each job, the leader first."""
    by_job: dict[JobKey, list[_Row]] = defaultdict(list)
    for row in rows:
        by_job[row["cluster"], row["het_job_id"]].append(row)
    for parts in by_job.values():
        parts.sort(key=lambda row: (row["submit_us"], _offset(row)))
        together: list[_Row] = []
        for part in parts:
            again = any(part["job_id"] == other["job_id"] for other in together)
            late = together and part["submit_us"] - together[-1]["submit_us"] > SAME_SUBMISSION_US
            if together and (again or late):
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
    job_id, submit_us = leader["het_job_id"], min(part["submit_us"] for part in parts)
    is_open = any(part["end_us"] is None for part in parts)
    elapsed_s, differ = _elapsed(parts)
    suspended_s = _largest(parts, "suspended_s")
    submit = EPOCH + timedelta(microseconds=submit_us)
    return {
        **leader,
        **{name: worst[name] for name in _ENDING},
        **{name: _total(parts, name) for name in _SUMS},
        **{sums: _held_s(parts, name) if differ else None for name, sums in PARTS_HELD_S.items()},
        **{name: _listed(parts, name) for name in _JOINED},
        **{name: _largest(parts, name) for name in ("time_limit_s", "restarts", "eligible_us")},
        "attempt_id": attempt_id(leader["cluster"], job_id, submit),
        "job_id": job_id,
        "submit_us": submit_us,
        "start_us": min(_known(parts, "start_us"), default=None),
        "end_us": None if is_open else max(part["end_us"] for part in parts),
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


def _ids(rows: Iterable[_Row], plain: Iterable[_Row]) -> dict[JobKey, str]:
    """The job of each id of a part; ids that another job has too stay that job's."""
    ids: dict[JobKey, str] = {}
    for row in rows:
        for part in (row["job_id"], row["job_id_raw"]):
            if part and part != row["het_job_id"]:
                ids[row["cluster"], part] = row["het_job_id"]
    for row in plain:
        ids.pop((row["cluster"], row["job_id"]), None)
    return ids


@made("het_wholes", _COLUMNS, reads=("het_parts",), takes=("het_jobs",))
def _het_wholes(facts: Facts) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name, _ in _COLUMNS) for row in facts.given("het_jobs").wholes]


@made("het_attempts", (("part_id", "VARCHAR"), ("whole_id", "VARCHAR")), takes=("het_jobs",))
def _het_attempts(facts: Facts) -> list[tuple[object, ...]]:
    return list(facts.given("het_jobs").whole_of.items())


@made(
    "het_ids",
    (("cluster", "VARCHAR"), ("part", "VARCHAR"), ("job", "VARCHAR")),
    takes=("het_jobs",),
)
def _het_ids(facts: Facts) -> list[tuple[object, ...]]:
    return [(*key, job) for key, job in facts.given("het_jobs").ids.items()]


@made("het_sure_ids", (("part", "VARCHAR"), ("job", "VARCHAR")), takes=("het_jobs",))
def _het_sure_ids(facts: Facts) -> list[tuple[object, ...]]:
    """Ids of parts that just one cluster has, for records that name no cluster."""
    jobs: dict[str, list[str]] = defaultdict(list)
    for (_, part), job in facts.given("het_jobs").ids.items():
        jobs[part].append(job)
    return [(part, found[0]) for part, found in jobs.items() if len(found) == 1]


def _whole_table(table: str, build: Callable[[Facts, str], str]) -> None:
    """Register rows of a stored table in which parts of heterogeneous jobs go by their whole."""
    source = f"parts_{table}" if table in ("attempts", "allocations") else f"named_{table}"

    def make(facts: Facts) -> str:
        rows = facts.table(source)
        if not facts.given("het_jobs").wholes:
            return rows
        return kept(facts, f"whole_{table}", build(facts, rows), table)

    helpers = ("het_wholes", "het_attempts", "het_ids", "het_sure_ids")
    made(f"whole_{table}", (), reads=(source, *helpers), takes=("het_jobs", "small"))(make)


def _attempts(facts: Facts, rows: str) -> str:
    wholes = facts.table("het_wholes")
    nulls = ", ".join(f'CAST(NULL AS DOUBLE) AS "{name}"' for name in PARTS_HELD_S.values())
    columns = ", ".join(f'w."{name}"' for name, _ in _COLUMNS)
    return (
        f"SELECT {selected(ATTEMPTS, 'r')}, {nulls} FROM {rows} r WHERE r.het_job_id IS NULL "
        f"UNION ALL SELECT {columns} FROM {wholes} w"
    )


def _allocations(facts: Facts, rows: str) -> str:
    changed = {"attempt_id": "coalesce(h.whole_id, r.attempt_id)"}
    return (
        f"SELECT {selected(TABLES['allocations'], 'r', changed)} FROM {rows} r "
        f"LEFT JOIN {facts.table('het_attempts')} h ON r.attempt_id = h.part_id"
    )


def _events(facts: Facts, rows: str) -> str:
    ids = facts.table("het_ids")
    changed = {
        "job_id": "coalesce(a.job, r.job_id)",
        "related_job_id": "coalesce(b.job, r.related_job_id)",
    }
    return (
        f"SELECT {selected(TABLES['events'], 'r', changed)} FROM {rows} r "
        f"LEFT JOIN {ids} a ON r.cluster = a.cluster AND r.job_id = a.part "
        f"LEFT JOIN {ids} b ON r.cluster = b.cluster AND r.related_job_id = b.part"
    )


def _progress(facts: Facts, rows: str) -> str:
    """A record that names no cluster means the only one it can."""
    changed = {"job_id": "coalesce(a.job, s.job, r.job_id)"}
    return (
        f"SELECT {selected(TABLES['progress'], 'r', changed)} FROM {rows} r "
        f"LEFT JOIN {facts.table('het_ids')} a ON r.cluster = a.cluster AND r.job_id = a.part "
        f"LEFT JOIN {facts.table('het_sure_ids')} s ON r.cluster IS NULL AND r.job_id = s.part"
    )


_whole_table("attempts", _attempts)
_whole_table("allocations", _allocations)
_whole_table("events", _events)
_whole_table("progress", _progress)
for _name in TABLES.keys() - {"attempts", "allocations", "events", "progress"}:
    made(f"whole_{_name}", (), reads=(f"named_{_name}",))(
        lambda facts, name=f"named_{_name}": facts.table(name)  # type: ignore[misc]
    )
