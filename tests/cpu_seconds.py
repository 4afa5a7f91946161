"""CPU seconds of tests by room and group: their own process's and those of children that ended.

A worker writes what each test took into its report; what is left of the worker's own time is its
start: imports, collection, the session. Children that outlive their test count where they end, and
those that nobody waits for are in no figure.
"""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

COLUMNS = ("quick", "slow", "torch", "services")
SERVICES = frozenset(("slurm", "spark", "postgres", "browser"))
START = "start of workers"


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    both = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def largest_mb() -> float:
    """Largest size in memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def room_of(path: str) -> str:
    """The folder of `tests` in which a test lies."""
    parts = Path(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else "(none)"


def group_of(marks: Iterable[str]) -> str:
    """The column in which a test counts: the dearest of its groups."""
    names = set(marks)
    if names & SERVICES:
        return "services"
    return next((name for name in ("torch", "slow") if name in names), "quick")


@dataclass
class Figures:
    """CPU seconds and tests by room and column; the largest worker."""

    cpu: Counter[tuple[str, str]] = field(default_factory=Counter)
    tests: Counter[str] = field(default_factory=Counter)
    largest_mb: float = 0.0

    def add(self, room: str, group: str, spent_s: float, tests: int = 1) -> None:
        """Count a test, or what belongs to none."""
        self.cpu[room, group] += spent_s
        self.tests[room] += tests

    def merge(self, other: Figures) -> None:
        """Add the figures of another run."""
        self.cpu.update(other.cpu)
        self.tests.update(other.tests)
        self.largest_mb = max(self.largest_mb, other.largest_mb)

    def write(self, path: Path) -> None:
        """Write them as JSON."""
        cpu = [[*key, value] for key, value in self.cpu.items()]
        path.write_text(json.dumps({"cpu": cpu, "tests": self.tests, "mb": self.largest_mb}))

    @classmethod
    def read(cls, path: Path) -> Figures:
        """Read what `write` wrote."""
        found = json.loads(path.read_text())
        cpu = Counter({(room, group): value for room, group, value in found["cpu"]})
        return cls(cpu, Counter(found["tests"]), found["mb"])

    def lines(self) -> list[str]:
        """A table in Markdown, the dearest room first."""
        total = Counter[str]()
        for (room, _), value in self.cpu.items():
            total[room] += value
        head = ("room", "tests", "CPU s", *COLUMNS)
        rows = [
            (room, f"{self.tests[room]}", f"{total[room]:.1f}", *self._cells(room))
            for room in sorted(total, key=lambda room: -total[room])
        ]
        every = [sum(self.cpu[room, column] for room in total) for column in COLUMNS]
        whole = (f"{self.tests.total()}", f"{total.total():.1f}", *(f"{one:.1f}" for one in every))
        widths = [
            max(map(len, column)) for column in zip(head, ("all", *whole), *rows, strict=True)
        ]
        rule = "|".join("-" * (width + 1) + (":" if at else "-") for at, width in enumerate(widths))
        return [
            _row(head, widths),
            f"|{rule}|",
            *(_row(row, widths) for row in rows),
            _row(("all", *whole), widths),
            f"The largest worker took {self.largest_mb:,.0f} MB.",
        ]

    def _cells(self, room: str) -> list[str]:
        return [f"{self.cpu[room, one]:.1f}" if (room, one) in self.cpu else "" for one in COLUMNS]


def _row(cells: Iterable[str], widths: list[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return f"| {first[0]:<{first[1]}} | " + " | ".join(f"{c:>{w}}" for c, w in rest) + " |"
