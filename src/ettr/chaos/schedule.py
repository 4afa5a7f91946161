"""Faults on a seeded schedule: what will happen, when, and to which target.

    schedule(seed, kinds, every_s, for_s)   the faults, the same for the same seed
    run.run(command, plan)                  runs a command under them and reports

A fault names its target by a number in 0 to 1, so that the schedule is complete before anything
runs; which process or file that is depends on what is there at that moment. Standard library
only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ettr.errors import UsageError


class Fault(StrEnum):
    """What is done to a run."""

    KILL = "kill"
    STOP = "stop"
    FLIP = "flip"
    TRUNCATE = "truncate"
    FILL = "fill"
    LIMIT = "limit"


MEANINGS = {
    Fault.KILL: "SIGKILL to one process below the command",
    Fault.STOP: "SIGSTOP to one process, SIGCONT after a while (a hang; a zombie that wakes)",
    Fault.FLIP: "one bit of one file",
    Fault.TRUNCATE: "one file cut to a part of its length",
    Fault.FILL: "a ballast file that takes the room of a folder's disk, for a while",
    Fault.LIMIT: "one process may write no file further than a limit (RLIMIT_FSIZE), for a while",
}
ON_FILES = (Fault.FLIP, Fault.TRUNCATE, Fault.FILL)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault.

    target: which process or file, as a share of the list of them. place: where in the file, as a
    share of its bytes; for a limit, the share of the largest file.
    """

    at_s: float
    fault: Fault
    target: float
    place: float


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """A schedule and its bounds.

    Attributes:
        faults: In the order of their times.
        folder: Whose files are flipped, cut and crowded out; None: no such fault.
        match: Only processes whose command line holds this; empty: every one below the command.
        hold_s: How long a stop, a full disk or a limit lasts.
        ballast_bytes: Most bytes that a ballast file takes.
    """

    faults: tuple[PlannedFault, ...]
    folder: str | None = None
    match: str = ""
    hold_s: float = 5.0
    ballast_bytes: int = 1 << 28


def schedule(
    seed: int,
    kinds: Sequence[Fault | str],
    *,
    every_s: float,
    for_s: float,
    after_s: float = 0.0,
    at_most: int | None = None,
) -> tuple[PlannedFault, ...]:
    """Draw faults at exponential distances (a Poisson process), of kinds with equal chances.

    Args:
        seed: of the schedule.
        kinds: one or more of `Fault`; name one twice to draw it twice as often.
        every_s: mean seconds between two faults.
        for_s: length of the schedule.
        after_s: seconds of quiet before it.
        at_most: number of faults; None: as many as fall into the time.

    Raises:
        UsageError: an option is out of range; all problems at once.
    """
    problems = []
    known = {str(fault) for fault in Fault}
    unknown = [str(kind) for kind in kinds if str(kind) not in known]
    if not kinds:
        problems.append(f"no fault was given; name one or more of {', '.join(sorted(known))}")
    if unknown:
        problems.append(
            f"fault: {', '.join(unknown)} was given; it is one of {', '.join(sorted(known))}"
        )
    for name, value in (("every_s", every_s), ("for_s", for_s)):
        if not value > 0:
            problems.append(f"{name}: {value} was given; it lies above 0")
    if after_s < 0:
        problems.append(f"after_s: {after_s} was given; it is 0 or more")
    if problems:
        raise UsageError("chaos: " + "; ".join(problems))
    rng = random.Random(seed)  # noqa: S311 - a schedule is to be repeated, not to be secret
    found: list[PlannedFault] = []
    at_s = after_s
    while at_most is None or len(found) < at_most:
        at_s += rng.expovariate(1 / every_s)
        if at_s > after_s + for_s:
            break
        kind = Fault(str(kinds[rng.randrange(len(kinds))]))
        found.append(PlannedFault(at_s, kind, rng.random(), rng.random()))
    return tuple(found)
