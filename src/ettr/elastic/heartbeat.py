"""The thread beside the training loop: signs of life, and the cut when the group has changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ettr.elastic import rendezvous as names
from ettr.elastic.rendezvous import Beat
from ettr.elastic.sockets import open_sockets, sever

ORPHANED_EXIT = 86
BEAT_S = 0.2


class Watcher:
    """Polls the generation; while the group that is running is an older one, cuts its sockets.

    Sockets that were open when the attempt began (the store's, the user's own) are left alone.
    Cutting repeats until the loop has moved on, since a group that was just being formed may open
    sockets after the first cut. A process whose supervisor is gone ends itself.

    Args:
        store: a connection to the supervisor's store that nothing else uses.
        worker: this process's name.
        collective_s: for how long its collectives wait; told with the signs of life.
        poll_s: seconds between two looks while there is a group to be cut; else BEAT_S.
        abort: called beside the cut, for backends that have an abort of their own (NCCL).
    """

    def __init__(
        self,
        store: Any,
        worker: str,
        *,
        collective_s: float = 0.0,
        poll_s: float = 0.02,
        abort: Callable[[], None] | None = None,
    ) -> None:
        self._store, self._worker, self._poll_s, self._abort = store, worker, poll_s, abort
        self._collective_s = collective_s
        self._lock = threading.Lock()
        self._attempt: int | None = None
        self._kept: frozenset[str] = frozenset()
        self._step = -1
        self._newest = 0
        self._ended, self._wake = False, threading.Event()
        self._thread = threading.Thread(target=self._run, name="ettr-watcher", daemon=True)
        self._thread.start()

    def attempt(self, generation: int) -> None:
        """The loop begins to form the group of a generation: later ones end it."""
        with self._lock:
            self._kept = frozenset(open_sockets())
            self._attempt = generation
        self._wake.set()

    def rest(self) -> None:
        """The loop holds no group: nothing is to be cut."""
        with self._lock:
            self._attempt = None

    def reached(self, step: int) -> None:
        """Tell with the signs of life how far the loop has come."""
        self._step = step

    @property
    def newest(self) -> int:
        """The newest generation that this process has seen; 0: none yet."""
        return self._newest

    def close(self) -> None:
        """End the thread: one that is in the store's code when the interpreter ends aborts it."""
        self._ended = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        count, beaten_s = 0, 0.0
        while True:
            self._wake.wait(BEAT_S if self._attempt is None else self._poll_s)
            self._wake.clear()
            if self._ended:
                return
            try:
                generation = int(self._store.get(names.GENERATION))
                if time.monotonic() - beaten_s >= BEAT_S:
                    beaten_s, count = time.monotonic(), count + 1
                    beat = Beat(count, self._step, self._attempt or 0, self._collective_s)
                    self._store.set(names.beat_key(self._worker), beat.to_text())
            except Exception:
                os._exit(ORPHANED_EXIT)  # no supervisor: nobody could fence or replace this rank
            self._newest = generation
            self._cut_if_older(generation)

    def _cut_if_older(self, generation: int) -> None:
        with self._lock:
            if self._attempt is None or generation <= self._attempt:
                return
            # under the lock: `attempt` for the new generation waits until the cut is done
            sever(self._kept)
        if self._abort is not None:
            self._abort()
