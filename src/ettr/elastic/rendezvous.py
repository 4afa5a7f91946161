"""Who belongs to a generation, and the keys through which supervisor and ranks exchange it.

Standard library only. All keys live in the supervisor's store; what the ranks of one generation
exchange among themselves lies below `gen<number>/`, so that a process of an earlier generation
cannot meet a later one. docs/explanation/elastic-states.md lists the keys.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, is_dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ettr.errors import UsageError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


# Keys of the store, with the generation, worker or slot that they are of.
GENERATION = "ettr/generation"
MEMBERSHIP = "ettr/membership/{generation}"
HEARTBEAT = "ettr/heartbeat/{worker}"
FAILED = "ettr/failed/{generation}/{worker}"
# an error of the script's own; empty: a new generation has begun
OWN_ERROR = "ettr/own-error/{worker}"
# by a rank that has trained to the end: `STOPPED` and the step where it was asked to
TRAINED = "ettr/trained/{generation}/{slot}"
STOPPED = "stopped after "
# by the supervisor: no node is there for slots that were lost; every rank has trained to the end
WAITING = "ettr/waiting/{generation}"
DONE = "ettr/done/{generation}"
STOP = "ettr/stop"
ENV_STORE = "ETTR_ELASTIC_STORE"
ENV_WORKER = "ETTR_ELASTIC_WORKER"
ENV_PROTOCOL = "ETTR_ELASTIC_PROTOCOL"
# Raised whenever keys or what stands under them change their meaning.
PROTOCOL = "6"
_MOST_STEPS = (1 << 63) - 1


class Cause(StrEnum):
    """Why a generation began."""

    START = "start"
    DIED = "died"
    HUNG = "hung"
    NETWORK = "network"  # collectives failed though no process died


@dataclass(frozen=True, slots=True)
class Membership:
    """One generation: which worker holds each slot, and what ended the generation before.

    Attributes:
        nodes: The node of each slot's worker; empty: all are on one machine.
        local_ranks: The place of each slot's worker on its node, which it keeps; empty: the slot.
        buddy_stride: The buddy of a slot is so many slots further on. One number for the whole
            run, because what a buddy holds must stay its predecessor's.
    """

    generation: int
    workers: tuple[str, ...]
    lost: tuple[int, ...] = ()
    cause: Cause = Cause.START
    noticed_s: float = 0.0
    hung_s: float = 0.0
    nodes: tuple[str, ...] = ()
    local_ranks: tuple[int, ...] = ()
    buddy_stride: int = 1

    @property
    def world(self) -> int:
        """Number of slots."""
        return len(self.workers)

    def node_of(self, slot: int) -> str:
        """The node of a slot; on one machine an empty name."""
        return self.nodes[slot] if self.nodes else ""

    def slot_of(self, worker: str) -> int | None:
        """The slot that a worker holds; None: it is a spare, or was replaced."""
        return self.workers.index(worker) if worker in self.workers else None

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Membership:
        """The membership that `to_json` wrote."""
        raw = json.loads(text)
        for name in ("workers", "lost", "nodes", "local_ranks"):
            raw[name] = tuple(raw[name])
        raw["cause"] = Cause(raw["cause"])
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's sign of life."""

    count: int = 0
    step: int = -1
    generation: int = 0
    collective_s: float = 0.0

    def to_text(self) -> str:
        """As it is in the store."""
        return f"{self.count}:{self.step}:{self.generation}:{self.collective_s!r}"

    @classmethod
    def from_text(cls, text: str | bytes) -> Heartbeat | None:
        """The heartbeat that `to_text` wrote; None for anything else, as a stranger may write."""
        try:
            decoded = text.decode() if isinstance(text, bytes) else text
            count, step, generation, collective_s = decoded.split(":")
            found = cls(int(count), int(step), int(generation), float(collective_s))
        except ValueError:
            return None
        is_step = -1 <= found.step <= _MOST_STEPS
        return found if is_step and math.isfinite(found.collective_s) else None


def check_protocol(of_supervisor: str | None) -> None:
    """Refuse a supervisor of another version of ettr."""
    if of_supervisor != PROTOCOL:
        raise UsageError(
            f"the supervisor has version {of_supervisor or '1'} of the elastic protocol and this "
            f"rank has version {PROTOCOL}: run `ettr elastic` and the script with the same ettr"
        )


# -- the thread that sends heartbeats, and ends the loop's waits when a new generation begins ------
# It also hears from the supervisor that the run is asked to end.


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
        """The loop begins to form the group of a generation: later ones end its waits.

        Raises:
            UsageError: it was closed: `run` was called before.
        """
        if self._closed:
            raise UsageError("run: was called before; call it once, with all that is to be trained")
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
                newest = int(self._store.get(GENERATION))
                if time.monotonic() - sent_s >= HEARTBEAT_S:
                    sent_s, count = time.monotonic(), count + 1
                    beat = Heartbeat(count, self.step, self._generation or 0, self._collective_s)
                    self._store.set(HEARTBEAT.format(worker=self._worker), beat.to_text())
                    if self.stop_reason is None and self._store.check([STOP]):
                        self.stop_reason = self._store.get(STOP).decode()
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


# -- which torchrun started this process ----------------------------------------------------------


_PROCESSES = Path("/proc")
# torchrun gives them to a rank, and a wrapper between the two has them as well. Others, like
# MASTER_PORT, a script may have changed before it asks.
_OF_A_RANK = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "RANK")


def torchrun_pid() -> int:
    """The nearest ancestor that was not started for this rank and this attempt."""
    pid = os.getppid()
    while pid > 1 and _is_of_this_rank(pid):
        pid = _parent_of(pid)
    return pid


def _is_of_this_rank(pid: int) -> bool:
    """Whether a process was started with the environment that torchrun has given this one."""
    try:
        started_with = (_PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # of another user, or it has just ended
        return False
    return all(f"{name}={os.environ.get(name)}".encode() in started_with for name in _OF_A_RANK)


def _parent_of(pid: int) -> int:
    stat = (_PROCESSES / str(pid) / "stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])  # the name in parentheses may hold anything


# -- connections to the supervisor's key-value store, and what ranks exchange through it -----------


MessageT = TypeVar("MessageT")


def connect(host: str, port: int, wait_s: float) -> Store:
    """A new connection to the supervisor's store."""
    from torch.distributed import TCPStore

    wait = timedelta(seconds=wait_s)
    store: Store = TCPStore(host, port, is_master=False, timeout=wait, wait_for_workers=False)
    return store


def wait_for_key(store: Store, key: str) -> None:
    """Sleep until a store has a key."""
    # in one wait, since torch writes a warning whenever one runs out; more days overflow its poll
    store.wait([key], timedelta(days=20))


def prefixed(prefix: str, store: Store) -> Store:
    """The part of a store below a prefix."""
    from torch.distributed import PrefixStore

    below: Store = PrefixStore(prefix, store)
    return below


class RankMessages:
    """Messages that all ranks of one generation exchange, as JSON through their store."""

    def __init__(self, store: Store, slot: int, world: int) -> None:
        self._store, self._slot, self._world = store, slot, world
        self._n_gathered = 0

    def gather(self, topic: str, message: MessageT) -> list[MessageT]:
        """The messages of all ranks, in the order of the slots; every rank calls it.

        A message is JSON, or a dataclass of it.
        """
        self._n_gathered += 1
        prefix = f"messages/{self._n_gathered}-{topic}"
        kind: Callable[..., MessageT] | None = None
        raw: Any = message
        if is_dataclass(raw):
            kind, raw = type(message), asdict(raw)  # type: ignore[arg-type]
        self._store.set(f"{prefix}/{self._slot}", json.dumps(raw))
        received = [json.loads(self._store.get(f"{prefix}/{s}")) for s in range(self._world)]
        return received if kind is None else [kind(**values) for values in received]
