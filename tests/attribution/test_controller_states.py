"""Drains and outages that only slurmctld.log has are states of nodes, and none counts twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

SACCT = (
    "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
    "17|a|u|c|FAILED|2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T10:00:00|7200|1|n1|gres/gpu=8\n"
    "18|b|u|c|COMPLETED|2026-03-05T08:00:00|2026-03-05T08:00:00|2026-03-05T10:00:00|7200|1|n9|gres/gpu=8\n"
    "19|b|u|c|COMPLETED|2026-03-03T08:00:00|2026-03-03T08:00:00|2026-03-03T10:00:00|7200|1|n4|gres/gpu=8\n"
)
# as Slurm 20 to 25 write them: the reason before the state, or after it
LOG = """\
[2026-03-01T07:00:00.000] slurmctld version 23.11.1 started on cluster c
[2026-03-01T10:00:30.100] update_node: node n1 reason set to: NHC: XID 79
[2026-03-01T10:00:30.100] update_node: node n1 state set to DRAINED
[2026-03-01T14:00:30.000] update_node: node n1 state set to IDLE
[2026-03-02T01:00:00.000] update_node: node n2 state set to DRAINING
[2026-03-02T01:00:00.100] update_node: node n2 reason set to: scheduled maintenance
[2026-03-02T03:00:00.000] update_node: node n2 state set to IDLE
[2026-03-02T05:00:00.000] error: Nodes n3 not responding, setting DOWN
[2026-03-02T06:00:00.000] Node n3 returned to service
[2026-03-02T07:00:00.000] drain_nodes: node n4 state set to DRAIN
"""
EVENTS = (
    "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    "c|n1|2026-03-01T10:00:30|2026-03-01T14:00:30|DRAIN|NHC: XID 79|root(0)\n"
)


def _nodes(folder: Path, **files: str) -> Any:
    for name, text in files.items():
        path = folder / name
        path.write_text(text)
        done = ettr("ingest", folder / "s", path, "--timezone", "UTC")
        assert done.code == 0, done.err
    return ettr("report", folder / "s", "--json").json


def test_what_the_controllers_log_alone_has_is_counted(tmp_path: Path):
    document = _nodes(tmp_path, sacct=SACCT, log=LOG)
    nodes = document["nodes"]
    # n1 4 h, n3 1 h, n4 from 7 h to the job of the next day at 8 h; n2 is planned
    assert nodes["unplanned_node_hours"] == pytest.approx(4 + 1 + 25, abs=0.001)
    assert nodes["planned_node_hours"] == pytest.approx(2, abs=0.001)
    reasons = {row["reason_class"]: row["outages"] for row in nodes["by_reason"]}
    assert sum(reasons.values()) == 4
    assert reasons["maintenance"] == 1
    # the drain explains why job 17 failed
    (failure,) = document["failures"]["rows"]
    assert (failure["job_id"], failure["node"]) == ("17", "n1")
    assert failure["symptom"] == "gpu-unavailable"


@pytest.mark.parametrize("order", [("log", "events"), ("events", "log")])
def test_an_outage_in_two_logs_is_one(tmp_path: Path, order: tuple[str, str]):
    texts = {"log": LOG, "events": EVENTS}
    nodes = _nodes(tmp_path, sacct=SACCT, **{name: texts[name] for name in order})["nodes"]
    assert nodes["unplanned_node_hours"] == pytest.approx(4 + 1 + 25, abs=0.001)
    assert sum(row["outages"] for row in nodes["by_reason"]) == 4


def test_a_drain_may_end_in_the_next_file_of_the_log(tmp_path: Path):
    lines = LOG.splitlines(keepends=True)
    nodes = _nodes(tmp_path, sacct=SACCT, log="".join(lines[:3]), next="".join(lines[3:]))["nodes"]
    assert nodes["unplanned_node_hours"] == pytest.approx(4 + 1 + 25, abs=0.001)


@pytest.mark.parametrize("state", ["INVAL", "INVALID_REG"])
@pytest.mark.parametrize("drains", [False, True])
def test_a_node_that_registers_with_too_little_is_out_for_that_reason(
    tmp_path: Path, state: str, *, drains: bool
):
    why = "gres/gpu count reported lower than configured (7 < 8)"
    log = f"[2026-03-02T07:00:00.500] error: Setting node n4 state to {state} with reason:{why}\n"
    if drains:
        log += "[2026-03-02T07:00:00.501] drain_nodes: node n4 state set to DRAIN\n"
    head = "[2026-03-01T07:00:00.000] slurmctld version 23.11.1 started on cluster c\n"
    nodes = _nodes(tmp_path, sacct=SACCT, log=head + log)["nodes"]
    # until a job starts on it the next day at 8 h
    assert nodes["unplanned_node_hours"] == pytest.approx(25, abs=0.001)
    assert [row["reason_class"] for row in nodes["by_reason"]] == ["gres-count"]


@pytest.mark.parametrize(
    "line",
    [
        "node n1 drained by slurmctld",
        "Node n1 now DRAINED",
        "Node n1 being drained",
        "error: Setting node n1 state to DRAIN with reason:gres/gpu count reported lower (7 < 8)",
        "error: _slurm_rpc_epilog_complete: epilog error on n1, draining the node",
    ],
)
def test_every_form_of_a_drain_is_read(tmp_path: Path, line: str):
    log = LOG.splitlines(keepends=True)
    log[1:3] = [f"[2026-03-01T10:00:30.100] {line}\n"]
    nodes = _nodes(tmp_path, sacct=SACCT, log="".join(log[:3]))["nodes"]
    assert nodes["unplanned_node_hours"] + nodes["planned_node_hours"] == pytest.approx(
        4, abs=0.001
    )
