"""Objects of Kubernetes: lists of `kubectl get -o json`, watch streams, audit logs.

The owner chain of a pod decides to which attempt it belongs: a JobSet, Job, Kubeflow or Volcano
job is one attempt, whose pods may be replaced; a restart of a JobSet and a group of a
LeaderWorkerSet are attempts of their own, and so is a pod that nobody owns. Each node has its own
time in the attempt.

An object counts once, in its latest version (uid, resourceVersion). Of Secrets, environments,
annotations and what containers wrote nothing is kept, also not of records that cannot be read.

Format: kubernetes.io, API reference v1; the API types of JobSet v1alpha2, Kueue v1beta1, v1beta2,
Kubeflow v1, Trainer v1alpha1, LeaderWorkerSet v1, Volcano v1alpha1 in their repositories.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from types import GenericAlias
from typing import Any, TypedDict

from ettr.sources.base import READERS, ReadOptions, Source
from ettr.sources.json_records import (
    Json,
    JsonRecord,
    RecordShape,
    json_records,
    of_kind,
    yaml_records,
)
from ettr.sources.lines import BadRecordError, integer_of, json_part
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.slurm.fields import MAY_BE_TELLING, without_secrets
from ettr.sources.times import time_of
from ettr.tables.rows import TEXT_LIMIT, Batch, clean
from ettr.words import counted

NAME = "kubernetes"
NOT_KEPT = "not kept: it may hold secrets"

Object = dict[str, Any]
_NOTHING: Object = {}


def _words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KINDS_OF_JOBS = _words_of(
    "Job JobSet PyTorchJob MPIJob TFJob XGBoostJob PaddleJob JAXJob TrainJob"
)
_OWNERS = _KINDS_OF_JOBS | _words_of("LeaderWorkerSet StatefulSet ReplicaSet DaemonSet Deployment")
_KEPT = _OWNERS | {"Pod", "Node", "Event", "Workload"}
# pods of services, which run as long as they may: no attempts
_SERVICES = frozenset(("DaemonSet", "ReplicaSet", "Deployment", "Node"))
_NO_ATTEMPTS = _SERVICES | {"StatefulSet"}
# an object, or an item of a list of the API, which has no kind
_OF_AN_OBJECT = {"metadata", "object", "verb"}
_SHAPE = RecordShape(lambda one: not _OF_AN_OBJECT.isdisjoint(one), None, ("items",))
_KIND = re.compile(rb'"kind"\s*:\s*"(\w{1,60}?)(?:List)?"')
_YAML = re.compile(rb"^(?:- |  )?(?:apiVersion|kind): \S", re.MULTILINE)
_GPU = re.compile(
    r"(?:nvidia\.com|amd\.com|gpu\.intel\.com|intel\.com)/(?:gpu|i915|xe)\Z|google\.com/tpu\Z|"
    r"habana\.ai/gaudi\Z|aws\.amazon\.com/neuron(?:device)?\Z|huawei\.com/Ascend\w{1,20}\Z"
)
_PARTS_OF_GPUS = re.compile(r"nvidia\.com/(?:mig-|gpu\.shared)")
_TYPES = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
_INSTANCE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
# names of an attempt that a pod's own labels have where no list holds its owners
_LABELS = (
    ("JobSet", "jobset.sigs.k8s.io/jobset-name"),
    ("PyTorchJob", "training.kubeflow.org/job-name"),
    ("VolcanoJob", "volcano.sh/job-name"),
)
_RESTART = "jobset.sigs.k8s.io/restart-attempt"
_GROUP = ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index")
_QUEUE = "kueue.x-k8s.io/queue-name"
_OF_PODS = (*(label for _, label in _LABELS), *_GROUP, _RESTART, _QUEUE)
# what is read of any object
_READ = frozenset((*_OF_PODS, *_TYPES, *_INSTANCE)) | _words_of(
    "apiVersion kind metadata name namespace uid resourceVersion creationTimestamp labels "
    "deletionTimestamp ownerReferences controller spec nodeName priorityClassName containers "
    "resources requests limits activeDeadlineSeconds queueName queue unschedulable taints key "
    "runPolicy schedulingPolicy priorityClass priorityClassRef claims "
    "timeAdded status phase reason startTime completionTime conditions type message "
    "lastTransitionTime lastHeartbeatTime containerStatuses state lastState terminated exitCode "
    "signal finishedAt capacity cpu memory addresses address "
    "involvedObject regarding source deprecatedSource host series lastObservedTime firstTimestamp "
    "lastTimestamp deprecatedFirstTimestamp deprecatedLastTimestamp eventTime note"
)


def _shown(names: str = "", **within: Any) -> Any:
    """Keys whose values are taken as they are, and those of which a part is read."""
    keys = {**dict.fromkeys(names.split(), Any), **within}
    typed: Any = TypedDict
    return typed("_Shown", keys, total=False)


def _list(each: Any) -> Any:
    return GenericAlias(list, each) | None


# the same by its place, so that nothing else is made of the text; what is read only if it holds
# anything is taken whole
_TERMINATED = _shown(terminated=_shown("exitCode signal finishedAt reason") | None)
_CONDITION = _shown("type status reason message lastTransitionTime lastHeartbeatTime")
_CONTAINER = _shown("name", state=_TERMINATED | None, lastState=_TERMINATED | None)
_ITEM = {
    "metadata": _shown(
        "name namespace uid resourceVersion creationTimestamp deletionTimestamp",
        labels=_shown(" ".join((*_OF_PODS, *_TYPES, *_INSTANCE))) | None,
        ownerReferences=_list(_shown("kind name uid apiVersion controller")),
    ),
    "spec": _shown(
        "nodeName priorityClassName queueName queue schedulingPolicy priorityClass runPolicy "
        "activeDeadlineSeconds unschedulable priorityClassRef",
        containers=_list(_shown(resources=_shown("requests limits claims") | None)),
        taints=_list(_shown("key timeAdded")),
    ),
    "status": _shown(
        "phase reason startTime completionTime state capacity addresses",
        conditions=_list(_CONDITION),
        containerStatuses=_list(_CONTAINER),
    ),
    "objectRef": _shown("name namespace resource"),
    "user": _shown("username"),
    "requestObject": _shown(spec=_shown("unschedulable")) | None,
}
_TOP = (
    "apiVersion kind type code reason message note involvedObject regarding source "
    "deprecatedSource series firstTimestamp deprecatedFirstTimestamp eventTime lastTimestamp "
    "deprecatedLastTimestamp stage verb responseStatus requestReceivedTimestamp"
)
_CHANGE = _shown(_TOP, object=_shown(_TOP, **_ITEM), **_ITEM)
_WANTED = _shown(_TOP, items=_list(_CHANGE), object=_shown(_TOP, **_ITEM), **_ITEM)
_DONE = {
    **dict.fromkeys(("Complete", "Completed", "Succeeded", "SuccessCriteriaMet"), "COMPLETED"),
    **dict.fromkeys(("Failed", "FailureTarget"), "FAILED"),
}
_PHASES = {
    **dict.fromkeys(("Completed", "Succeeded"), "COMPLETED"),
    "Failed": "FAILED",
    **dict.fromkeys(("Aborted", "Terminated"), "CANCELLED"),
}
# why a pod ended that its program did not end: of the condition DisruptionTarget, of the pod itself
_CAUSES = {
    **dict.fromkeys(("DeletionByTaintManager", "DeletionByPodGC", "NodeLost"), "NODE_FAIL"),
    **dict.fromkeys(("PreemptionByScheduler", "PreemptionByKubeScheduler"), "PREEMPTED"),
    **dict.fromkeys(("Preempting", "Preempted"), "PREEMPTED"),
    **dict.fromkeys(("EvictionByEvictionAPI", "TerminationByKubelet"), "CANCELLED"),
    **dict.fromkeys(("Evicted", "NodeShutdown", "Shutdown", "Terminated"), "CANCELLED"),
    "DeadlineExceeded": "TIMEOUT",
    "OOMKilled": "OUT_OF_MEMORY",
}
_WORST = ("NODE_FAIL", "PREEMPTED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "FAILED", "COMPLETED")
# pods that ended so long before their attempt did are not why it ended
_ENDING_S = 300.0
_MOST_TIMES = 1 << 18
_EVENTS_OF_NODES = _words_of(
    "NodeNotReady Rebooted SystemOOM OOMKilling KernelOops TaskHung KernelDeadlock XidError "
    "FilesystemIsReadOnly ReadonlyFilesystem ContainerdUnhealthy KubeletUnhealthy NodeShutdown "
    "EvictionThresholdMet UnregisterNetDevice Ext4Error IOError MemoryReadError RemovingNode "
    "ContainerGCFailed InvalidDiskCapacity"
)
_EVENTS_OF_PODS = _words_of(
    "Preempted Evicted TaintManagerEviction NodeShutdown OOMKilling NodeNotReady FailedMount "
    "FailedAttachVolume UnexpectedAdmissionError FailedPreStopHook"
)
_READY, _NOT_READY, _OPEN, _CORDONED = "ready", "not-ready", "schedulable", "cordoned"
_SIGNALS = {
    "NodeReady": _READY,
    "NodeNotReady": _NOT_READY,
    "NodeSchedulable": _OPEN,
    "NodeNotSchedulable": _CORDONED,
}
_NEWS_OF = {"Node": _EVENTS_OF_NODES | _SIGNALS.keys(), "Pod": _EVENTS_OF_PODS}
_ROWS_OF_NEWS = _EVENTS_OF_NODES | _EVENTS_OF_PODS
_OUT_WORDS = re.compile(
    r"unhealthy|quarantin|maintenance|out-of-service|degraded|ToBeDeleted", re.I
)
_TELLING = re.compile(MAY_BE_TELLING)
_UNITS = {
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
}


@dataclass(slots=True)
class _ContainerEnd:
    """A container that ended."""

    name: str
    time: datetime
    reason: str
    exit_code: int | None
    signal: int | None


@dataclass(slots=True)
class _Pod:
    """What is kept of a pod."""

    line: int
    uid: str
    key: tuple[str, str]
    labels: dict[str, str]
    owner: tuple[str, str, str] | None
    created: datetime
    node: str | None
    start: datetime | None
    end: datetime | None
    n_gpus: float
    state: str | None
    cause: str | None
    ends: list[_ContainerEnd]
    qos: str | None


@dataclass(slots=True)
class _Owner:
    """What is kept of a job, a set or a workload."""

    line: int
    kind: str
    uid: str
    key: tuple[str, str]
    owner: tuple[str, str, str] | None
    created: datetime
    end: datetime | None
    state: str | None
    queue: str | None
    qos: str | None
    limit_s: float | None
    preempted: datetime | None


@dataclass(frozen=True, slots=True)
class _Signal:
    """What a node was at a moment, as an object, an event or an audit line shows it."""

    time: datetime
    what: str
    line: int
    reason: str | None = None
    flags: str | None = None
    user: str | None = None


@dataclass(slots=True)
class _Seen:
    """All that one file shows, each object in its latest version."""

    rows: LogRows
    versions: dict[str, int] = field(default_factory=dict)
    pods: dict[str, _Pod] = field(default_factory=dict)
    owners: dict[str, _Owner] = field(default_factory=dict)
    nodes: dict[str, tuple[int, Object]] = field(default_factory=dict)
    problems: dict[tuple[str, str, datetime], tuple[int, str | None]] = field(default_factory=dict)
    signals: dict[str, list[_Signal]] = field(default_factory=lambda: defaultdict(list))
    names: dict[tuple[str, tuple[str, str]], _Owner] = field(default_factory=dict)
    events: dict[str, Object] = field(default_factory=dict)
    removed: dict[tuple[str, str], str] = field(default_factory=dict)
    times: dict[str, datetime] = field(default_factory=dict)
    last: datetime | None = None
    kept: set[int] = field(default_factory=set)
    n_records: int = 0

    def time(self, value: object) -> datetime | None:
        if value is None:
            return None
        found = self.times.get(value) if isinstance(value, str) else None
        if found is not None:  # the objects of a job share their times
            return found
        found = time_of(value, "UTC")
        if isinstance(value, str) and found is not None:
            if len(self.times) == _MOST_TIMES:
                self.times.clear()
            self.times[value] = found
        if found is not None and (self.last is None or found > self.last):
            self.last = found
        return found


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Attempts, what their pods held, nodes, their states, and events, once the file is read.

    Raises:
        SourceError: the file is corrupt or truncated, or YAML without PyYAML.
    """
    rows = LogRows(NAME, origin, options)
    seen = _Seen(rows)
    is_json = json_part(origin.head) or not _YAML.search(origin.head)
    records = json_records(origin, _SHAPE, _WANTED) if is_json else yaml_records(origin)
    yield from rows.each(_objects_in(records), partial(_take, seen), lambda _: NOT_KEPT)
    _emit(seen)
    rows.count_folded(seen.n_records - len(seen.kept))
    yield rows.batch()


def _objects_in(records: Iterator[JsonRecord]) -> Iterator[tuple[int, Json | JsonRecord]]:
    """The objects of lists and others with their places; a record that is no object as it is."""
    place = 0
    for record in records:
        value = record.value
        for one in _items(value) if isinstance(value, dict) else (record,):
            place = max(place + 1, record.line)
            yield place, one


def kept_of(value: Any, within: str = "") -> Any:
    """An object with what this source reads: no environment, annotation, command or output."""
    if isinstance(value, dict):
        return {
            name: kept_of(each, name)
            for name, each in value.items()
            if (name in _READ and (name, within) != ("message", "terminated")) or _of_resource(name)
        }
    if isinstance(value, list):
        return [kept_of(each, within) for each in value]
    return _words(value) if within in {"message", "note"} else value


def _items(value: Object) -> Iterable[Json]:
    """The objects of a list, or the object itself."""
    items = value.get("items")
    return [of_kind(one, value) for one in items] if isinstance(items, list) else (value,)


def _take(seen: _Seen, line: int, value: Json | JsonRecord) -> None:
    """Keep what an object, a watch event or an audit line says, or skip it."""
    if isinstance(value, JsonRecord) or not isinstance(value, dict):
        # the words of the decoder name a place and quote nothing
        error = value.error if isinstance(value, JsonRecord) else None
        raise BadRecordError("bad-json", error or "no JSON object")
    change = value.get("type") if isinstance(value.get("object"), dict) else None
    one = value if change is None else _object(value["object"])
    kind, version = clean(one.get("kind")), clean(one.get("apiVersion")) or ""
    if version.startswith("audit.k8s.io/"):
        _audit(seen, line, one)
        return
    if kind == "Status" and one.get("code") == 410:
        seen.rows.note(
            "the server ended a watch with 410 Gone: what changed until the next list is not in it"
        )
    if kind not in _KEPT or change == "BOOKMARK":
        seen.rows.count_skipped()
        return
    meta = _object(one.get("metadata"))
    uid, name = clean(meta.get("uid")), clean(meta.get("name"))
    created = seen.time(meta.get("creationTimestamp"))
    if not uid or not name:
        raise BadRecordError("missing-field", "metadata has no uid or name")
    if kind == "Event":
        _keep_event(seen, line, uid, meta, one)
        return
    if created is None:
        raise BadRecordError("bad-timestamp", "creationTimestamp is not a time")
    seen.n_records += 1
    if kind == "Node":  # an older version still says when the node was what
        _node_signals(seen, line, name, one)
    if not _is_news(seen, uid, meta):
        return
    if kind == "Node":
        seen.nodes[name] = (line, one)
        return
    key = (clean(meta.get("namespace")) or "default", name)
    if kind == "Pod":
        seen.pods[uid] = _pod(seen, line, uid, key, meta, one, created, change == "DELETED")
    else:
        owner = _owner(seen, line, kind, uid, key, one, created, change == "DELETED")
        seen.owners[uid] = seen.names[owner.kind, owner.key] = owner


def _keep_event(seen: _Seen, line: int, uid: str, meta: Object, one: Object) -> None:
    """Keep an Event that says what happened to a node or a pod; skip all others."""
    about = _object(one.get("involvedObject") or one.get("regarding"))
    reason = clean(one.get("reason"))
    if reason not in _NEWS_OF.get(clean(about.get("kind")) or "", ()):
        seen.rows.count_skipped()
        return
    found = _event_fields(one, about)
    if seen.time(found["first"]) is None:
        raise BadRecordError("bad-timestamp", "an Event without a time")
    seen.n_records += 1
    if _is_news(seen, uid, meta):
        seen.events[uid] = {"line": line, **found}


def _is_news(seen: _Seen, uid: str, meta: Object) -> bool:
    """Whether no later version of the object was there."""
    number = integer_of(meta.get("resourceVersion")) or 0
    is_news = number >= seen.versions.get(uid, -1)
    if is_news:
        seen.versions[uid] = number
    return is_news


def _object(value: Json) -> Object:
    return value if isinstance(value, dict) else _NOTHING


def _objects(value: Json) -> list[Object]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _controller(meta: Object) -> tuple[str, str, str] | None:
    """Kind, name and uid of the object that controls another one."""
    owners = _objects(meta.get("ownerReferences"))
    if not owners:
        return None
    one = next((one for one in owners if one.get("controller") is True), owners[0])
    kind = clean(one.get("kind")) or ""
    if kind == "Job" and (clean(one.get("apiVersion")) or "").startswith("batch.volcano"):
        kind = "VolcanoJob"
    return kind, clean(one.get("name")) or "", clean(one.get("uid")) or ""


def _conditions(status: Object) -> dict[str, Object]:
    """Conditions by their type."""
    return {clean(one.get("type")) or "": one for one in _objects(status.get("conditions"))}


def _pod(
    seen: _Seen,
    line: int,
    uid: str,
    key: tuple[str, str],
    meta: Object,
    one: Object,
    created: datetime,
    is_deleted: bool,
) -> _Pod:
    spec, status = _object(one.get("spec")), _object(one.get("status"))
    disrupted = ready = scheduled = _NOTHING
    for each in _objects(status.get("conditions")):
        kind = each.get("type")
        if kind == "Ready":
            ready = each
        elif kind == "PodScheduled":
            scheduled = each
        elif kind == "DisruptionTarget":
            disrupted = each
    phase, reason = clean(status.get("phase")), clean(status.get("reason"))
    cause = clean(disrupted.get("reason")) if disrupted.get("status") == "True" else None
    ends: list[_ContainerEnd] = []
    now: list[_ContainerEnd] = []  # those that no restart followed
    for container in _objects(status.get("containerStatuses")):
        for name in ("lastState", "state"):
            found = _end(seen, container, name)
            if found is not None:
                ends.append(found)
                if name == "state":
                    now.append(found)
    start = seen.time(status.get("startTime")) or seen.time(scheduled.get("lastTransitionTime"))
    end, state = None, None
    if phase in {"Succeeded", "Failed"} or is_deleted:
        end = max((one.time for one in now), default=None)
        # what is ready to its end became so long before
        if end is None and disrupted.get("status") == "True":
            end = seen.time(disrupted.get("lastTransitionTime"))
        if end is None and ready.get("status") != "True":
            end = seen.time(ready.get("lastTransitionTime"))
        end = end or seen.time(meta.get("deletionTimestamp"))
        failed = phase == "Failed" or any(one.exit_code for one in now)
        state = "FAILED" if failed else "COMPLETED"
        if phase in {"Running", "Pending", "Unknown"} and not now:
            state = "CANCELLED"
    oom = "OOMKilled" if any(one.reason == "OOMKilled" for one in now) else None
    labels = _object(meta.get("labels"))
    return _Pod(
        line=line,
        uid=uid,
        key=key,
        labels={name: str(labels[name]) for name in _OF_PODS if name in labels} if labels else {},
        owner=_controller(meta),
        created=created,
        node=clean(spec.get("nodeName")),
        start=start,
        end=max(end, start) if end and start else end,
        n_gpus=_gpus(seen, spec),
        state=state,
        cause=cause or reason or oom,
        ends=ends,
        qos=clean(spec.get("priorityClassName")),
    )


def _end(seen: _Seen, container: Object, name: str) -> _ContainerEnd | None:
    """The end of a container (state), or that before its last restart (lastState)."""
    over = _object(_object(container.get(name)).get("terminated"))
    time = seen.time(over.get("finishedAt"))
    if time is None:
        return None
    code, signal = over.get("exitCode"), over.get("signal")
    return _ContainerEnd(
        clean(container.get("name")) or "",
        time,
        clean(over.get("reason")) or "",
        code if isinstance(code, int) else None,
        signal if isinstance(signal, int) and signal > 0 else None,
    )


def _gpus(seen: _Seen, spec: Object) -> float:
    """Accelerators that the containers of a pod ask for."""
    total = 0
    for container in _objects(spec.get("containers")):
        asked = _object(container.get("resources"))
        requests, limits = _object(asked.get("requests")), _object(asked.get("limits"))
        if asked.get("claims"):
            seen.rows.note("devices of resource claims (DRA) are not counted as GPUs")
        for name, count in ({**requests, **limits} if requests else limits).items():
            kind = _of_resource(name)
            if kind == "gpu":
                total += integer_of(count) or 0
            elif kind == "part":
                seen.rows.note("parts of GPUs (MIG, shared) are not counted as GPUs")
    return float(total)


@lru_cache(1024)
def _of_resource(name: str) -> str:
    return "gpu" if _GPU.match(name) else "part" if _PARTS_OF_GPUS.match(name) else ""


def _owner(
    seen: _Seen,
    line: int,
    kind: str,
    uid: str,
    key: tuple[str, str],
    one: Object,
    created: datetime,
    is_deleted: bool,
) -> _Owner:
    meta, spec, status = (_object(one.get(name)) for name in ("metadata", "spec", "status"))
    conditions = _conditions(status)
    state, end, preempted = None, None, None
    for name, condition in conditions.items():
        if condition.get("status") != "True":
            continue
        since = seen.time(condition.get("lastTransitionTime"))
        if (
            name in _DONE
            and kind != "Workload"
            and (state is None or name in {"Failed", "Complete"})
        ):
            state, end = _DONE[name], seen.time(status.get("completionTime")) or since
            if condition.get("reason") == "DeadlineExceeded":
                state = "TIMEOUT"
        if name in {"Evicted", "Preempted"} and "Preempt" in f"{name}{condition.get('reason')}":
            preempted = since
    phase = clean(_object(status.get("state")).get("phase"))
    if (clean(one.get("apiVersion")) or "").startswith("batch.volcano"):
        kind, state = "VolcanoJob", _PHASES.get(phase or "")
        end = seen.time(_object(status.get("state")).get("lastTransitionTime")) if state else None
    if is_deleted and state is None:
        state, end = "CANCELLED", seen.time(meta.get("deletionTimestamp"))
    run = _object(spec.get("runPolicy"))  # of Kubeflow
    scheduling, labels = _object(run.get("schedulingPolicy")), _object(meta.get("labels"))
    limit = run.get("activeDeadlineSeconds") or spec.get("activeDeadlineSeconds")
    queues = spec.get("queueName"), spec.get("queue"), scheduling.get("queue"), labels.get(_QUEUE)
    priority = spec.get("priorityClassName") or scheduling.get("priorityClass")
    priority = priority or _object(spec.get("priorityClassRef")).get("name")  # of Kueue v1beta2
    return _Owner(
        line=line,
        kind=kind,
        uid=uid,
        key=key,
        owner=_controller(meta),
        created=created,
        end=end,
        state=state,
        queue=next((clean(one) for one in queues if one), None),
        qos=clean(priority),
        limit_s=float(limit) if isinstance(limit, int) and limit > 0 else None,
        preempted=preempted,
    )


def _node_signals(seen: _Seen, line: int, name: str, one: Object) -> None:
    """What a version of a node shows of when it was ready and open to pods."""
    spec, conditions = _object(one.get("spec")), _conditions(_object(one.get("status")))
    ready = conditions.get("Ready", {})
    # what node-problem-detector saw then is why
    bad = [
        (kind, each)
        for kind, each in conditions.items()
        if kind != "Ready" and each.get("status") == "True"
    ]
    for kind, each in bad:
        if began := seen.time(each.get("lastTransitionTime")):
            message = _words(each.get("reason"), each.get("message"))
            seen.problems.setdefault((name, kind, began), (line, message))
    wrong = [_words(each.get("message")) or kind for kind, each in bad]
    problems = "; ".join(wrong)[:TEXT_LIMIT] or None
    since = seen.time(ready.get("lastTransitionTime"))
    beat = seen.time(ready.get("lastHeartbeatTime")) or since
    if since is not None:
        words = problems or _words(ready.get("reason"), ready.get("message"))
        is_silent = ready.get("status") == "Unknown"
        flags = "NOT_RESPONDING" if is_silent else None
        what = _READY if ready.get("status") == "True" else _NOT_READY
        seen.signals[name].append(_Signal(since, what, line, words, flags))
    taints = _objects(spec.get("taints"))
    out = [
        (clean(taint.get("key")) or "", seen.time(taint.get("timeAdded")))
        for taint in taints
        if _OUT_WORDS.search(clean(taint.get("key")) or "")
        or taint.get("key") == "node.kubernetes.io/unschedulable"
    ]
    if spec.get("unschedulable") is True or out:
        moment = min((time for _, time in out if time), default=beat)
        why = ", ".join(key for key, _ in out if not key.startswith("node.kubernetes.io/")) or None
        if moment is not None:
            seen.signals[name].append(
                _Signal(moment, _CORDONED, line, why or problems or "unschedulable")
            )
    elif beat is not None:
        seen.signals[name].append(_Signal(beat, _OPEN, line))


def _words(*parts: Json) -> str | None:
    """The parts in one text, what is secret in them masked."""
    found = [text for part in parts if (text := clean(part))]
    text = ": ".join(dict.fromkeys(found))
    return (without_secrets(text) if _TELLING.search(text) else text)[:TEXT_LIMIT] or None


def _event_fields(one: Object, about: Object) -> Object:
    """What is kept of an Event, of core/v1 or events.k8s.io/v1."""
    series = _object(one.get("series"))
    source = _object(one.get("source") or one.get("deprecatedSource"))
    stamps = ("firstTimestamp", "deprecatedFirstTimestamp", "eventTime", "lastTimestamp")
    last = one.get("lastTimestamp") or one.get("deprecatedLastTimestamp")
    return {
        "reason": clean(one.get("reason")),
        "message": _words(one.get("message") or one.get("note")),
        "type": clean(one.get("type")),
        "about": (clean(about.get("kind")), clean(about.get("name")), clean(about.get("uid"))),
        "host": clean(source.get("host")),
        "first": next((one[name] for name in stamps if one.get(name)), None),
        "last": series.get("lastObservedTime") or last,
    }


_DELETED_RESOURCES = frozenset(
    ("jobs", "jobsets", "pytorchjobs", "mpijobs", "leaderworkersets", "trainjobs", "pods")
)


def _audit(seen: _Seen, line: int, one: Object) -> None:
    """An audit line: who removed a job, who took a node out of service."""
    about, who = _object(one.get("objectRef")), _object(one.get("user"))
    code = _object(one.get("responseStatus")).get("code")
    name, user = clean(about.get("name")), clean(who.get("username"))
    time = seen.time(one.get("requestReceivedTimestamp"))
    is_done = (
        one.get("stage") in {None, "ResponseComplete"} and isinstance(code, int) and code < 300
    )
    if not is_done or name is None or user is None or time is None:
        seen.rows.count_skipped()
        return
    if one.get("verb") == "delete" and about.get("resource") in _DELETED_RESOURCES:
        if not user.startswith("system:"):
            seen.removed[clean(about.get("namespace")) or "default", name] = user
        seen.n_records += 1
        return
    spec = _object(_object(one.get("requestObject")).get("spec"))
    if about.get("resource") == "nodes" and "unschedulable" in spec:
        what = _CORDONED if spec.get("unschedulable") is True else _OPEN
        seen.signals[name].append(_Signal(time, what, line, "unschedulable", user=user))
        seen.n_records += 1
        return
    seen.rows.count_skipped()


# -- From what was seen to rows -------------------------------------------------------------------


def _emit(seen: _Seen) -> None:
    jobs: dict[str, str] = {}
    groups: dict[tuple[str, str], list[_Pod]] = defaultdict(list)
    tops: dict[tuple[str, str], _Owner | None] = {}
    without_job = 0
    workloads = {
        one.owner[2]: one for one in seen.owners.values() if one.kind == "Workload" and one.owner
    }
    for pod in seen.pods.values():
        found = _attempt_of(seen, pod)
        if found is not None:
            key, top = found
            without_job += top is None and (pod.owner or ("",))[0] in _KINDS_OF_JOBS
            groups[key].append(pod)
            tops[key] = top
    if without_job:
        seen.rows.note(
            f"{counted(without_job, 'pod')} of jobs that are not in this file: objects of one "
            "cluster belong together, in one file or in a folder that is read as one"
        )
    of_top: dict[str, int] = defaultdict(int)
    for key, pods in groups.items():
        top = tops[key]
        if top is not None:
            numbers = (integer_of(pod.labels.get(_RESTART)) or 0 for pod in pods)
            of_top[top.uid] = max(of_top[top.uid], *numbers)
    for key, pods in groups.items():
        top = tops[key]
        restart = max(integer_of(pod.labels.get(_RESTART)) or 0 for pod in pods)
        is_last = top is None or restart == of_top[top.uid]
        job_id = _attempt(seen, key[0], pods, top, restart, is_last, workloads)
        jobs.update((pod.uid, job_id) for pod in pods)
    for top in seen.owners.values():
        is_queued = top.kind in _KINDS_OF_JOBS | {"VolcanoJob"} and top.uid not in of_top
        if is_queued and top.owner is None:
            _attempt(seen, ":".join(top.key), [], top, 0, True, workloads)
    _pod_events(seen, jobs)
    _node_rows(seen)
    _event_rows(seen, jobs)


def _attempt_of(seen: _Seen, pod: _Pod) -> tuple[tuple[str, str], _Owner | None] | None:
    """The job's id and the key of the attempt that a pod is of, and its job; None for a service."""
    top: _Owner | None = None
    named, owner = pod.owner, pod.owner
    for _ in range(8):  # a chain of owners is shorter
        if owner is None:
            break
        named = owner
        known = seen.owners.get(owner[2])
        if known is not None:
            top, owner = known, known.owner
        else:
            leader = seen.pods.get(owner[2])
            owner = None if leader is None else leader.owner
    space, restart = pod.key[0], pod.labels.get(_RESTART, "")
    name, group = pod.labels.get(_GROUP[0]), pod.labels.get(_GROUP[1])
    if name is not None:
        return (f"{space}:{name}-{group or 0}", f"{space}:{name}/{group}/{restart}"), None
    if top is not None and top.kind not in _NO_ATTEMPTS:
        return (":".join(top.key), f"{top.uid}/{restart}"), top
    for kind, label in _LABELS:  # a Job between them may be gone, of an earlier run
        if label in pod.labels:
            job = f"{space}:{pod.labels[label]}"
            top = seen.names.get((kind, (space, pod.labels[label])))
            return (job, f"{top.uid if top else job}/{restart}"), top
    if named is None:
        return (":".join(pod.key), pod.uid), None
    if named[0] in _NO_ATTEMPTS:
        return None
    return (f"{space}:{named[1]}", f"{named[2]}/{restart}"), None


def _attempt(
    seen: _Seen,
    job_id: str,
    pods: list[_Pod],
    top: _Owner | None,
    restart: int,
    is_last: bool,
    workloads: dict[str, _Owner],
) -> str:
    ran = [pod for pod in pods if pod.node is not None and pod.start is not None]
    workload = workloads.get(top.uid) if top is not None else None
    start = min((pod.start for pod in ran if pod.start), default=None)
    done = _outcome(seen, pods, ran, top if is_last else None, workload)
    state, end = done.state, done.end
    if end is not None and start is not None:
        end = max(end, start)
    lead = top or min(pods, key=lambda pod: (pod.created, pod.uid))
    submit = lead.created if restart == 0 or not pods else min(pod.created for pod in pods)
    close = end or seen.last
    held = _held(ran, close)
    n_nodes, n_gpus = _width(held)
    space = job_id.partition(":")[0]
    removed = seen.removed.get(lead.key) if state == "CANCELLED" else None
    elapsed_s = (close - start).total_seconds() if close and start else None
    seen.kept.add(lead.line)
    key = seen.rows.add_attempt(
        line=lead.line,
        job_id=job_id,
        submit=submit,
        state=state,
        job_id_raw=lead.uid,
        name=job_id.partition(":")[2],
        account=space,
        partition=(workload.queue if workload else None)
        or (top.queue if top else None)
        or next((pod.labels[_QUEUE] for pod in pods if _QUEUE in pod.labels), None),
        qos=next((one.qos for one in (top, workload, *pods) if one and one.qos), None),
        cancelled_by=removed,
        eligible=submit,
        start=start,
        end=end,
        elapsed_s=max(0.0, elapsed_s) if elapsed_s is not None else None,
        time_limit_s=top.limit_s if top else None,
        exit_code=done.exit_code,
        exit_signal=done.exit_signal,
        n_nodes=n_nodes if ran else None,
        n_gpus=n_gpus if ran else None,
        node_list=",".join(sorted(held)) or None,
        restarts=restart if restart else None,
        failed_node=done.failed_node,
    )
    _allocations(seen, lead.line, key, held)
    return job_id


@dataclass(slots=True)
class _Outcome:
    """How an attempt stands or ended."""

    state: str
    end: datetime | None = None
    failed_node: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None


def _outcome(
    seen: _Seen, pods: list[_Pod], ran: list[_Pod], top: _Owner | None, workload: _Owner | None
) -> _Outcome:
    """What the job says of its end, and why its last pods ended; of an earlier run, these alone."""
    state, end = (top.state, top.end) if top is not None else (None, None)
    going_on = top is not None and top.kind in _KINDS_OF_JOBS | {"VolcanoJob"}
    if state is None and (going_on or not all(pod.state for pod in pods)):
        return _Outcome("RUNNING" if ran else "PENDING")
    if end is None:
        end = max((pod.end for pod in ran if pod.end), default=None) or seen.last
    if state == "COMPLETED":
        return _Outcome(state, end, exit_code=0)
    last = [p for p in ran if p.end and end and (end - p.end).total_seconds() <= _ENDING_S]
    why = {_CAUSES.get(pod.cause or "") or pod.state or "COMPLETED": pod for pod in last or ran}
    worst = next((one for one in _WORST if one in why), state or "CANCELLED")
    worse = {"FAILED": _WORST[:-1], "CANCELLED": ("NODE_FAIL", "PREEMPTED")}
    if state is None or worst in worse.get(state, ()):
        state = worst
    if workload is not None and workload.preempted and state in {"CANCELLED", "FAILED"}:
        state = "PREEMPTED"
    done = _Outcome(state, end, why[state].node if state == "NODE_FAIL" else None)
    codes = [one for pod in last for one in pod.ends if one.exit_code]
    if codes:
        first = min(codes, key=lambda one: one.time)
        done.exit_code, done.exit_signal = first.exit_code, first.signal
    return done


_Span = tuple[datetime, datetime, float, bool]


def _held(pods: list[_Pod], close: datetime | None) -> dict[str, list[_Span]]:
    """From when until when pods held each node, with their GPUs, and whether one goes on."""
    held: dict[str, list[_Span]] = defaultdict(list)
    for pod in pods:
        end = pod.end or close
        if pod.node is not None and pod.start is not None and end is not None:
            goes_on = pod.end is None and (close is None or close == end)
            held[pod.node].append((pod.start, max(end, pod.start), pod.n_gpus, goes_on))
    return held


def _allocations(seen: _Seen, line: int, attempt_id: str, held: dict[str, list[_Span]]) -> None:
    """One row a node: the time that any pod of the attempt was on it, with their mean of GPUs."""
    for node, spans in sorted(held.items()):
        start, last = min(span[0] for span in spans), max(span[1] for span in spans)
        most, goes_on = max(span[2] for span in spans), any(span[3] for span in spans)
        held_s = _union_s(spans)
        gpu_s = sum((until - since).total_seconds() * gpus for since, until, gpus, _ in spans)
        seen.rows.add(
            "allocations",
            line=line,
            attempt_id=attempt_id,
            node=node,
            start=start,
            end=None if goes_on else last,
            elapsed_s=held_s,
            n_gpus=gpu_s / held_s if held_s > 0 else most,
        )


def _union_s(spans: list[_Span]) -> float:
    """Seconds that any of the spans covers."""
    total, until = 0.0, datetime.min.replace(tzinfo=UTC)
    for first, last, *_ in sorted(spans, key=lambda one: one[:2]):
        total += max(0.0, (last - max(first, until)).total_seconds())
        until = max(until, last)
    return total


def _width(held: dict[str, list[_Span]]) -> tuple[int, int]:
    """The nodes and GPUs that an attempt held at a time for longest."""
    changes = sorted(
        (time, by, node, gpus)
        for node, spans in held.items()
        for first, last, gpus, _ in spans
        for time, by in ((first, 1), (last, -1))
    )
    pods: dict[str, int] = defaultdict(int)
    lasted: dict[tuple[int, int], float] = defaultdict(float)
    now_gpus, before = 0.0, None
    n_now = 0
    for time, by, node, gpus in changes:
        if before is not None and n_now:
            lasted[n_now, int(now_gpus)] += (time - before).total_seconds()
        n_now += (pods[node] + by > 0) - (pods[node] > 0)
        pods[node] += by
        now_gpus += by * gpus
        before = time
    if not lasted:
        return len(held), int(sum(max(one[2] for one in spans) for spans in held.values()))
    return max(lasted, key=lambda size: (lasted[size], size))


def _known_id(*parts: str) -> str:
    return hashlib.blake2b("\x1f".join(parts).encode(), digest_size=12).hexdigest()


def _pod_events(seen: _Seen, jobs: dict[str, str]) -> None:
    """An event for each container that ended badly, and for each pod that was taken away."""
    for pod in seen.pods.values():
        if pod.uid not in jobs:
            continue
        for end in pod.ends:
            if end.exit_code == 0:
                continue
            _event(
                seen,
                pod,
                jobs[pod.uid],
                end.time,
                end.reason or "Error",
                f"container {end.name} ended with exit code {end.exit_code}",
                _known_id(pod.uid, end.name, str(end.time)),
            )
        if pod.cause and pod.cause != "OOMKilled" and pod.end is not None:
            text = "the pod was ended from outside"
            _event(
                seen, pod, jobs[pod.uid], pod.end, pod.cause, text, _known_id(pod.uid, pod.cause)
            )


def _event(
    seen: _Seen, pod: _Pod, job: str, time: datetime, code: str, text: str, known_id: str
) -> None:
    seen.kept.add(pod.line)
    seen.rows.events.add(
        line=pod.line,
        time=time,
        check="pod",
        node=pod.node,
        code=code,
        message=text,
        job_id=job,
        known_id=known_id,
    )


def _event_rows(seen: _Seen, jobs: dict[str, str]) -> None:
    """Events that say what happened to a node or a pod."""
    for uid, one in seen.events.items():
        kind, name, about = one["about"]
        first, last = seen.time(one["first"]), seen.time(one["last"])
        if first is None or one["reason"] not in _ROWS_OF_NEWS:
            continue
        seen.kept.add(one["line"])
        node = name if kind == "Node" else one["host"]
        pod = seen.pods.get(about or "")
        seen.rows.events.add(
            line=one["line"],
            time=first,
            time_end=last if last and last > first else None,
            check="k8s-event",
            node=node or (pod.node if pod else None),
            code=one["reason"],
            severity="warning" if one["type"] == "Warning" else "unknown",
            message=one["message"],
            job_id=jobs.get(about or ""),
            known_id=_known_id("event", uid),
        )


def _node_rows(seen: _Seen) -> None:
    """The nodes, the problems that their conditions show, and the states that they were in."""
    for name, (line, one) in seen.nodes.items():
        _inventory(seen, name, line, one)
    for (name, kind, since), (line, message) in seen.problems.items():
        seen.kept.add(line)
        seen.rows.events.add(
            line=line,
            time=since,
            check="node-condition",
            node=name,
            code=kind,
            message=message,
            known_id=_known_id("condition", name, kind, str(since)),
        )
    for one in seen.events.values():
        kind, name, _ = one["about"]
        what, time = _SIGNALS.get(one["reason"] or ""), seen.time(one["first"])
        if kind == "Node" and name and what and time:
            for moment in {time, seen.time(one["last"]) or time}:
                seen.signals[name].append(_Signal(moment, what, one["line"], one["message"]))
    for name, signals in seen.signals.items():
        _states(seen, name, signals, _NOT_READY, _READY, "DOWN")
        _states(seen, name, signals, _CORDONED, _OPEN, "DRAIN")


def _inventory(seen: _Seen, name: str, line: int, one: Object) -> None:
    meta, status = _object(one.get("metadata")), _object(one.get("status"))
    labels, has = _object(meta.get("labels")), _object(status.get("capacity"))
    gpus = [integer_of(count) or 0 for kind, count in has.items() if _GPU.match(kind)]
    others = {clean(each.get("address")) for each in _objects(status.get("addresses"))}
    seen.kept.add(line)
    seen.rows.add(
        "nodes",
        line=line,
        node=name,
        n_gpus=sum(gpus) if has else None,
        gpu_type=next((clean(labels.get(kind)) for kind in _TYPES if labels.get(kind)), None),
        n_cpus=integer_of(has.get("cpu")),
        memory_bytes=_bytes(has.get("memory")),
        hardware_group=next((clean(labels[name]) for name in _INSTANCE if name in labels), None),
        other_names=",".join(sorted(one for one in others if one and one != name)) or None,
        in_service_from=seen.time(meta.get("creationTimestamp")),
    )


def _bytes(value: Json) -> int | None:
    found = re.fullmatch(r"(\d{1,18})(Ki|Mi|Gi|Ti|k|M|G)?", clean(value) or "")
    return int(found[1]) * _UNITS.get(found[2] or "", 1) if found else None


def _states(
    seen: _Seen, node: str, signals: list[_Signal], opens: str, closes: str, state: str
) -> None:
    """Intervals of a node from what opens one to what closes it."""
    own = [one for one in signals if one.what in {opens, closes}]
    own.sort(key=lambda one: (one.time, one.what == opens))
    since: _Signal | None = None
    for one in [*own, None]:
        if since is None:
            since = one if one is not None and one.what == opens else None
            continue
        if one is not None and one.what == opens:
            continue
        end = one.time if one is not None else None
        if end is None or end > since.time:
            seen.rows.derive(
                "node_states",
                line=since.line,
                node=node,
                state=state,
                flags=since.flags,
                reason=since.reason,
                user=since.user,
                start=since.time,
                end=end,
            )
        since = None


def matches(head: bytes, _name: str) -> float:
    """How sure it is that these are objects of Kubernetes, a watch or an audit log of such."""
    if not json_part(head):
        return 0.9 if len(_YAML.findall(head)) > 1 else 0.0
    if b'"apiVersion"' not in head:
        return 0.0
    kinds = {found.decode() for found in _KIND.findall(head)}
    if b"audit.k8s.io/" in head:
        return 0.95
    known = kinds & (_KEPT | {"Status"}) or (b'"items"' in head and kinds <= {"", "List"})
    return 0.95 if known else 0.0


SOURCE = Source(
    name=NAME,
    version=READERS[NAME],
    title="Kubernetes objects (`kubectl get -o json` or `yaml`, must-gather, watches, audit logs)",
    tables=("attempts", "allocations", "nodes", "node_states", "events"),
    matches=matches,
    read=read,
    options=("--cluster",),
    how_to_get="kubectl get pods,jobs,nodes,events -A -o json > kubernetes.json",
)
