"""The mean time to failure is of the largest size that ran, failures there or not."""

from pathlib import Path

import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

LARGEST = "MTTF at the largest size run"
HEAD = "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
DAY_1, DAY_11 = "2026-01-01T00:00:00", "2026-01-11T00:00:00"


def row(job: int, state: str, nodes: int, gpus: int | None) -> str:
    """A job of ten days on nodes of its own."""
    tres = f"gres/gpu={gpus}" if gpus is not None else ""
    names = f"n{job}x[1-{nodes}]" if nodes > 1 else f"n{job}"
    return f"{job}|a|u|c|{state}|{DAY_1}|{DAY_1}|{DAY_11}|864000|{nodes}|{names}|{tres}"


def report(folder: Path, rows: list[str]) -> str:
    (folder / "sacct.psv").write_text("\n".join([HEAD, *rows]) + "\n")
    done = ettr("ingest", folder / "store", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return " ".join(ettr("report", "--detail", folder / "store").out.split())


def test_the_largest_size_has_the_fleets_rate_though_none_failed_there(tmp_path: Path):
    # 4 failures in 4 x 10 + 10 x 10 = 140 node-days; 10 nodes: 140 / 4 / 10 = 3.5 days
    small = [row(job, "NODE_FAIL", 1, 8) for job in range(1, 5)]
    text = report(tmp_path, [*small, row(5, "COMPLETED", 10, 80)])
    assert f"{LARGEST}, 65-128 GPUs: 3.50 [" in text
    assert "0 failures in 240 job-hours at that size" in text
    assert "an upper bound: failures go uncounted" in text


def test_jobs_of_unknown_size_are_not_the_largest(tmp_path: Path):
    rows = [row(1, "NODE_FAIL", 1, 8), row(2, "COMPLETED", 2, 16), row(3, "COMPLETED", 1, None)]
    text = report(tmp_path, rows)
    assert f"{LARGEST}, 9-16 GPUs" in text
    assert f"{LARGEST}, unknown" not in text


def test_the_least_that_an_mttf_can_be_is_no_upper_bound(tmp_path: Path):
    """Without a failure the MTTF is at least so long, unless some went uncounted."""
    text = report(tmp_path, [row(1, "COMPLETED", 1, 8), row(2, "COMPLETED", 10, 80)])
    assert f"{LARGEST}, 65-128 GPUs: ≥" in text
    assert "it may be shorter: failures go uncounted" in text
    assert "an upper bound" not in text
