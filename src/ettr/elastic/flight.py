"""Flight records of collectives that hang, written by a thread: with or without the supervisor.

PyTorch records the collectives of every rank in memory. NCCL writes the record by itself when a
collective times out; gloo never does, and after the timeout it shows no cause. In a training
script, once the process group exists:

    with FlightWatcher("records/"):
        train()

`ettr explain --flight records/` says which rank the others wait for.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from importlib import import_module
from pathlib import Path
from types import TracebackType

from ettr.errors import UsageError
from ettr.files import written_whole
from ettr.flight.record import ADDED

_LOG = logging.getLogger(__name__)
_BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_LOOKS_PER_STALL = 8


class FlightWatcher:
    """Writes this rank's record when it has started no collective for `after_s` seconds.

    It writes again once the rank moves on, so that a slow rank is not taken for a missing one, and
    when the block is left by an exception. A record of a stall stays as it is until then: what is
    written after a timeout shows no cause. Stack traces are left out; collecting them imports a
    compiler, and takes seconds.

    Args:
        after_s: longer than the longest pause between collectives, shorter than their timeout.

    Raises:
        UsageError: there is no process group yet, or PyTorch's recorder is switched off.
    """

    def __init__(
        self, folder: str | os.PathLike[str], after_s: float = 60.0, node: str | None = None
    ) -> None:
        import torch.distributed as dist

        if not dist.is_initialized():
            raise UsageError("FlightWatcher: call torch.distributed.init_process_group first")
        if all(os.environ.get(name, "0") == "0" for name in _BUFFER):
            raise UsageError(
                "FlightWatcher: PyTorch may record nothing; set TORCH_FR_BUFFER_SIZE=2000 in the "
                "environment of the job"
            )
        if after_s <= 0:
            raise UsageError(f"FlightWatcher: after_s={after_s}; give seconds above 0")
        self._path = Path(folder) / f"rank_{dist.get_rank()}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._facts = {
            "rank": dist.get_rank(),
            "world_size": dist.get_world_size(),
            "node": node or socket.gethostname(),
            "after_s": after_s,
        }
        self._after_s = after_s
        self._over = threading.Event()
        self._written = False
        # what the rank had started when the newest record of a stall was written
        self._stalled: object = None
        self._thread = threading.Thread(target=self._watch, name="ettr-flight", daemon=True)

    def __enter__(self) -> FlightWatcher:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; leave a record of a failure, and bring one of an earlier stall up to date."""
        self._over.set()
        self._thread.join()
        if self._stalled != _started() and (kind is not None or self._written):
            self._write("end" if kind is None else "failure")

    def _watch(self) -> None:
        seen, since_s = _started(), time.monotonic()
        while not self._over.wait(self._after_s / _LOOKS_PER_STALL):
            now = _started()
            if now != seen:
                if self._stalled == seen:
                    self._write("moved")
                seen, since_s = now, time.monotonic()
            elif time.monotonic() - since_s >= self._after_s and self._stalled != now:
                self._stalled = now
                self._write("stall")

    def _write(self, reason: str) -> None:
        facts = {**self._facts, "reason": reason, "written_ns": time.time_ns(), "groups": _groups()}
        try:
            with written_whole(self._path) as file:
                # PyTorch's own layout stays as it is: it is read three times as fast
                file.write(_dump().rstrip()[:-1])
                file.write(f',"{ADDED}":{json.dumps(facts)}}}'.encode())
            self._written = True
        except OSError as error:
            _LOG.warning("no flight record in %s: %s", self._path, error)


def _dump(**chosen: bool) -> bytes:
    """PyTorch's record as JSON; its stubs lack the function."""
    dumped: bytes = import_module("torch._C._distributed_c10d")._dump_fr_trace_json(**chosen)
    return dumped


def _started() -> dict[str, object]:
    """How many collectives the rank has started, by group."""
    status = json.loads(_dump(includeCollectives=False)).get("pg_status") or {}
    return {name: group["last_enqueued_collective"] for name, group in status.items()}


def _groups() -> dict[str, list[int]]:
    """The members of each group that this rank knows; gloo's records do not say."""
    from torch.distributed import distributed_c10d as c10d

    world = c10d._world
    return {
        name: sorted(world.pg_group_ranks.get(group, {})) for group, name in world.pg_names.items()
    }
