"""Shapes in which sites keep logs, each written by hand: read in full, or refused aloud."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ettr.sources.base import ReadOptions
from ettr.sources.registry import named, why_unreadable
from source_samples import read_all, rows_of

XID = "NVRM: Xid (PCI:0000:18:00): 79, pid=123, GPU has fallen off the bus."
AT = datetime(2026, 3, 2, 10, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "line",
    [
        "[ 1030.123456] gpu01 kernel: {}",  # journalctl -o short-monotonic
        "[ 1030.123456][ T5123] {}",  # a kernel that names the thread of each line
        "[ 1030.123456][    C7] {}",
    ],
)
def test_seconds_since_boot_with_a_host_or_a_thread_are_no_line_of_another_program(
    line: str, tmp_path: Path
) -> None:
    path = tmp_path / "gpu01.log"
    path.write_text(line.format("usb 1-1: new device") + "\n" + line.format(XID) + "\n")
    kernel = named("kernel-xid")
    # without the time of the boot the line cannot be placed, which is no reason to pass it over
    rejects = rows_of(read_all(kernel, path), "rejects")
    assert [row["reason"] for row in rejects] == ["no-boot-time"]
    boot = datetime(2026, 3, 2, 9, 43, 20, tzinfo=UTC)
    (event,) = rows_of(read_all(kernel, path, ReadOptions(start=boot)), "events")
    assert (event["node"], event["code"], event["time"].replace(microsecond=0)) == (
        "gpu01",
        "79",
        AT,
    )


@pytest.mark.parametrize(
    ("place", "entity"),
    [
        ("PCI:0000:01:00 GPU-I:05", "0000:01:00"),
        ("PCI:0000:3b:00 GPU-I:01 GPU-CI:02", "0000:3b:00"),
        ("PCI:0000:3b:00.0 GPU-I:1", "0000:3b:00"),
        ("0000:3b:00 GPU-I:00 GPU-CI:00", "0000:3b:00"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_the_driver_names_the_instance_of_a_gpu_that_is_divided(
    place: str, entity: str, *, as_json: bool, tmp_path: Path
) -> None:
    message = f"NVRM: Xid ({place}): 95, pid=7194, name=python, Uncontained: LTC TAG (0x2,0x0)."
    path = tmp_path / "kern.log"
    path.write_text(
        f'{{"__REALTIME_TIMESTAMP":"1772445630000000","_HOSTNAME":"g1","MESSAGE":"{message}"}}\n'
        if as_json
        else f"2026-03-02T10:00:30+00:00 g1 kernel: {message}\n"
    )
    (event,) = rows_of(read_all(named("kernel-xid"), path), "events")
    assert (event["node"], event["code"], event["entity"]) == ("g1", "95", entity)


@pytest.mark.parametrize("colon", [":", ": ", " : "])
@pytest.mark.parametrize("form", ["text", "bytes", "texts"])
def test_a_journal_of_any_age_keeps_its_messages(colon: str, form: str, tmp_path: Path) -> None:
    # systemd 219 (RHEL 7) wrote blanks on both sides of a colon
    message = {
        "text": f'"{XID}"',
        "bytes": f"[ {', '.join(str(byte) for byte in XID.encode())} ]",
        "texts": f'["{XID}", "the same once more"]',
    }[form]
    path = tmp_path / "journal.json"
    path.write_text(
        f'{{"__REALTIME_TIMESTAMP"{colon}"1772445630000000", "_HOSTNAME"{colon}"gpu01", '
        f'"MESSAGE"{colon}{message}}}\n'
    )
    (event,) = rows_of(read_all(named("kernel-xid"), path), "events")
    assert (event["node"], event["code"], event["time"]) == ("gpu01", "79", AT)


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("gpu01.dmesg", "gpu01"),
        ("dmesg.gpu01", "gpu01"),
        ("dmesg-gpu-01.txt", "gpu-01"),
        ("gpu01_dmesg.log.1", "gpu01"),
        ("kern.log.gpu01.example.org", "gpu01"),
        ("1701.log", "1701"),
        ("kern.log", None),
        ("dmesg", None),
        ("messages-20260302.gz", None),
        ("syslog.1", None),
    ],
)
def test_a_log_that_names_no_node_has_that_of_its_file_and_none_of_any_log(
    name: str, node: str | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(f"[Mon Mar  2 10:00:30 2026] {XID}\n")
    batches = read_all(named("kernel-xid"), path, ReadOptions(timezone="UTC"))
    assert [row["node"] for row in rows_of(batches, "events")] == [node]
    assert [row["node"] for row in rows_of(batches, "log_days")] == [node] * bool(node)
    notes = " ".join(note for batch in batches for note in batch.notes)
    assert (f"{node!r} was taken" if node else "name the file after its node") in notes


def test_pairs_in_a_reason_or_a_comment_are_not_those_of_the_node(tmp_path: Path) -> None:
    path = tmp_path / "nodes.txt"
    path.write_text(
        "NodeName=gpu01 CPUTot=64 RealMemory=2000000\n   Gres=gpu:h100:8(S:0-1)\n"
        "   State=DOWN*+DRAIN ThreadsPerCore=2\n"
        "   Reason=XID 79 seen, was Gres=gpu:7 [root@2026-03-02T10:00:00]\n"
        "   Comment=set State=IDLE after the repair\n"
    )
    batches = read_all(named("slurm-inventory"), path, ReadOptions(timezone="UTC"))
    (node,) = rows_of(batches, "nodes")
    assert (node["n_gpus"], node["gpu_type"]) == (8, "h100")
    (state,) = rows_of(batches, "node_states")
    assert (state["node"], state["state"]) == ("gpu01", "DOWN")


def test_a_future_node_of_an_inventory_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "nodes.txt"
    block = "NodeName=%s CPUTot=8 RealMemory=515000 Gres=gpu:h100:8 State=%s\n\n"
    path.write_text(block % ("g1", "IDLE") + block % ("f1", "FUTURE"))
    batches = read_all(named("slurm-inventory"), path, ReadOptions(timezone="UTC"))
    assert [node["node"] for node in rows_of(batches, "nodes")] == ["g1"]
    assert "1 node is FUTURE" in " ".join(note for batch in batches for note in batch.notes)


def test_a_megabyte_of_blanks_is_no_log_of_training() -> None:
    # with a quadratic pattern this takes a quarter of an hour
    assert why_unreadable(b" " * 1_000_000, None) == ""
    assert why_unreadable(b"\n" * 1_000_000, None) == ""
    iteration = b" [2026-03-02 10:00:00] iteration       10/  500000 | consumed samples: 5 |"
    assert "Megatron" in why_unreadable(iteration, None)


HEAD = "JobID,State,Submit,Start,End,ElapsedRaw,NNodes"
RAN = "2026-03-01T10:00:00,2026-03-01T10:00:00,2026-03-01T12:00:00,7200"


@pytest.mark.parametrize(
    ("columns", "last"),
    [
        ("AllocTRES,NodeList,JobName", "cpu=4,gres/gpu=16,node=2,n[1,3],train"),
        ("NodeList,JobName", "n1,n2,train"),
        ("NodeList,Comment", "n1,n2,n3,"),
    ],
)
def test_lists_in_a_dump_with_commas_never_become_part_of_a_free_text(
    columns: str, last: str, tmp_path: Path
) -> None:
    path = tmp_path / "sacct.csv"
    path.write_text(f"{HEAD},{columns}\n1,COMPLETED,{RAN},2,{last}\n")
    batches = read_all(named("slurm-sacct"), path, ReadOptions(timezone="UTC"))
    assert rows_of(batches, "attempts") == []
    (reject,) = rows_of(batches, "rejects")
    assert reject["reason"] == "too-many-fields"
    assert "dump with another --delimiter" in reject["detail"]


@pytest.mark.parametrize("text", ["gres/gpu=8", "gpu=8,mem=4G", "gpu[1-2]%4", "gpu1(x2)", "a/b"])
def test_what_cannot_name_a_node_is_no_node_list(text: str, tmp_path: Path) -> None:
    path = tmp_path / "sacct.psv"
    path.write_text(
        f"{HEAD.replace(',', '|')}|NodeList\n1|COMPLETED|{RAN.replace(',', '|')}|1|{text}\n"
    )
    batches = read_all(named("slurm-sacct"), path, ReadOptions(timezone="UTC"))
    assert [row["reason"] for row in rows_of(batches, "rejects")] == ["bad-node-list"]


def test_the_cut_task_list_of_a_pending_array_with_a_throttle_is_a_job_id(tmp_path: Path) -> None:
    path = tmp_path / "sacct.psv"
    path.write_text(
        f"{HEAD.replace(',', '|')}\n500_[30,40-50,60,...%4]|PENDING|2026-03-01T10:00:00|||0|1\n"
    )
    batches = read_all(named("slurm-sacct"), path, ReadOptions(timezone="UTC"))
    (row,) = rows_of(batches, "attempts")
    assert (row["job_id"], row["array_job_id"]) == ("500_[30,40-50,60,...%4]", "500")


@pytest.mark.parametrize(
    ("listed", "gpus", "note"),
    [
        ("cpu=1,gres/gpu:a100_1g.5gb=7", 7, "1 attempt holds parts of GPUs (MIG)"),
        ("cpu=1,gres/shard=20", 0, "1 attempt holds shares of GPUs (gres/shard, gres/mps)"),
        ("cpu=1,gres/mps=100", 0, "1 attempt holds shares of GPUs (gres/shard, gres/mps)"),
        ("gres/gpu=1,gres/mps=100", 1, ""),
        ("cpu=1,gres/gpu:h100=8,gres/gpu=8,gres/gpumem=80G", 8, ""),
    ],
)
def test_parts_and_shares_of_gpus_are_told(
    listed: str, gpus: int, note: str, tmp_path: Path
) -> None:
    path = tmp_path / "sacct.psv"
    ran = RAN.replace(",", "|")
    path.write_text(
        f"{HEAD.replace(',', '|')}|NodeList|AllocTRES\n1|COMPLETED|{ran}|1|n1|{listed}\n"
    )
    batches = read_all(named("slurm-sacct"), path, ReadOptions(timezone="UTC", cluster="c"))
    (row,) = rows_of(batches, "attempts")
    assert row["n_gpus"] == gpus
    notes = " ".join(text for batch in batches for text in batch.notes)
    assert note in notes
    assert note or "GPUs" not in notes


def test_a_node_that_is_out_since_nobody_knows_when_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "nodes.txt"
    path.write_text("NodeName=gpu01 CPUTot=64\n   Gres=gpu:8\n   State=DOWN*\n   Partitions=p\n")
    batches = read_all(named("slurm-inventory"), path, ReadOptions(timezone="UTC"))
    assert rows_of(batches, "node_states") == []
    notes = " ".join(text for batch in batches for text in batch.notes)
    assert "1 node is out of service and the file does not say since when" in notes


def test_a_state_that_ends_before_it_begins_is_no_outage_of_no_length(tmp_path: Path) -> None:
    path = tmp_path / "events.psv"
    path.write_text(
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        "c|n1|2026-03-04T12:00:00|2026-03-02T10:00:00|DOWN|clock set back|root(0)\n"
        "c|n2|2026-03-02T00:00:00|2026-03-02T00:00:00|DOWN*|Not responding|slurm(0)\n"
    )
    batches = read_all(named("slurm-events"), path, ReadOptions(timezone="UTC"))
    assert [row["node"] for row in rows_of(batches, "node_states")] == ["n2"]
    assert [row["reason"] for row in rows_of(batches, "rejects")] == ["bad-timestamp"]
