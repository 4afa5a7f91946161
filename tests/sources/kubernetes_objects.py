"""A simulated history as objects of Kubernetes, as `kubectl get -o json` and a watch show them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

Object = dict[str, Any]
# a condition of node-problem-detector for each check
_PROBLEMS = {
    "check_fs_mount": "ReadonlyFilesystem",
    "check_hw_ib": "IBLinkFlapping",
    "check_ps_service": "SystemServiceUnhealthy",
}
_REASONS = {"NODE_FAIL": "DeletionByTaintManager", "PREEMPTED": "PreemptionByScheduler"}


def stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def condition(kind: str, since: datetime, status: str = "True", **more: str) -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": stamp(since), **more}


def job_and_pods(
    number: int, attempt: Object, held: list[Object], lost: set[tuple[str, datetime]]
) -> list[Object]:
    """A Job and a pod for each node that it held; `lost`: nodes that went, and when."""
    name, space, uid = f"job-{attempt['job_id']}", attempt["account"] or "default", f"u{number}"
    meta = {"namespace": space, "creationTimestamp": stamp(attempt["submit"])}
    state, end = attempt["state"], attempt["end"]
    status: Object = {}
    if state == "COMPLETED":
        status = {
            "completionTime": stamp(end),
            "conditions": [condition("Complete", end)],
        }
    elif end is not None and state != "CANCELLED":
        reason = "DeadlineExceeded" if state == "TIMEOUT" else "BackoffLimitExceeded"
        status = {"conditions": [condition("Failed", end, reason=reason)]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta, "name": name, "uid": uid, "resourceVersion": "1"},
        "spec": {"parallelism": attempt["n_nodes"]},
        "status": status,
    }
    pods = [pod(name, uid, meta, attempt, row, lost) for row in held]
    if state != "CANCELLED":
        return [job, *pods]
    for one in (job, *pods):
        one["metadata"]["deletionTimestamp"] = stamp(end)
    return [{"type": "DELETED", "object": one} for one in (job, *pods)]


def pod(
    name: str,
    uid: str,
    meta: Object,
    attempt: Object,
    row: Object,
    lost: set[tuple[str, datetime]],
) -> Object:
    state, end = attempt["state"], row["end"]
    conditions = []
    status: Object = {
        "phase": "Running",
        "startTime": stamp(row["start"]),
        "conditions": conditions,
    }
    since = int(row["start"].timestamp())
    own = {**meta, "name": f"{name}-{row['node']}", "uid": f"{uid}-{row['node']}-{since}"}
    own["ownerReferences"] = [{"kind": "Job", "name": name, "uid": uid, "controller": True}]
    if state == "PREEMPTED" or (state == "NODE_FAIL" and (row["node"], end) in lost):
        conditions.append(condition("DisruptionTarget", end, reason=_REASONS[state]))
    if end is not None:
        code = 0 if state == "COMPLETED" else 1
        reason = "OOMKilled" if state == "OUT_OF_MEMORY" else "Error" if code else "Completed"
        over = {"exitCode": code, "finishedAt": stamp(end), "reason": reason}
        status["phase"] = "Failed" if code else "Succeeded"
        status["containerStatuses"] = [{"name": "main", "state": {"terminated": over}}]
    gpus = {"nvidia.com/gpu": str(int(row["n_gpus"]))}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": own,
        "spec": {
            "nodeName": row["node"],
            "containers": [{"name": "main", "resources": {"limits": gpus}}],
        },
        "status": status,
    }


def node_versions(node: Object, states: list[Object], begin: datetime) -> list[Object]:
    """A node as a watch shows it: at first, and at both ends of each time out of service."""
    versions = [node_object(node, begin, [condition("Ready", begin)], False)]
    for row in sorted(states, key=lambda one: one["start"]):
        is_drain = row["state"] != "DOWN"
        for moment, is_out in ((row["start"], True), (row["end"], False)):
            if moment is None:
                continue
            silent = is_out and not is_drain
            ready = condition(
                "Ready",
                begin if is_drain else moment,
                "Unknown" if silent else "True",
                reason="NodeStatusUnknown" if silent else "KubeletReady",
                lastHeartbeatTime=stamp(moment),
            )
            # what a health check found, as node-problem-detector shows it
            since, status = (row["start"], "True") if is_out else (moment, "False")
            found = condition(problem(row), since, status, message=row["reason"] or "")
            versions.append(node_object(node, moment, [ready, found], is_out and is_drain))
    return versions


def problem(state: Object) -> str:
    return next((name for check, name in _PROBLEMS.items() if check in (state["reason"] or "")), "")


def node_object(node: Object, moment: datetime, conditions: list[Object], is_out: bool) -> Object:
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    taints[0]["timeAdded"] = stamp(moment)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node["node"],
            "uid": f"node-{node['node']}",
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "resourceVersion": str(int(moment.timestamp())),
            "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        },
        "spec": {"unschedulable": True, "taints": taints} if is_out else {},
        "status": {"capacity": {"nvidia.com/gpu": str(node["n_gpus"])}, "conditions": conditions},
    }


def answer_of(tables: dict[str, pa.Table], begin: datetime, days: int, step_s: int) -> Object:
    """What kube-state-metrics shows of the nodes at each step, as an answer of Prometheus."""
    states = tables["node_states"].to_pylist()
    times = [begin + timedelta(seconds=step_s * at) for at in range(days * 86400 // step_s)]
    name = "kube_node_status_condition"
    series = []
    for node in sorted({row["node"] for row in states}):
        own = [row for row in states if row["node"] == node]
        found = [
            ({"condition": "Ready", "status": "true"}, [r for r in own if r["state"] == "DOWN"], 0),
            *(
                ({"condition": one, "status": "true"}, [r for r in own if problem(r) == one], 1)
                for one in _PROBLEMS.values()
            ),
            (
                {"__name__": "kube_node_spec_unschedulable"},
                [r for r in own if r["state"] == "DRAIN"],
                1,
            ),
        ]
        for labels, rows, when_in in found:
            values = [
                [
                    t.timestamp(),
                    str(when_in if any(_is_in(t, row) for row in rows) else 1 - when_in),
                ]
                for t in times
            ]
            series.append({"metric": {"__name__": name, "node": node} | labels, "values": values})
    return {"status": "success", "data": {"resultType": "matrix", "result": series}}


def _is_in(moment: datetime, row: Object) -> bool:
    return row["start"] <= moment and (row["end"] is None or moment < row["end"])


def objects_of(tables: dict[str, pa.Table], begin: datetime) -> list[Object]:
    """All objects of a history, those of jobs first."""
    held: dict[str, list[Object]] = {}
    for row in tables["allocations"].to_pylist():
        held.setdefault(row["attempt_id"], []).append(row)
    lost = {(row["node"], row["start"]) for row in tables["node_states"].to_pylist()}
    found: list[Object] = []
    for number, attempt in enumerate(tables["attempts"].to_pylist()):
        found += job_and_pods(number, attempt, held.get(attempt["attempt_id"], []), lost)
    states: dict[str, list[Object]] = {}
    for row in tables["node_states"].to_pylist():
        states.setdefault(row["node"], []).append(row)
    for node in tables["nodes"].to_pylist():
        found += node_versions(node, states.get(node["node"], []), begin)
    return found
