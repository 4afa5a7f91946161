"""Real logs through the program, against the numbers that others published for them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program import Done, ettr
from printed_digits import printed
from shared_data import shared

pytestmark = pytest.mark.slow

PHILLIPS_FIELDS = (
    "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,"
    "elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"
)


def report(*words: Any) -> dict[str, Any]:
    done: Done = ettr("report", *words, "--json")
    assert done.code == 0, done.err
    document: dict[str, Any] = done.json
    return document


def test_phillips():
    log = shared("data/traces/xdmod_slurm/phillips.log.zst")
    document = report(log, "--fields", PHILLIPS_FIELDS, "--timezone", "America/New_York")
    assert document["totals"] == {
        "jobs": 4046,
        "attempts": 4285,
        "cpu_hours": printed("11767.9883"),
        "node_hours": printed("1344.8686"),
        "gpu_hours": printed("506.9128"),
    }
    assert document["quality"]["rows_read"] == 4285
    assert document["quality"]["rows_rejected"] == 0
    # one user's 1,703 failed jobs on one node are no fault of that node
    assert document["failures"]["all_jobs"]["failures"] <= 14


def test_infinitehbd_with_its_fleet_of_400():
    trace = shared("data/traces/infinitehbd/fault_trace.json.zst")
    document = report(trace, "--nodes", "400")
    faults = document["nodes"]["faults"]
    rates = {
        entry["category"]: entry["in_service"]["per_1000_node_days"]["estimate"]
        for entry in faults["by_category"]
    }
    assert faults["in_service"]["per_1000_node_days"]["estimate"] == printed("4.18")
    assert rates["Hardware Failure"] == printed("2.135")
    assert document["nodes"]["down_share"] * 100 == printed("2.31")


def test_lanl():
    (log,) = shared("data/traces/lanl").glob("*.csv.zst")
    faults = report(log, "--timezone", "America/Denver")["nodes"]["faults"]
    share = {entry["category"]: entry["share"]["estimate"] * 100 for entry in faults["by_category"]}
    assert share["Hardware"] == printed("60.4")
    assert share["Software"] == printed("22.6")
    assert faults["repair_h"]["mean_h"]["estimate"] * 60 == printed("352")
    assert faults["repair_h"]["median_h"]["estimate"] * 60 == printed("59")


def test_captured_slurm_tells_its_ends_its_preemption_and_both_node_failures():
    folder = shared("data/slurm_capture")
    names = (
        "sacct_jobs_X_D.psv",
        "slurmctld.log",
        "sacctmgr_event_all.psv",
        "scontrol_node.txt",
    )
    document = report(*(folder / name for name in names), "--timezone", "UTC")
    states = {entry["state"]: entry["attempts"] for entry in document["status"]["states"]}
    assert sum(states.values()) == document["totals"]["attempts"] == 25
    assert {"COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "REQUEUED"} <= set(
        states
    )
    assert states["PREEMPTED"] == 1
    assert states["NODE_FAIL"] == 2
    named = {row["job_id"]: row["node"] for row in document["failures"]["rows"]}
    assert named == {"17": "node2", "18": "node4"}
    assert document["goodput"]["preemption_links"]["preempted_attempts"] == 1
    assert document["goodput"]["preemption_links"]["told_by_log"] == 1
