"""Run any command under a schedule of faults, and report what was done and how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ettr.chaos import faults
from ettr.chaos.schedule import ON_FILES, ChaosPlan, Fault, PlannedFault
from ettr.errors import UsageError

_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Done:
    """One fault as it was done: planned and real time since the start, and what was done."""

    planned_s: float
    at_s: float
    fault: str
    what: str
    hit: bool


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """What was done to a command, and how it ended; `status` is negative for a signal."""

    command: tuple[str, ...]
    status: int | None
    wall_s: float
    done: tuple[Done, ...]
    not_reached: int
    timed_out: bool

    @property
    def survived(self) -> bool:
        """Whether the command ended with status 0."""
        return self.status == 0 and not self.timed_out

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "command": list(self.command),
            "status": self.status,
            "survived": self.survived,
            "timed_out": self.timed_out,
            "wall_s": round(self.wall_s, 3),
            "faults_not_reached": self.not_reached,
            "faults": [
                {
                    "planned_s": round(one.planned_s, 3),
                    "at_s": round(one.at_s, 3),
                    "fault": one.fault,
                    "what": one.what,
                    "hit": one.hit,
                }
                for one in self.done
            ],
        }


@dataclass(slots=True)
class _Pending:
    """Something that is undone when its time is over."""

    at_s: float
    undo: Callable[[], str]


@dataclass(slots=True)
class _State:
    begin_s: float
    child: subprocess.Popen[bytes]
    done: list[Done] = field(default_factory=list)
    pending: list[_Pending] = field(default_factory=list)


def run(
    command: Sequence[str],
    plan: ChaosPlan,
    *,
    timeout_s: float | None = None,
    spare_root: bool = True,
    on_event: Callable[[str], None] = lambda _text: None,
    clock: Callable[[], float] = time.monotonic,
) -> ChaosReport:
    """Run a command under a plan until it ends; returns what was done to it.

    Whatever is held (stopped processes, limits, ballast) is given back before this returns, and no
    process of the command is left behind.

    Args:
        command: the program and its arguments.
        timeout_s: the command is killed after so long; None: never.
        spare_root: leave the command's own process alone where it has children (a launcher).
        on_event: called with a sentence for each fault.

    Raises:
        UsageError: no command; or a fault on files and no folder.
    """
    _check(command, plan)
    # A group of its own, so that nothing of it outlives this call.
    child = subprocess.Popen(list(command), start_new_session=True)
    state = _State(clock(), child)
    waiting = list(plan.faults)
    timed_out = False
    try:
        while child.poll() is None:
            now_s = clock() - state.begin_s
            if timeout_s is not None and now_s > timeout_s:
                timed_out = True
                break
            _undo(state, now_s)
            if waiting and waiting[0].at_s <= now_s:
                _do(waiting.pop(0), plan, state, now_s, spare_root)
                on_event(state.done[-1].what)
            time.sleep(_LOOK_S)
    finally:
        _undo(state, float("inf"))
        # Members that the end of the command has left: they are in its group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return ChaosReport(
        tuple(command),
        child.returncode,
        clock() - state.begin_s,
        tuple(state.done),
        len(waiting),
        timed_out,
    )


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


def _undo(state: _State, now_s: float) -> None:
    for pending in [p for p in state.pending if p.at_s <= now_s]:
        state.pending.remove(pending)
        with contextlib.suppress(OSError):
            pending.undo()


def _do(
    planned: PlannedFault, plan: ChaosPlan, state: _State, now_s: float, spare_root: bool
) -> None:
    try:
        what = (
            _on_files(planned, plan, state, now_s)
            if planned.fault in ON_FILES
            else _on_process(planned, plan, state, now_s, spare_root)
        )
    except OSError as error:
        what = None
        missed = f"{planned.fault}: {error.strerror or error}"
    else:
        missed = f"{planned.fault}: there is nothing to hit"
    state.done.append(
        Done(planned.at_s, now_s, str(planned.fault), what or missed, what is not None)
    )


def _on_process(
    planned: PlannedFault, plan: ChaosPlan, state: _State, now_s: float, spare_root: bool
) -> str | None:
    found = faults.descendants(state.child.pid, plan.match)
    if spare_root and len(found) > 1:
        found = [one for one in found if one.pid != state.child.pid]
    target = faults.picked(found, planned.target)
    if target is None:
        return None
    until_s = now_s + plan.hold_s
    if planned.fault is Fault.KILL:
        return faults.kill(target)
    if planned.fault is Fault.STOP:
        state.pending.append(_Pending(until_s, lambda: faults.go_on(target)))
        return faults.stop(target)
    sizes = [p.stat().st_size for p in _files(plan)]
    what, before = faults.limit(target, int(planned.place * max(sizes, default=1 << 20)))
    if before is not None:
        state.pending.append(_Pending(until_s, lambda: faults.unlimit(target, before)))
    return what


def _on_files(planned: PlannedFault, plan: ChaosPlan, state: _State, now_s: float) -> str | None:
    if planned.fault is Fault.FILL:
        folder = Path(plan.folder or ".")
        if not folder.is_dir():
            return None
        what, path = faults.fill(folder, plan.ballast_bytes)
        state.pending.append(_Pending(now_s + plan.hold_s, lambda: _remove(path)))
        return what
    target = faults.picked(_files(plan), planned.target)
    if target is None:
        return None
    if planned.fault is Fault.FLIP:
        return faults.flip(target, planned.place)
    return faults.truncate(target, planned.place)


def _files(plan: ChaosPlan) -> list[Path]:
    found = faults.files_below(Path(plan.folder)) if plan.folder is not None else []
    return [path for path in found if not path.name.startswith(".ettr-ballast-")]


def _remove(path: Path) -> str:
    path.unlink(missing_ok=True)
    return f"removed {path}"
