"""Reports of stores of 1, 4 and 16 million attempts under one limit of memory: seconds a row.

    python benchmarks/scaling.py [--million-attempts 1 4 16] [--memory-limit 2GB]
        [--engine duckdb] [--folder FOLDER]

Stores are those of `report_pipeline.py`: 12.5 events and 2.2 allocations to an attempt. Each report
is `ettr report STORE` in a process of its own. CPU seconds count, user and system, of the process
and of Spark's Java, if any; memory is the sum of their peaks. The anchor is a time per row that is,
from the smallest store to the largest, within 2 times.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report_pipeline

ANCHOR_TIMES = 2.0
ROWS_AN_ATTEMPT = 12.5 + 2.19 + 1.0
PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Print a row for each store, and the ratio of the times per row; 1 where it is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--million-attempts", type=float, nargs="+", default=[1, 4, 16])
    parser.add_argument("--memory-limit", default="2GB")
    parser.add_argument("--engine", default="duckdb")
    parser.add_argument("--engine-option", nargs="*", default=[])
    parser.add_argument("--folder", type=Path, help="where stores are made, or are already")
    given = parser.parse_args()
    print("million attempts,million rows,store GB,s,CPU s,CPU us a row,peak GB")
    a_row = []
    with tempfile.TemporaryDirectory(prefix="ettr-bench-") as temporary:
        for millions in given.million_attempts:
            store = (given.folder or Path(temporary)) / f"attempts-{millions:g}M"
            scale = millions * 1e6 / report_pipeline.JOBS
            if not (store / "store.json").exists():
                report_pipeline.in_child("generate", store, scale, 2)
            held = sum(path.stat().st_size for path in store.rglob("*.parquet"))
            page = Path(temporary) / "report.html"
            spent_s, cpu_s, peak = measured(
                store, page, given.memory_limit, given.engine, given.engine_option
            )
            rows = millions * 1e6 * ROWS_AN_ATTEMPT
            a_row.append(cpu_s / rows)
            print(
                f"{millions:g},{rows / 1e6:.1f},{held / 1e9:.2f},{spent_s:.0f},{cpu_s:.0f},"
                f"{cpu_s / rows * 1e6:.2f},{peak / 1e9:.2f}",
                flush=True,
            )
            if not given.folder:
                shutil.rmtree(store)
    ratio = max(a_row) / min(a_row)
    print(f"the slowest row takes {ratio:.2f} times the quickest; anchor {ANCHOR_TIMES}")
    return int(ratio > ANCHOR_TIMES)


def measured(
    store: Path, page: Path, limit: str, engine: str, options: list[str]
) -> tuple[float, float, int]:
    """Seconds by the clock and of CPU, and peak bytes, of one report."""
    words = ["report", str(store), "--output", str(page), "--engine", engine]
    for option in options:
        words += ["--engine-option", option]
    if engine == "duckdb":
        words += ["--memory-limit", limit]
    began = time.perf_counter()
    program = "from ettr.cli.main import main; main()"
    environ = {**os.environ, "PYTHONPATH": str(report_pipeline.HERE / "src")}
    # Java outlives the process that began it, and is this one's child then
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(
        [sys.executable, "-c", program, *words], env=environ, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"ettr {' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    spent_s = time.perf_counter() - began
    cpu_s, peak = used.ru_utime + used.ru_stime, used.ru_maxrss
    while True:
        try:
            *_, used = os.wait3(0)
        except ChildProcessError:
            return spent_s, cpu_s, peak * 1024
        cpu_s += used.ru_utime + used.ru_stime
        peak += used.ru_maxrss


if __name__ == "__main__":
    sys.exit(main())
