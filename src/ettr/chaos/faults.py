"""Each fault on a process or a file; every function returns what it did, in words. Linux only."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ettr.files import new_file

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
    known = {found.pid: found for found in map(_read, _numbers()) if found is not None}
    members = {root_pid}
    # Parents are older than children, but for a number that was used again: go until it settles.
    grown = True
    while grown:
        more = {p.pid for p in known.values() if p.parent in members} - members
        members |= more
        grown = bool(more)
    kept = [known[pid] for pid in members if pid in known]
    return sorted(kept, key=lambda found: (found.started, found.pid))


def _numbers() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


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


def resume(process: Process) -> str:
    """SIGCONT, if the process is still the same."""
    now = _read(process.pid)
    if now is None or now.started != process.started:
        return f"{_name(process)} is gone"
    os.kill(process.pid, signal.SIGCONT)
    return f"continued {_name(process)}"


def limit(process: Process, limit_bytes: int) -> tuple[str, tuple[int, int] | None]:
    """Let no file of the process grow beyond a size; returns what was done and the former limit."""
    try:
        before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    except OSError as error:
        return f"{_name(process)} could not be limited: {error.strerror}", None
    return f"limited files of {_name(process)} to {limit_bytes} bytes", before


def unlimit(process: Process, before: tuple[int, int]) -> str:
    """Restore the limit that `limit` found."""
    now = _read(process.pid)
    if now is None or now.started != process.started:
        return f"{_name(process)} is gone"
    with suppress(OSError):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
    return f"lifted the limit of {_name(process)}"


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
