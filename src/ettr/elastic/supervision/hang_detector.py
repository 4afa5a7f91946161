"""Which ranks hang, by their heartbeats and by the generation that their loop is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ettr.elastic.membership import rendezvous
from ettr.elastic.membership.rendezvous import Cause, Heartbeat
from ettr.elastic.supervision.report import SupervisorOptions
from ettr.elastic.supervision.worker_process import Roster, Worker

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

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
            key = rendezvous.heartbeat_key(worker.name)
            if not self._store.check([key]):
                continue
            heartbeat = Heartbeat.from_text(self._store.get(key))
            if heartbeat == worker.heartbeat:
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
            if self._store.check([rendezvous.failed_key(membership.generation, name)])
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
