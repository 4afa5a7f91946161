"""A whole array: its tasks with how each ended, where a job id is that of an array."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ettr.analysis.analysis import Analysis
from ettr.errors import UsageError
from ettr.facts.facts import at, to_moment


@dataclass(frozen=True, slots=True)
class ArrayTask:
    """One task of an array."""

    job_id: str
    attempts: int
    state: str
    start: datetime | None
    end: datetime | None
    n_gpus: int | None
    elapsed_s: float
    failures: int
    symptom: str | None
    node: str | None


@dataclass(frozen=True, slots=True)
class EndState:
    """How many tasks ended so."""

    state: str
    tasks: int


@dataclass(frozen=True, slots=True)
class JobArray:
    """An array: its tasks in order, and how many ended in which state."""

    cluster: str
    array_job_id: str
    name: str | None
    user: str | None
    states: tuple[EndState, ...]
    failures: int
    tasks: tuple[ArrayTask, ...]


def job_array(analysis: Analysis, job_id: str) -> JobArray | None:
    """The array of that id; None where a job has the id itself, or no array has it.

    Args:
        job_id: such as 7, or cluster/7 where several clusters share the id.

    Raises:
        UsageError: several clusters have an array of that id.
    """
    cluster, _, plain = job_id.rpartition("/")
    facts = analysis.facts.under(job_id=plain, job_cluster=cluster or None)
    rows = facts.rows("history_tasks")
    if not rows or not all(row["is_task"] and row["job_id"] != plain for row in rows):
        return None
    clusters = sorted({row["cluster"] for row in rows})
    if len(clusters) > 1:
        forms = ", ".join(f"{name}/{plain}" for name in clusters)
        raise UsageError(f"array {plain} is in {len(clusters)} clusters; say which: {forms}")
    return _array(plain, rows, analysis.facts.rows("failures"))


def _array(
    array_job_id: str, attempts: list[dict[str, Any]], failures: list[dict[str, Any]]
) -> JobArray:
    order = sorted(attempts, key=_submitted)
    ids = set(_ids(order))
    verdicts = {row["attempt_id"]: row for row in failures if row["attempt_id"] in ids}
    by_task: dict[str, list[dict[str, Any]]] = {}
    for row in order:
        by_task.setdefault(row["job_id"], []).append(row)
    tasks = tuple(
        _task(job_id, rows, [verdicts[one] for one in _ids(rows) if one in verdicts])
        for job_id, rows in sorted(by_task.items(), key=lambda one: _place(one[0]))
    )
    states = Counter(task.state for task in tasks)
    last = order[-1]
    return JobArray(
        cluster=last["cluster"],
        array_job_id=array_job_id,
        name=last["name"],
        user=last["user"],
        states=tuple(EndState(state, n) for state, n in states.most_common()),
        failures=len(verdicts),
        tasks=tasks,
    )


def _ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["attempt_id"] for row in rows]


def _submitted(row: dict[str, Any]) -> tuple[bool, int, str]:
    return row["submit_us"] is None, row["submit_us"] or 0, row["attempt_id"]


def _place(job_id: str) -> tuple[int, str]:
    """Tasks by number; what is pending is one row, such as 7_[3-9], by its first number."""
    first = job_id.rpartition("_")[2].strip("[]").split("-")[0].split(",")[0]
    return (int(first) if first.isdecimal() else 0, job_id)


def _task(job_id: str, rows: list[dict[str, Any]], verdicts: list[dict[str, Any]]) -> ArrayTask:
    last = rows[-1]
    starts_us = [row["start_us"] for row in rows if row["start_us"] is not None]
    verdict = verdicts[-1] if verdicts else None
    return ArrayTask(
        job_id=job_id,
        attempts=len(rows),
        state=last["state"],
        start=at(min(starts_us)) if starts_us else None,
        end=to_moment(last["end_us"]),
        n_gpus=last["n_gpus"],
        elapsed_s=sum(row["elapsed_s"] or 0.0 for row in rows),
        failures=len(verdicts),
        symptom=None if verdict is None else verdict["symptom"],
        node=None if verdict is None else verdict["node"],
    )
