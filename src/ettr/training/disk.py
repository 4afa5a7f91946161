"""The calls through which a slot file reaches the disk. Standard library only."""

from __future__ import annotations

import os
from typing import Protocol


class Disk(Protocol):
    """How bytes reach the disk; tests put their own in to tear and to fill it."""

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """Write some of `data` at `offset`; returns how much."""

    def fdatasync(self, fd: int) -> None:
        """Return once everything written is durable."""


class OsDisk:
    """The operating system's own calls."""

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """As os.pwrite."""
        return os.pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        """As os.fdatasync."""
        os.fdatasync(fd)
