"""Jobs and faults that are replayed from the logs of a cluster instead of drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from ettr.sim.cluster.owners import Owners
from ettr.sim.cluster.workload import Job

_NEVER_S = 10**12


@dataclass(frozen=True, slots=True)
class ReplayedJob:
    """One job of the logs; times in seconds from the beginning of the simulation.

    Attributes:
        job_id: As its scheduler showed it.
        name: That its owner gave it.
        submit_s: When it was submitted.
        eligible_s: When it might have started.
        gpus: That it asked for, whole nodes where they are more than those of one.
        work_s: Its length if nothing interrupts it.
        limit_s: Time limit of an attempt.
        outcome: How it ends, by the numbers of `workload`.
        user: Place of its owner in `Owners.users`.
        account: Place in `Owners.accounts`.
        priority: Place of its quality of service in the scenario.
    """

    job_id: str
    name: str
    submit_s: int
    eligible_s: int
    gpus: int
    work_s: int
    limit_s: int
    outcome: int
    user: int
    account: int
    priority: int


@dataclass(frozen=True, slots=True)
class ReplayedFault:
    """One fault of the logs.

    Attributes:
        time_s: When it arose, in seconds from the beginning of the simulation.
        node: Number of its node.
        symptom: Of one of the fault processes, whose effects it has.
        repair_s: How long the repair took; None where no log says, and it is drawn.
    """

    time_s: int
    node: int
    symptom: str
    repair_s: int | None


@dataclass(frozen=True, slots=True)
class Replay:
    """What is replayed, and from where.

    Attributes:
        jobs: In order of submission; None where jobs are drawn.
        owners: Of these jobs; None where jobs are drawn.
        faults: In order of time; None where faults are drawn.
        notes: What was replayed and what was left out, a sentence each.
    """

    jobs: tuple[ReplayedJob, ...] | None = None
    owners: Owners | None = None
    faults: tuple[ReplayedFault, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def what(self) -> tuple[str, ...]:
        """What is replayed: jobs, faults, both, or neither."""
        return tuple(name for name in ("jobs", "faults") if getattr(self, name) is not None)

    @property
    def digest(self) -> str:
        """SHA-256 of what is replayed."""
        return hashlib.sha256(repr((self.jobs, self.owners, self.faults)).encode()).hexdigest()


DRAWN = Replay()
"""Nothing is replayed."""


def replayed_jobs(jobs: tuple[ReplayedJob, ...], end_s: int) -> Iterator[Job]:
    """The jobs that are submitted before the end, as the scheduler takes them."""
    for one in jobs:
        if one.submit_s >= end_s:
            return
        yield Job(
            0, 0, one.gpus, one.work_s, one.limit_s, one.outcome, one.user, one.priority,
            _NEVER_S, one.submit_s, one.eligible_s, account=one.account, label=one.job_id,
            name=one.name,
        )  # fmt: skip
