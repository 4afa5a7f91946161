"""The parent of the ranks: it hosts the store, notices the dead and the hung, fills their slots.

A spare runs the same command as every rank and waits, everything imported, until a slot is free.
When a rank dies its slot goes to a spare, the generation is raised, and the survivors regroup in
the same processes. One machine: the store and the ranks live and die with it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ettr.elastic.membership import rendezvous
from ettr.elastic.membership.rendezvous import Cause, Membership
from ettr.elastic.supervision.hang_detector import HangDetector
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
    world: int,
    *,
    options: SupervisorOptions | None = None,
    environment: Mapping[str, str] | None = None,
    on_event: Callable[[str], None] = lambda _text: None,
) -> SupervisorReport:
    """Run `world` ranks of a command until all have trained to the end; returns what happened.

    Args:
        command: the program and its arguments; it calls `ElasticGroup.from_env().run(train)`.
        world: number of ranks (slots).
        environment: of the ranks; None: this process's.
        on_event: called with each event, in a sentence.

    Raises:
        UsageError: no command, or no rank.
    """
    if not command or world < 1:
        raise UsageError(f"command {list(command)}, {world} ranks: give a command and 1 or more")
    supervisor = Supervisor(command, world, options or SupervisorOptions(), environment, on_event)
    return supervisor.run()


class Supervisor:
    """One supervised run; see `supervise`.

    Args:
        monotonic: the clock by which ranks are judged.
    """

    def __init__(
        self,
        command: Sequence[str],
        world: int,
        options: SupervisorOptions,
        environment: Mapping[str, str] | None = None,
        on_event: Callable[[str], None] = lambda _text: None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = SupervisionState.FORMING
        self.store = _serve()
        workers = tuple(f"w{slot}" for slot in range(world))
        self.roster = Roster(Membership(1, workers, noticed_s=time.time()))
        self._detector = HangDetector(self.store, self.roster, options)
        self._command, self._world, self._options = list(command), world, options
        self._on_event, self._monotonic = on_event, monotonic
        self._environment = dict(os.environ if environment is None else environment)
        self._environment[rendezvous.ENV_STORE] = f"127.0.0.1:{self.store.port}"
        self._environment[rendezvous.ENV_PROTOCOL] = rendezvous.PROTOCOL
        # Ranks of one machine meet on loopback, whatever its host name resolves to.
        self._environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._idle_failures = 0
        self._newcomers: tuple[str, ...] = ()
        self._regrouped_s = self._listened_s = self._finishing_s = 0.0

    def run(self) -> SupervisorReport:
        """Start, watch, and leave no process behind."""
        begin_s = time.monotonic()
        reason: str | None = "interrupted"
        try:
            self.publish(self.roster.membership)
            for _ in range(self._world):
                self._start(WorkerState.RANK)
            for _ in range(self._options.spares):
                self._start(WorkerState.SPARE)
            reason = self._watch()
        finally:
            pids = tuple(worker.process.pid for worker in self.roster.workers.values())
            self._stop_all()
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

        Args:
            lost: slot -> the worker that held it.
        """
        workers = list(self.roster.membership.workers)
        now_s = self._monotonic()
        for slot in lost:
            newcomer = self._newcomer()
            newcomer.heard_s = now_s
            workers[slot] = newcomer.name
        self.publish(
            replace(
                self.roster.membership,
                generation=self.roster.membership.generation + 1,
                workers=tuple(workers),
                lost=tuple(sorted(lost)),
                cause=cause,
                noticed_s=time.time() if noticed_s is None else noticed_s,
                hung_s=hung_s,
            )
        )
        filled = ", ".join(f"slot {s}: {workers[s]}" for s in sorted(lost)) or "all ranks"
        self._on_event(f"generation {self.roster.membership.generation}: {filled}")
        self._regrouped_s = now_s
        self._detector.regrouped(now_s)
        self._newcomers = tuple(workers[slot] for slot in lost)

    def _watch(self) -> str | None:
        """Watch until the run has ended; returns why it was given up, or None."""
        while True:
            dead = self._find_dead()
            self.roster.settle()
            self._restock()
            reason = self._act_on_failures(dead)
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
        if self._monotonic() - self._listened_s >= _HEARTBEAT_POLL_S:
            self._listened_s = self._monotonic()
            hung = self.find_hung()
            if not (dead or hung) and self._detector.wait_for_nobody(self._monotonic()):
                reason = self.count_failure()
                if reason is None:
                    self.regroup({}, Cause.NETWORK)
                return reason
        return self._replace(dead, hung) if dead or hung else None

    def _find_dead(self) -> list[str]:
        watched = [*self.roster.ranks, *self.roster.spares]
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
        self._start(WorkerState.SPARE)
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
        )
        self.roster.lose(worker, loss)
        self._on_event(f"slot {slot}: {worker.name} (pid {worker.process.pid}) {cause}")

    def _newcomer(self) -> Worker:
        """A warm spare, or a process that is started now."""
        for spare in self.roster.spares:
            if not spare.exit.ending():
                spare.enter(WorkerState.RANK)
                return spare
        return self._start(WorkerState.RANK)

    def _start(self, state: WorkerState) -> Worker:
        name = f"w{len(self.roster.workers)}"
        now_s = self._monotonic()
        worker = Worker.start(name, self._command, self._environment, state=state, now_s=now_s)
        self.roster.workers[name] = worker
        return worker

    def _restock(self) -> None:
        """Start the next spare once the one before has made a step in its slot.

        Its import takes a core for a second or more, which the regrouping must not wait for.
        """
        if len(self.roster.spares) >= self._options.spares:
            return
        newcomers = [self.roster.workers[name] for name in self._newcomers]
        stepped = all(worker.heartbeat.step >= 0 for worker in newcomers)
        if stepped or self._monotonic() - self._regrouped_s > _SPARE_WAIT_S:
            self._start(WorkerState.SPARE)

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


def _serve() -> TCPStore:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store: TCPStore = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return store
