"""States of nodes as a real Slurm 22.05 recorded them: by hand, INVAL, ResumeTimeout, FUTURE.

Captured on loopback: node2 was set DOWN under a job, node3 registered with seven of eight GPUs,
cloud1 did not come back within ResumeTimeout, later1 is FUTURE in slurm.conf.
"""

from __future__ import annotations

from pathlib import Path

from cli.program import ettr

EVENTS = """\
Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
virt||2026-11-29T02:51:21|Unknown||Cluster Registered TRES|
virt|cloud1|2026-11-29T02:51:21|2026-11-29T02:56:30|IDLE~|Powered down|root(0)
virt|later1|2026-11-29T02:51:21|Unknown|FUTR|Future|root(0)
virt|node2|2026-11-29T02:51:32|2026-11-29T02:54:05|DOWN|moving rack|root(0)
virt|node3|2026-11-29T02:51:34|Unknown|INVAL|gres/gpu count reported lower than configured \
(7 < 8)|root(0)
virt|cloud1|2026-11-29T02:57:02|Unknown|DOWN~|ResumeTimeout reached|root(0)
"""
JOBS = """\
JobID|JobName|User|Partition|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
1|onhand|ann|train|NODE_FAIL|0:0|2026-11-29T02:51:26|2026-11-29T02:51:27|2026-11-29T02:51:32|5|1|node2|gres/gpu=8,node=1
2|cloudy|ann|cloud|NODE_FAIL|0:0|2026-11-29T02:56:29|2026-11-29T02:56:29|2026-11-29T02:57:02|33|1|cloud1|gres/gpu=8,node=1
3|train|ann|train|COMPLETED|0:0|2026-11-29T02:51:30|2026-11-29T02:51:31|2026-11-29T03:01:31|600|1|node1|gres/gpu=8,node=1
"""


def test_each_state_is_what_it_is_on_a_real_slurm(tmp_path: Path) -> None:
    (tmp_path / "events.psv").write_text(EVENTS)
    (tmp_path / "sacct.psv").write_text(JOBS)
    store, files = tmp_path / "st", (tmp_path / "events.psv", tmp_path / "sacct.psv")
    done = ettr("ingest", store, *files, "--timezone", "UTC", "--cluster", "virt")
    assert done.code == 0, done.err
    outages = {
        one["reason_class"]: (one["outages"], one["nodes"])
        for one in ettr("nodes", store, "--json").json["by_reason"]
    }
    assert outages.keys() == {"gres-count", "resume-timeout", "other"}
    assert set(outages.values()) == {(1, 1)}
    hours = ettr("nodes", store, "--json").json["in_service_node_hours"]
    # node1 for ten minutes; node2 and node3 from their first trace; cloud1 without its time off
    assert 0.57 < hours < 0.60
    nodes = {one["node"]: one["is_out"] for one in ettr("node", store, "--json").json["nodes"]}
    assert nodes.items() >= {"later1": True, "cloud1": True, "node2": False}.items()
    failures = ettr("failures", store, "--json").json
    assert failures["set_down"]["by_person"] == 1
    by_job = {one["job_id"]: one["symptom"] for one in failures["rows"]}
    assert by_job == {"1": "unattributed", "2": "boot"}
