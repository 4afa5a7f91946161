"""What a writer has made durable: the files and folders it has called fsync for."""

import os
from pathlib import Path

import pytest


def synced_paths(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A list to which every path is added from here on when it is flushed to the disk."""
    synced: list[Path] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return synced
