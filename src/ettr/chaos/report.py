"""What was done to a command, and how it ended. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """One fault as it was carried out.

    Attributes:
        planned_s: Seconds since the start at which it was due; `at_s`: at which it was done.
        what: What was done, in words, or why nothing was.
        hit: Whether there was a target.
    """

    planned_s: float
    at_s: float
    fault: str
    what: str
    hit: bool


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """What was done to a command, and how it ended.

    Attributes:
        status: Its exit status; negative for a signal.
        not_reached: Faults that were due after its end.
    """

    command: tuple[str, ...]
    status: int | None
    wall_s: float
    done: tuple[InjectedFault, ...]
    not_reached: int
    timed_out: bool

    @property
    def survived(self) -> bool:
        """Whether the command ended with status 0."""
        return self.status == 0 and not self.timed_out

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "command": list(self.command),
            "status": self.status,
            "survived": self.survived,
            "timed_out": self.timed_out,
            "wall_s": round(self.wall_s, 3),
            "faults_not_reached": self.not_reached,
            "faults": [
                {
                    "planned_s": round(one.planned_s, 3),
                    "at_s": round(one.at_s, 3),
                    "fault": one.fault,
                    "what": one.what,
                    "hit": one.hit,
                }
                for one in self.done
            ],
        }
