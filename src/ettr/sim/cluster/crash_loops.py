"""Crash loops: jobs that fail by their own fault, and that their owners submit again at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.workload import FAILED, Job, geometric
from ettr.sim.streams import stream


def with_crash_loops(
    scenario: ClusterScenario, seed: int, day: int, jobs: Iterable[Job]
) -> Iterator[Job]:
    """The jobs of a day, those that begin a crash loop with all of its tries.

    The number of tries is 2 or more, geometric. Each try does exponential work before it fails,
    and never more than the job would have done: it fails within the time limit that was asked for.

    Args:
        scenario: Of the cluster.
        seed: Of the simulation.
        day: Counted from the first, which is 0.
        jobs: As drawn without crash loops.
    """
    ends = scenario.outcomes
    if not ends.crash_loop_share:
        yield from jobs
        return
    drawn = list(jobs)
    rng = stream(seed, "crash loops", day)
    loops, tries = rng.random(len(drawn)), rng.random(len(drawn))
    for i, job in enumerate(drawn):
        if job.outcome == FAILED and loops[i] < ends.crash_loop_share:
            n_tries = 1 + geometric(ends.mean_crash_loop_tries - 1.0, float(tries[i]))
            # a stream for each job: more tries of one move no draw of another
            of_job = stream(seed, f"crash loop of day {day}", i)
            fails_s = of_job.standard_exponential(n_tries) * ends.mean_crash_loop_s
            works_s = [max(1, round(min(one, job.work_s))) for one in fails_s.tolist()]
            job.work_s, job.later_tries_s = works_s[0], tuple(works_s[1:])
        yield job


def next_try(job: Job) -> Job | None:
    """The job that the owner of a failed one submits, under another id; None if he gives up."""
    if not job.later_tries_s:
        return None
    work_s, *later_s = job.later_tries_s
    return Job(
        0, job.task, job.gpus, work_s, job.limit_s, job.outcome, job.user, job.priority,
        job.patience_s, 0, 0, account=job.account, name=job.name, later_tries_s=tuple(later_s),
        series=job.series,
    )  # fmt: skip
