"""A node that does not start is a symptom of its own, in rates and in causes."""

from __future__ import annotations

from pathlib import Path

from cli.program import ettr

SACCT = """\
JobID|JobName|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
1|a|ann|c|COMPLETED|0:0|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-02T00:00:00|86400|1|n1|gres/gpu=8
2|b|bob|c|BOOT_FAIL|0:0|2026-03-01T00:00:00|2026-03-01T01:00:00|2026-03-01T01:10:00|600|1|n2|gres/gpu=8
3|b|bob|c|NODE_FAIL|0:0|2026-03-01T02:00:00|2026-03-01T02:00:00|2026-03-01T03:00:00|3600|1|n3|gres/gpu=8
4|b|bob|c|NODE_FAIL|0:0|2026-03-01T02:00:00|2026-03-01T04:00:00|2026-03-01T05:00:00|3600|1|n4|gres/gpu=8
"""
EVENTS = """\
Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
c|n3|2026-03-01T03:00:00|2026-03-01T06:00:00|DOWN|ResumeTimeout reached|slurm(64030)
"""


def test_a_node_that_does_not_start_is_no_failure_without_a_cause(tmp_path: Path) -> None:
    (tmp_path / "sacct.psv").write_text(SACCT)
    (tmp_path / "events.psv").write_text(EVENTS)
    store = tmp_path / "store"
    files = (tmp_path / "sacct.psv", tmp_path / "events.psv")
    assert ettr("ingest", store, *files, "--timezone", "UTC").code == 0
    found = ettr("failures", store, "--json").json
    symptoms = {one["symptom"]: one["all_jobs"]["failures"] for one in found["by_symptom"]}
    assert symptoms == {"boot": 2, "unattributed": 1}
    by_job = {one["job_id"]: one for one in found["rows"]}
    assert (by_job["2"]["node"], by_job["2"]["confidence"]) == ("n2", "medium")
    causes = ettr("causes", store, "--json").json["listed"]
    assert {one["job_id"]: one["evidence"] for one in causes}["2"] == "boot"
