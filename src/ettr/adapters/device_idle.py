"""How long a CUDA device had nothing to do while the host waited for data.

    for batch in recorder.batches(loader, idle=DeviceIdle()):
        train_step(batch)

An event is put behind all queued work when a wait begins, and one when it is over. If the first has
not been reached by then, the device was busy throughout; else the time between the two is what it
was idle. Nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_MOST_PENDING = 64


class DeviceIdle:
    """Idle time of the current CUDA stream during waits for data.

    Args:
        new_event: makes an event with `record`, `query` and `elapsed_time`; None: CUDA's.
    """

    def __init__(self, new_event: Callable[[], Any] | None = None) -> None:
        self._new_event = new_event or _cuda_event
        self._begin: Any = None
        self._pending: list[tuple[Any, Any]] = []
        self._idle_s = 0.0

    def begin(self) -> None:
        """A wait begins."""
        self._begin = self._new_event()
        self._begin.record()

    def end(self) -> None:
        """The wait is over."""
        if self._begin is not None and self._begin.query():
            over = self._new_event()
            over.record()
            self._pending.append((self._begin, over))
            if len(self._pending) > _MOST_PENDING:
                self._settle()
        self._begin = None

    def taken_s(self) -> float:
        """Idle seconds of the waits since the last call."""
        self._settle()
        idle_s, self._idle_s = self._idle_s, 0.0
        return idle_s

    def _settle(self) -> None:
        # An event that is not reached yet has earlier work before it: the device was not idle.
        reached = [pair for pair in self._pending if pair[1].query()]
        self._idle_s += sum(begin.elapsed_time(end) for begin, end in reached) / 1000
        self._pending = []


def _cuda_event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def idle_of(device: Any) -> tuple[bool, DeviceIdle | None]:
    """Whether waits for data are known on a device, and its probe; a CPU has no work queued."""
    kind = torch.device(device).type
    return kind in ("cpu", "cuda"), DeviceIdle() if kind == "cuda" else None
