"""Which process is the torchrun that has started this rank. Linux only (/proc).

It lives over all attempts, and so names what they share. It need not be the parent: a wrapper
(`torchrun --no-python ./launch.sh`, a profiler) is another process in every attempt.
"""

from __future__ import annotations

import os
from pathlib import Path

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
