"""Node history, the controller's log and the inventory, on a captured Slurm and on dirt."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.registry import recognise
from ettr.sources.slurm import events as slurm_events
from ettr.sources.slurm import inventory as slurm_inventory
from ettr.sources.slurm import slurmctld as slurmctld_log
from ettr.sources.slurm.events import node_state
from ettr.tables import TABLES
from shared_data import shared
from source_samples import read_all

UTC_ZONE = ReadOptions(timezone="UTC")


def read(source: Source, path: Path, options: ReadOptions = UTC_ZONE):
    batches = read_all(source, path, options)
    tables: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for name, table in batch.tables.items():
            tables.setdefault(name, []).append(TABLES[name].check(table))
    rows = {name: pa.concat_tables(parts).to_pylist() for name, parts in tables.items()}
    counts = tuple(
        sum(getattr(batch, f"rows_{what}") for batch in batches)
        for what in ("read", "rejected", "skipped")
    )
    return rows, counts, [note for batch in batches for note in batch.notes]


def write(tmp_path: Path, text: str, name: str = "log") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def test_the_controllers_log_names_failed_nodes_and_who_preempted_whom():
    rows, counts, _ = read(slurmctld_log.SOURCE, shared("data/slurm_capture/slurmctld.log"))
    events = rows["events"]
    assert counts[0] == 163
    assert counts[1] == 0
    failures = {(e["job_id"], e["node"]) for e in events if e["code"] == "NODE_FAIL"}
    assert failures == {("17", "node2"), ("18", "node4")}
    (preempted,) = [e for e in events if e["code"] == "PREEMPTED"]
    assert (preempted["job_id"], preempted["related_job_id"]) == ("14", "15")
    assert preempted["time"] == datetime(2026, 11, 21, 10, 16, 52, 249000, tzinfo=UTC)
    down = [e["node"] for e in events if e["code"] == "NODE_DOWN"]
    assert down == ["node7", "node2", "node4", "node6"]
    drains = [(e["node"], e["message"].split(": ", 2)[2]) for e in events if e["code"] == "DRAIN"]
    assert drains[0] == ("node8", "NHC: check_dcgm: GPU 3 XID 79 fallen off the bus")
    assert [e["job_id"] for e in events if e["code"] == "REQUEUED"] == ["9", "13", "14", "17"]
    assert {e["job_id"] for e in events if e["code"] == "OUT_OF_MEMORY"} == {"5", "20"}
    assert {e["cluster"] for e in events} == {"virt"}
    assert {e["check"] for e in events} == {"slurmctld"}
    assert len({e["event_id"] for e in events}) == len(events)


@pytest.mark.parametrize(
    ("message", "code", "job", "node", "other"),
    [
        ("requeue job JobId=7_0(10) due to failure of node n2", "NODE_FAIL", "7_0", "n2", None),
        ("requeue JobId=30+1(31) due to failure of node n2", "NODE_FAIL", "30+1", "n2", None),
        ("requeue job 17 due to failure of node n2", "NODE_FAIL", "17", "n2", None),
        ("Killing job_id 18 on failed node n4", "NODE_FAIL", "18", "n4", None),
        ("error: Removing failed node n4 from JobId=18", "NODE_REMOVED", "18", "n4", None),
        (
            "preempted job 3 has been checkpointed to reclaim resources for job 4",
            "PREEMPTED",
            "3",
            None,
            "4",
        ),
        (
            "preempted JobId=3 has been killed to reclaim resources for JobId=7_1(9)",
            "PREEMPTED",
            "3",
            None,
            "7_1",
        ),
        (
            "preempted JobId=3 suspended by gang scheduler to reclaim resources for JobId=4",
            "PREEMPTED",
            "3",
            None,
            "4",
        ),
        ("slurm_job_preempt: preempted JobId=3 had to be killed", "PREEMPTED", "3", None, None),
        (
            "error: Batch JobId=5 missing from batch node n1 (not found BatchStartTime after "
            "startup), Requeuing job",
            "JOB_LOST",
            "5",
            "n1",
            None,
        ),
        ("Node n1 unexpectedly rebooted", "NODE_REBOOTED", None, "n1", None),
        ("drain_nodes: node n1 state set to DRAIN", "DRAIN", None, "n1", None),
        (
            "error: Setting node n1 state to INVAL with reason:low memory",
            "CONFIG_MISMATCH",
            None,
            "n1",
            None,
        ),
        (
            "error: job_epilog_complete: JobId=4 epilog error on n1, draining the node",
            "EPILOG_ERROR",
            None,
            "n1",
            None,
        ),
        ("Time limit exhausted for JobId=4", "TIMEOUT", "4", None, None),
    ],
)
def test_message_forms_of_slurms_versions(message, code, job, node, other, tmp_path):
    for stamp in (
        "[2026-03-01T10:00:00.123]",
        "[2026-03-01T10:00:00]",
        "[2026-03-01T11:00:00.123456+01:00]",
        "2026-03-01T10:00:00.123456+00:00 head slurmctld[99]:",
    ):
        rows, counts, _ = read(slurmctld_log.SOURCE, write(tmp_path, f"{stamp} {message}\n"))
        assert counts == (1, 0, 0)
        (event,) = rows["events"]
        assert (event["code"], event["job_id"], event["node"], event["related_job_id"]) == (
            code,
            job,
            node,
            other,
        )
        assert event["time"].replace(microsecond=0) == datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_controllers_stamps_need_a_zone_unless_they_have_one(tmp_path):
    local = write(tmp_path, "[2026-03-01T10:00:00.123] Killing JobId=1 on failed node n1\n")
    assert slurmctld_log.SOURCE.prints_local(local.read_bytes())
    with pytest.raises(UsageError, match=r"--timezone"):
        read(slurmctld_log.SOURCE, local, ReadOptions())
    zoned = write(tmp_path, "[2026-03-01T10:00:00+01:00] Killing JobId=1 on failed node n1\n")
    assert not slurmctld_log.SOURCE.prints_local(zoned.read_bytes())
    assert read(slurmctld_log.SOURCE, zoned, ReadOptions())[1] == (1, 0, 0)


def test_dirt_in_the_controllers_log(tmp_path):
    text = (
        "no stamp\n\n[2026-99-01T10:00:00] Killing JobId=1 on failed node n1\n"
        "[2026-03-01T10:00:00] error: Nodes n[1-9999999999] not responding, setting DOWN\n"
        "[2026-03-01T10:00:00] Killing JobId=1 on failed node n\udcff\n"
        "[2026-03-01T10:00:00] Requeuing JobId=1\n" * 2 + "[2026-03-01T10:00:0"
    )
    rows, counts, notes = read(slurmctld_log.SOURCE, write(tmp_path, text))
    assert counts == (13, 4, 5)
    assert [row["reason"] for row in rows["rejects"]][:2] == ["bad-timestamp", "bad-node-list"]
    assert len({event["event_id"] for event in rows["events"]}) == 4
    assert any("--cluster" in note for note in notes)
    with pytest.raises(SourceError, match=r"no line begins with a time"):
        read(slurmctld_log.SOURCE, write(tmp_path, "hello\nworld\n"))


@pytest.mark.parametrize("stamp", ["[1234567]", "[    1.234567]"])
def test_a_log_with_the_controllers_processor_time_is_refused_as_such(stamp: str, tmp_path: Path):
    lines = ("slurmctld version 23.11.4 started on cluster a", "Killing JobId=1 on failed node n1")
    text = "".join(f"{stamp} {line}\n" for line in lines)
    assert recognise(text.encode(), "slurmctld.log") is slurmctld_log.SOURCE
    with pytest.raises(SourceError, match=r"LogTimeFormat=clock.*set LogTimeFormat=iso8601_ms"):
        read(slurmctld_log.SOURCE, write(tmp_path, text))


def test_stamps_with_the_thread_are_those_without_a_year(tmp_path: Path):
    stamp = "[Mar  1 10:00:00.45     4711 slurmctld    0x7f00aa]"
    path = write(tmp_path, f"{stamp} Killing JobId=1 on failed node n1\n")
    assert recognise(path.read_bytes(), "slurmctld.log") is slurmctld_log.SOURCE
    options = ReadOptions(timezone="UTC", start=datetime(2026, 1, 1, tzinfo=UTC))
    rows, counts, _ = read(slurmctld_log.SOURCE, path, options)
    assert counts == (1, 0, 0)
    assert rows["events"][0]["time"] == datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_stamps_without_a_year_are_dated_by_the_start_or_the_age_of_the_log(tmp_path):
    text = "[Dec 31 23:59:00] Requeuing JobId=1\n[Jan  1 00:01:00] Requeuing JobId=2\n"
    path = write(tmp_path, text)
    written = datetime(2024, 1, 2, tzinfo=UTC).timestamp()
    os.utime(path, (written, written))
    rows, counts, notes = read(slurmctld_log.SOURCE, path)
    assert counts == (2, 0, 0)
    assert [event["time"].year for event in rows["events"]] == [2023, 2024]
    assert any("before the file was changed (2024-01-02)" in note for note in notes)
    options = ReadOptions(timezone="UTC", start=datetime(2025, 12, 1, tzinfo=UTC))
    rows, counts, notes = read(slurmctld_log.SOURCE, write(tmp_path, text), options)
    assert [event["time"].year for event in rows["events"]] == [2025, 2026]
    assert any("the start given" in note for note in notes)


@pytest.mark.parametrize("name", ["sacctmgr_event.psv", "sacctmgr_event_all.psv"])
def test_the_history_of_nodes(name):
    rows, counts, notes = read(slurm_events.SOURCE, shared("data/slurm_capture") / name)
    assert counts == (8, 0, 1)
    states = rows["node_states"]
    assert [(s["node"], s["state"], s["flags"]) for s in states] == [
        ("node2", "DOWN", "NOT_RESPONDING"),
        ("node4", "DOWN", "NOT_RESPONDING"),
        ("node6", "DOWN", "NOT_RESPONDING"),
        ("node7", "DOWN", None),
        ("node7", "DRAIN", None),
        ("node8", "DRAIN", None),
        ("node8", "DRAIN", None),
    ]
    drained = states[4]
    assert (drained["end"] - drained["start"]).total_seconds() == 27
    assert drained["reason"] == "XID 94 contained ECC"
    assert (states[6]["end"], states[6]["user"]) == (None, "root")
    assert any("whole cluster" in note for note in notes)


def test_dirt_in_the_history_of_nodes(tmp_path):
    header = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    text = header + (
        "c|n1|2026-03-01T10:00:00|Unknown|DOWN$|a|b | c|root(0)\n"
        "c|n1|soon|Unknown|DOWN|x|root(0)\n"
        "c|n1|2026-03-01T10:00:00\n"
        "c|n1|2026-03-01T10:00:00|Unknown|?|x|root(0)\n\n"
        + header
        + "|n2|2026-03-01T10:00:00|2026-03-01T11:00:00|IDLE+DRAIN|None|None\n"
    )
    rows, counts, _ = read(slurm_events.SOURCE, write(tmp_path, text))
    assert counts == (7, 3, 2)
    assert [
        (s["node"], s["state"], s["flags"], s["reason"], s["user"], s["line"])
        for s in rows["node_states"]
    ] == [
        ("n1", "DOWN", "MAINT", "a|b | c", "root", 2),
        ("n2", "DRAIN", None, None, None, 8),
    ]
    assert [row["reason"] for row in rows["rejects"]] == [
        "bad-fields",
        "bad-timestamp",
        "unknown-state",
    ]
    with pytest.raises(SourceError, match=r"needs NodeName, TimeStart; found"):
        read(slurm_events.SOURCE, write(tmp_path, "Cluster|State|Reason\nc|DOWN|x\n"))
    with pytest.raises(UsageError, match=r"--timezone"):
        read(slurm_events.SOURCE, write(tmp_path, text), ReadOptions())


@pytest.mark.parametrize(
    ("name", "gpus", "partitions"),
    [
        ("scontrol_node.txt", 8, "train,spare"),
        ("sinfo.json", 8, "train,spare"),
        ("sinfo_N_l.txt", None, "spare,train"),
    ],
)
def test_the_inventory(name, gpus, partitions):
    options = ReadOptions(timezone="UTC", cluster="virt")
    rows, (_, rejected, _), _ = read(
        slurm_inventory.SOURCE, shared("data/slurm_capture") / name, options
    )
    nodes = rows["nodes"]
    assert rejected == 0
    assert [node["node"] for node in nodes] == [f"node{k}" for k in range(1, 9)]
    for node in nodes:
        assert (node["n_gpus"], node["n_cpus"], node["partitions"]) == (gpus, 16, partitions)
        assert node["memory_bytes"] == 64000 * 2**20
        assert node["gpu_type"] == ("h100" if gpus else None)
    if gpus:
        (state,) = rows["node_states"]
        assert (state["node"], state["state"], state["reason"]) == (
            "node8",
            "DRAIN",
            "DCGM: NVLink error on GPU 5",
        )
        assert state["start"] == datetime(2026, 11, 21, 10, 18, 44, tzinfo=UTC)


def test_inventory_on_one_line_each_and_with_dirt(tmp_path):
    text = (
        "NodeName=n1 Arch=x86_64 CPUTot=96 Gres=gpu:a100:4(S:0-1),gpu:h100:4,nvme:1 "
        "RealMemory=1000 State=IDLE Partitions=p CfgTRES=cpu=96,gres/gpu=8\n"
        "NodeName=n2 CPUTot=many State=DOWN\n"
    )
    rows, counts, _ = read(slurm_inventory.SOURCE, write(tmp_path, text), ReadOptions())
    assert counts == (2, 1, 0)
    assert (rows["nodes"][0]["n_gpus"], rows["nodes"][0]["gpu_type"]) == (8, "a100")
    assert rows["rejects"][0]["reason"] == "bad-node"
    reason = "NodeName=n3 \n   State=DOWN*\n   Reason=x [root@2026-01-01T00:00:00]\n"
    with pytest.raises(UsageError, match=r"--timezone"):
        read(slurm_inventory.SOURCE, write(tmp_path, reason), ReadOptions())
    with pytest.raises(SourceError, match=r"is not the output of scontrol show node"):
        read(slurm_inventory.SOURCE, write(tmp_path, "x\n"), ReadOptions())
    with pytest.raises(SourceError, match=r"scontrol show nodes --json"):
        read(slurm_inventory.SOURCE, write(tmp_path, '{"sinfo": []}'), ReadOptions())


@pytest.mark.parametrize(
    ("text", "state", "flags"),
    [
        ("DOWN*", "DOWN", "NOT_RESPONDING"),
        ("drained", "DRAIN", None),
        ("draining@", "DRAIN", "ALLOCATED,REBOOT_REQUESTED"),
        ("IDLE+DRAIN", "DRAIN", None),
        ("DOWN+DRAIN+NOT_RESPONDING", "DOWN", "DRAIN,NOT_RESPONDING"),
        ("idle~", "POWERED_DOWN", None),
        ("MIXED+MAINTENANCE", "MAINT", "MIXED"),
        ("mix", "MIXED", None),
        ("inval", "INVALID_REG", None),
        ("INVAL*", "INVALID_REG", "NOT_RESPONDING"),
        ("INVALID", "INVALID_REG", None),
        ("IDLE+INVALID_REG", "INVALID_REG", None),
    ],
)
def test_states_of_nodes(text, state, flags):
    assert node_state(text) == (state, flags)
