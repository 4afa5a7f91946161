"""The thread that sends heartbeats, and ends the loop's waits when a new generation begins.

It also hears from the supervisor that the run is asked to end.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ettr.elastic.membership import rendezvous
from ettr.elastic.membership.rendezvous import Heartbeat

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


ORPHANED_EXIT = 86
HEARTBEAT_S = 0.2


class HeartbeatThread:
    """Polls the generation; while the loop is in an older one, shuts its connections down.

    Sockets that were open when the loop entered the generation (the store's, the user's own) are
    left alone. This repeats until the loop has left the generation, since a group that was just
    being formed may open sockets later. A process whose supervisor is gone ends itself.

    Attributes:
        step: The last step that was made, which is sent with the heartbeats; -1: none.
        newest: The newest generation that this process has seen; 0: none yet.
        stop_reason: Why the supervisor asks the run to end; None: it does not.

    Args:
        poll_s: seconds between two polls while the loop is in a generation; else HEARTBEAT_S.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        *,
        collective_s: float = 0.0,
        poll_s: float = 0.02,
        abort: Callable[[], None] | None = None,
    ) -> None:
        self._store, self._worker, self._poll_s, self._abort = store, worker, poll_s, abort
        self._collective_s = collective_s
        self._lock = threading.Lock()
        self._generation: int | None = None
        self._sockets_before: frozenset[str] = frozenset()
        self.step, self.newest = -1, 0
        self.stop_reason: str | None = None
        self._closed, self._wake = False, threading.Event()
        self._thread = threading.Thread(target=self._run, name="ettr-heartbeat", daemon=True)
        self._thread.start()

    def enter(self, generation: int) -> None:
        """The loop begins to form the group of a generation: later ones end its waits."""
        with self._lock:
            self._sockets_before = frozenset(open_sockets())
            self._generation = generation
        self._wake.set()

    def leave(self) -> None:
        """The loop has no group: no connection is to be shut down."""
        with self._lock:
            self._generation = None

    def close(self) -> None:
        """End the thread: one that is in the store's code when the interpreter ends aborts it."""
        self._closed = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        count, sent_s = 0, 0.0
        while True:
            self._wake.wait(HEARTBEAT_S if self._generation is None else self._poll_s)
            self._wake.clear()
            if self._closed:
                return
            try:
                newest = int(self._store.get(rendezvous.GENERATION))
                if time.monotonic() - sent_s >= HEARTBEAT_S:
                    sent_s, count = time.monotonic(), count + 1
                    beat = Heartbeat(count, self.step, self._generation or 0, self._collective_s)
                    self._store.set(rendezvous.heartbeat_key(self._worker), beat.to_text())
                    if self.stop_reason is None and self._store.check([rendezvous.STOP]):
                        self.stop_reason = self._store.get(rendezvous.STOP).decode()
            except Exception:
                os._exit(ORPHANED_EXIT)  # no supervisor: nobody could fence or replace this rank
            self.newest = newest
            self._end_waits_of_older(newest)

    def _end_waits_of_older(self, newest: int) -> None:
        with self._lock:
            if self._generation is None or newest <= self._generation:
                return
            # under the lock: `enter` of the new generation waits until this is done
            shut_down_connections(except_for=self._sockets_before)
        if self._abort is not None:
            self._abort()


# -- Shut down a process group's connections, so that a collective that waits for the dead raises
#
# gloo informs only the ranks that were just exchanging data with the dead one; the others wait
# for the group's timeout, and `ProcessGroup.abort` does nothing on gloo. Shutting the sockets
# down from another thread ends every wait at once. Linux only (/proc).

_OPEN_FILES = Path("/proc/self/fd")


def open_sockets() -> dict[str, int]:
    """The sockets of this process: kernel name (`socket:[inode]`) -> file descriptor."""
    found = {}
    for entry in _OPEN_FILES.iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue  # closed since it was listed
        if target.startswith("socket:"):
            found[target] = int(entry.name)
    return found


def shut_down_connections(except_for: Collection[str]) -> int:
    """Shut down every connected TCP socket but those named; returns how many.

    Files stay open, so that their owner closes them in its own time and no number is used twice.
    """
    n_shut_down = 0
    for name, fd in open_sockets().items():
        if name not in except_for and _shut_down(fd):
            n_shut_down += 1
    return n_shut_down


def _shut_down(fd: int) -> bool:
    try:
        copy = socket.socket(fileno=os.dup(fd))
    except OSError:
        return False
    try:
        if copy.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        if copy.type != socket.SOCK_STREAM:
            return False
        copy.getpeername()
        copy.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False  # a listener, or shut down already
    finally:
        copy.close()
    return True
