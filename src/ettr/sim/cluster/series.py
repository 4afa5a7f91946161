"""Series: jobs that are submitted one after another, as a team's runs on its reserved nodes are."""

from __future__ import annotations

from collections import defaultdict, deque

from ettr.sim.cluster.workload import Job


class Turns:
    """Whose turn it is in each series.

    A turn belongs to what a job works on: it is kept while the job is requeued, or submitted again
    under another id. Whoever would have come meanwhile waits unsubmitted, in order of time.
    """

    def __init__(self) -> None:
        self._holders: dict[str, int] = {}
        self._unsubmitted: dict[str, deque[Job]] = defaultdict(deque)

    def is_turn_of(self, job: Job) -> bool:
        """Whether a job may be submitted now; otherwise `next_after` gives it in its turn."""
        holder = self._holders.get(job.series)
        if holder is None or holder == job.task:
            return True
        self._unsubmitted[job.series].append(job)
        return False

    def take(self, job: Job) -> None:
        """A job of a series has been submitted."""
        self._holders[job.series] = job.task

    def next_after(self, job: Job) -> Job | None:
        """The job that comes as one is over; None if none waits."""
        del self._holders[job.series]
        waiting = self._unsubmitted[job.series]
        return waiting.popleft() if waiting else None
