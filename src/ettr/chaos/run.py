"""Run any command under a schedule of faults, and report what was done and how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ettr.chaos import faults
from ettr.chaos.report import ChaosReport, InjectedFault
from ettr.chaos.schedule import ON_FILES, ChaosPlan, Fault, PlannedFault
from ettr.errors import UsageError

_POLL_S = 0.02
_POLLS_BETWEEN_LOOKS = 25  # each look reads all of /proc
_ITSELF = "the command itself, of which no child was seen so far"


def run(
    command: Sequence[str],
    plan: ChaosPlan,
    *,
    timeout_s: float | None = None,
    launcher: bool = False,
    on_event: Callable[[str], None] = lambda _text: None,
    clock: Callable[[], float] = time.monotonic,
) -> ChaosReport:
    """Run a command under a plan until it ends; returns what was done to it.

    Whatever is held (stopped processes, limits, ballast) is released before this returns, and no
    process of the command is left behind.

    Args:
        command: the program and its arguments.
        timeout_s: the command is killed after so long; None: never.
        launcher: the command only starts others, so that its own process is never hit. Otherwise it
            is hit as long as it has had no child, which a launcher that imports for half a minute
            has not, either.
        on_event: called with each fault, in a sentence.

    Raises:
        UsageError: no command; or a fault on files and no folder.
    """
    _check(command, plan)
    # A process group of its own, so that nothing of it outlives this call.
    child = subprocess.Popen(list(command), start_new_session=True)
    injector = _Injector(child.pid, plan, launcher=launcher)
    waiting = list(plan.faults)
    begin_s, timed_out = clock(), False
    try:
        while child.poll() is None:
            now_s = clock() - begin_s
            if timeout_s is not None and now_s > timeout_s:
                timed_out = True
                break
            injector.release(now_s)
            injector.look_for_children()
            if waiting and waiting[0].at_s <= now_s:
                on_event(injector.inject(waiting.pop(0), now_s).what)
            time.sleep(_POLL_S)
    finally:
        injector.release(float("inf"))
        _end(child)
    wall_s = clock() - begin_s
    done = tuple(injector.done)
    return ChaosReport(tuple(command), child.returncode, wall_s, done, len(waiting), timed_out)


@dataclass(frozen=True, slots=True)
class _Held:
    """Something that is undone when its time is over."""

    until_s: float
    undo: Callable[[], str]


class _Injector:
    """Carries out planned faults on a command, and undoes those that last for a while.

    Args:
        root_pid: the command's own process.
        launcher: it only starts others, and is left alone; otherwise only once it has had children.
    """

    def __init__(self, root_pid: int, plan: ChaosPlan, *, launcher: bool) -> None:
        self._root_pid, self._plan = root_pid, plan
        self._held: list[_Held] = []
        self._is_launcher = launcher
        self._polls = 0
        self.done: list[InjectedFault] = []

    def look_for_children(self) -> None:
        """Note whether the command has children: once it had, it is a launcher until its end."""
        if not self._is_launcher:
            if self._polls % _POLLS_BETWEEN_LOOKS == 0:
                self._is_launcher = len(faults.descendants(self._root_pid)) > 1
            self._polls += 1

    def release(self, now_s: float) -> None:
        """Undo what was held long enough."""
        for held in [one for one in self._held if one.until_s <= now_s]:
            self._held.remove(held)
            with contextlib.suppress(OSError):
                held.undo()

    def inject(self, planned: PlannedFault, now_s: float) -> InjectedFault:
        """Carry out one fault on whatever is there to hit."""
        on_target = self._on_files if planned.fault in ON_FILES else self._on_process
        missed = f"{planned.fault}: there is nothing to hit"
        try:
            what = on_target(planned, now_s)
        except OSError as error:
            what, missed = None, f"{planned.fault}: {error.strerror or error}"
        done = InjectedFault(
            planned.at_s, now_s, str(planned.fault), what or missed, what is not None
        )
        self.done.append(done)
        return done

    def _on_process(self, planned: PlannedFault, now_s: float) -> str | None:
        processes = faults.descendants(self._root_pid)
        self._is_launcher |= len(processes) > 1
        if self._is_launcher:
            processes = [one for one in processes if one.pid != self._root_pid]
        processes = [one for one in processes if self._plan.match in one.command]
        target = faults.pick(processes, planned.target)
        if target is None:
            return None
        what = self._hit(planned, target, now_s)
        return f"{what}, {_ITSELF}" if target.pid == self._root_pid else what

    def _hit(self, planned: PlannedFault, target: faults.Process, now_s: float) -> str:
        if planned.fault is Fault.KILL:
            return faults.kill(target)
        if planned.fault is Fault.STOP:
            self._hold(now_s, lambda: faults.resume(target))
            return faults.stop(target)
        sizes = [path.stat().st_size for path in self._files()]
        what, before = faults.limit(target, int(planned.place * max(sizes, default=1 << 20)))
        if before is not None:
            self._hold(now_s, lambda: faults.unlimit(target, before))
        return what

    def _on_files(self, planned: PlannedFault, now_s: float) -> str | None:
        if planned.fault is Fault.FILL:
            folder = Path(self._plan.folder or ".")
            if not folder.is_dir():
                return None
            what, path = faults.fill(folder, self._plan.ballast_bytes)
            self._hold(now_s, lambda: _remove(path))
            return what
        target = faults.pick(self._files(), planned.target)
        if target is None:
            return None
        if planned.fault is Fault.FLIP:
            return faults.flip(target, planned.place)
        return faults.truncate(target, planned.place)

    def _hold(self, now_s: float, undo: Callable[[], str]) -> None:
        self._held.append(_Held(now_s + self._plan.hold_s, undo))

    def _files(self) -> list[Path]:
        if self._plan.folder is None:
            return []
        files = faults.files_below(Path(self._plan.folder))
        return [path for path in files if not path.name.startswith(faults.BALLAST_PREFIX)]


def _check(command: Sequence[str], plan: ChaosPlan) -> None:
    if not command:
        raise UsageError("chaos: no command was given; put it behind --")
    on_files = sorted({str(f.fault) for f in plan.faults if f.fault in ON_FILES})
    if on_files and plan.folder is None:
        raise UsageError(f"chaos: {', '.join(on_files)} needs a folder; give the one to damage")
    if plan.folder is not None and Path(plan.folder).resolve() in (Path("/"), Path.home()):
        raise UsageError(
            f"chaos: {plan.folder} is not a folder to damage; give one that holds nothing else"
        )


def _end(child: subprocess.Popen[bytes]) -> None:
    # Processes that the end of the command has left are members of its group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _remove(path: Path) -> str:
    path.unlink(missing_ok=True)
    return f"removed {path}"
