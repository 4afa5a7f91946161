"""Kubernetes: a history as objects, what is never kept, and streams cut short."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from random import Random

import pytest

from cli.program import ettr
from cluster_scenarios import played, small
from ettr.errors import SourceError
from ettr.sim.cluster.log import write_logs
from ettr.sim.cluster.run import simulate_into
from ettr.sim.cluster.scenario import scenario_text
from ettr.sources import kubernetes
from ettr.sources.json_records import JsonRecord
from ettr.sources.kubernetes import SOURCE
from ettr.sources.origin import log_file
from ettr.sources.registry import named
from ettr.store import open_store
from source_samples import SAMPLES, read_all, rows_of
from sources.kubernetes_objects import answer_of, objects_of, stamp

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KINDS = ("PyTorchJob", "Volcano", "JobSet", "Workload", "LeaderWorkerSet")
KEY = ("attempt_id", "state", "start", "end", "n_nodes", "n_gpus")


def written(folder: Path, objects: list, name: str = "watch.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{json.dumps(one)}\n" for one in objects))
    return path


@pytest.mark.parametrize("name", ["watch.jsonl", "list.json"])
def test_no_secret_environment_annotation_or_output_is_kept(name):
    batches = read_all(SOURCE, SAMPLES / "kubernetes" / name)
    rows = [batch.tables[table].to_pylist() for batch in batches for table in batch.tables]
    assert "PLANTED" in (SAMPLES / "kubernetes" / name).read_text()
    assert "PLANTED" not in json.dumps(rows, default=str)


def test_the_samples_have_the_shapes_of_the_api():
    """Each field by the types of Kubernetes 1.37, generated from its schema."""
    msgspec = pytest.importorskip("msgspec")
    resources = pytest.importorskip("lightkube.resources.core_v1")
    from lightkube.resources.batch_v1 import Job

    types = {("v1", name): getattr(resources, name) for name in ("Pod", "Node", "Event")}
    types["batch/v1", "Job"] = Job
    objects = json.loads((SAMPLES / "kubernetes/list.json").read_text())["items"]
    for line in (SAMPLES / "kubernetes/watch.jsonl").read_text().splitlines()[:14]:
        objects.append(json.loads(line)["object"])
    known = [one for one in objects if (one["apiVersion"], one["kind"]) in types]
    assert len(known) > 20
    for one in known:
        typed = msgspec.convert(one, types[one["apiVersion"], one["kind"]])
        assert unknown_fields(one, msgspec.to_builtins(typed)) == [], one["metadata"]["name"]


def unknown_fields(given: object, typed: object) -> list[str]:
    found: list[str] = []
    if isinstance(given, dict) and isinstance(typed, dict):
        for name, value in given.items():
            found += unknown_fields(value, typed[name]) if name in typed else [name]
    elif isinstance(given, list) and isinstance(typed, list):
        for pair in zip(given, typed, strict=True):
            found += unknown_fields(*pair)
    return found


class Watched(dict):
    """An object that notes which of its fields are asked for."""

    def __init__(self, value: dict, asked: set[str], place: str = "") -> None:
        self.asked, self.place = asked, place
        super().__init__({name: self.watched(name, one) for name, one in value.items()})

    def watched(self, name: str, value: object) -> object:
        place = f"{self.place}.{name}".removeprefix(".")
        if isinstance(value, dict):
            return Watched(value, self.asked, place)
        if isinstance(value, list):
            return [Watched(one, self.asked, f"{place}[]") for one in value]
        return value

    def get(self, name: str, default: object = None) -> object:
        self.asked.add(f"{self.place}.{name}".removeprefix("."))
        return super().get(name, default)


# what lies within these is of other schemas
OPAQUE = ("template", "workerTemplate", "pytorchReplicaSpecs", "replicaStatuses")


def fields_of(value: object, place: str) -> Iterator[tuple[str, set[str]]]:
    """Each object within a value: its place, and the places of its fields."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            yield place, {f"{place}.{name}" for name in one}
            for name, inner in one.items():
                if name not in OPAQUE:
                    is_list = isinstance(inner, list)
                    yield from fields_of(inner, f"{place}.{name}{'[]' * is_list}")


def test_made_jobs_are_valid_by_the_projects_schemas_and_no_other_field_is_read(monkeypatch):
    """The table has what the published CRDs say of the fields; `required`: by the one around it."""
    table = Path(__file__).parents[2] / "docs/results/tables/kubernetes-fields.csv"
    rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
    made = [one for kind in KINDS for one in owners_of(kind)[0] if one["kind"] != "StatefulSet"]
    older = {"queueName": "q", "priorityClassName": "high", "priority": 1}
    older["podSets"] = [{"count": 1} | POD]
    made.append(named_object("Workload", "kueue.x-k8s.io/v1beta1", "v", spec=older, status={}))
    late = {"activeDeadlineSeconds": 9, "runtimeRef": {"name": "torch-distributed"}}
    train = ("TrainJob", "trainer.kubeflow.org/v1alpha1", "t")
    made.append(named_object(*train, spec=late, status=ended("Complete")))
    sample = json.loads((SAMPLES / "kubernetes/list.json").read_text())["items"]
    for one in [*made, *(one for one in sample if one["kind"] in {"Job", "JobSet"})]:
        own = [row for row in rows if (row["api_version"], row["kind"]) == key_of(one)]
        known = {row["field"] for row in own}
        required = {row["field"] for row in own if row["required"] == "yes"}
        for part in ("spec", "status"):
            for place, has in fields_of(one[part], part):
                listed = {field for field in known if field.startswith(f"{place}.")}
                nearest = {re.split(r"[.[]", field[len(place) + 1 :])[0] for field in listed}
                assert has <= {f"{place}.{name}" for name in nearest}, (one["kind"], place)
                needed = {field for field in required if field.rpartition(".")[0] == place}
                assert needed <= has or not has, (one["kind"], place)
    asked: set[str] = set()
    records = [JsonRecord(n, Watched(one, asked), "", None) for n, one in enumerate(made, 1)]
    monkeypatch.setattr(kubernetes, "json_records", lambda *_, **__: iter(records))
    read_all(SOURCE, SAMPLES / "kubernetes/list.json")
    ours = {row["field"] for row in rows if row["read"] == "yes" and row["kind"] != "Pod"}
    asked = {one for one in asked if one.startswith(("spec.", "status."))}
    # the rest are objects around these
    assert {one for one in asked if not any(field.startswith(one) for field in ours)} == set()
    assert ours <= asked
    labels = {row["field"].removeprefix("metadata.labels.") for row in rows if row["kind"] == "Pod"}
    assert labels == set(kubernetes._OF_PODS)


def key_of(one: dict) -> tuple[str, str]:
    return one["apiVersion"], one["kind"]


def test_secrets_in_the_message_of_an_event_are_masked(tmp_path: Path):
    message = (
        "MountVolume.SetUp failed: token=PLANTED-1 is over, Authorization: Bearer PLANTED-22; "
        "https://user:PLANTED-3@registry/x, eyJhbGciOiJPLANTED.eyJzdWIiOiIPLANTED.c2lnPLANTED"
    )
    event = {"kind": "Event", "apiVersion": "v1", "reason": "FailedMount", "message": message}
    event |= {"metadata": {"uid": "e1", "name": "e"}, "firstTimestamp": "2026-03-01T10:00:00Z"}
    event["involvedObject"] = {"kind": "Pod", "name": "p", "uid": "p1"}
    (row,) = rows_of(read_all(SOURCE, written(tmp_path, [event])), "events")
    assert "PLANTED" not in row["message"]
    assert row["message"].startswith("MountVolume.SetUp failed: token=***")


def test_objects_say_of_a_simulated_history_what_its_tables_say(tmp_path: Path):
    tables, _ = played(small(period={"days": 3.0}), seed=3)
    begin = min(tables["attempts"]["submit"].to_pylist())
    objects = objects_of(tables, begin)
    batches = read_all(SOURCE, written(tmp_path, objects))
    ours, theirs = rows_of(batches, "attempts"), tables["attempts"].to_pylist()
    columns = ("state", "start", "end", "n_nodes", "n_gpus")
    by_start = {
        (row["job_id"].rpartition("-")[2], row["submit"]): [row[name] for name in columns[:3]]
        for row in ours
    }
    assert by_start == {
        (row["job_id"], row["submit"]): [row[name] for name in columns[:3]] for row in theirs
    }
    ended = [row for row in tables["allocations"].to_pylist() if row["end"] is not None]
    held = [row for row in rows_of(batches, "allocations") if row["end"] is not None]
    assert sum(row["elapsed_s"] for row in held) == sum(row["elapsed_s"] for row in ended)
    assert sum(row["elapsed_s"] * row["n_gpus"] for row in held) == pytest.approx(
        sum(row["elapsed_s"] * row["n_gpus"] for row in ended)
    )
    states = [
        {(row["node"], row["state"], row["start"], row["end"]) for row in rows}
        for rows in (rows_of(batches, "node_states"), tables["node_states"].to_pylist())
    ]
    assert states[0] == states[1]
    assert states[0]


def at(minutes: float) -> str:
    return stamp(NOON + timedelta(minutes=minutes))


def named_object(kind: str, api: str, name: str, version: int = 1, **parts: object) -> dict:
    meta = {"name": name, "namespace": "ml", "uid": f"{kind}-{name}", "creationTimestamp": at(0)}
    meta |= {"resourceVersion": str(version), **parts.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **parts}


def owned_by(owner: dict) -> list[dict]:
    names = {name: owner["metadata"][name] for name in ("name", "uid")}
    return [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True} | names]


def pod_of(owner: dict, name: str, node: str, span: tuple, labels: dict, code: int = 0) -> dict:
    """A pod that ran on a node from one minute to another; with code 137 it was taken away."""
    meta = {"labels": labels, "ownerReferences": owned_by(owner), "creationTimestamp": at(span[0])}
    over = {"exitCode": code, "finishedAt": at(span[1]), "reason": "Error" if code else "Completed"}
    status = {"phase": "Failed" if code else "Succeeded", "startTime": at(span[0])}
    status["containerStatuses"] = [{"name": "c", "state": {"terminated": over}}]
    if code == 137:
        lost = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        status["conditions"] = [lost | {"lastTransitionTime": at(span[1])}]
    limits = {"limits": {"nvidia.com/gpu": "8"}}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": limits}]}
    return named_object("Pod", "v1", name, metadata=meta, spec=spec, status=status)


def ended(kind: str) -> dict:
    one = {"type": kind, "status": "True", "reason": "JobEnded", "message": "the job ended"}
    return {"conditions": [one | {"lastTransitionTime": at(60)}]}


POD = {"template": {"spec": {"containers": [{"name": "c"}]}}}


def owners_of(kind: str) -> tuple[list[dict], dict, dict]:
    """Objects of a job that succeeded, the one that owns its pods, and labels that these have."""
    if kind == "PyTorchJob":
        spec = {"runPolicy": {"activeDeadlineSeconds": 7200, "schedulingPolicy": {"queue": "q"}}}
        spec["pytorchReplicaSpecs"] = {"Worker": POD}
        done = ended("Succeeded") | {"completionTime": at(60), "replicaStatuses": {"Worker": {}}}
        own = named_object(kind, "kubeflow.org/v1", "x", spec=spec, status=done)
        return [own], own, {"training.kubeflow.org/job-name": "x"}
    if kind == "Volcano":
        state = {"state": {"phase": "Completed", "lastTransitionTime": at(60)}}
        own = named_object(
            "Job", "batch.volcano.sh/v1alpha1", "x", spec={"queue": "q"}, status=state
        )
        return [own], own, {"volcano.sh/job-name": "x"}
    if kind == "JobSet":
        top = named_object(
            kind, "jobset.x-k8s.io/v1alpha2", "x", spec={}, status=ended("Completed")
        )
        meta = {"ownerReferences": owned_by(top), "labels": {"kueue.x-k8s.io/queue-name": "q"}}
        own = named_object("Job", "batch/v1", "x-workers-0", metadata=meta, spec=POD, status={})
        labels = {"jobset.sigs.k8s.io/jobset-name": "x", "jobset.sigs.k8s.io/restart-attempt": "0"}
        return [top, own], own, labels | {"kueue.x-k8s.io/queue-name": "q"}
    if kind == "Workload":
        job = named_object("Job", "batch/v1", "x", spec=POD, status=ended("Complete"))
        meta = {"ownerReferences": owned_by(job)}
        ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
        queued = {"queueName": "q", "priorityClassRef": ref, "priority": 100}
        load = named_object(
            kind, "kueue.x-k8s.io/v1beta2", "w", metadata=meta, spec=queued, status={}
        )
        return [job, load], job, {}
    spec = {"leaderWorkerTemplate": {"workerTemplate": POD["template"]}}
    top = named_object(kind, "leaderworkerset.x-k8s.io/v1", "x", spec=spec, status={})
    own = named_object("StatefulSet", "apps/v1", "x", metadata={"ownerReferences": owned_by(top)})
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "x",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
    }
    return [top, own], own, labels | {"kueue.x-k8s.io/queue-name": "q"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_any_kind_is_one_attempt_though_a_pod_was_replaced(tmp_path: Path, kind: str):
    objects, owner, labels = owners_of(kind)
    pods = [
        pod_of(owner, "p0", "g0", (1, 60), labels),
        pod_of(owner, "p1", "g1", (1, 20), labels, code=137),
        pod_of(owner, "p2", "g2", (22, 60), labels),
    ]
    batches = read_all(SOURCE, written(tmp_path, [*pods, *objects]))
    (attempt,) = rows_of(batches, "attempts")
    assert (attempt["state"], attempt["partition"]) == ("COMPLETED", "q")
    assert attempt["qos"] == ("high" if kind == "Workload" else None)
    assert [stamp(attempt[name]) for name in ("start", "end")] == [at(1), at(60)]
    assert (attempt["n_nodes"], attempt["n_gpus"]) == (2, 16)
    assert attempt["time_limit_s"] == (7200 if kind == "PyTorchJob" else None)
    held = {row["node"]: row["elapsed_s"] / 60 for row in rows_of(batches, "allocations")}
    assert held == {"g0": 59, "g1": 19, "g2": 38}
    (event,) = [row for row in rows_of(batches, "events") if "TaintManager" in row["code"]]
    assert (event["node"], event["job_id"]) == ("g1", attempt["job_id"])


@pytest.mark.parametrize("code", [0, 1])
def test_a_container_that_was_restarted_counts_by_its_last_end(tmp_path: Path, code: int):
    _, owner, _ = owners_of("Workload")
    one = pod_of(owner, "p0", "g0", (1, 60), {}, code=code)
    del one["metadata"]["ownerReferences"]
    before = {"exitCode": 1 - code, "finishedAt": at(20), "reason": "Error"}
    one["status"]["containerStatuses"][0]["lastState"] = {"terminated": before}
    (attempt,) = rows_of(read_all(SOURCE, written(tmp_path, [one])), "attempts")
    assert (attempt["state"], stamp(attempt["end"])) == (("COMPLETED", "FAILED")[code], at(60))


def test_a_pod_deleted_while_ready_ran_until_it_was_deleted(tmp_path: Path):
    _, owner, _ = owners_of("Workload")
    one = pod_of(owner, "p0", "g0", (1, 60), {})
    del one["metadata"]["ownerReferences"]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": at(2)}
    one["status"] = {"phase": "Running", "startTime": at(1), "conditions": [ready]}
    one["metadata"]["deletionTimestamp"] = at(45)
    deleted = {"type": "DELETED", "object": one}
    (attempt,) = rows_of(read_all(SOURCE, written(tmp_path, [deleted])), "attempts")
    assert (attempt["state"], stamp(attempt["end"])) == ("CANCELLED", at(45))


def test_kueue_says_that_a_job_was_preempted(tmp_path: Path):
    (job, load), owner, _ = owners_of("Workload")
    job["status"] = ended("Failed")
    load["status"] = {
        "conditions": [
            {
                "type": "Evicted",
                "status": "True",
                "reason": "Preempted",
                "lastTransitionTime": at(59),
            }
        ]
    }
    gone = pod_of(owner, "p0", "g0", (1, 60), {}, code=143)
    (attempt,) = rows_of(read_all(SOURCE, written(tmp_path, [job, load, gone])), "attempts")
    assert attempt["state"] == "PREEMPTED"


def test_an_audit_log_says_who_cancelled_a_job_and_drained_a_node_and_no_secret(tmp_path: Path):
    line = {"apiVersion": "audit.k8s.io/v1", "kind": "Event", "stage": "ResponseComplete"}
    line |= {"responseStatus": {"code": 200}, "requestReceivedTimestamp": at(30)}

    def audited(user: str, verb: str, resource: str, name: str, **more: object) -> dict:
        about = {"resource": resource, "name": name, "namespace": "ml"}
        return line | {"user": {"username": user}, "verb": verb, "objectRef": about} | more

    (job, _), owner, _ = owners_of("Workload")
    job["status"], job["metadata"]["deletionTimestamp"] = {}, at(30)
    pod = pod_of(owner, "p0", "g0", (1, 30), {}, code=143)
    body = {"spec": {"unschedulable": True}, "metadata": {"annotations": {"a": "PLANTED"}}}
    objects = [
        {"type": "DELETED", "object": job},
        pod,
        audited("ann", "delete", "jobs", "x"),
        audited("system:serviceaccount:kube-system:gc", "delete", "pods", "p0"),
        audited("bob", "patch", "nodes", "g1", requestObject=body),
        audited("bob", "patch", "nodes", "g1", requestObject={"spec": {"unschedulable": False}})
        | {"requestReceivedTimestamp": at(50)},
        audited("eve", "delete", "jobs", "y") | {"responseStatus": {"code": 403}},
        audited("eve", "create", "secrets", "s", requestObject={"data": {"k": "PLANTED"}}),
    ]
    batches = read_all(SOURCE, written(tmp_path, objects))
    (attempt,) = rows_of(batches, "attempts")
    assert (attempt["state"], attempt["cancelled_by"]) == ("CANCELLED", "ann")
    (state,) = rows_of(batches, "node_states")
    assert (state["node"], state["state"], state["user"]) == ("g1", "DRAIN", "bob")
    assert [stamp(state[name]) for name in ("start", "end")] == [at(30), at(50)]
    kept = [batch.tables[name].to_pylist() for batch in batches for name in batch.tables]
    assert "PLANTED" not in repr(kept)


def test_late_and_repeated_versions_change_nothing(tmp_path: Path):
    lines = (SAMPLES / "kubernetes/watch.jsonl").read_text().splitlines()[:14]
    once = read_all(SOURCE, SAMPLES / "kubernetes/watch.jsonl")
    order = [json.loads(line) for line in lines for _ in range(2)]
    Random(5).shuffle(order)
    again = read_all(SOURCE, written(tmp_path, order))
    for table, columns in (
        ("attempts", KEY),
        ("allocations", ("node", "start", "end", "elapsed_s")),
    ):
        both = [
            sorted(repr([row[name] for name in columns]) for row in rows_of(batches, table))
            for batches in (once, again)
        ]
        assert both[0] == both[1]
    events = [{row["event_id"] for row in rows_of(batches, "events")} for batches in (once, again)]
    assert events[0] == events[1]


def test_a_watch_read_in_two_files_gives_the_store_of_one(tmp_path: Path):
    lines = (SAMPLES / "kubernetes/watch.jsonl").read_text().splitlines()[:14]
    stores = []
    for name, parts in (("one", [lines]), ("two", [lines, lines])):
        for number, part in enumerate(parts):
            path = tmp_path / f"{name}{number}.jsonl"
            path.write_text("\n".join(part) + "\n" * (number + 1))
            done = ettr("ingest", tmp_path / name, path, "--cluster", "c")
            assert done.code == 0, done.err
        stores.append(ettr("report", tmp_path / name, "--json").json["totals"])
    assert stores[0] == stores[1]
    # 2 h, 1 h and 50 min of 8 GPUs, and half an hour of one on a fourth
    assert stores[0]["node_hours"] == pytest.approx(2 + 1 + 5 / 6 + 0.5)
    assert stores[0]["gpu_hours"] == pytest.approx(8 * (3 + 5 / 6) + 0.5)


def rows_without_lines(path: Path) -> list[dict]:
    batches = read_all(SOURCE, path)
    rows = [row for name in SOURCE.tables for row in rows_of(batches, name)]
    return [{name: value for name, value in row.items() if name != "line"} for row in rows]


@pytest.mark.parametrize("form", ["kubectl", "indented", "documents", "comments", "of_kind"])
def test_yaml_gives_the_rows_of_json(tmp_path: Path, form: str):
    yaml = pytest.importorskip("yaml")
    sample = SAMPLES / "kubernetes/list.json"
    whole = json.loads(sample.read_text())
    items = whole["items"]
    text = {
        "kubectl": lambda: yaml.safe_dump(json.loads(sample.read_text())),
        "indented": lambda: "items:\n" + indented(yaml, items) + "kind: List\napiVersion: v1\n",
        "documents": lambda: yaml.safe_dump_all(items, explicit_start=True),
        "comments": lambda: "# a cluster\n---\n" + commented(yaml, items) + "# end\nkind: List\n",
        # as the API itself lists them
        "of_kind": lambda: "".join(f"---\n{yaml.safe_dump(one)}" for one in lists_of(items)),
    }[form]()
    path = tmp_path / "objects.yaml"
    path.write_text(text)
    assert SOURCE.matches(text.encode()[:65536], "x") > 0.5
    assert not rows_of(read_all(SOURCE, path), "rejects")
    assert sorted(map(repr, rows_without_lines(path))) == sorted(
        map(repr, rows_without_lines(sample))
    )


def indented(yaml, items: list[dict]) -> str:
    lines = yaml.safe_dump(items).splitlines()
    return "".join(f"    {line}\n" for line in lines)


def commented(yaml, items: list[dict]) -> str:
    each = "".join(f"# an object\n{yaml.safe_dump([one])}" for one in items)
    return f"apiVersion: v1\nitems:\n{each}"


def lists_of(items: list[dict]) -> list[dict]:
    """Lists by kind, whose items do not say it."""
    of: dict[tuple[str, str], list[dict]] = {}
    for one in items:
        rest = {name: value for name, value in one.items() if name not in {"apiVersion", "kind"}}
        of.setdefault((one["apiVersion"], one["kind"]), []).append(rest)
    return [
        {"apiVersion": api, "items": some, "kind": f"{kind}List"}
        for (api, kind), some in of.items()
    ]


def test_rows_are_the_same_without_msgspec(tmp_path: Path, monkeypatch):
    pytest.importorskip("msgspec")
    jobs = [
        {**one, "metadata": {**one["metadata"], "uid": f"{one['metadata']['uid']}-{kind}"}}
        for kind in KINDS
        for one in owners_of(kind)[0]
    ]
    paths = [path for path in SAMPLES.glob("kubernetes/*.json*") if "expected" not in path.name]
    paths.append(written(tmp_path, jobs))
    quick = [read_all(SOURCE, path) for path in paths]
    monkeypatch.setitem(sys.modules, "msgspec", None)
    for path, batches in zip(paths, quick, strict=True):
        assert [one.tables for one in read_all(SOURCE, path)] == [one.tables for one in batches]
    assert quick[-1][0].tables["attempts"].num_rows > 1


def test_a_list_of_the_api_itself_is_read_though_its_items_name_no_kind(tmp_path: Path):
    sample = SAMPLES / "kubernetes/list.json"
    path = written(tmp_path, lists_of(json.loads(sample.read_text())["items"]))
    ours, theirs = (sorted(map(repr, rows_without_lines(one))) for one in (path, sample))
    assert ours == theirs


def test_a_folder_of_must_gather_is_one_log(tmp_path: Path):
    """Pods, jobs and nodes lie in files of their own; each pod once more by itself."""
    yaml = pytest.importorskip("yaml")
    sample, gathered = SAMPLES / "kubernetes/list.json", tmp_path / "must-gather"
    places = {"Pod": "namespaces/ml/core/pods", "Event": "namespaces/ml/core/events"}
    for one in lists_of(json.loads(sample.read_text())["items"]):
        kind = one["kind"].removesuffix("List")
        path = gathered / f"{places.get(kind, f'namespaces/ml/x/{kind.lower()}s')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        each = [item | {"kind": kind, "apiVersion": one["apiVersion"]} for item in one["items"]]
        path.write_text("---\n" + yaml.safe_dump(one | {"items": each}))
        if kind == "Pod":
            alone = gathered / "namespaces/ml/pods/p/p.yaml"
            alone.parent.mkdir(parents=True)
            alone.write_text("---\n" + yaml.safe_dump(each[0]))
    (gathered / "namespaces/ml/core/secrets.yaml").write_text(
        "---\napiVersion: v1\nitems:\n- apiVersion: v1\n  data: {a: UExBTlRFRA==}\n  kind: Secret\n"
    )
    (gathered / "timestamp").write_text("2026-03-01 12:00:00\n")
    with log_file(gathered) as log:
        assert "UExBTlRFRA" not in log.path.read_text()
        assert (log.name, sorted(map(repr, rows_without_lines(log.path)))) == (
            "must-gather",
            sorted(map(repr, rows_without_lines(sample))),
        )
    done = ettr("ingest", tmp_path / "store", gathered)
    assert done.code == 0, done.err
    # what a shell's ** makes of it: pods without their jobs are said
    done = ettr("ingest", tmp_path / "other", gathered / "namespaces/ml/core/pods.yaml")
    assert "of jobs that are not in this file" in done.err


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (
            "metadata: &a0 {x: y}\n"
            + "".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)),
            "an alias",
        ),
        ("x: " + "[" * 5000 + "\n", "100 levels"),
        ("x: &a [*a]\n", "alias"),
        ("a: b: c\n", "line 3"),
    ],
)
def test_a_document_that_is_no_object_costs_itself(tmp_path: Path, bad: str, why: str):
    pytest.importorskip("yaml")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": at(0)}
    node = named_object("Node", "v1", "g1", status={"conditions": [ready]})
    path = tmp_path / "objects.yaml"
    # a tag is obeyed by none
    tagged = "---\nmetadata: !!python/object/apply:os.abort []\nkind: Pod\napiVersion: v1\n"
    text = f"apiVersion: v1\nkind: Pod\n{bad}{tagged}---\n{json.dumps(node)}\n"
    path.write_text(text)
    batches = read_all(SOURCE, path)
    assert [row["node"] for row in rows_of(batches, "nodes")] == ["g1"]
    first, second = rows_of(batches, "rejects")
    assert why in first["detail"]
    assert "no uid" in second["detail"]


def test_a_document_without_bounds_costs_itself(tmp_path: Path, monkeypatch):
    pytest.importorskip("yaml")
    monkeypatch.setattr("ettr.sources.json_records.PIECE_LIMIT_BYTES", 2000)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": at(0)}
    nodes = [
        named_object("Node", "v1", name, status={"conditions": [ready]}) for name in ("a", "b")
    ]
    big = f"- apiVersion: v1\n  kind: Node\n  spec:\n{'    k: v' * 1000}\n"
    small = "".join(f"- {json.dumps(one)}\n" for one in nodes)
    path = tmp_path / "objects.yaml"
    path.write_text(f"apiVersion: v1\nitems:\n{big}{small}kind: List\n")
    batches = read_all(SOURCE, path)
    assert [row["node"] for row in rows_of(batches, "nodes")] == ["a", "b"]
    assert [row["line"] for row in rows_of(batches, "rejects")] == [3]


def test_yaml_without_its_library_says_what_to_do(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "pods.yaml"
    path.write_text("apiVersion: v1\nkind: PodList\nitems: []\n")
    with pytest.raises(SourceError, match=r"ettr\[kubernetes\]"):
        read_all(SOURCE, path)


def test_prometheus_gives_the_outages_of_the_objects_to_a_step(tmp_path: Path):
    """The states of a simulated history, sampled each minute; a shorter one may be missing."""
    tables, _ = played(small(period={"days": 3.0}), seed=3)
    states = [row for row in tables["node_states"].to_pylist() if row["state"] == "DOWN"]
    begin, step = min(tables["attempts"]["submit"].to_pylist()).replace(second=0), 60
    path = written(tmp_path, [answer_of(tables, begin, 3, step)], "range.json")
    found = rows_of(read_all(named("prometheus"), path), "node_states")
    key = itemgetter("node", "start")
    found = [row for row in found if row["state"] == "DOWN"]
    assert len(found) == len(states) > 1
    for ours, theirs in zip(sorted(found, key=key), sorted(states, key=key), strict=True):
        assert ours["node"] == theirs["node"]
        for name in ("start", "end"):
            if theirs[name] is None or ours[name] is None:
                assert name == "end"
                continue
            assert 0 <= (ours[name] - theirs[name]).total_seconds() < step


def test_one_history_as_slurm_objects_and_series_gives_the_same_failures_and_rate(tmp_path: Path):
    """The kernel log is the same with each: a node writes it under any scheduler.

    Prometheus has no jobs: its series replace what slurmdbd recorded of nodes.
    """
    scenario, _ = scenario_text("small")
    with open_store(tmp_path / "sim", create=True) as store:
        simulate_into(store, small(period={"days": 3.0}), 3, scenario, "small", tmp_path / "truth")
        (tmp_path / "logs").mkdir()
        logs = write_logs(store, tmp_path / "logs", "simulated")
        tables = {
            name: store.rows(name) for name in ("attempts", "allocations", "nodes", "node_states")
        }
    begin = min(tables["attempts"]["submit"].to_pylist())
    objects = written(tmp_path, objects_of(tables, begin))
    answer = answer_of(tables, begin.replace(second=0), 3, step_s=60)
    series = written(tmp_path, [answer], "range.json")
    accounting, events, kernel, _ = logs
    found = []
    for name, files in (
        ("slurm", (accounting, events, kernel)),
        ("kubernetes", (objects, kernel)),
        ("prometheus", (accounting, series, kernel)),
    ):
        done = ettr("ingest", tmp_path / name, *files, "--cluster", "small", "--timezone", "UTC")
        assert done.code == 0, done.err
        found.append(ettr("failures", tmp_path / name, "--json").json)
    slurm, kubernetes, prometheus = (one["all_jobs"] for one in found)
    assert slurm["failures"] == kubernetes["failures"] == prometheus["failures"] > 0
    ends = [
        [[row[name] for name in ("end", "state", "node", "symptom")] for row in one["rows"]]
        for one in found
    ]
    assert ends[0] == ends[1] == ends[2]
    # the objects are taken at the last time that they show, minutes before the simulation's end
    assert kubernetes["node_days"] == pytest.approx(slurm["node_days"], rel=0.01)
    # what the series lack of nodes takes nothing from what jobs held
    assert prometheus["node_days"] == slurm["node_days"]
    rates = [one["per_1000_node_days"]["estimate"] for one in (slurm, kubernetes, prometheus)]
    assert rates == pytest.approx([rates[0]] * 3, rel=0.01)
