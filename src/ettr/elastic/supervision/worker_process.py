"""The processes that a supervisor starts, and who of them holds which slot."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass, field, replace

from ettr.elastic.membership.rendezvous import Heartbeat, Membership
from ettr.elastic.supervision.nodes import Node, ProcessEnd, WorkerProcess
from ettr.elastic.supervision.report import Loss
from ettr.elastic.supervision.states import WORKER_TRANSITIONS, WorkerState, transition

_REAP_S = 10.0  # a killed process that is not gone by then hangs in the kernel, in one last call


@dataclass(slots=True)
class Worker:
    """One process, a rank or a spare.

    Attributes:
        heartbeat: The latest that arrived, at `heard_s` (monotonic).
        n_heartbeats: How many have arrived.
        behind_since_s: Since when its generation is an older one (monotonic); None: it is not.
        loss: Index of its loss in the roster.
        node: Name of the node that it runs on.
    """

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
        """Go to another state.

        Raises:
            TransitionError: it does not follow from this one.
        """
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
        workers: By name, in the order in which they were started.
        losses: In the order in which they were noticed; the status of a process that has not ended
            yet is 0.
        best_step: The furthest step of any rank so far.
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
