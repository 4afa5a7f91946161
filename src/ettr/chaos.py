"""Run any command under a schedule of faults; report what was done and how it ended."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from ettr.errors import UsageError, refuse
from ettr.files import new_file

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
        launcher: the command only starts others, so that its own process is never hit. Otherwise
            it is hit as long as it has had no child, which a launcher that imports for half a
            minute has not, either.

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


class _Injector:
    """Carries out planned faults on a command, and undoes those that last for a while."""

    def __init__(self, root_pid: int, plan: ChaosPlan, *, launcher: bool) -> None:
        self._root_pid, self._plan = root_pid, plan
        # when each is to be undone, and by what
        self._held: list[tuple[float, Callable[[], None]]] = []
        self._is_launcher = launcher
        self._polls = 0
        self.done: list[InjectedFault] = []

    def look_for_children(self) -> None:
        """Note whether the command has children: once it had, it is a launcher until its end."""
        if not self._is_launcher:
            if self._polls % _POLLS_BETWEEN_LOOKS == 0:
                self._is_launcher = len(descendants(self._root_pid)) > 1
            self._polls += 1

    def release(self, now_s: float) -> None:
        """Undo what was held long enough."""
        over = [undo for until_s, undo in self._held if until_s <= now_s]
        self._held = [held for held in self._held if held[0] > now_s]
        for undo in over:
            with suppress(OSError):
                undo()

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
        processes = descendants(self._root_pid)
        self._is_launcher |= len(processes) > 1
        if self._is_launcher:
            processes = [one for one in processes if one.pid != self._root_pid]
        processes = [one for one in processes if self._plan.match in one.command]
        target = pick(processes, planned.target)
        if target is None:
            return None
        what = self._hit(planned, target, now_s)
        return f"{what}, {_ITSELF}" if target.pid == self._root_pid else what

    def _hit(self, planned: PlannedFault, target: Process, now_s: float) -> str:
        if planned.fault is Fault.KILL:
            return kill(target)
        if planned.fault is Fault.STOP:
            self._hold(now_s, lambda: resume(target))
            return stop(target)
        sizes = [path.stat().st_size for path in self._files()]
        what, before = limit(target, int(planned.place * max(sizes, default=1 << 20)))
        if before is not None:
            self._hold(now_s, lambda: unlimit(target, before))
        return what

    def _on_files(self, planned: PlannedFault, now_s: float) -> str | None:
        if planned.fault is Fault.FILL:
            folder = Path(self._plan.folder or ".")
            if not folder.is_dir():
                return None
            what, path = fill(folder, self._plan.ballast_bytes)
            self._hold(now_s, lambda: path.unlink(missing_ok=True))
            return what
        target = pick(self._files(), planned.target)
        if target is None:
            return None
        if planned.fault is Fault.FLIP:
            return flip(target, planned.place)
        return truncate(target, planned.place)

    def _hold(self, now_s: float, undo: Callable[[], None]) -> None:
        self._held.append((now_s + self._plan.hold_s, undo))

    def _files(self) -> list[Path]:
        if self._plan.folder is None:
            return []
        files = files_below(Path(self._plan.folder))
        return [path for path in files if not path.name.startswith(BALLAST_PREFIX)]


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
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """One fault as it was carried out."""

    planned_s: float
    at_s: float
    fault: str
    what: str
    hit: bool


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """What was done to a command, and how it ended."""

    command: tuple[str, ...]
    status: int | None
    wall_s: float
    done: tuple[InjectedFault, ...]
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
                {**asdict(one), "planned_s": round(one.planned_s, 3), "at_s": round(one.at_s, 3)}
                for one in self.done
            ],
        }


class Fault(StrEnum):
    """What is done to a run."""

    KILL = "kill"
    STOP = "stop"
    FLIP = "flip"
    TRUNCATE = "truncate"
    FILL = "fill"
    LIMIT = "limit"


ON_FILES = (Fault.FLIP, Fault.TRUNCATE, Fault.FILL)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault.

    target: which process or file, as a share of the list of them. place: where in the file, as a
    share of its bytes; for a limit, the share of the largest file.
    """

    at_s: float
    fault: Fault
    target: float
    place: float


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """A schedule and its bounds."""

    faults: tuple[PlannedFault, ...]
    folder: str | None = None
    match: str = ""
    hold_s: float = 5.0
    ballast_bytes: int = 1 << 28


def schedule(
    seed: int,
    kinds: Sequence[Fault | str],
    *,
    every_s: float,
    for_s: float,
    after_s: float = 0.0,
    at_most: int | None = None,
) -> tuple[PlannedFault, ...]:
    """Draw faults at exponential distances (a Poisson process), of kinds with equal chances.

    Args:
        kinds: one or more of `Fault`; name one twice to draw it twice as often.
        at_most: number of faults; None: as many as fall into the time.

    Raises:
        UsageError: an option is out of range; all problems at once.
    """
    problems = []
    known = {str(fault) for fault in Fault}
    unknown = [str(kind) for kind in kinds if str(kind) not in known]
    if not kinds:
        problems.append(f"no fault was given; name one or more of {', '.join(sorted(known))}")
    if unknown:
        problems.append(
            f"fault: {', '.join(unknown)} was given; give one of {', '.join(sorted(known))}"
        )
    for name, value in (("every_s", every_s), ("for_s", for_s)):
        if not value > 0:
            problems.append(f"{name}: {value} was given; give a number above 0")
    if after_s < 0:
        problems.append(f"after_s: {after_s} was given; give 0 or more")
    refuse("chaos", problems)
    rng = random.Random(seed)  # noqa: S311 - a schedule is to be repeated, not to be secret
    found: list[PlannedFault] = []
    at_s = after_s
    while at_most is None or len(found) < at_most:
        at_s += rng.expovariate(1 / every_s)
        if at_s > after_s + for_s:
            break
        kind = Fault(str(kinds[rng.randrange(len(kinds))]))
        found.append(PlannedFault(at_s, kind, rng.random(), rng.random()))
    return tuple(found)


# -- Each fault on a process or a file; every function returns what it did, in words. Linux only --

_PROC = Path("/proc")
_CHUNK_BYTES = 1 << 20
BALLAST_PREFIX = ".ettr-ballast-"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its number, when it started (kernel ticks), and its command line."""

    pid: int
    parent: int
    started: int
    command: str


def descendants(root_pid: int) -> list[Process]:
    """The processes below one, itself included, oldest first; zombies left out."""
    pids = [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]
    known = {found.pid: found for found in map(_read, pids) if found is not None}
    members = {root_pid}
    # Parents are older than children, but for a number that was used again: go until it settles.
    grown = True
    while grown:
        more = {p.pid for p in known.values() if p.parent in members} - members
        members |= more
        grown = bool(more)
    kept = [known[pid] for pid in members if pid in known]
    return sorted(kept, key=lambda found: (found.started, found.pid))


def _read(pid: int) -> Process | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
        command = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    rest = stat[stat.rindex(")") + 2 :].split()
    if rest[0] in "ZX":
        return None
    return Process(
        pid, int(rest[1]), int(rest[19]), command.replace(b"\0", b" ").decode(errors="replace")
    )


def pick(items: Sequence[T], share: float) -> T | None:
    """The item at a share of a list; None from an empty one."""
    return items[min(int(share * len(items)), len(items) - 1)] if items else None


def kill(process: Process) -> str:
    """SIGKILL."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    return f"killed {_name(process)}"


def stop(process: Process) -> str:
    """SIGSTOP."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGSTOP)
    return f"stopped {_name(process)}"


def resume(process: Process) -> None:
    """SIGCONT, if the process is still the same."""
    if _is_still_there(process):
        os.kill(process.pid, signal.SIGCONT)


def limit(process: Process, limit_bytes: int) -> tuple[str, tuple[int, int] | None]:
    """Let no file of the process grow beyond a size; returns what was done and the former limit."""
    try:
        before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    except OSError as error:
        return f"{_name(process)} could not be limited: {error.strerror}", None
    return f"limited files of {_name(process)} to {limit_bytes} bytes", before


def unlimit(process: Process, before: tuple[int, int]) -> None:
    """Restore the limit that `limit` found, if the process is still the same."""
    if _is_still_there(process):
        with suppress(OSError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)


def _is_still_there(process: Process) -> bool:
    now = _read(process.pid)
    return now is not None and now.started == process.started


def files_below(folder: Path) -> list[Path]:
    """Regular files that are not empty, by name."""
    found = []
    for parent, _folders, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            with suppress(OSError):
                if path.is_file() and not path.is_symlink() and path.stat().st_size:
                    found.append(path)
    return sorted(found)


def flip(path: Path, place: float) -> str:
    """Flip one bit of a file."""
    size = path.stat().st_size
    bit = min(int(place * size * 8), size * 8 - 1)
    fd = os.open(path, os.O_RDWR)
    try:
        byte = os.pread(fd, 1, bit // 8)
        os.pwrite(fd, bytes([byte[0] ^ (1 << bit % 8)]), bit // 8)
    finally:
        os.close(fd)
    return f"flipped bit {bit % 8} of byte {bit // 8} in {path}"


def truncate(path: Path, place: float) -> str:
    """Cut a file to a part of its length."""
    size = path.stat().st_size
    kept = int(place * size)
    os.truncate(path, kept)
    return f"cut {path} from {size} to {kept} bytes"


def fill(folder: Path, ballast_bytes: int) -> tuple[str, Path]:
    """Write a ballast file of at most so many bytes, or until the disk is full."""
    path = folder / f"{BALLAST_PREFIX}{os.urandom(8).hex()}"
    fd = new_file(path, 0o600)
    taken, why = 0, "as much as was asked for"
    try:
        while taken < ballast_bytes:
            length = min(_CHUNK_BYTES, ballast_bytes - taken)
            taken += os.write(fd, b"\0" * length)
    except OSError as error:
        why = error.strerror or str(error)
    finally:
        os.close(fd)
    return f"ballast of {taken} bytes in {folder} ({why})", path


def _name(process: Process) -> str:
    return f"pid {process.pid} ({process.command.strip()[:60]})"
