"""Shut down a process group's connections, so that a collective that waits for the dead raises.

gloo informs only the ranks that were just exchanging data with the dead one; the others wait for
the group's timeout, and `ProcessGroup.abort` does nothing on gloo. Shutting the sockets down from
another thread ends every wait at once. Linux only (/proc).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path

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
