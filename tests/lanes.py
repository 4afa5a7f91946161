"""All tests in two lanes side by side: what computes, and what mostly waits.

    python tests/lanes.py [--computing N] [--waiting N] [pytest's own options]

Tests that compute get a worker for each core. Those that wait (for killed ranks, timeouts, Slurm's
clock, a browser) get more workers than cores, since they leave the cores to others. Each lane is a
pytest of its own, which collects only its files; both exit statuses count. At the end stand CPU
seconds by room, the tests that failed, and pytest's line of counts for both together.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _pytest.assertion import rewrite

from cpu_seconds import Figures

COMPUTING, WAITING = "computing", "waiting"
LANES = (COMPUTING, WAITING)
HERE = Path(__file__).resolve().parent
NOTHING_RAN = 5
_WAITING_ROOMS = frozenset(("adapters", "chaos", "collect", "elastic", "slurm"))
_WAITING_FILES = re.compile(r"browser|postgres|spool|kills_benchmark|simulated_pages")
_LAST_LINE = re.compile(
    r"(?:=+ )?((?:\d+ \w+(?:, )?)+|no tests ran) in [\d.]+s(?: \([\d:]+\))?(?: =+)?"
)
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|deselected|xfailed|xpassed|warnings?|errors?)")


def lane_of(path: Path) -> str:
    """The lane of a test file, by its room or name."""
    waits = path.parent.name in _WAITING_ROOMS or _WAITING_FILES.search(path.name)
    return WAITING if waits else COMPUTING


@dataclass
class Lane:
    """One pytest, its lines as they come, and the counts of its last line."""

    name: str
    process: subprocess.Popen[str]
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    said_last: bool = False

    def follow(self, seen: set[str], lock: threading.Lock) -> None:
        """Print each line behind the lane's name, but the last, which is said for both lanes."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            text = line.rstrip("\n")
            if found := _LAST_LINE.fullmatch(text):
                self.said_last = True
                for number, word in _COUNT.findall(found[1]):
                    self.counts[_plural(word)] += int(number)
                continue
            if text.startswith(("FAILED ", "ERROR ")):
                self.failures.append(text)
            with lock:
                if text.startswith("left out: ") and text in seen:
                    continue  # both lanes say it
                seen.add(text)
                print(f"{self.name:>9} {text}".rstrip(), flush=True)


def rewrite_assertions(paths: Iterable[Path]) -> None:
    """Keep the bytecode of test modules where pytest looks for it, their assertions rewritten.

    Else each worker, which has to import all modules of its lane, rewrites them for itself: most
    of the seconds of its start.
    """
    config: Any = SimpleNamespace(getini=lambda _name: False)
    state: Any = SimpleNamespace(trace=lambda _line: None)
    for path in paths:
        kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite.try_makedirs(kept.parent) and rewrite._read_pyc(path, kept) is None:
            source, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(state, code, source, kept)


def status_of(lanes: list[Lane]) -> int:
    """The exit status of all: the worst one; a lane without tests is fine beside one with some."""
    statuses = [lane.process.returncode for lane in lanes]
    ran = [status for status in statuses if status != NOTHING_RAN]
    if not ran:
        return NOTHING_RAN
    if any(
        status == 0 and not lane.said_last for status, lane in zip(statuses, lanes, strict=True)
    ):
        return 1  # it ended well and never said what it ran
    return max(ran, key=abs) % 256


def last_line(counts: Counter[str], seconds: float) -> str:
    """The line of counts with which pytest ends, for both lanes."""
    order = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings")
    words = [f"{counts[word]} {word}" for word in (*order, "errors") if counts[word]]
    text = f" {', '.join(words) or 'no tests ran'} in {seconds:.2f}s "
    return text.center(80, "=")


def _plural(word: str) -> str:
    return word if word.endswith("ed") or word.endswith("s") else f"{word}s"


def main() -> int:
    """Run both lanes; the exit status."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--computing", type=int, default=cores, help="workers of that lane")
    parser.add_argument("--waiting", type=int, default=cores + 1, help="workers of that lane")
    given, options = parser.parse_known_args()
    workers = {COMPUTING: given.computing, WAITING: given.waiting}
    began, lock, seen = time.monotonic(), threading.Lock(), set[str]()
    if not sys.dont_write_bytecode:
        named = [path for word in options if (path := Path(word).resolve()).is_dir()]
        modules = [path for one in named or [HERE] for path in one.rglob("test_*.py")]
        with ProcessPoolExecutor(cores) as pool:
            list(pool.map(rewrite_assertions, (modules[part::cores] for part in range(cores))))
    with tempfile.TemporaryDirectory(prefix="ettr-lanes-") as folder:
        lanes = [Lane(name, _start(name, workers[name], Path(folder), options)) for name in LANES]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        threads = [threading.Thread(target=lane.follow, args=(seen, lock)) for lane in lanes]
        try:
            for thread in threads:
                thread.start()
            for thread, lane in zip(threads, lanes, strict=True):
                thread.join()
                lane.process.wait()
        finally:
            for lane in lanes:
                if lane.process.poll() is None:
                    lane.process.terminate()
        figures = Figures()
        for name in LANES:
            if (path := Path(folder) / name).exists():
                figures.merge(Figures.read(path))
    print(*figures.lines(), sep="\n")
    # whoever sees only the end of a long log sees which tests failed
    for text in (text for lane in lanes for text in lane.failures):
        print(text)
    print(last_line(sum((lane.counts for lane in lanes), Counter()), time.monotonic() - began))
    return status_of(lanes)


def _start(name: str, workers: int, folder: Path, options: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "--dist", "loadfile", "--no-loadscope-reorder"]
    command += ["--numprocesses", str(workers), "--lane", name, "--cpu-seconds", folder / name]
    return subprocess.Popen(
        list(map(str, [*command, *options])),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


if __name__ == "__main__":
    sys.exit(main())
