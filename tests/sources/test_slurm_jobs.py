"""`scontrol show job`: a captured Slurm, and what only a snapshot knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.sources.slurm import jobs, sacct
from ettr.store import open_store
from shared_data import shared
from source_samples import SAMPLES, read_all, rows_of

OPTIONS = ReadOptions(timezone="UTC", cluster="c")
SACCT = """JobID|Cluster|User|State|Submit|Start|End|ElapsedRaw|NodeList|AllocTRES
101|c|eva|NODE_FAIL|2026-03-01T10:00:00|2026-03-01T10:05:00|2026-03-01T11:05:00|3600|n[1-2]|gres/gpu=16
"""


def attempts_of(path: Path, options: ReadOptions = OPTIONS) -> list[dict[str, Any]]:
    return rows_of(read_all(jobs.SOURCE, path, options), "attempts")


def test_the_jobs_of_a_captured_slurm() -> None:
    """Counted in the file with grep: states, GPUs of the jobs that had nodes, open jobs."""
    rows = attempts_of(shared("data/slurm_capture") / "scontrol_job.txt")
    assert Counter(row["state"] for row in rows) == {
        "COMPLETED": 11,
        "FAILED": 4,
        "TIMEOUT": 1,
        "OUT_OF_MEMORY": 2,
        "CANCELLED": 2,
        "NODE_FAIL": 1,
        "PENDING": 2,
    }
    by_id = {row["job_id"]: row for row in rows}
    assert {"7_0", "7_1", "7_2", "7_3"} <= by_id.keys()
    assert [by_id["22"][name] for name in ("requested_nodes", "requested_gpus", "end")] == [
        8,
        64,
        None,
    ]
    # cancelled while it waited: scontrol shows 20778 days for its run time
    assert [by_id["8"][name] for name in ("start", "elapsed_s", "n_nodes")] == [None, None, 0]


def test_the_same_attempts_as_accounting_has() -> None:
    folder = shared("data/slurm_capture")
    accounted = {
        row["attempt_id"]: row
        for row in rows_of(
            read_all(sacct.SOURCE, folder / "sacct_jobs_X_D.psv", OPTIONS), "attempts"
        )
    }
    names = ["state", "start", "end", "elapsed_s", "n_gpus", "n_nodes", "node_list", "comment"]
    missing = set()
    for row in attempts_of(folder / "scontrol_job.txt"):
        theirs = accounted.get(row["attempt_id"])
        if theirs is None:
            missing.add(row["job_id"])
        else:
            assert {n: row[n] for n in names} == {n: theirs[n] for n in names}
    assert missing == {"8", "23"}, "jobs that were never eligible, which sacct left out"


@pytest.mark.slow
@pytest.mark.parametrize("order", [("jobs.txt", "sacct.psv"), ("sacct.psv", "jobs.txt")])
@pytest.mark.parametrize("kind", ["folder", "site.duckdb"])
def test_exclusions_of_a_snapshot_outlive_the_end_of_the_job(
    order: Sequence[str], kind: str, tmp_path: Path
) -> None:
    sample = SAMPLES / "slurm-jobs" / "jobs.txt"
    (tmp_path / "jobs.txt").write_bytes(sample.read_bytes())
    (tmp_path / "sacct.psv").write_text(SACCT)
    with open_store(tmp_path / kind, create=True) as store:
        for name in order:
            ingest_file(store, tmp_path / name, OPTIONS)
        rows = store.rows("attempts").to_pylist()
    found = {row["job_id"]: row for row in rows}["101"]
    assert (found["state"], found["elapsed_s"]) == ("NODE_FAIL", 3600.0)
    assert (found["excluded_nodes"], found["requested_gpus"]) == ("n[7-8]", 16)


def test_it_asks_for_the_zone_and_refuses_what_holds_no_job(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--timezone"):
        attempts_of(SAMPLES / "slurm-jobs" / "jobs.txt", ReadOptions(cluster="c"))
    (tmp_path / "x").write_text("NodeName=n1 Arch=x86_64\n")
    with pytest.raises(SourceError, match="is not the output of scontrol show job"):
        attempts_of(tmp_path / "x")
    (tmp_path / "x").write_text("No jobs in the system\n")
    assert attempts_of(tmp_path / "x") == []
