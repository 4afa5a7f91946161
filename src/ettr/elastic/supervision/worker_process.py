"""The processes that a supervisor starts, and who of them holds which slot."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass, field, replace

from ettr.elastic.membership.rendezvous import Cause, Heartbeat, Membership
from ettr.elastic.supervision.nodes import Node, ProcessEnd, WorkerProcess
from ettr.elastic.supervision.states import WORKER_TRANSITIONS, WorkerState, transition
from ettr.errors import UsageError

_REAP_S = 10.0  # a killed process that is not gone by then hangs in the kernel, in one last call


@dataclass(slots=True)
class Worker:
    """One process, a rank or a spare."""

    name: str
    process: WorkerProcess
    exit: ProcessEnd
    state: WorkerState
    heard_s: float
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    n_heartbeats: int = 0
    behind_since_s: float | None = None
    loss: int | None = None
    node: str = ""

    @classmethod
    def start(cls, name: str, node: Node, *, state: WorkerState, now_s: float) -> Worker:
        """Start a process on a node."""
        process, end = node.start(name)
        return cls(name, process, end, state, now_s, node=node.identity.name)

    def enter(self, state: WorkerState) -> None:
        """Go to another state."""
        self.state = transition(self.state, state, WORKER_TRANSITIONS, f"worker {self.name}")

    def kill(self) -> None:
        """Send SIGKILL; harmless where the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def reap(self) -> None:
        """Wait for the process, which was killed.

        No longer than 10 s, should it hang on a dead disk or mount.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_REAP_S)


@dataclass(slots=True)
class Roster:
    """Every process that was started, and the membership of the current generation.

    Attributes:
        losses: In the order in which they were noticed; the status of a process that has not ended
            yet is 0.
    """

    membership: Membership
    workers: dict[str, Worker] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    best_step: int = -1

    @property
    def ranks(self) -> list[Worker]:
        """The processes that hold the slots, in the order of the slots."""
        return [self.workers[name] for name in self.membership.workers]

    @property
    def spares(self) -> list[Worker]:
        """The processes that wait for a slot, the oldest first."""
        return [one for one in self.workers.values() if one.state is WorkerState.SPARE]

    def lose(self, worker: Worker, loss: Loss) -> None:
        """Note that a rank was lost; its process was killed."""
        worker.enter(WorkerState.KILLED)
        worker.loss = len(self.losses)
        self.losses.append(loss)

    def settle(self) -> None:
        """Note how lost processes ended, once the kernel has finished with them."""
        for worker in self.workers.values():
            if worker.state is not WorkerState.KILLED:
                continue
            status = worker.process.poll()
            if status is not None and worker.loss is not None:
                self.losses[worker.loss] = replace(self.losses[worker.loss], status=status)
                worker.enter(WorkerState.ENDED)
                worker.exit.close()


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """How a group is watched.

    Attributes:
        heartbeat_timeout_s: A rank without a heartbeat for this long is killed and replaced.
        leave_s: So is one whose loop stays in a generation for this long after the next began;
            None: 15 s longer than the rank's own `collective_s`, within which a wait for the dead
            ends by itself.
        failed_grace_s: Seconds after the first rank reports that a collective failed, until all
            are called to a new generation though none died. A rank that does not leave the old one
            within as long again, or has sent no heartbeat until then, is hung.
        n_nodes: Nodes that training begins with; further ones that join are spare nodes.
        node_timeout_s: A node that is silent for so long is lost. It ends its own processes after
            0.6 of this time without an answer, before their slots are given away.
        node_wait_s: How long a lost slot waits for a node with room, and a start for its nodes.
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
        """Check the values. Raises UsageError: a value is out of range; all problems at once."""
        problems = []
        for name in ("spares", "max_failures", "max_idle_failures"):
            if getattr(self, name) < 0:
                problems.append(f"{name}: {getattr(self, name)} was given; give 0 or more")
        if self.n_nodes < 1:
            problems.append(f"n_nodes: {self.n_nodes} was given; give 1 or more")
        times = ("heartbeat_timeout_s", "leave_s", "failed_grace_s", "node_timeout_s")
        for name in (*times, "node_wait_s"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                problems.append(f"{name}: {getattr(self, name)} was given; give a number above 0")
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
