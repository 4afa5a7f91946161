"""What a supervisor is given, and what it returns. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from ettr.elastic.membership.rendezvous import Cause
from ettr.errors import UsageError


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """How a group is watched.

    Attributes:
        spares: Warm processes that wait for a slot.
        heartbeat_timeout_s: A rank without a heartbeat for this long is killed and replaced.
        leave_s: So is one whose loop stays in a generation for this long after the next began;
            None: 15 s longer than the rank's own `collective_s`, within which a wait for the dead
            ends by itself.
        failed_grace_s: Seconds after the first rank reports that a collective failed, until all are
            called to a new generation though none died. A rank that does not leave the old one
            within as long again, or has sent no heartbeat until then, is hung.
        n_nodes: Nodes that training begins with; further ones that join are spare nodes.
        node_timeout_s: A node that is silent for so long is lost. It ends its own processes after
            0.6 of this time without an answer, before their slots are given away.
        node_wait_s: How long a lost slot waits for a node with room, and a start for its nodes.
        max_failures: More losses end the run.
        max_idle_failures: More failures in a row, without a step between them, end it too.
    """

    spares: int = 1
    heartbeat_timeout_s: float = 30.0
    leave_s: float | None = None
    failed_grace_s: float = 20.0
    max_failures: int = 64
    max_idle_failures: int = 3
    n_nodes: int = 1
    node_timeout_s: float = 10.0
    node_wait_s: float = 600.0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: a value is out of range; all problems at once.
        """
        problems = []
        for name in ("spares", "max_failures", "max_idle_failures"):
            if getattr(self, name) < 0:
                problems.append(f"{name}: {getattr(self, name)} was given; it is 0 or more")
        if self.n_nodes < 1:
            problems.append(f"n_nodes: {self.n_nodes} was given; it is 1 or more")
        times = ("heartbeat_timeout_s", "leave_s", "failed_grace_s", "node_timeout_s")
        for name in (*times, "node_wait_s"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                problems.append(f"{name}: {getattr(self, name)} was given; it lies above 0")
        if problems:
            raise UsageError("supervisor: " + "; ".join(problems))


@dataclass(frozen=True, slots=True)
class Loss:
    """One slot that lost its process: when and how the supervisor noticed."""

    generation: int
    slot: int
    worker: str
    pid: int
    cause: Cause
    status: int
    noticed_s: float
    step: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class SupervisorReport:
    """How a supervised run ended.

    Attributes:
        reason: Why it did not finish; None where every rank trained to the end.
        stopped: Whether it was asked to end, and every rank has saved the same step.
    """

    world: int
    generations: int
    losses: tuple[Loss, ...]
    pids: tuple[int, ...]
    wall_s: float
    reason: str | None
    stopped: bool = False

    @property
    def finished(self) -> bool:
        """Whether every rank trained to the end."""
        return self.reason is None
