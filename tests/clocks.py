"""Clocks for tests: what they time must not depend on how busy the machine is."""

import time
from collections.abc import Callable
from pathlib import Path


def time_since(marker: Path) -> Callable[[], float]:
    """A clock that stands still until a file is there."""
    begin_s: list[float] = []

    def clock() -> float:
        if not begin_s and marker.exists():
            begin_s.append(time.monotonic())
        return time.monotonic() - begin_s[0] if begin_s else 0.0

    return clock
