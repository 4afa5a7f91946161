"""Thousands of small ingestions, each a commit of its own, against a store made at once.

Each commit holds what five minutes of a site bring: some attempts that have begun, those of the
commit before as ended, and events of nodes. It goes through the library's own ingestion, compaction
of parts included. At some sizes the folder is compared with one of the same rows that one ingestion
wrote: rows must be equal, and the CPU seconds of `ettr failures` and `ettr status` on both, in
processes of their own and in turn, give the ratio.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaigns import Table

if TYPE_CHECKING:
    import pyarrow as pa

TITLE = "Stores of many small ingestions"
SIZE = 5_000
"""Commits of the longest row; those before it are a fifth and a fiftieth of it."""
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
STEP = timedelta(minutes=5)
JOBS, NODES, EVENTS = 3, 400, 12
CLUSTER, SOURCE = "site", "slurm-sacct"
COMMANDS = ("failures", "status")
TURNS = 5


def run(size: int) -> Table:
    """A row for each number of commits."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="ettr-commits-") as above:
        folder = Path(above) / "small"
        done = 0
        for n_commits in sorted({max(1, size // 50), max(1, size // 5), size}):
            began_s = time.process_time()
            _commit(folder, done, n_commits)
            each_ms = (time.process_time() - began_s) / (n_commits - done) * 1e3
            done = n_commits
            rows.append((f"{n_commits:,}", *_row(folder, n_commits), f"{each_ms:.0f}"))
            print(",".join(rows[-1]), file=sys.stderr, flush=True)
    worst = max(float(cell) for row in rows for cell in row[3:5])
    return Table(
        headers=(
            "commits",
            "parts",
            "rows that differ",
            *(f"ettr {command}, times the CPU seconds" for command in COMMANDS),
            "CPU ms a commit",
        ),
        rows=tuple(rows),
        seeds="none: rows follow from their number",
        asked="reads within 1.2 times, every row equal",
        verdict=f"Read at {worst:.2f} times at most.",
    )


def _row(small: Path, n_commits: int) -> tuple[str, ...]:
    """Parts, rows that differ, and the ratio of each command's CPU seconds."""
    from ettr.store import open_store

    at_once = small.with_name("at-once")
    with open_store(at_once, create=True) as store, store.ingestion("all") as ingestion:
        for name, rows in _whole(n_commits):
            ingestion.write(name, rows)
        ingestion.commit(_file_row(n_commits))
    with open_store(small) as first, open_store(at_once) as second:
        differ = sum(
            _differing(first.rows(name), second.rows(name)) for name in ("attempts", "events")
        )
        parts = len(first.parts_of("attempts")) + len(first.parts_of("events"))
    ratios = []
    for command in COMMANDS:
        of_turns = [(_cpu_s(command, small), _cpu_s(command, at_once)) for _ in range(TURNS)]
        ratios.append(statistics.median(one / other for one, other in of_turns))
    shutil.rmtree(at_once)
    return f"{parts}", f"{differ}", *(f"{ratio:.2f}" for ratio in ratios)


def _commit(folder: Path, begin: int, end: int) -> None:
    """Ingest five minutes after five minutes."""
    from ettr.store import open_store

    with open_store(folder, create=True) as store:
        for commit in range(begin, end):
            with store.ingestion(f"file-{commit}") as ingestion:
                again = [*_attempts(commit - 1, ended=True)] if commit else []
                ingestion.write(
                    "attempts", _table("attempts", [*again, *_attempts(commit)], commit)
                )
                ingestion.write("events", _table("events", [*_events(commit)], commit))
                ingestion.commit(_file_row(commit))


def _whole(n_commits: int) -> Iterator[tuple[str, pa.Table]]:
    """What all commits leave, in tables of some 10,000 rows."""
    for begin in range(0, n_commits, 1_000):
        commits = range(begin, min(begin + 1_000, n_commits))
        attempts = [row for c in commits for row in _attempts(c, ended=c + 1 < n_commits)]
        yield "attempts", _table("attempts", attempts, begin)
        yield "events", _table("events", [row for c in commits for row in _events(c)], begin)


def _attempts(commit: int, *, ended: bool = False) -> Iterator[dict[str, Any]]:
    from ettr.tables.rows import attempt_id

    submit = BEGIN + commit * STEP
    for job in range(commit * JOBS, (commit + 1) * JOBS):
        yield {
            "cluster": CLUSTER,
            "attempt_id": attempt_id(CLUSTER, str(job), submit),
            "job_id": str(job),
            "user": f"user-{job % 17}",
            "state": ("NODE_FAIL" if job % 50 == 0 else "COMPLETED") if ended else "RUNNING",
            "submit": submit,
            "start": submit,
            "end": submit + STEP if ended else None,
            "elapsed_s": STEP.total_seconds() if ended else 0.0,
            "n_nodes": 1,
            "n_gpus": 8,
            "node_list": f"node{job % NODES}",
            "source": SOURCE,
        }


def _events(commit: int) -> Iterator[dict[str, Any]]:
    for number in range(commit * EVENTS, (commit + 1) * EVENTS):
        yield {
            "event_id": f"{number:032x}",
            "cluster": CLUSTER,
            "node": f"node{number * 7 % NODES}",
            "time": BEGIN + commit * STEP + timedelta(seconds=number % 300),
            "check": "gpu-xid",
            "code": "79" if number % 100 == 0 else "13",
            "severity": "error" if number % 100 == 0 else "warning",
            "source": "kernel-xid",
        }


def _table(name: str, rows: list[dict[str, Any]], commit: int) -> pa.Table:
    import pyarrow as pa

    from ettr.tables import TABLES

    said = [{**row, "file_id": f"file-{commit}", "line": line} for line, row in enumerate(rows, 1)]
    return pa.Table.from_pylist(said, schema=TABLES[name].arrow_schema)


def _file_row(commit: int) -> dict[str, Any]:
    return {
        "name": f"sacct-{commit}.psv",
        "source": SOURCE,
        "size_bytes": 1,
        "rows_read": JOBS + EVENTS,
        "rows_rejected": 0,
        "rows_skipped": 0,
        "timezone": "UTC",
        "options": "{}",
        "notes": None,
    }


def _differing(first: pa.Table, second: pa.Table) -> int:
    """Rows of either that the other does not have, but for the file and line they came from."""
    kept = [name for name in first.column_names if name not in {"file_id", "line"}]
    key = [(kept[1], "ascending"), (kept[0], "ascending")]
    one, other = (rows.select(kept).sort_by(key) for rows in (first, second))
    if one.num_rows != other.num_rows:
        return abs(int(one.num_rows - other.num_rows))
    pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
    return 0 if one.equals(other) else sum(a != b for a, b in pairs)


def _cpu_s(command: str, store: Path) -> float:
    """CPU seconds, user and system, of a command in a process of its own."""

    def spent_s() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before_s = spent_s()
    program = "from ettr.cli.main import main; main()"
    subprocess.run(
        [sys.executable, "-c", program, command, str(store)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return spent_s() - before_s
