"""Lines of 1 MB, made of what the patterns of the readers begin with, in the middle of good logs.

Each line is made of one text of `campaigns.fuzz`'s `STARTS` over and over, alone or behind the
beginning of a good line of the source. Seconds of processor time for the line: reading the log with
it, by the source's name, less reading the log without it; the fastest of three. `found` are seconds
until the recogniser has looked at a log that begins with the line.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path

from campaigns import Table
from campaigns.fuzz import SAMPLES, STARTS, Sample, load_sample, read_sample
from ettr.errors import EttrError
from ettr.sources.origin import head_of
from ettr.sources.registry import all_sources, recognise

TITLE = "Lines of a megabyte"
SIZE = 20
BYTES = 1_000_000
REPEATS = 3


def run(size: int, repeats: int = REPEATS) -> Table:
    """The slowest of `size` lines for each source."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="ettr-lines-") as folder:
        for source in all_sources():
            twin = sorted((SAMPLES / source).glob("*.expected.json"))[0]
            sample = load_sample(source, twin, Path(folder))
            slowest = max(
                _timed(sample, start, Path(folder), repeats) for start in _starts(sample, size)
            )
            rows.append((source, f"{slowest[0]:.3f}", f"{slowest[1][:40]!r}", f"{slowest[2]:.3f}"))
    return Table(
        ("source", "slowest, s", "line made of", "found, s"),
        tuple(rows),
        "none, the lines are fixed",
        "each line under 0.1 s",
    )


def _starts(sample: Sample, size: int) -> list[tuple[bytes, bytes]]:
    """What comes before the text that is repeated, and that text."""
    lines = sample.data.split(b"\n")
    good = lines[len(lines) // 2][:120]
    cuts = [b"", good[: len(good) // 3], good[: 2 * len(good) // 3], good]
    every = [(head, start) for start in STARTS for head in cuts]
    step = max(1, len(every) // (size * len(cuts)))
    return every[::step]


def _timed(
    sample: Sample, start: tuple[bytes, bytes], folder: Path, repeats: int
) -> tuple[float, bytes, float]:
    head, unit = start
    line = head + unit * ((BYTES - len(head)) // len(unit))
    lines = sample.data.split(b"\n")
    middle = len(lines) // 2
    whole, mutant = folder / "whole", folder / sample.path.name
    whole.write_bytes(sample.data)
    mutant.write_bytes(b"\n".join([*lines[:middle], line, *lines[middle:]]))
    spent = min(_seconds(mutant, sample) for _ in range(repeats))
    spent -= min(_seconds(whole, sample) for _ in range(repeats))
    mutant.write_bytes(line + b"\n" + sample.data)
    began = time.process_time()
    with suppress(EttrError):
        recognise(head_of(mutant), mutant.name)
    return spent, unit, time.process_time() - began


def _seconds(path: Path, sample: Sample) -> float:
    began = time.process_time()
    with suppress(EttrError):
        read_sample(path, sample.source, sample.options)
    return time.process_time() - began
