"""A notice that a run has to end soon: a signal, or a time that is nearly over.

    with StopNotice(deadline_s=4 * 3600.0) as notice:
        for step in ...:
            train_step()
            if reason := notice.asked():
                checkpoint.save_all(step)
                raise RunStopped(step, reason)

A signal is only noted: the step that is under way ends first. If the process is killed while it
saves, the copy before is whole. Standard library only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from ettr.errors import UsageError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

EXIT_STATUS = os.EX_TEMPFAIL
"""75, "try again later" in sysexits.h: what a job script requeues on."""

_KEY = "ettr/stop"
_POLL_S = 0.02


class RunStopped(SystemExit):
    """The run was asked to end, and did after a step; the process ends with status 75."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(EXIT_STATUS)
        self.step, self.reason = step, reason


class StopNotice(AbstractContextManager["StopNotice"]):
    """Whether the run was asked to end; listens for signals from entering to leaving it.

    Signals are heard in the main thread only. One for which the program has a handler of its own
    stays with that handler, which may call `ask`.

    Args:
        deadline_s: seconds from now at which the run is killed; None: it may last.

    Raises:
        UsageError: a time is out of range.
    """

    def __init__(
        self,
        *,
        signals: Iterable[signal.Signals] = (signal.SIGTERM,),
        deadline_s: float | None = None,
        margin_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        install: Callable[[int, object], object] = signal.signal,  # type: ignore[assignment]
        installed: Callable[[int], object] = signal.getsignal,
    ) -> None:
        for name, value in (("deadline_s", deadline_s), ("margin_s", margin_s)):
            if value is not None and not value >= 0:
                raise UsageError(f"{name}: {value} was given; give 0 or more")
        self._signals, self._margin_s, self._clock = tuple(signals), margin_s, clock
        self._end_s = None if deadline_s is None else clock() + deadline_s
        self._install, self._installed = install, installed
        self._before: dict[signal.Signals, object] = {}
        self._reason: str | None = None

    def listen(self) -> None:
        """Note the signals from now on; twice is harmless."""
        for number in self._signals:
            if self._installed(number) is signal.SIG_DFL:
                with suppress(ValueError):  # not the main thread
                    self._before[number] = self._install(number, self._note)

    def ask(self, reason: str) -> None:
        """Ask as a signal does; the first reason counts."""
        self._reason = self._reason or reason

    def asked(self, *, needs_s: float = 0.0) -> str | None:
        """Why the run has to end; None: it goes on.

        Args:
            needs_s: what another step and a save take; counts where it is more than the margin.
        """
        if self._end_s is not None and self._reason is None:
            left_s = self._end_s - self._clock()
            if left_s <= max(self._margin_s, needs_s):
                self.ask(f"{max(0.0, left_s):.0f} s are left until the deadline")
        return self._reason

    def close(self) -> None:
        """Give the signals back; twice is harmless."""
        while self._before:
            number, before = self._before.popitem()
            if self._installed(number) == self._note:
                self._install(number, before)

    def __enter__(self) -> StopNotice:
        self.listen()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.ask(f"{signal.Signals(number).name} came")


class AgreedStop:
    """The step after which all ranks end, agreed without a collective.

    A rank that was asked names the step after the one that it has made. Ranks that train together
    cannot have finished that step before it was named: it needs this rank too.
    """

    def __init__(self, store: Store | None = None, world: int = 1) -> None:
        self._store, self._world = store, world
        self._last: int | None = None

    def ends_after(self, step: int, *, asked: bool) -> bool:
        """Whether this step, which was made, is the last."""
        if self._store is None:
            return asked
        if self._last is None and asked:
            self._last = int(self._store.compare_set(_KEY, "", str(step + 1)))
        elif self._last is None and self._store.check([_KEY]):
            self._last = int(self._store.get(_KEY))
        return self._last is not None and step >= self._last

    def wait_for_all(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Return when every rank has saved, or the time is over.

        The store lives in one of the ranks, and the others may still have to ask it.
        """
        if self._store is None:
            return
        end_s, saved = clock() + timeout_s, f"{_KEY}/saved"
        with suppress(RuntimeError):  # whoever has the store has gone: all had saved
            n_saved = self._store.add(saved, 1)
            while n_saved < self._world and clock() < end_s:
                time.sleep(_POLL_S)
                n_saved = self._store.add(saved, 0)
