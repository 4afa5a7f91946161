"""The parent of the ranks: it hosts the store, notices the dead and the hung, fills their slots.

A spare runs the same command as every rank and waits, everything imported, until a slot is free.
When a rank dies its slot goes to a spare, the generation is raised, and the survivors regroup in
the same processes. One machine: the store and the ranks live and die with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ettr.elastic import rendezvous as names
from ettr.elastic.process_exit import ExitWatch
from ettr.elastic.rendezvous import Beat, Membership
from ettr.elastic.supervisor_report import Loss, SupervisorOptions, SupervisorReport
from ettr.errors import UsageError

_LOOK_S = 0.01
_BEAT_LOOK_S = 0.25
_BEATS_BEFORE_JUDGED = 2
_SPARE_WAIT_S = 5.0  # a new generation that has made no step by then gets its spare all the same
_ENDING_S = 120.0  # what ranks may do after the training, before they are ended
_OVER_COLLECTIVE_S = 15.0  # a wait that its own timeout ends is no reason to be replaced
_FENCED_S = 10.0  # a killed process that is not gone by then hangs in the kernel, in one last call


@dataclass(slots=True)
class _Worker:
    name: str
    process: subprocess.Popen[bytes]
    exit: ExitWatch
    beat: Beat = field(default_factory=Beat)
    beat_s: float = 0.0
    beats: int = 0
    behind_s: float | None = None  # since when that is an older one


@dataclass(slots=True)
class _Group:
    membership: Membership
    workers: dict[str, _Worker] = field(default_factory=dict)
    spares: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    unsettled: list[int] = field(default_factory=list)  # losses whose process is not gone yet
    started: int = 0
    best_step: int = -1
    stepped: bool = False  # since something last failed
    idle_failures: int = 0
    failed_since_s: float | None = None
    regrouped_s: float = 0.0
    newcomers: tuple[str, ...] = ()


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
        on_event: told in a sentence what happens.

    Raises:
        UsageError: no command, or no rank.
    """
    if not command or world < 1:
        raise UsageError(f"command {list(command)}, {world} ranks: give a command and 1 or more")
    supervisor = _Supervisor(command, world, options or SupervisorOptions(), environment, on_event)
    return supervisor.run()


class _Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        world: int,
        options: SupervisorOptions,
        environment: Mapping[str, str] | None,
        on_event: Callable[[str], None],
    ) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        self._command, self._world, self._options = list(command), world, options
        self._tell = on_event
        self._store: Any = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._environment = dict(os.environ if environment is None else environment)
        self._environment[names.ENV_STORE] = f"127.0.0.1:{self._store.port}"
        # Ranks of one machine meet on loopback, whatever its host name resolves to.
        self._environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._ended_s: float | None = None
        self._group = _Group(
            Membership(1, tuple(f"w{i}" for i in range(world)), noticed_s=time.time())
        )

    def run(self) -> SupervisorReport:
        """Start, watch, and leave no process behind."""
        begin = time.monotonic()
        reason: str | None = "interrupted"
        try:
            self._publish(self._group.membership)
            for _ in range(self._world):
                self._start()
            for _ in range(self._options.spares):
                self._group.spares.append(self._start().name)
            reason = self._watch()
        finally:
            pids = tuple(w.process.pid for w in self._group.workers.values())
            self._stop_all()
        return SupervisorReport(
            self._world,
            self._group.membership.generation,
            tuple(self._group.losses),
            pids,
            time.monotonic() - begin,
            reason,
        )

    def _start(self) -> _Worker:
        name = f"w{self._group.started}"
        self._group.started += 1
        environment = self._environment | {names.ENV_WORKER: name}
        process = subprocess.Popen(self._command, env=environment)
        worker = _Worker(name, process, ExitWatch(process.pid))
        worker.beat_s = time.monotonic()
        self._group.workers[name] = worker
        return worker

    def _publish(self, membership: Membership) -> None:
        # The membership before the number, so that whoever sees the number finds it.
        self._store.set(names.membership_key(membership.generation), membership.to_json())
        self._store.set(names.GENERATION, str(membership.generation))
        self._group.membership = membership

    def _watch(self) -> str | None:
        looked_s = 0.0
        while True:
            causes = self._dead()
            self._settle()
            self._restock()
            if time.monotonic() - looked_s >= _BEAT_LOOK_S:
                looked_s = time.monotonic()
                causes |= self._hung()
                if not causes and self._network_failed():
                    reason = self._failed_again()
                    if reason is not None:
                        return reason
                    self._regroup({}, "network")
            if causes:
                reason = self._replace(causes)
                if reason is not None:
                    return reason
            if self._finished():
                return None
            time.sleep(_LOOK_S)

    def _dead(self) -> dict[str, tuple[str, float]]:
        members = [*self._group.membership.workers, *self._group.spares]
        gone = [n for n in members if self._group.workers[n].exit.ending()]
        # Once all have trained to the end, how a process goes does not matter any more.
        if not gone or self._all_said_finished():
            return {}
        return dict.fromkeys(gone, ("died", 0.0))

    def _settle(self) -> None:
        """Put down how lost processes ended, once the kernel has finished with them."""
        group = self._group
        for index in list(group.unsettled):
            worker = group.workers[group.losses[index].worker]
            status = worker.process.poll()
            if status is not None:
                group.losses[index] = replace(group.losses[index], status=status)
                group.unsettled.remove(index)
                worker.exit.close()

    def _listen(self, now_s: float) -> None:
        """Take the signs of life of the ranks, and of the spares, which are to be ranks."""
        for name in [*self._group.membership.workers, *self._group.spares]:
            worker, key = self._group.workers[name], names.beat_key(name)
            if not self._store.check([key]):
                continue
            beat = Beat.from_text(self._store.get(key))
            if beat == worker.beat:
                continue
            # Also a smaller one: after a rollback steps are done again.
            self._group.stepped |= beat.step != worker.beat.step
            self._group.best_step = max(self._group.best_step, beat.step)
            if beat.generation != worker.beat.generation:
                worker.behind_s = None
            worker.beat, worker.beat_s, worker.beats = beat, now_s, worker.beats + 1

    def _hung(self) -> dict[str, tuple[str, float]]:
        found: dict[str, tuple[str, float]] = {}
        now_s = time.monotonic()
        if self._all_said_finished():
            return found  # a process that is ending shows no sign of life any more
        self._listen(now_s)
        for name in self._group.membership.workers:
            worker = self._group.workers[name]
            silent_s = now_s - worker.beat_s
            if worker.beats < _BEATS_BEFORE_JUDGED:
                # It is importing: its exit will tell if it fails, or the others' waiting in vain.
                hung = self._waited_for_again(now_s)
            else:
                hung = silent_s > self._options.heartbeat_timeout_s
            if hung:
                found[name] = ("hung", silent_s)
            elif self._stuck(worker, now_s):
                self._tell(f"{name} does not leave generation {worker.beat.generation}")
                found[name] = ("hung", self._behind_s(worker, now_s))
        return found

    def _waited_for_again(self, now_s: float) -> bool:
        """Whether the ranks have waited for each other in vain, and been called together again."""
        called_s = now_s - self._group.regrouped_s
        waited = self._group.membership.cause == "network"
        return waited and called_s > self._options.failed_grace_s

    def _behind_s(self, worker: _Worker, now_s: float) -> float:
        """For how long a rank's loop has been in an older generation, its watcher being alive."""
        if not 0 < worker.beat.generation < self._group.membership.generation:
            worker.behind_s = None
            return 0.0
        if worker.behind_s is None:
            worker.behind_s = now_s
        return now_s - worker.behind_s

    def _stuck(self, worker: _Worker, now_s: float) -> bool:
        behind_s, leave_s = self._behind_s(worker, now_s), self._options.leave_s
        if leave_s is None:
            leave_s = worker.beat.collective_s + _OVER_COLLECTIVE_S
        # Where the others' collectives have run into their timeout already, its own has too.
        in_vain = behind_s > self._options.failed_grace_s and self._waited_for_again(now_s)
        return behind_s > leave_s or in_vain

    def _network_failed(self) -> bool:
        """Whether ranks wait for a new generation though none died.

        Either all of them do, or some have for a while. In the next generation those that still say
        nothing are behind the others, and are judged by that.
        """
        group, now_s = self._group, time.monotonic()
        number = group.membership.generation
        said = [
            name
            for name in group.membership.workers
            if self._store.check([names.failed_key(number, name)])
        ]
        if not said:
            group.failed_since_s = None
            return False
        if len(said) == self._world:
            return True
        if group.failed_since_s is None:
            group.failed_since_s = now_s
        return now_s - group.failed_since_s > self._options.failed_grace_s

    def _failed_again(self) -> str | None:
        """Count a failure; why the run is given up, or None."""
        group = self._group
        group.idle_failures = 0 if group.stepped else group.idle_failures + 1
        group.stepped = False
        if group.idle_failures > self._options.max_idle_failures:
            return f"{group.idle_failures} failures in a row without a step between them"
        return None

    def _replace(self, causes: dict[str, tuple[str, float]]) -> str | None:
        group = self._group
        noticed_s = time.time()
        slots: dict[int, str] = {}
        cause, hung_s = "died", 0.0
        for name, (why, silent_s) in causes.items():
            worker = group.workers[name]
            if why == "hung":
                cause, hung_s = "hung", max(hung_s, silent_s)
            # Fenced before its slot is given away: a stopped process dies of SIGKILL too.
            _kill(worker.process)
            slot = group.membership.slot_of(name)
            if slot is None:
                status = worker.process.wait()
                group.spares.remove(name)
                self._tell(f"spare {name} ended with status {status}")
                if status not in (-signal.SIGKILL, -signal.SIGTERM):
                    return f"spare {name} ended with status {status} before it had a slot"
                group.spares.append(self._start().name)
                continue
            if why == "hung":
                _reap(worker.process)
            slots[slot] = name
            group.unsettled.append(len(group.losses))
            group.losses.append(
                Loss(
                    group.membership.generation,
                    slot,
                    name,
                    worker.process.pid,
                    why,
                    0,
                    noticed_s,
                    group.best_step,
                )
            )
            self._tell(f"slot {slot}: {name} (pid {worker.process.pid}) {why}")
        if not slots:
            return None
        if len(group.losses) > self._options.max_failures:
            return f"{len(group.losses)} failures; {self._options.max_failures} are allowed"
        reason = self._failed_again()
        if reason is not None:
            return reason
        self._regroup(slots, cause, noticed_s=noticed_s, hung_s=hung_s)
        return None

    def _regroup(
        self, lost: Mapping[int, str], cause: str, *, noticed_s: float = 0.0, hung_s: float = 0.0
    ) -> None:
        group = self._group
        workers = list(group.membership.workers)
        for slot in lost:
            warm = [name for name in group.spares if not group.workers[name].exit.ending()]
            if warm:
                group.spares.remove(warm[0])
            workers[slot] = warm[0] if warm else self._start().name
            group.workers[workers[slot]].beat_s = time.monotonic()
        group.failed_since_s = None
        self._publish(
            replace(
                group.membership,
                generation=group.membership.generation + 1,
                workers=tuple(workers),
                lost=tuple(sorted(lost)),
                cause=cause,
                noticed_s=noticed_s or time.time(),
                hung_s=hung_s,
            )
        )
        held = ", ".join(f"slot {s}: {workers[s]}" for s in sorted(lost)) or "all ranks"
        self._tell(f"generation {group.membership.generation}: {held}")
        group.regrouped_s = time.monotonic()
        group.newcomers = tuple(workers[slot] for slot in lost)

    def _restock(self) -> None:
        """Start the next spare once the one before has made a step in its slot.

        Its import takes a core for a second or more, which the regrouping must not wait for.
        """
        group = self._group
        if len(group.spares) >= self._options.spares:
            return
        stepped = all(group.workers[name].beat.step >= 0 for name in group.newcomers)
        if stepped or time.monotonic() - group.regrouped_s > _SPARE_WAIT_S:
            group.spares.append(self._start().name)

    def _all_said_finished(self) -> bool:
        number = self._group.membership.generation
        keys = [names.finished_key(number, slot) for slot in range(self._world)]
        return bool(self._store.check(keys))

    def _finished(self) -> bool:
        workers = [self._group.workers[name] for name in self._group.membership.workers]
        if self._ended_s is None:
            if not self._all_said_finished():
                return False
            self._store.set(names.done_key(self._group.membership.generation), "1")
            self._ended_s = time.monotonic()
        gone = [w.process.poll() is not None for w in workers]
        return all(gone) or time.monotonic() - self._ended_s > _ENDING_S

    def _stop_all(self) -> None:
        running = [w.process for w in self._group.workers.values() if w.process.poll() is None]
        for process in running:
            _kill(process)
        for process in running:
            _reap(process)
        self._settle()
        for worker in self._group.workers.values():
            worker.exit.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was killed; not for ever, should it hang on a dead disk or mount."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_FENCED_S)


__all__ = ["Loss", "SupervisorOptions", "SupervisorReport", "supervise"]
