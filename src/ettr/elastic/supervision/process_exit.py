"""See a process end before the kernel has finished with it.

A killed process gives its memory back first and closes its sockets after that; only then do its
peers get an error and its parent a status. With torch in memory that takes 0.1 s, with much host
memory seconds. The kernel marks it as ending from the moment of the kill. Linux only (/proc).
"""

from __future__ import annotations

import os

# field 9 of /proc/PID/stat, from include/linux/sched.h: the kernel is ending this task
_PF_EXITING = 0x4
_FLAGS_AFTER_NAME = 6
_STAT_BYTES = 1024


class ExitWatch:
    """Watches one process through its open stat file, so that no later process of its pid is met.

    Args:
        pid: a child that was not waited for yet.
    """

    def __init__(self, pid: int) -> None:
        self._fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def ending(self) -> bool:
        """Whether it is being ended, or has ended: none of its program runs any more."""
        if self._fd < 0:
            return True
        try:
            text = os.pread(self._fd, _STAT_BYTES, 0)
        except ProcessLookupError:
            return True
        # The name in parentheses may itself hold spaces and parentheses.
        fields = text[text.rindex(b")") + 1 :].split()
        return bool(int(fields[_FLAGS_AFTER_NAME]) & _PF_EXITING)

    def close(self) -> None:
        """Close the file; twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
