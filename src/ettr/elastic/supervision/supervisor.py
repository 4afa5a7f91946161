"""The parent of the ranks: it hosts the store, notices the dead and the hung, fills their slots.

A spare runs the same command as every rank and waits, everything imported, until a slot is free.
When a rank dies its slot goes to a spare, the generation is raised, and the survivors regroup in
the same processes. Agents (`agent.py`) do on other nodes what the supervisor orders. The run ends
with the supervisor's own node, and is resumed by starting it again.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ettr.elastic.membership import rendezvous
from ettr.elastic.membership.rendezvous import Cause, Membership
from ettr.elastic.supervision.hang_detector import HangDetector
from ettr.elastic.supervision.node_identity import (
    Meeting,
    NodeIdentity,
    this_node,
    with_interface,
)
from ettr.elastic.supervision.nodes import LocalNode, NodePool
from ettr.elastic.supervision.placement import (
    Place,
    UnplacedSlots,
    first_membership,
    next_membership,
    place_lost,
    sharing_a_node,
)
from ettr.elastic.supervision.report import Loss, SupervisorOptions, SupervisorReport
from ettr.elastic.supervision.states import (
    RUN_TRANSITIONS,
    SupervisionState,
    WorkerState,
    transition,
)
from ettr.elastic.supervision.worker_process import Roster, Worker
from ettr.errors import UsageError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

_POLL_S = 0.01
_HEARTBEAT_POLL_S = 0.25
_SPARE_WAIT_S = 5.0  # a new generation that has made no step by then gets its spare all the same
_ENDING_S = 120.0  # how long ranks may take to end after the training


def supervise(
    command: Sequence[str],
    n_ranks: int,
    *,
    options: SupervisorOptions | None = None,
    environment: Mapping[str, str] | None = None,
    on_event: Callable[[str], None] = lambda _text: None,
    gathering: Gathering | None = None,
) -> SupervisorReport:
    """Run ranks of a command until all have trained to the end; returns what happened.

    Args:
        command: the program and its arguments; it calls `ElasticGroup.from_env().run(train)`.
        n_ranks: number of ranks on each node.
        environment: of the ranks; None: this process's.
        on_event: called with each event, in a sentence.
        gathering: where other nodes join; None: all ranks are on this machine.

    Raises:
        UsageError: no command, or no rank; several nodes and nowhere to join.
    """
    options = options or SupervisorOptions()
    if not command or n_ranks < 1:
        raise UsageError(f"command {list(command)}, {n_ranks} ranks: give a command and 1 or more")
    if gathering is None and options.n_nodes > 1:
        raise UsageError(f"{options.n_nodes} nodes: say where they join (`gathering`)")
    supervisor = Supervisor(command, n_ranks, options, environment, on_event, gathering=gathering)
    return supervisor.run()


@dataclass(frozen=True, slots=True)
class Gathering:
    """How other nodes join a run.

    Attributes:
        meeting: Where; the host is this machine, by an address that all nodes reach.
        listener: Listens there.
        node: This machine.
        token: The secret that agents must know; empty: none.
    """

    meeting: Meeting
    listener: socket.socket
    node: NodeIdentity
    token: str = ""


class Supervisor:
    """One supervised run; see `supervise`.

    Args:
        monotonic: the clock by which ranks are judged.
    """

    def __init__(
        self,
        command: Sequence[str],
        n_ranks: int,
        options: SupervisorOptions,
        environment: Mapping[str, str] | None = None,
        on_event: Callable[[str], None] = lambda _text: None,
        *,
        gathering: Gathering | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = SupervisionState.FORMING
        # Ranks of one machine meet on loopback, whatever its host name resolves to.
        host = "127.0.0.1" if gathering is None else gathering.meeting.host
        self.store = _serve(host)
        self._world = n_ranks * options.n_nodes
        workers = tuple(f"w{slot}" for slot in range(self._world))
        self.roster = Roster(Membership(1, workers, noticed_s=time.time()))
        self._detector = HangDetector(self.store, self.roster, options)
        self._n_ranks, self._options = n_ranks, options
        self._on_event, self._monotonic = on_event, monotonic
        ranks_environment = dict(os.environ if environment is None else environment)
        store = f"{host}:{self.store.port}"
        self._nodes = NodePool(
            LocalNode(
                this_node({}, None, None) if gathering is None else gathering.node,
                n_ranks,
                list(command),
                {
                    **with_interface(ranks_environment, host),
                    rendezvous.ENV_STORE: store,
                    rendezvous.ENV_PROTOCOL: rendezvous.PROTOCOL,
                },
            ),
            listener=None if gathering is None else gathering.listener,
            store=store,
            timeout_s=options.node_timeout_s,
            token="" if gathering is None else gathering.token,
            on_event=on_event,
        )
        self._idle_failures = 0
        self._newcomers: tuple[str, ...] = ()
        self._unplaced = UnplacedSlots()
        self._regrouped_s = self._listened_s = self._finishing_s = 0.0

    def run(self) -> SupervisorReport:
        """Start, watch, and leave no process behind."""
        begin_s = time.monotonic()
        reason: str | None = "interrupted"
        try:
            reason = self._gather()
            if reason is None:
                self.publish(self._first_membership())
                for node in self.roster.membership.nodes:
                    self._start(WorkerState.RANK, node)
                self._restock(at_once=True)
                reason = self._watch()
        finally:
            pids = tuple(worker.process.pid for worker in self.roster.workers.values())
            self._stop_all()
            self._nodes.dismiss(finished=reason is None, reason=reason or "")
        return SupervisorReport(
            self._world,
            self.roster.membership.generation,
            tuple(self.roster.losses),
            pids,
            time.monotonic() - begin_s,
            reason,
        )

    def publish(self, membership: Membership) -> None:
        """Call the ranks to a generation."""
        # The membership before the number, so that whoever sees the number finds it.
        key = rendezvous.membership_key(membership.generation)
        self.store.set(key, membership.to_json())
        self.store.set(rendezvous.GENERATION, str(membership.generation))
        self.roster.membership = membership

    def find_hung(self) -> dict[str, float]:
        """Read the heartbeats; ranks that hang -> for how many seconds."""
        if self._all_trained():
            return {}  # a process that is ending sends no heartbeat any more
        now_s = self._monotonic()
        if self._detector.listen(now_s) and self.state is SupervisionState.FORMING:
            self._enter(SupervisionState.TRAINING)
        silent = self._detector.silent(now_s)
        stuck = self._detector.stuck(now_s)
        for name in stuck.keys() - silent.keys():
            generation = self.roster.workers[name].heartbeat.generation
            self._on_event(f"{name} does not leave generation {generation}")
        return stuck | silent

    def count_failure(self) -> str | None:
        """Count a failure; returns why the run is given up, or None."""
        self._idle_failures = (
            0 if self.state is SupervisionState.TRAINING else self._idle_failures + 1
        )
        self._enter(SupervisionState.FORMING)
        if self._idle_failures > self._options.max_idle_failures:
            return f"{self._idle_failures} failures in a row without a step between them"
        return None

    def regroup(
        self,
        lost: Mapping[int, str],
        cause: Cause,
        *,
        noticed_s: float | None = None,
        hung_s: float = 0.0,
    ) -> None:
        """Fill the lost slots and call all ranks to the next generation.

        Slots for which no node has room wait, and all ranks with them.

        Args:
            lost: slot -> the worker that held it.
        """
        now_s = self._monotonic()
        pending = self._unplaced.merged(
            lost, cause, time.time() if noticed_s is None else noticed_s, hung_s, now_s
        )
        before = self.roster.membership
        places = self._place(pending.slots)
        if places is None:
            if not self._unplaced.slots:
                self.store.set(rendezvous.waiting_key(before.generation), "1")
                slots = ", ".join(map(str, pending.slots))
                self._on_event(f"no node has room for slots {slots}: waiting for one to join")
            self._unplaced = pending
            return
        self._unplaced = UnplacedSlots()
        newcomers = {slot: self._newcomer(place.node) for slot, place in places.items()}
        for newcomer in newcomers.values():
            newcomer.heard_s = now_s
        names = {slot: newcomer.name for slot, newcomer in newcomers.items()}
        self.publish(next_membership(before, pending, names, places))
        self._say_regrouped(places)
        self._regrouped_s = now_s
        self._detector.regrouped(now_s)
        self._newcomers = tuple(newcomer.name for newcomer in newcomers.values())

    def _gather(self) -> str | None:
        """Wait until enough nodes have joined; returns why the run is given up, or None."""
        end_s = self._monotonic() + self._options.node_wait_s
        while len(self._nodes.alive) < self._options.n_nodes:
            if self._monotonic() > end_s:
                return (
                    f"{len(self._nodes.alive)} of {self._options.n_nodes} nodes had joined after "
                    f"{self._options.node_wait_s:g} s"
                )
            self._nodes.poll()
            time.sleep(_POLL_S)
        return None

    def _first_membership(self) -> Membership:
        nodes = [node.identity for node in self._nodes.alive.values()][: self._options.n_nodes]
        membership, apart = first_membership(
            self.roster.membership,
            [node.name for node in nodes],
            [node.rack or node.name for node in nodes],
            self._n_ranks,
        )
        if len(nodes) > 1 and not apart:
            self._on_event("some buddies share a rack: the loss of a rack loses both copies")
        return membership

    def _place(self, slots: Iterable[int]) -> dict[int, Place] | None:
        """A place for each slot; None: there is not room for all."""
        capacity = {name: node.n_ranks for name, node in self._nodes.alive.items()}
        warm = Counter(spare.node for spare in self.roster.spares if not spare.exit.ending())
        return place_lost(self.roster.membership, frozenset(slots), capacity, warm)

    def _say_regrouped(self, places: Mapping[int, Place]) -> None:
        membership = self.roster.membership
        several = len(set(membership.nodes)) > 1
        filled = ", ".join(
            f"slot {slot}: {membership.workers[slot]}" + (f" on {place.node}" if several else "")
            for slot, place in sorted(places.items())
        )
        self._on_event(f"generation {membership.generation}: {filled or 'all ranks'}")
        together = sharing_a_node(membership.nodes, membership.buddy_stride)
        if several and together:
            slots = ", ".join(map(str, together))
            self._on_event(f"slots {slots} share a node with their buddies: its loss loses both")

    def _watch(self) -> str | None:
        """Watch until the run has ended; returns why it was given up, or None."""
        while True:
            self._nodes.poll()
            dead = self._find_dead()
            self.roster.settle()
            self._restock()
            reason = self._act_on_failures(dead) or self._place_waiting()
            if reason is not None:
                self._enter(SupervisionState.GAVE_UP)
                return reason
            if self._finished():
                self._enter(SupervisionState.FINISHED)
                return None
            time.sleep(_POLL_S)

    def _act_on_failures(self, dead: Sequence[str]) -> str | None:
        """Replace the dead and the hung; returns why the run is given up, or None."""
        if self.state is SupervisionState.FINISHING:
            return None
        hung: dict[str, float] = {}
        due = self._monotonic() - self._listened_s >= _HEARTBEAT_POLL_S
        if due and not self._unplaced.slots:
            self._listened_s = self._monotonic()
            hung = self.find_hung()
            if not (dead or hung) and self._detector.wait_for_nobody(self._monotonic()):
                reason = self.count_failure()
                if reason is None:
                    self.regroup({}, Cause.NETWORK)
                return reason
        return self._replace(dead, hung) if dead or hung else None

    def _place_waiting(self) -> str | None:
        """Give slots that wait for a node another chance; returns why the run is given up."""
        waiting = self._unplaced
        if not waiting.slots:
            return None
        if self._place(waiting.slots) is not None:
            self.regroup({}, waiting.cause, noticed_s=waiting.noticed_s, hung_s=waiting.hung_s)
        elif self._monotonic() - waiting.since_s > self._options.node_wait_s:
            slots = ", ".join(map(str, waiting.slots))
            wait_s = self._options.node_wait_s
            return f"no node with room for slots {slots} joined within {wait_s:g} s"
        return None

    def _find_dead(self) -> list[str]:
        # a slot that waits for a node still names the worker that it lost
        ranks = [worker for worker in self.roster.ranks if worker.state is WorkerState.RANK]
        watched = [*ranks, *self.roster.spares]
        dead = [worker.name for worker in watched if worker.exit.ending()]
        # Once all have trained to the end, how a process ends does not matter any more.
        return [] if not dead or self._all_trained() else dead

    def _replace(self, dead: Iterable[str], hung: Mapping[str, float]) -> str | None:
        noticed_s = time.time()
        slots: dict[int, str] = {}
        for name in dict.fromkeys([*dead, *hung]):
            worker = self.roster.workers[name]
            # Fenced before its slot is given away: a stopped process dies of SIGKILL too.
            worker.kill()
            slot = self.roster.membership.slot_of(name)
            if slot is None:
                reason = self._replace_spare(worker)
                if reason is not None:
                    return reason
                continue
            if name in hung:
                worker.reap()
            slots[slot] = name
            self._lose(worker, slot, Cause.HUNG if name in hung else Cause.DIED, noticed_s)
        if not slots:
            return None
        if len(self.roster.losses) > self._options.max_failures:
            n_allowed = self._options.max_failures
            return f"{len(self.roster.losses)} failures; {n_allowed} are allowed"
        reason = self.count_failure()
        if reason is None:
            cause, hung_s = (Cause.HUNG, max(hung.values())) if hung else (Cause.DIED, 0.0)
            self.regroup(slots, cause, noticed_s=noticed_s, hung_s=hung_s)
        return reason

    def _replace_spare(self, spare: Worker) -> str | None:
        status = spare.process.wait()
        spare.enter(WorkerState.ENDED)
        spare.exit.close()
        self._on_event(f"spare {spare.name} ended with status {status}")
        if status not in (-signal.SIGKILL, -signal.SIGTERM):
            return f"spare {spare.name} ended with status {status} before it had a slot"
        if spare.node in self._nodes.alive:
            self._start(WorkerState.SPARE, spare.node)
        return None

    def _lose(self, worker: Worker, slot: int, cause: Cause, noticed_s: float) -> None:
        loss = Loss(
            generation=self.roster.membership.generation,
            slot=slot,
            worker=worker.name,
            pid=worker.process.pid,
            cause=cause,
            status=0,
            noticed_s=noticed_s,
            step=self.roster.best_step,
            node=worker.node,
        )
        self.roster.lose(worker, loss)
        self._on_event(f"slot {slot}: {worker.name} (pid {worker.process.pid}) {cause}")

    def _newcomer(self, node: str) -> Worker:
        """A warm spare of a node, or a process that is started there now."""
        for spare in self.roster.spares:
            if spare.node == node and not spare.exit.ending():
                spare.enter(WorkerState.RANK)
                return spare
        return self._start(WorkerState.RANK, node)

    def _start(self, state: WorkerState, node: str) -> Worker:
        name = f"w{len(self.roster.workers)}"
        worker = Worker.start(name, self._nodes.alive[node], state=state, now_s=self._monotonic())
        self.roster.workers[name] = worker
        return worker

    def _restock(self, *, at_once: bool = False) -> None:
        """Start a node's next spare once the newcomers before have made a step in their slots.

        Its import takes a core for a second or more, which the regrouping must not wait for. A
        node without ranks is a spare node, whose every place is kept warm.
        """
        in_use = self.roster.membership.nodes
        for name, node in self._nodes.alive.items():
            n_spares = sum(spare.node == name for spare in self.roster.spares)
            wanted = self._options.spares if name in in_use else node.n_ranks
            if n_spares >= wanted:
                continue
            if at_once or name not in in_use or self._newcomers_stepped():
                self._start(WorkerState.SPARE, name)

    def _newcomers_stepped(self) -> bool:
        newcomers = [self.roster.workers[name] for name in self._newcomers]
        stepped = all(worker.heartbeat.step >= 0 for worker in newcomers)
        return stepped or self._monotonic() - self._regrouped_s > _SPARE_WAIT_S

    def _all_trained(self) -> bool:
        number = self.roster.membership.generation
        keys = [rendezvous.trained_key(number, slot) for slot in range(self._world)]
        return bool(self.store.check(keys))

    def _finished(self) -> bool:
        """Whether every rank has trained to the end and its process is gone, or late."""
        if self.state is not SupervisionState.FINISHING:
            if not self._all_trained():
                return False
            self.store.set(rendezvous.done_key(self.roster.membership.generation), "1")
            self._enter(SupervisionState.FINISHING)
            self._finishing_s = self._monotonic()
        gone = [worker.process.poll() is not None for worker in self.roster.ranks]
        return all(gone) or self._monotonic() - self._finishing_s > _ENDING_S

    def _stop_all(self) -> None:
        running = [w for w in self.roster.workers.values() if w.process.poll() is None]
        for worker in running:
            worker.kill()
        for worker in running:
            worker.reap()
        self.roster.settle()
        for worker in self.roster.workers.values():
            worker.exit.close()
            if worker.state in (WorkerState.RANK, WorkerState.SPARE):
                worker.enter(WorkerState.ENDED)

    def _enter(self, state: SupervisionState) -> None:
        self.state = transition(self.state, state, RUN_TRANSITIONS, "the run")


def _serve(host: str) -> TCPStore:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store: TCPStore = TCPStore(host, 0, is_master=True, wait_for_workers=False)
    return store
