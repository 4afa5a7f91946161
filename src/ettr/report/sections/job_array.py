"""A whole array, one row a task."""

from __future__ import annotations

from ettr.analysis.job_arrays import ArrayTask, JobArray
from ettr.report.numbers import DASH, duration, moment, number
from ettr.report.section import Section, TextTable
from ettr.words import by_number, counted

LISTED_TASKS = 100


def job_array_section(array: JobArray) -> Section:
    """Tasks with their end states; those that the infrastructure failed come first."""
    owner = f", {array.user}" if array.user else ""
    title = f"Array {array.array_job_id} on {array.cluster}: {array.name or 'unnamed'}{owner}"
    states = ", ".join(f"{one.tasks:,} {one.state}" for one in array.states)
    lead = f"{counted(len(array.tasks), 'task')}: {states}. " + by_number(
        "{n} [attempt was|attempts were] failed by the infrastructure.", array.failures
    )
    ranked = sorted(array.tasks, key=lambda task: task.failures == 0)
    shown = ranked[:LISTED_TASKS]
    notes = [
        f"`ettr explain STORE {shown[0].job_id}` shows all that was seen around the ends of a task."
    ]
    left = len(ranked) - len(shown)
    if left:
        notes.append(
            by_number("{n} more [task is|tasks are] listed with --json or --csv only.", left)
        )
    rows = tuple(_row(task) for task in shown)
    headers = (
        *("task", "attempts", "last state", "started, UTC", "ended, UTC", "ran", "GPUs"),
        *("failures", "cause", "node blamed"),
    )
    return Section(
        "job-array",
        title,
        lead,
        tables=(TextTable("Tasks", headers, rows, frozenset({1, 6, 7}), LISTED_TASKS),),
        notes=tuple(notes),
    )


def _row(task: ArrayTask) -> tuple[str, ...]:
    return (
        task.job_id,
        number(task.attempts),
        task.state,
        DASH if task.start is None else moment(task.start),
        DASH if task.end is None else moment(task.end),
        DASH if task.start is None else duration(task.elapsed_s),
        DASH if task.n_gpus is None else number(task.n_gpus),
        number(task.failures),
        task.symptom or DASH,
        task.node or DASH,
    )
