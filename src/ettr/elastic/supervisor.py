"""The parent of the ranks: it hosts the store, notices the dead and the hung, fills their slots.

A spare runs the same command as every rank and waits, everything imported, until a slot is free.
When a rank dies its slot goes to a spare, the generation is raised, and the survivors regroup in
the same processes. Agents (`agent.py`) do on other nodes what the supervisor orders. The run ends
with the supervisor's own node, and is resumed by starting it again.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ettr.checkpoint.notice import StopNotice
from ettr.elastic import rendezvous
from ettr.elastic.handshake import LOOPBACK, Gathering, serve_store, this_node, with_interface
from ettr.elastic.nodes import (
    RUN_TRANSITIONS,
    LocalNode,
    Loss,
    NodePool,
    Roster,
    SupervisionState,
    SupervisorOptions,
    SupervisorReport,
    Worker,
    WorkerState,
    transition,
)
from ettr.elastic.rendezvous import Cause, Heartbeat, Membership
from ettr.errors import UsageError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


_SPARE_WAIT_S = 5.0  # a new generation that has made no step by then gets its spare all the same


class Regrouping:
    """Starts the processes of a run, places slots on nodes and publishes generations.

    Every method takes the time now (monotonic, seconds).
    """

    def __init__(
        self,
        store: Store,
        roster: Roster,
        nodes: NodePool,
        options: SupervisorOptions,
        on_event: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.unplaced = UnplacedSlots()
        self._store, self._roster, self._nodes = store, roster, nodes
        self._options, self._on_event = options, on_event
        self._newcomers: tuple[str, ...] = ()
        self._regrouped_s = 0.0

    def begin(self, n_nodes: int, now_s: float) -> None:
        """Start the ranks on the nodes that have joined, and call the first generation."""
        nodes = [node.identity for node in self._nodes.alive.values()][:n_nodes]
        membership, apart = first_membership(
            self._roster.membership,
            [node.name for node in nodes],
            [node.rack or node.name for node in nodes],
            self._nodes.local.n_ranks,
        )
        if len(nodes) > 1 and not apart:
            self._on_event("some buddies share a rack: the loss of a rank loses both copies")
        self._publish(membership)
        for node in membership.nodes:
            self.start(WorkerState.RANK, node, now_s)

    def regroup(self, pending: UnplacedSlots, now_s: float) -> bool:
        """Fill lost slots and call all ranks to the next generation.

        Slots for which no node has room wait, and all ranks with them.

        Returns:
            Whether a generation was called.
        """
        before = self._roster.membership
        places = self._place(pending.slots)
        if places is None:
            self._wait(pending)
            return False
        self.unplaced = UnplacedSlots()
        newcomers = {slot: self.newcomer(place.node, now_s) for slot, place in places.items()}
        names = {slot: newcomer.name for slot, newcomer in newcomers.items()}
        self._publish(next_membership(before, pending, names, places))
        self._say_regrouped(places)
        self._newcomers, self._regrouped_s = tuple(names.values()), now_s
        return True

    def has_room(self) -> bool:
        """Whether the slots that wait could be placed now."""
        return self._place(self.unplaced.slots) is not None

    def waited_too_long(self, now_s: float) -> str | None:
        """Why the run is given up for want of a node, or None."""
        waiting = self.unplaced
        if not waiting.slots or now_s - waiting.since_s <= self._options.node_wait_s:
            return None
        slots = ", ".join(map(str, waiting.slots))
        return f"no node with room for slots {slots} joined within {self._options.node_wait_s:g} s"

    def _publish(self, membership: Membership) -> None:
        # The membership before the number, so that whoever sees the number finds it.
        key = rendezvous.MEMBERSHIP.format(generation=membership.generation)
        self._store.set(key, membership.to_json())
        self._store.set(rendezvous.GENERATION, str(membership.generation))
        self._roster.membership = membership

    def _wait(self, pending: UnplacedSlots) -> None:
        if not self.unplaced.slots:
            generation = self._roster.membership.generation
            self._store.set(rendezvous.WAITING.format(generation=generation), "1")
            slots = ", ".join(map(str, pending.slots))
            self._on_event(f"no node has room for slots {slots}: waiting for one to join")
        self.unplaced = pending

    def _place(self, slots: Iterable[int]) -> dict[int, Place] | None:
        """A place for each slot; None: there is not room for all."""
        capacity = {name: node.n_ranks for name, node in self._nodes.alive.items()}
        return place_lost(self._roster.membership, frozenset(slots), capacity, self.warm())

    def _say_regrouped(self, places: Mapping[int, Place]) -> None:
        membership = self._roster.membership
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

    def start(self, state: WorkerState, node: str, now_s: float) -> Worker:
        """Start a process on a node.

        If the node was lost since it was chosen the process counts as killed, and is replaced as
        such.
        """
        name = f"w{len(self._roster.workers)}"
        worker = Worker.start(name, self._nodes.node(node), state=state, now_s=now_s)
        self._roster.workers[name] = worker
        return worker

    def newcomer(self, node: str, now_s: float) -> Worker:
        """A warm spare of a node, or a process that is started there now."""
        for spare in self._roster.spares:
            if spare.node == node and not spare.process.ending():
                spare.enter(WorkerState.RANK)
                spare.heard_s = now_s
                return spare
        return self.start(WorkerState.RANK, node, now_s)

    def warm(self) -> Counter[str]:
        """Waiting processes of each node."""
        return Counter(spare.node for spare in self._roster.spares if not spare.process.ending())

    def restock(self, now_s: float, *, at_once: bool = False) -> None:
        """Start a node's next spare once the newcomers before have made a step in their slots.

        Its import takes a core for a second or more, which the regrouping must not wait for. A
        node without ranks is a spare node, whose every place is kept warm.
        """
        in_use = set(self._roster.membership.nodes)
        n_spares = Counter(spare.node for spare in self._roster.spares)
        for name, node in self._nodes.alive.items():
            wanted = self._options.spares if name in in_use else node.n_ranks
            if n_spares[name] >= wanted:
                continue
            if at_once or name not in in_use or self._newcomers_stepped(now_s):
                self.start(WorkerState.SPARE, name, now_s)

    def _newcomers_stepped(self, now_s: float) -> bool:
        newcomers = [self._roster.workers[name] for name in self._newcomers]
        stepped = all(worker.heartbeat.step >= 0 for worker in newcomers)
        return stepped or now_s - self._regrouped_s > _SPARE_WAIT_S


# -- Which node a slot's worker runs on, and how far away its buddy is. Standard library only -----

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one rank."""

    node: str
    local_rank: int


@dataclass(frozen=True, slots=True)
class UnplacedSlots:
    """Lost slots without a place yet, and what is known of the loss."""

    slots: Mapping[int, str] = field(default_factory=dict)
    cause: Cause = Cause.DIED
    noticed_s: float = 0.0
    hung_s: float = 0.0
    since_s: float = 0.0

    def merged(
        self, lost: Mapping[int, str], cause: Cause, noticed_s: float, hung_s: float, now_s: float
    ) -> UnplacedSlots:
        """These and further ones: the first loss counts, since all ranks have stood since then."""
        if not self.slots:
            return UnplacedSlots(lost, cause, noticed_s, hung_s, now_s)
        return replace(self, slots={**self.slots, **lost})


def buddy_stride(racks: Sequence[str], ranks_per_node: int) -> tuple[int, bool]:
    """Slots from a rank to its buddy, and whether that always lies outside the rank's rack.

    Slots fill the nodes one after another, so a stride of whole nodes puts every buddy on another
    node. The smallest that leaves every rack is chosen; where none does, the next node.
    """
    n_nodes = len(racks)
    if n_nodes == 1:
        return 1, False
    for distance in range(1, n_nodes):
        if all(rack != racks[(i + distance) % n_nodes] for i, rack in enumerate(racks)):
            return distance * ranks_per_node, True
    return ranks_per_node, False


def free_places(capacity: Mapping[str, int], taken: Iterable[Place]) -> dict[str, list[int]]:
    """Free places of each node, lowest first."""
    occupied = set(taken)
    return {
        node: [rank for rank in range(n_ranks) if Place(node, rank) not in occupied]
        for node, n_ranks in capacity.items()
    }


def choose_node(
    free: Mapping[str, Sequence[int]],
    warm: Mapping[str, int],
    *,
    before: str,
    avoid: Collection[str],
) -> str | None:
    """The node for the worker of a lost slot; None: no node has room.

    First the node that the slot was on, since its other ranks stay neighbours. Then a node that
    keeps slot and buddy apart, has a warm process, and has the most room.
    """
    candidates = [node for node, places in free.items() if places]
    if not candidates:
        return None
    return min(
        candidates,
        key=lambda node: (
            node != before,
            node in avoid,
            warm.get(node, 0) == 0,
            -len(free[node]),
            node,
        ),
    )


def first_membership(
    membership: Membership, nodes: Sequence[str], racks: Sequence[str], ranks_per_node: int
) -> tuple[Membership, bool]:
    """The slots of a run on its nodes, and whether every buddy is in another rack."""
    # the nodes of one rack in a row, so that a stride of whole racks leaves it
    order = sorted(range(len(nodes)), key=lambda i: racks.index(racks[i]))
    stride, apart = buddy_stride([racks[i] for i in order], ranks_per_node)
    placed = replace(
        membership,
        nodes=tuple(nodes[i] for i in order for _ in range(ranks_per_node)),
        local_ranks=tuple(range(ranks_per_node)) * len(nodes),
        buddy_stride=stride,
    )
    return placed, apart


def place_lost(
    membership: Membership,
    lost: Collection[int],
    capacity: Mapping[str, int],
    warm: Mapping[str, int],
) -> dict[int, Place] | None:
    """A place for each lost slot; None: there is not room for all."""
    world, stride = membership.world, membership.buddy_stride
    nodes = list(membership.nodes) or [next(iter(capacity))] * world
    local_ranks = membership.local_ranks or tuple(range(world))
    kept = [Place(nodes[slot], local_ranks[slot]) for slot in range(world) if slot not in lost]
    free, waiting = free_places(capacity, kept), dict(warm)
    places: dict[int, Place] = {}
    for slot in sorted(lost):
        buddies = ((slot + stride) % world, (slot - stride) % world)
        avoid = {nodes[buddy] for buddy in buddies if buddy not in lost or buddy in places}
        node = choose_node(free, waiting, before=nodes[slot], avoid=avoid)
        if node is None:
            return None
        places[slot], nodes[slot] = Place(node, free[node].pop(0)), node
        waiting[node] = waiting.get(node, 0) - 1
    return places


def next_membership(
    before: Membership,
    pending: UnplacedSlots,
    workers: Mapping[int, str],
    places: Mapping[int, Place],
) -> Membership:
    """The generation after a loss."""
    nodes = {slot: place.node for slot, place in places.items()}
    local_ranks = {slot: place.local_rank for slot, place in places.items()}
    return replace(
        before,
        generation=before.generation + 1,
        workers=_with_items(before.workers, workers),
        nodes=_with_items(before.nodes, nodes),
        local_ranks=_with_items(before.local_ranks, local_ranks),
        lost=tuple(sorted(pending.slots)),
        cause=pending.cause,
        noticed_s=pending.noticed_s,
        hung_s=pending.hung_s,
    )


def sharing_a_node(nodes: Sequence[str], stride: int) -> list[int]:
    """Slots whose buddy runs on the same node: the loss of that node loses both copies."""
    world = len(nodes)
    return [slot for slot in range(world) if nodes[slot] == nodes[(slot + stride) % world]]


def _with_items(values: tuple[ValueT, ...], changed: Mapping[int, ValueT]) -> tuple[ValueT, ...]:
    """The values, some of them replaced; empty stays empty."""
    return tuple(changed.get(index, value) for index, value in enumerate(values))


# -- the parent of the ranks ---------------------------------------------------------------------

_POLL_S = 0.01
_HEARTBEAT_POLL_S = 0.25
_ENDING_S = 120.0  # how long ranks may take to end after the training


def supervise(
    command: Sequence[str],
    n_ranks: int,
    *,
    options: SupervisorOptions | None = None,
    environment: Mapping[str, str] | None = None,
    on_event: Callable[[str], None] = lambda _text: None,
    gathering: Gathering | None = None,
    notice: StopNotice | None = None,
) -> SupervisorReport:
    """Run ranks of a command until all have trained to the end; returns what happened.

    Args:
        command: the program and its arguments; it calls `ElasticGroup.from_env().run(train)`.
        gathering: where other nodes join; None: all ranks are on this machine.
        notice: what asks the run to end: every rank saves the same step. None: nothing does.

    Raises:
        UsageError: no command, or no rank; several nodes and nowhere to join.
    """
    options = options or SupervisorOptions()
    if not command or n_ranks < 1:
        raise UsageError(f"command {list(command)}, {n_ranks} ranks: give a command and 1 or more")
    if gathering is None and options.n_nodes > 1:
        raise UsageError(f"{options.n_nodes} nodes: say where they join (`gathering`)")
    supervisor = Supervisor(
        command, n_ranks, options, environment, on_event, gathering=gathering, notice=notice
    )
    return supervisor.run()


class Supervisor:
    """One supervised run; see `supervise`."""

    def __init__(
        self,
        command: Sequence[str],
        n_ranks: int,
        options: SupervisorOptions,
        environment: Mapping[str, str] | None = None,
        on_event: Callable[[str], None] = lambda _text: None,
        *,
        gathering: Gathering | None = None,
        notice: StopNotice | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = SupervisionState.FORMING
        # Ranks of one machine meet on loopback, whatever its host name resolves to.
        host = LOOPBACK if gathering is None else gathering.meeting.host
        self.store = serve_store(host)
        self._world = n_ranks * options.n_nodes
        workers = tuple(f"w{slot}" for slot in range(self._world))
        self.roster = Roster(Membership(1, workers, noticed_s=time.time()))
        self._detector = HangDetector(self.store, self.roster, options)
        self._own_errors = OwnErrors(self.store)
        self._options, self._on_event, self._monotonic = options, on_event, monotonic
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
        self._regrouping = Regrouping(self.store, self.roster, self._nodes, options, on_event)
        self._notice = notice or StopNotice(signals=())
        self._stop_reason: str | None = None
        self._stopped = False
        self._idle_failures = 0
        self._listened_s = self._finishing_s = 0.0

    def run(self) -> SupervisorReport:
        """Start, watch, and leave no process behind."""
        begin_s = time.monotonic()
        reason: str | None = "interrupted"
        try:
            reason = self._gather()
            if reason is None:
                self._regrouping.begin(self._options.n_nodes, self._monotonic())
                self._regrouping.restock(self._monotonic(), at_once=True)
                reason = self._watch()
        finally:
            pids = tuple(worker.process.pid for worker in self.roster.workers.values())
            self._stop_all()
            self._nodes.dismiss(finished=reason is None, stopped=self._stopped, reason=reason or "")
        return SupervisorReport(
            self._world,
            self.roster.membership.generation,
            tuple(self.roster.losses),
            pids,
            time.monotonic() - begin_s,
            reason,
            self._stopped,
        )

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
        """
        now_s = self._monotonic()
        since_s = time.time() if noticed_s is None else noticed_s
        pending = self._regrouping.unplaced.merged(lost, cause, since_s, hung_s, now_s)
        if self._regrouping.regroup(pending, now_s):
            self._detector.regrouped(now_s)

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
            self._hear_stop()
            if self._stop_reason is not None:
                return f"{self._stop_reason} before the nodes had joined"
            time.sleep(_POLL_S)
        return None

    def _hear_stop(self) -> None:
        """Pass on to the ranks that the run is asked to end."""
        asked = (node.stop_reason for node in self._nodes.remote)
        reason = self._notice.asked() or next((one for one in asked if one is not None), None)
        if reason is not None and self._stop_reason is None:
            self._stop_reason = reason
            self.store.set(rendezvous.STOP, reason)
            self._on_event(f"{reason}: the run ends after the next step, which is saved")

    def _watch(self) -> str | None:
        """Watch until the run has ended; returns why it was given up, or None."""
        while True:
            self._nodes.poll()
            self._hear_stop()
            dead = self._find_dead()
            self.roster.settle()
            self._regrouping.restock(self._monotonic())
            reason = self._act_on_failures(dead) or self._place_waiting()
            if reason is not None:
                self._enter(SupervisionState.GAVE_UP)
                return reason
            if self._finished():
                self._enter(SupervisionState.FINISHED)
                return self._how_it_ended()
            time.sleep(_POLL_S)

    def _act_on_failures(self, dead: Sequence[str]) -> str | None:
        """Replace the dead and the hung; returns why the run is given up, or None."""
        if self.state is SupervisionState.FINISHING:
            return None
        hung: dict[str, float] = {}
        due = self._monotonic() - self._listened_s >= _HEARTBEAT_POLL_S
        if due and not self._regrouping.unplaced.slots:
            self._listened_s = self._monotonic()
            hung = self.find_hung()
            if not (dead or hung) and self._detector.wait_for_nobody(self._monotonic()):
                reason = self._script_fails() or self.count_failure()
                if reason is None:
                    self.regroup({}, Cause.NETWORK)
                return reason
        return self._replace(dead, hung) if dead or hung else None

    def _place_waiting(self) -> str | None:
        """Give slots that wait for a node another chance; returns why the run is given up."""
        waiting = self._regrouping.unplaced
        if waiting.slots and self._regrouping.has_room():
            self.regroup({}, waiting.cause, noticed_s=waiting.noticed_s, hung_s=waiting.hung_s)
        return self._regrouping.waited_too_long(self._monotonic())

    def _find_dead(self) -> list[str]:
        # a slot that waits for a node still names the worker that it lost
        ranks = [worker for worker in self.roster.ranks if worker.state is WorkerState.RANK]
        watched = [*ranks, *self.roster.spares]
        dead = [worker.name for worker in watched if worker.process.ending()]
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
        reason = self._script_fails(slots.values()) or self.count_failure()
        if reason is None:
            cause, hung_s = (Cause.HUNG, max(hung.values())) if hung else (Cause.DIED, 0.0)
            self.regroup(slots, cause, noticed_s=noticed_s, hung_s=hung_s)
        return reason

    def _script_fails(self, ended: Iterable[str] = ()) -> str | None:
        """Why further generations are of no use, or None."""
        self._own_errors.listen(self.roster.workers, ended, self.roster.membership.generation)
        return self._own_errors.reason(self._world)

    def _replace_spare(self, spare: Worker) -> str | None:
        status = spare.process.wait()
        spare.enter(WorkerState.ENDED)
        spare.process.close()
        self._on_event(f"spare {spare.name} ended with status {status}")
        if status not in (-signal.SIGKILL, -signal.SIGTERM):
            return f"spare {spare.name} ended with status {status} before it had a slot"
        if spare.node in self._nodes.alive:
            self._regrouping.start(WorkerState.SPARE, spare.node, self._monotonic())
        return None

    def _lose(self, worker: Worker, slot: int, cause: Cause, noticed_s: float) -> None:
        worker.enter(WorkerState.KILLED)
        worker.loss = len(self.roster.losses)
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
        self.roster.losses.append(loss)
        self._on_event(f"slot {slot}: {worker.name} (pid {worker.process.pid}) {cause}")

    def _all_trained(self) -> bool:
        number = self.roster.membership.generation
        keys = [
            rendezvous.TRAINED.format(generation=number, slot=slot) for slot in range(self._world)
        ]
        return bool(self.store.check(keys))

    def _how_it_ended(self) -> str | None:
        """None: every rank trained to the end; else that they were asked to end, and why."""
        number = self.roster.membership.generation
        ends = [
            self.store.get(rendezvous.TRAINED.format(generation=number, slot=slot))
            for slot in range(self._world)
        ]
        stopped = [end for end in map(bytes.decode, ends) if end.startswith(rendezvous.STOPPED)]
        self._stopped = bool(stopped)
        reason = self._stop_reason or "a rank was asked to end"
        step = stopped[0].removeprefix(rendezvous.STOPPED) if stopped else ""
        return f"{reason}: stopped after step {step}" if stopped else None

    def _finished(self) -> bool:
        """Whether every rank has trained to the end and its process is gone, or late."""
        if self.state is not SupervisionState.FINISHING:
            if not self._all_trained():
                return False
            self.store.set(
                rendezvous.DONE.format(generation=self.roster.membership.generation), "1"
            )
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
            worker.process.close()
            if worker.state in (WorkerState.RANK, WorkerState.SPARE):
                worker.enter(WorkerState.ENDED)

    def _enter(self, state: SupervisionState) -> None:
        self.state = transition(self.state, state, RUN_TRANSITIONS, "the run")


_N_GENERATIONS = 2  # the first may have been a mishap: it is tried once more
_N_SLOTS = 2  # one slot alone may have a bad device


class OwnErrors:
    """Collects what ranks report, and what speaks against it: ranks that died without a word."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._errors: set[OwnError] = set()
        self._with_losses: set[int] = set()

    def listen(self, workers: Iterable[str], ended: Iterable[str], generation: int) -> None:
        """Read the reports.

        Args:
            ended: those found dead or hung in this generation. Without a report of their own they
                may be the reason for the errors of others.
        """
        reported = set()
        for worker in workers:
            key = rendezvous.OWN_ERROR.format(worker=worker)
            if self._store.check([key]) and (text := self._store.get(key)):
                self._errors.add(OwnError.from_json(text))
                reported.add(worker)
        if set(ended) - reported:
            self._with_losses.add(generation)

    def reason(self, world: int) -> str | None:
        """Why the run is given up: one error, in two generations and at one step; or None."""
        at_place: dict[str, list[OwnError]] = {}
        for error in self._errors:
            if error.generation not in self._with_losses:
                at_place.setdefault(error.place, []).append(error)
        for place, errors in at_place.items():
            # Steps were made since then: the newest failure only counts with those at its step.
            step = max(error.step for error in errors)
            same = [error for error in errors if error.step in (step, -1)]
            generations = sorted({error.generation for error in same})
            slots = sorted({error.slot for error in same})
            if len(generations) >= _N_GENERATIONS and len(slots) >= min(_N_SLOTS, world):
                return (
                    "the script failed with the same error in generations "
                    f"{', '.join(map(str, generations))}, on slots "
                    f"{', '.join(map(str, slots))}, and no process had been lost: "
                    f"{same[0].text} ({place}); fix it and start the run again"
                )
        return None


# Where collectives and the recovery itself raise, as parts of a file's path.
_OF_PEERS = ("/ettr/elastic/", "/torch/distributed/")
_OF_PEERS_BY_NAME = ("FencedError", "EvictedError")
_OF_PEERS_IN_WORDS = re.compile(
    r"gloo|nccl|socket|connection|connect\b|timeout|timed out|peer|broken pipe|aborted"
    r"|\bstore\b|process group|cuda error|device-side|hip error",
    re.IGNORECASE,
)
_TEXT_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class OwnError:
    """One error that a rank met and that seems to be the script's own."""

    generation: int
    slot: int
    step: int
    place: str
    text: str

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> OwnError:
        """The error that `to_json` wrote."""
        return cls(**json.loads(text))


def own_error(
    kind: type[BaseException],
    failure: traceback.TracebackException,
    *,
    generation: int,
    slot: int,
    step: int,
) -> OwnError | None:
    """What to report of an error that broke a generation off; None: a peer may be the cause."""
    text = "".join(failure.format_exception_only()).strip()
    if not failure.stack or kind.__name__ in _OF_PEERS_BY_NAME:
        return None
    last = failure.stack[-1]
    if issubclass(kind, OSError) or any(part in last.filename for part in _OF_PEERS):
        return None
    if issubclass(kind, RuntimeError) and _OF_PEERS_IN_WORDS.search(text):
        return None
    place = f"{kind.__name__} at {last.filename}, line {last.lineno}"
    return OwnError(generation, slot, step, place, text[:_TEXT_CHARACTERS])


_N_HEARTBEATS_BEFORE_JUDGED = 2
# A wait that its own timeout ends is no reason to be replaced.
OVER_COLLECTIVE_S = 15.0


class HangDetector:
    """Judges the ranks of a supervisor; every method takes the time now (monotonic, seconds)."""

    def __init__(self, store: Store, roster: Roster, options: SupervisorOptions) -> None:
        self._store, self._roster, self._options = store, roster, options
        self._regrouped_s = 0.0
        self._failed_since_s: float | None = None

    def regrouped(self, now_s: float) -> None:
        """A new generation was called."""
        self._regrouped_s = now_s
        self._failed_since_s = None

    def listen(self, now_s: float) -> bool:
        """Read the heartbeats of ranks and of spares, which are to be ranks; whether any stepped.

        A smaller step counts too: after a rollback steps are done again.
        """
        stepped = False
        for worker in [*self._roster.ranks, *self._roster.spares]:
            key = rendezvous.HEARTBEAT.format(worker=worker.name)
            if not self._store.check([key]):
                continue
            heartbeat = Heartbeat.from_text(self._store.get(key))
            if heartbeat is None or heartbeat == worker.heartbeat:
                continue
            stepped |= heartbeat.step != worker.heartbeat.step
            self._roster.best_step = max(self._roster.best_step, heartbeat.step)
            if heartbeat.generation != worker.heartbeat.generation:
                worker.behind_since_s = None
            worker.heartbeat, worker.heard_s = heartbeat, now_s
            worker.n_heartbeats += 1
        return stepped

    def silent(self, now_s: float) -> dict[str, float]:
        """Ranks without a heartbeat for too long -> seconds without one."""
        found = {}
        for worker in self._roster.ranks:
            silent_s = now_s - worker.heard_s
            if worker.n_heartbeats < _N_HEARTBEATS_BEFORE_JUDGED:
                # It is importing: its exit shows whether it fails, or the others' vain wait for it.
                hung = self._waited_in_vain(now_s)
            else:
                hung = silent_s > self._options.heartbeat_timeout_s
            if hung:
                found[worker.name] = silent_s
        return found

    def stuck(self, now_s: float) -> dict[str, float]:
        """Ranks that do not leave an older generation -> seconds since the next one began."""
        found = {}
        for worker in self._roster.ranks:
            behind_s = self._behind_s(worker, now_s)
            # Where the others' collectives have run into their timeout already, its own has too.
            in_vain = behind_s > self._options.failed_grace_s and self._waited_in_vain(now_s)
            if behind_s > self._leave_s(worker) or in_vain:
                found[worker.name] = behind_s
        return found

    def wait_for_nobody(self, now_s: float) -> bool:
        """Whether ranks wait for a new generation though no process died.

        Either all of them do, or some have for a while. In the next generation those that still
        report nothing are behind the others, and are judged by that.
        """
        membership = self._roster.membership
        failed = [
            name
            for name in membership.workers
            if self._store.check(
                [rendezvous.FAILED.format(generation=membership.generation, worker=name)]
            )
        ]
        if not failed:
            self._failed_since_s = None
            return False
        if len(failed) == len(membership.workers):
            return True
        if self._failed_since_s is None:
            self._failed_since_s = now_s
        return now_s - self._failed_since_s > self._options.failed_grace_s

    def _waited_in_vain(self, now_s: float) -> bool:
        """Whether the ranks have waited for each other in vain, and were called together again."""
        called_again = self._roster.membership.cause is Cause.NETWORK
        return called_again and now_s - self._regrouped_s > self._options.failed_grace_s

    def _behind_s(self, worker: Worker, now_s: float) -> float:
        """How long a rank's loop has been in an older generation while its heartbeats go on."""
        if not 0 < worker.heartbeat.generation < self._roster.membership.generation:
            worker.behind_since_s = None
            return 0.0
        if worker.behind_since_s is None:
            worker.behind_since_s = now_s
        return now_s - worker.behind_since_s

    def _leave_s(self, worker: Worker) -> float:
        if self._options.leave_s is not None:
            return self._options.leave_s
        return worker.heartbeat.collective_s + OVER_COLLECTIVE_S
