"""Logs larger than memory: one bad line among millions is counted, and memory stays bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

pytestmark = pytest.mark.slow

# what the interpreter, Arrow and DuckDB take before the first line, and some batches
MOST_BYTES = 1_500_000_000
STAMP = b"2026-01-01T00:00:01+00:00 n1 kernel: "
INGEST = """\
import json, sys
from dataclasses import asdict
from pathlib import Path
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store import open_store
with open_store(sys.argv[1], create=True) as store:
    done = ingest_file(store, Path(sys.argv[2]), ReadOptions(timezone="UTC"))
# not ru_maxrss: that keeps the size of the process that forked this one, across exec
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps({"peak_bytes": peak, **asdict(done)}))
"""


def test_the_peak_is_the_child_s_own(tmp_path: Path):
    """A worker that other tests have made large must not be measured in the child's place."""
    ballast = bytearray(MOST_BYTES)
    ballast[::4096] = b"x" * len(ballast[::4096])
    log = compressed(tmp_path / "kernel.log.zst", [STAMP + b"usb 1-1: new device\n"])
    assert ingested(tmp_path, log)["peak_bytes"] < MOST_BYTES / 2
    assert len(ballast) == MOST_BYTES


def compressed(path: Path, pieces: Iterable[bytes]) -> Path:
    """Lines that repeat take next to no disk."""
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        for piece in pieces:
            file.write(piece)
    return path


def ingested(folder: Path, log: Path) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", INGEST, folder / "store", log],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


@pytest.mark.timeout(1800)
def test_three_million_lines_of_a_kernel_log_with_one_bad(tmp_path: Path):
    piece = (STAMP + b"usb 1-1: new device\n") * 10_000
    good = STAMP + b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    bad = b"2026-13-41T99:00:01+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, x\n"
    log = compressed(tmp_path / "kernel.log.zst", [good, *[piece] * 150, bad, *[piece] * 150])
    done = ingested(tmp_path, log)
    assert done["rows_rejected"] == 1
    assert done["rows"] == [["events", 1], ["log_days", 1]]
    assert done["peak_bytes"] < 0.3 * MOST_BYTES  # of ten million the whole of it


@pytest.mark.timeout(1800)
def test_a_million_records_of_sacct_with_one_bad(tmp_path: Path):
    def lines() -> Iterable[bytes]:
        yield b"Cluster|JobID|State|Submit|Start|End|NNodes|NodeList|AllocTRES\n"
        times = b"2026-01-01T00:00:00|2026-01-01T00:00:01|2026-01-01T01:00:01"
        for first in range(0, 1_000_000, 10_000):
            yield b"".join(
                b"c|%d|COMPLETED|%s|1|n%d|node=1\n" % (number, times, number % 500)
                for number in range(first, first + 10_000)
            )
            if first == 500_000:
                yield b"c|x|never|was|a|job|at|all|.\n"

    done = ingested(tmp_path, compressed(tmp_path / "sacct.psv.zst", lines()))
    assert done["rows_read"] == 1_000_001
    assert done["rows_rejected"] == 1
    assert ["attempts", 1_000_000] in done["rows"]
    assert done["peak_bytes"] < MOST_BYTES
