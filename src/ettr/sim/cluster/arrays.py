"""Job arrays: many tasks submitted at once, of one owner, size, priority and time limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_sharing import ArrayClass
from ettr.sim.cluster.workload import (
    SHORT_OF_TIME,
    TIMEOUT,
    Job,
    TaskArray,
    ends_of,
    geometric,
    lengths_s,
    restart_allowance_s,
    with_writes_s,
)
from ettr.sim.streams import stream

MOST_TASKS = 4_000_000
"""As many as Slurm's MaxArraySize can be."""


def with_tasks(
    scenario: ClusterScenario, seed: int, day: int, jobs: Iterable[Job]
) -> Iterator[Job]:
    """The jobs of a day, those that are arrays as their tasks.

    Args:
        scenario: Of the cluster.
        seed: Of the simulation.
        day: Counted from the first, which is 0.
        jobs: As drawn without arrays.
    """
    if not scenario.arrays:
        yield from jobs
        return
    kinds = {one.gpus: one for one in scenario.arrays}
    singles = list(jobs)
    rng = stream(seed, "arrays", day)
    is_array, sizes = rng.random(len(singles)), rng.random(len(singles))
    for i, job in enumerate(singles):
        kind = kinds.get(job.gpus)
        if kind is None or is_array[i] >= kind.share:
            yield job
        else:
            n_tasks = min(geometric(kind.mean_tasks, float(sizes[i])), MOST_TASKS)
            # a stream for each job: whether another one is an array moves no task of it
            of_job = stream(seed, f"array of day {day}", i)
            yield from _tasks(scenario, job, kind, n_tasks, of_job)


def _tasks(
    scenario: ClusterScenario, job: Job, kind: ArrayClass, n: int, rng: np.random.Generator
) -> Iterator[Job]:
    """Tasks of one array: lengths and ends of their own, one limit that their owner chose."""
    work_s = lengths_s(scenario, rng, np.full(n, job.job_class))
    outcome = ends_of(scenario, rng, np.full(n, job.job_class))
    length_s = with_writes_s(scenario, work_s, np.full(n, job.gpus))
    limit_s = _limit_s(scenario, rng, job, length_s, outcome == TIMEOUT)
    too_long = np.maximum(work_s, math.ceil(limit_s / SHORT_OF_TIME))
    work_s = np.where(outcome == TIMEOUT, too_long, work_s)
    array = TaskArray(n, kind.most_running)
    columns = (work_s.tolist(), outcome.tolist())
    for k, (task_work_s, task_outcome) in enumerate(zip(*columns, strict=True)):
        yield Job(
            0, 0, job.gpus, task_work_s, limit_s, task_outcome, job.user, job.priority,
            job.patience_s, job.submit_s, job.eligible_s, account=job.account, array=array,
            array_task=k + 1, job_class=job.job_class,
        )  # fmt: skip


def _limit_s(
    scenario: ClusterScenario, rng: np.random.Generator, job: Job, length_s: NDArray[np.int64],
    asks_too_little: NDArray[np.bool_],
) -> int:  # fmt: skip
    """So many times the longest task that is to come to its end."""
    factor = math.exp(rng.random() * math.log(scenario.outcomes.longest_limit_factor))
    fits = length_s[~asks_too_little]
    longest_s = float(fits.max()) if fits.size else float(length_s.max()) * SHORT_OF_TIME
    allowed_s = longest_s * factor + float(restart_allowance_s(scenario, np.array([job.gpus]))[0])
    return max(1, min(math.ceil(allowed_s), scenario.scheduling.longest_job_s))


def shown_tasks(tasks: Sequence[int], most_running: int) -> str:
    """Tasks of an array that have not begun, as Slurm writes them: `[1-3,7%2]`.

    Args:
        tasks: Their numbers, ascending.
        most_running: N of `%N`; 0 for none.
    """
    runs = []
    for _, run in groupby(enumerate(tasks), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        runs.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    limit = f"%{most_running}" if most_running else ""
    return f"[{','.join(runs)}{limit}]"
