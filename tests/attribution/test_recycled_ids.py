"""A job id that Slurm gave out again is another job."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr

JOBS = """JobID|Cluster|JobName|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
77|c|a|ann|COMPLETED|2017-10-03T13:00:00|2017-10-03T13:00:00|2017-10-03T14:00:00|3600|1|g1|gres/gpu=2
77|c|b|bob|NODE_FAIL|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T12:00:00|43200|1|g1|gres/gpu=8
77|c|b|bob|COMPLETED|2026-03-01T12:00:01|2026-03-01T13:00:00|2026-03-01T14:00:00|3600|1|g2|gres/gpu=8
"""


@pytest.mark.slow
def test_the_history_is_of_the_last_job_with_the_id(tmp_path: Path):
    (tmp_path / "sacct.psv").write_text(JOBS)
    ettr("ingest", tmp_path / "s", tmp_path / "sacct.psv", "--timezone", "UTC")
    found = ettr("explain", tmp_path / "s", "77", "--json").json
    assert (found["user"], [one["state"] for one in found["attempts"]]) == (
        "bob",
        ["NODE_FAIL", "COMPLETED"],
    )
    assert found["earlier_jobs"] == ["a of ann, submitted 2017-10-03"]
    text = ettr("explain", tmp_path / "s", "77", "--detail").out
    assert "Times are UTC. Another job had this id before: a of ann" in " ".join(text.split())
