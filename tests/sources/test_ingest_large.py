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
INGEST = """\
import json, resource, sys
from dataclasses import asdict
from pathlib import Path
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store import open_store
with open_store(sys.argv[1], create=True) as store:
    done = ingest_file(store, Path(sys.argv[2]), ReadOptions(timezone="UTC"))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"peak_bytes": peak, **asdict(done)}))
"""


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
    told: dict[str, object] = json.loads(done.stdout)
    return told


@pytest.mark.timeout(1800)
def test_ten_million_lines_of_a_kernel_log_with_one_bad(tmp_path: Path):
    stamp = b"2026-01-01T00:00:01+00:00 n1 kernel: "
    piece = (stamp + b"usb 1-1: new device\n") * 10_000
    good = stamp + b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    bad = b"2026-13-41T99:00:01+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, x\n"
    log = compressed(tmp_path / "kernel.log.zst", [good, *[piece] * 500, bad, *[piece] * 500])
    told = ingested(tmp_path, log)
    assert told["rows_rejected"] == 1
    assert told["rows"] == [["events", 1]]
    assert told["peak_bytes"] < MOST_BYTES


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

    told = ingested(tmp_path, compressed(tmp_path / "sacct.psv.zst", lines()))
    assert told["rows_read"] == 1_000_001
    assert told["rows_rejected"] == 1
    assert ["attempts", 1_000_000] in told["rows"]
    assert told["peak_bytes"] < MOST_BYTES
