"""Objects of Kubernetes into rows and a store: 1 million at 50,000 a second.

    python benchmarks/ingest_kubernetes.py [--objects 1000000] [--jobs 1] [--folder DIR]
        [--kind collected|pods|kubectl]

`collected` is what `ettr collect kubernetes` writes: nodes, jobs, and each pod waiting, running
and ended, with the Events that kubelets write. `pods` has each pod once, as a list of pods that
ended: a row or more for every object, the most work. `kubectl` is `collected` with what the API
shows of an object besides: environments, probes, volumes, managed fields.

The objects are made deterministically, in as many files as `--jobs`. Reading is timed alone, then
`ettr ingest` as a process of its own, start and commit included.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Object = dict[str, Any]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NODES = 2000
RUN = "from ettr.cli.main import main; main()"
# what the API shows of a pod and no reader wants
BALLAST = {
    "managedFields": [
        {
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, f"f:label-{n}": {}}, "f:ownerReferences": {}},
                "f:spec": {"f:containers": {'k:{"name":"main"}': {".": {}, "f:image": {}}}},
            },
        }
        for n in range(3)
    ],
    "annotations": {f"example.org/note-{n}": "x" * 60 for n in range(4)},
}


def stamp(moment: datetime) -> str:
    """The moment as Kubernetes writes it."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def pod_at(job: Object, number: int, node: str, state: str, times: list[str]) -> Object:
    """A pod of a job: Pending, Running, Succeeded or Failed."""
    name = f"{job['metadata']['name']}-{number}"
    status: Object = {"phase": state, "conditions": []}
    spec: Object = {
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    }
    if state != "Pending":
        spec["nodeName"] = node
        status["startTime"] = times[1]
        status["conditions"] = [
            {"type": kind, "status": "True", "lastTransitionTime": times[1]}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ]
    if state in {"Succeeded", "Failed"}:
        code = int(state == "Failed")
        over = {"exitCode": code, "finishedAt": times[2], "reason": ("Completed", "Error")[code]}
        status["containerStatuses"] = [{"name": "main", "state": {"terminated": over}}]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    owner |= {key: job["metadata"][key] for key in ("name", "uid")}
    meta = {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "uid": f"{job['metadata']['uid']}-{number:04d}",
        "resourceVersion": str(1000 + len(status)),
        "creationTimestamp": times[0],
        "labels": {"batch.kubernetes.io/job-name": job["metadata"]["name"]},
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def objects(rng: random.Random, kind: str) -> Iterator[Object]:
    """Objects without an end: jobs in their order, with their pods and Events."""
    made = 0
    while True:
        made += 1
        start = BEGIN + timedelta(seconds=20 * made)
        until = start + timedelta(seconds=rng.randrange(60, 4 * 86400))
        times = [stamp(start - timedelta(seconds=rng.randrange(9000))), stamp(start), stamp(until)]
        failed = rng.random() < 0.15
        uid = f"{rng.getrandbits(64):016x}-{made:08d}"
        meta = {"name": f"train-{made}", "namespace": f"team{made % 40}", "uid": uid}
        meta |= {"creationTimestamp": times[0], "resourceVersion": "1"}
        job: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {}}
        name, state = ("Failed", "Failed") if failed else ("Complete", "Succeeded")
        over = [{"type": name, "status": "True", "lastTransitionTime": times[2]}]
        width = rng.choice((1, 1, 1, 2, 4, 8, 16, 32))
        first = rng.randrange(NODES - width)
        if kind != "pods":
            yield {"type": "ADDED", "object": {**job, "status": {}}}
        for at in range(width):
            node = f"gpu{first + at:04d}"
            if kind == "pods":
                yield pod_at(job, at, node, state, times)
                continue
            pods = [pod_at(job, at, node, each, times) for each in ("Pending", "Running", state)]
            about = {"kind": "Pod", "name": pods[0]["metadata"]["name"], "uid": uid}
            event: Object = {
                "apiVersion": "v1",
                "kind": "Event",
                "reason": "Started",
                "type": "Normal",
            }
            event |= {"involvedObject": about, "message": "Started container main"}
            event |= {"metadata": {"name": f"{made}.{at}", "uid": f"e{made}-{at}"}}
            event |= {"firstTimestamp": times[1], "lastTimestamp": times[1]}
            for change, one in zip(("ADDED", "MODIFIED", "MODIFIED"), pods, strict=True):
                if kind == "kubectl":
                    one["metadata"] |= BALLAST
                    one["spec"]["containers"][0] |= {
                        "env": [{"name": f"NAME_{n}", "value": "v" * 20} for n in range(12)],
                        "volumeMounts": [{"name": "v", "mountPath": f"/m/{n}"} for n in range(4)],
                    }
                yield {"type": change, "object": one}
            yield {"type": "ADDED", "object": event}
        if kind != "pods":
            yield {"type": "MODIFIED", "object": {**job, "status": {"conditions": over}}}


def write(path: Path, seed: int, n_objects: int, kind: str) -> None:
    """Write so many objects, one a line."""
    made = objects(random.Random(seed), kind)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(n_objects):
            file.write(json.dumps(next(made), separators=(",", ":")) + "\n")


def read_s(path: Path) -> float:
    """CPU seconds of reading one file into rows, written nowhere."""
    from ettr.sources.base import ReadOptions
    from ettr.sources.kubernetes import read
    from ettr.sources.origin import Origin, head_of

    begin = time.process_time()
    for batch in read(Origin(path, "f", head_of(path)), ReadOptions()):
        assert batch.rows_read  # noqa: S101 - of a benchmark
    return time.process_time() - begin


def main() -> None:
    """Make the files, time both, print a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kind", choices=("collected", "pods", "kubectl"), default="collected")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        each = given.objects // given.jobs
        paths = [folder / f"{given.kind}-{each}-{seed}.jsonl" for seed in range(given.jobs)]
        for seed, path in enumerate(paths):
            if not path.exists():
                write(path, seed, each, given.kind)
        only_read_s = read_s(paths[0])
        store = Path(temporary) / "store"
        command = [sys.executable, "-c", RUN, "ingest", str(store), *map(str, paths)]
        begin, cpu = time.perf_counter(), os.times()
        subprocess.run([*command, "--jobs", str(given.jobs)], check=True, capture_output=True)
        spent_s, after = time.perf_counter() - begin, os.times()
        cpu_s = after.children_user + after.children_system
        cpu_s -= cpu.children_user + cpu.children_system
        size = sum(path.stat().st_size for path in paths)
        print(
            f"{given.kind}: {given.objects:,} objects, {size / 1e9:.2f} GB, "
            f"{given.jobs} process(es): read {each / only_read_s:,.0f}/CPU s, "
            f"ingested {given.objects / spent_s:,.0f}/s ({given.objects / cpu_s:,.0f}/CPU s)"
        )


if __name__ == "__main__":
    main()
