"""Long hostile lines take time by their length, not by its square.

A pattern that is linear takes milliseconds of processor time for these lines and one that is
quadratic takes seconds, so that the limits are far from both.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from campaigns.fuzz import STARTS
from ettr.errors import EttrError
from ettr.sources.origin import head_of
from ettr.sources.registry import all_sources, named, recognise
from source_samples import read_all, samples

# bytes of a line, and the most seconds for it: a quadratic pattern takes ten times those of 64 KB
# and a linear one a tenth; the shorter ones come first: a quadratic one takes minutes for the last
SHORT, MOST_SHORT_S = 1 << 16, 0.4
STEPS = (*((size, MOST_SHORT_S) for size in (1 << 12, 1 << 14, SHORT)), (1 << 19, 1.0))
STAMP = b"2026-01-01T00:00:00Z n1 "
# what patterns of these sources begin with, behind what must come before it
HOSTILE = [
    ("kernel-xid", b"", b"Xid (a)"),
    ("kernel-xid", b"", b"SXid (a)"),
    ("kernel-xid", STAMP + b"kernel: NVRM: ", b"Xid (PCI:0000:07:00)"),
    ("kernel-xid", STAMP + b"kernel: nvidia-nvswitch0: ", b"SXid (PCI:0000:07:00)"),
    ("kernel-xid", STAMP + b"kernel: NVRM: Xid (PCI:", b"0:"),
    ("kernel-xid", STAMP + b"kernel: fallen off the bus Xid ", b"NVRM: GPU at PCI:0000:0"),
    ("kernel-xid", STAMP + b"kernel: NVRM: fallen off the bus Xid GPU ", b"0000:"),
    ("kernel-xid", STAMP + b"kernel: NVRM: Xid (PCI:0000:07:00): 149, ", b"A_"),
    ("kernel-xid", STAMP + b"kernel: NVRM: Xid (PCI:0000:07:00): 149, A", b" "),
    ("nhc", STAMP, b"nhc"),
    ("nhc", b"2026-01-01T00:00:00Z ", b"nhc"),
    ("nhc", STAMP, b"/nhc-"),
    ("nhc", STAMP + b"nhc: ", b"ERROR: Health check failed: "),
    ("nhc", STAMP + b"nhc: ERROR: Health check failed: ", b"check_a("),
    ("nhc", STAMP + b"nhc: ", b"scontrol update State=DRAIN NodeName=n1,"),
    ("nhc", STAMP + b"nhc: ", b"FaultCode: NHC"),
    ("nhc", b"", b"n1 | "),
    ("nhc", b"", b"n.-"),
]


def written(source: str, line: bytes, folder: Path) -> Path:
    """A sample in which the line stands, as its first and as its last."""
    sample = samples(source)[0]
    path = folder / sample.path.name
    path.write_bytes(line + b"\n" + sample.path.read_bytes() + b"\n" + line + b"\n")
    return path


def spent_s(source: str, line: bytes, folder: Path, others: bool = True) -> float:
    """Seconds of processor time to recognise and to read a sample in which the line stands.

    Args:
        others: whether every source is asked if the sample is its own, as an ingestion does.
    """
    path = written(source, line, folder)
    began = time.process_time()
    with suppress(EttrError):
        if others:
            recognise(head_of(path), path.name)
        else:
            named(source).matches(head_of(path), path.name)
    with suppress(EttrError):
        read_all(named(source), path, samples(source)[0].options)
    return time.process_time() - began


def line_of(start: bytes, unit: bytes, size: int) -> bytes:
    return start + unit * ((size - len(start)) // len(unit))


@pytest.mark.parametrize(("source", "start", "unit"), HOSTILE)
def test_no_pattern_of_kernel_logs_and_checks_is_quadratic(
    tmp_path: Path, source: str, start: bytes, unit: bytes
) -> None:
    spent_s(source, b"", tmp_path)  # what is imported and compiled at first use
    for size, most_s in STEPS:
        assert spent_s(source, line_of(start, unit, size), tmp_path) < most_s, size


@pytest.mark.parametrize("source", sorted(all_sources()))
def test_no_source_takes_the_square_of_a_line(tmp_path: Path, source: str) -> None:
    spent_s(source, b"", tmp_path, others=False)  # what is imported and compiled at first use
    spent = {
        start: spent_s(source, line_of(b"", start, SHORT), tmp_path, others=False)
        for start in STARTS
    }
    assert max(spent.values()) < MOST_SHORT_S, max(spent, key=lambda start: spent[start])


@pytest.mark.parametrize("start", STARTS)
def test_no_source_takes_the_square_of_a_line_that_may_be_anothers(
    tmp_path: Path, start: bytes
) -> None:
    spent_s("kernel-xid", b"", tmp_path)
    assert spent_s("kernel-xid", line_of(b"", start, SHORT), tmp_path) < MOST_SHORT_S
