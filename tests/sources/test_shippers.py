"""Kernel and slurmctld lines within the records of log shippers, in forms made after their docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ettr.sources.base import ReadOptions
from ettr.sources.origin import head_of
from ettr.sources.registry import recognise
from source_samples import counts_of, read_all, rows_of

ISO, SECONDS = "2026-03-01T10:00:05.250Z", 1772359205.25
NANOS = "1772359205250000000"
XID = "NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus."
KERNEL = f"[12345.678901] {XID}"
SYSLOG = f"Mar  1 10:00:05 g7 kernel: {KERNEL}"
OTHER = "systemd[1]: Started Session 12 of user root."
DOWN = "[2026-03-01T10:00:05.250] error: Nodes g7 not responding, setting DOWN"


def records(line: str) -> dict[str, list[object]]:
    """A line as each shipper keeps it."""
    search = {"_index": "k", "_id": "1", "_source": {"@timestamp": ISO, "message": line}}
    search["_source"]["host"] = {"name": "g7"}
    watch = {"logStreamName": "g7", "timestamp": int(SECONDS * 1000), "message": line}
    watch |= {"ingestionTime": int(SECONDS * 1000) + 9, "eventId": "1"}
    cloud = {"insertId": "a", "timestamp": ISO, "resource": {"labels": {"node_name": "g7"}}}
    stream = {"stream": {"host": "g7", "job": "kern"}, "values": [[NANOS, line]]}
    fluent = {"_index": "logstash-2026.03.01", "_id": "2", "_score": None, "_source": {}}
    fluent["_source"] = {"@timestamp": ISO, "log": line, "kubernetes": {"host": "g7"}}
    group = {"messageType": "DATA_MESSAGE", "owner": "1", "logGroup": "/gpu", "logStream": "g7"}
    event = {"id": "3", "timestamp": int(SECONDS * 1000), "message": line}
    asked = {"@timestamp": ISO[:-1].replace("T", " "), "@message": line, "@logStream": "g7"}
    row = [{"field": name, "value": value} for name, value in asked.items()]
    return {
        "fluent-bit-to-elasticsearch": [fluent],
        "cloudwatch-subscription": [
            {**group, "subscriptionFilters": ["all"], "logEvents": [event]}
        ],
        "cloudwatch-insights": [{"results": [row], "statistics": {}, "status": "Complete"}],
        "logcli": [{"labels": {"host": "g7"}, "line": line, "timestamp": ISO}],
        "loki": [{"status": "success", "data": {"resultType": "streams", "result": [stream]}}],
        "elasticdump": [search],
        "elasticsearch": [{"took": 1, "hits": {"total": {"value": 1}, "hits": [search]}}],
        "beats": [{"@timestamp": ISO, "message": line, "host": {"name": "g7"}, "ecs": {}}],
        "vector": [{"host": "g7", "message": line, "source_type": "journald", "timestamp": ISO}],
        "fluent-bit": [{"date": SECONDS, "log": line, "kubernetes": {"host": "g7"}}],
        "fluent-bit-systemd": [{"date": SECONDS, "MESSAGE": line, "_HOSTNAME": "g7"}],
        "cloudwatch": [{"events": [watch], "searchedLogStreams": []}],
        "cloud-logging": [cloud | {"textPayload": line}],
        "cloud-logging-json": [cloud | {"jsonPayload": {"message": line, "_HOSTNAME": "g7"}}],
    }


FORMS = list(records(""))


@pytest.mark.parametrize("pretty", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_line_of_any_shipper_is_the_event_that_it_is_in_a_plain_log(
    tmp_path: Path, form: str, pretty: bool
):
    kept = [*records(KERNEL)[form], *records(OTHER)[form]]
    text = "\n".join(json.dumps(one) for one in kept) if not pretty else json.dumps(kept, indent=2)
    path = tmp_path / "export.json"
    path.write_text(text + "\n")
    source = recognise(head_of(path), path.name)
    assert source.name == "kernel-xid"
    batches = read_all(source, path)
    (event,) = rows_of(batches, "events")
    assert (event["node"], event["check"], event["code"]) == ("g7", "xid", "79")
    assert event["time"].timestamp() == SECONDS
    assert counts_of(batches) == [2, 0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_a_line_of_slurmctld_keeps_its_own_stamp(tmp_path: Path, form: str):
    path = tmp_path / "export.json"
    path.write_text("\n".join(json.dumps(one) for one in records(DOWN)[form]) + "\n")
    source = recognise(head_of(path), path.name)
    assert source.name == "slurmctld-log"
    assert source.prints_local(head_of(path))
    batches = read_all(source, path, ReadOptions(timezone="UTC"))
    assert [(row["node"], row["code"]) for row in rows_of(batches, "events")] == [
        ("g7", "NODE_DOWN")
    ]


def test_a_syslog_line_within_names_its_own_host(tmp_path: Path):
    path = tmp_path / "export.jsonl"
    path.write_text(json.dumps({"labels": {"host": "collector"}, "line": SYSLOG, "timestamp": ISO}))
    (event,) = rows_of(read_all(recognise(head_of(path), path.name), path), "events")
    assert (event["node"], event["time"].timestamp()) == ("g7", SECONDS)


@pytest.mark.parametrize("form", FORMS)
def test_a_torn_line_costs_a_line(tmp_path: Path, form: str):
    whole = json.dumps(records(KERNEL)[form][0])
    path = tmp_path / "export.jsonl"
    path.write_text("\n".join([whole, whole[: len(whole) // 2], "", whole, whole[:40]]))
    batches = read_all(recognise(head_of(path), path.name), path)
    assert len(rows_of(batches, "events")) == 2
