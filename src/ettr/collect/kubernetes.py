"""Objects of Kubernetes over its API: listed, watched, and written one a line.

A file begins with lists; changes follow as the API's watch events. Only what the source reads of
an object is written. A watch that ends is taken up where it was; after 410 Gone the objects are
listed again, and what is missing then is written as deleted when the watch was last heard.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, TYPE_CHECKING, Any, Final

from ettr.collect.running import CollectError
from ettr.files import new_file

if TYPE_CHECKING:
    import httpx2

Object = dict[str, Any]

_PAGE, _LONGEST_WATCH_S, _SILENT_S, _MOST_WAIT_S = 500, 300, 30.0, 30.0
_GONE, _NOT_FOUND, _FORBIDDEN, _UNAUTHORISED = 410, 404, 403, 401
_PLUGINS = "client.authentication.k8s.io"
_BEATS = frozenset(("resourceVersion", "lastHeartbeatTime"))


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of objects and its place in the API; `group` is empty for the core."""

    group: str
    plural: str
    kind: str
    is_needed: bool = False


_KUBEFLOW = ("PyTorchJob", "MPIJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
RESOURCES: Final = (
    Resource("", "nodes", "Node", True),
    Resource("batch", "jobs", "Job", True),
    Resource("jobset.x-k8s.io", "jobsets", "JobSet"),
    Resource("kueue.x-k8s.io", "workloads", "Workload"),
    *(Resource("kubeflow.org", f"{kind.lower()}s", kind) for kind in _KUBEFLOW),
    Resource("trainer.kubeflow.org", "trainjobs", "TrainJob"),
    Resource("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet"),
    Resource("batch.volcano.sh", "jobs", "Job"),
    Resource("", "pods", "Pod", True),
    Resource("", "events", "Event"),
)


def role() -> str:
    """A ClusterRole for `kubectl apply` that may list and watch these, and nothing else."""
    groups: dict[str, list[str]] = {}
    for one in RESOURCES:
        groups.setdefault(one.group, []).append(one.plural)
    rules = [
        {"apiGroups": [group], "resources": names, "verbs": ["list", "watch"]}
        for group, names in groups.items()
    ]
    made = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "ettr-read"},
        "rules": rules,
    }
    return json.dumps(made, indent=2)


def client(context: str | None) -> httpx2.Client:
    """A client of the cluster of a kubeconfig, or of the pod that this runs in.

    Raises:
        CollectError: lightkube is not installed, or no configuration is there.
    """
    try:
        from lightkube.config.client_adapter import Client, ConnectionParams
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError
        from yaml import YAMLError
    except ImportError:
        raise CollectError("lightkube is not installed; pip install 'ettr[kubernetes]'") from None
    try:
        found = KubeConfig.from_env().get(context)
        if found is None:
            raise CollectError("the kubeconfig has no context; name one with --context")
        if found.user is not None and found.user.exec is not None:
            _ask_plugin(found.user.exec)
        return Client(found, ConnectionParams())
    except (ConfigError, YAMLError, OSError, ValueError, AssertionError) as error:
        raise CollectError(
            f"no cluster to ask: {error}; set KUBECONFIG, or run it in a pod"
        ) from None


def _ask_plugin(plugin: Any) -> None:
    """Say to a token plugin which version it is asked in; lightkube takes v1 for unknown."""
    from lightkube.config.models import NameValue

    asked: Object = {"kind": "ExecCredential", "apiVersion": plugin.apiVersion}
    asked |= {"spec": {"interactive": False}}
    plugin.env = [*(plugin.env or ()), NameValue("KUBERNETES_EXEC_INFO", json.dumps(asked))]
    if plugin.apiVersion == f"{_PLUGINS}/v1":  # the token has the same place in both
        plugin.apiVersion = f"{_PLUGINS}/v1beta1"


@dataclass(slots=True)
class ObjectFile:
    """The file under way, and what is known of the objects in it.

    Attributes:
        live: by uid, the last version of each object that is not deleted, with its kind.
        heard: when the API last said something.
    """

    file: IO[bytes]
    kept: Callable[[Object], Object]
    now: Callable[[], datetime]
    heard: datetime
    live: dict[str, tuple[str, Object]] = field(default_factory=dict)
    quiet: Object | None = None
    n_objects: int = 0
    n_changes: int = 0
    n_gaps: int = 0
    lock: Lock = field(default_factory=Lock)

    def put(self, resource: Resource, change: str | None, one: Object) -> None:
        """Write a version of an object, unless nothing but its heartbeat is new."""
        slim = self.kept(one)
        uid = str(slim.get("metadata", {}).get("uid", ""))
        kind = f"{resource.group}/{resource.kind}"
        with self.lock:
            self.heard = self.now()
            before = self.live.get(uid)
            is_late = before is not None and _version(slim) < _version(before[1])
            if change == "DELETED":
                self.live.pop(uid, None)
            elif resource.kind != "Event" and not is_late:  # events end by themselves
                self.live[uid] = kind, slim
                if before is not None and _still(slim) == _still(before[1]):
                    self.quiet = slim
                    return
            self.n_objects += before is None
            self.n_changes += change is not None
            self._line(slim if change is None else {"type": change, "object": slim})

    def reached(self, resource: Resource, place: str, version: str) -> None:
        """Write until which version all changes of a kind are in the file."""
        with self.lock:
            self.heard = self.now()
            one: Object = {"kind": resource.kind, "apiVersion": _api(place)}
            one["metadata"] = {"resourceVersion": version}
            self._line({"type": "BOOKMARK", "object": one})

    def gap(self, resource: Resource, uids: set[str], heard: datetime) -> None:
        """After 410 Gone: what a new list does not hold was deleted, at `heard` at the earliest."""
        kind = f"{resource.group}/{resource.kind}"
        with self.lock:
            self.n_gaps += 1
            self._line({"type": "ERROR", "object": {"kind": "Status", "code": _GONE}})
            for uid, (of, slim) in [*self.live.items()]:
                if of == kind and uid not in uids:
                    del self.live[uid]
                    slim["metadata"].setdefault("deletionTimestamp", f"{heard:%Y-%m-%dT%H:%M:%SZ}")
                    self._line({"type": "DELETED", "object": slim})

    def close(self) -> None:
        """Write the last heartbeat, which says until when all was seen."""
        with self.lock:
            if self.quiet is not None:
                self._line(self.quiet)
            self.file.close()

    def _line(self, value: Object) -> None:
        if not self.file.closed:
            self.file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")


def _api(place: str) -> str:
    """`batch/v1` of `apis/batch/v1/jobs`."""
    return place.partition("/")[2].rpartition("/")[0]


def _version(one: Object) -> int:
    text = str(one.get("metadata", {}).get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def versions_reached(path: Path) -> dict[tuple[str, str], str]:
    """By API and kind, the version of the last change in a file of an earlier collection."""
    found: dict[tuple[str, str], str] = {}
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"type":') and line.endswith(b"}\n"):
                one = json.loads(line)["object"]
                version = one.get("metadata", {}).get("resourceVersion")
                if version:
                    found[str(one.get("apiVersion")), str(one.get("kind"))] = str(version)
    return found


def _still(value: Any) -> Any:
    """An object without what each heartbeat changes."""
    if isinstance(value, dict):
        return {name: _still(each) for name, each in value.items() if name not in _BEATS}
    return [_still(each) for each in value] if isinstance(value, list) else value


def collect_kubernetes(
    client: httpx2.Client,
    path: Path,
    watch_s: float,
    kept: Callable[[Object], Object],
    now: Callable[[], datetime],
    complain: Callable[[str], None],
    reached: dict[tuple[str, str], str],
) -> ObjectFile:
    """List all, then watch for so long.

    Args:
        kept: what of an object is written.
        reached: versions from which watches go on, of kinds that were collected before.

    Raises:
        CollectError: the API does not answer, or refuses what is needed.
        OSError: the file cannot be written.
    """
    begin = now()
    with os.fdopen(new_file(path, 0o600), "wb", buffering=0) as file:
        written = ObjectFile(file, kept, now, begin)
        found = []
        for resource in RESOURCES:
            place = _place(client, resource, complain)
            if place is not None:
                version, _ = _listed(client, resource, place, written)
                before = reached.get((_api(place), resource.kind), version)
                if watch_s <= 0:
                    written.reached(resource, place, before)
                found.append((resource, place, before))
        stop, failed = Event(), list[BaseException]()

        def follow(resource: Resource, place: str, version: str) -> None:
            try:
                _follow(client, resource, place, version, written, end, stop, complain)
            except BaseException as error:
                failed.append(error)
                stop.set()

        end = begin.timestamp() + watch_s
        threads = [Thread(target=follow, args=one, daemon=True) for one in found]
        if watch_s > 0:
            for thread in threads:
                thread.start()
        try:
            for thread in threads if watch_s > 0 else ():
                while thread.is_alive() and not stop.is_set() and now().timestamp() < end:
                    thread.join(0.5)
        finally:
            stop.set()
            written.close()
        if failed:
            raise failed[0]
    return written


def _place(
    client: httpx2.Client, resource: Resource, complain: Callable[[str], None]
) -> str | None:
    """Where the API has a resource, in the version that it prefers; None where it has none."""
    groups = [f"api/v1/{resource.plural}"]
    if resource.group:
        answer = _asked(client, f"apis/{resource.group}", {})
        if answer.status_code == _NOT_FOUND:
            return None
        group = answer.json()
        names = [group.get("preferredVersion"), *group.get("versions", ())]
        groups = [f"apis/{one['groupVersion']}/{resource.plural}" for one in names if one]
    for place in groups:
        answer = _asked(client, place, {"limit": "1"})
        if answer.is_success:
            return place
        if answer.status_code in {_FORBIDDEN, _UNAUTHORISED}:
            refused = f"{place}: HTTP {answer.status_code}, the account may not list it"
            if resource.is_needed or answer.status_code == _UNAUTHORISED:
                raise CollectError(f"{refused}; give it the role of ettr collect kubernetes --role")
            complain(f"{refused}; left out")
            return None
        if answer.status_code != _NOT_FOUND:
            raise CollectError(f"{place}: HTTP {answer.status_code}")
    return None


def _asked(client: httpx2.Client, place: str, query: dict[str, str]) -> httpx2.Response:
    import httpx2

    try:
        with _credentials():
            return client.get(place, params=query, timeout=60.0)
    except httpx2.TransportError as error:
        raise CollectError(
            f"{client.base_url}: no answer: {error or type(error).__name__}"
        ) from None
    except (KeyError, ValueError):
        raise CollectError(
            "the plugin of the kubeconfig prints no token (certificates of plugins are not "
            "supported): use the token of a service account with the role of ettr collect "
            "kubernetes --role"
        ) from None


@contextmanager
def _credentials() -> Iterator[None]:
    """Ask with the account's token: where the plugin of the kubeconfig gives none, say so."""
    from lightkube.core.exceptions import ConfigError

    try:
        yield
    except (ConfigError, FileNotFoundError, PermissionError) as error:
        raise CollectError(
            f"the kubeconfig's way to a token fails: {error}; try `kubectl get nodes` with it"
        ) from None


def _listed(
    client: httpx2.Client, resource: Resource, place: str, written: ObjectFile
) -> tuple[str, set[str]]:
    """The version at which all objects were written, and their uids."""
    uids: set[str] = set()
    query = {"limit": str(_PAGE)}
    while True:
        answer = _asked(client, place, query)
        if answer.status_code == _GONE and "continue" in query:  # the list took too long
            del query["continue"]
            continue
        if not answer.is_success:
            raise CollectError(f"{place}: HTTP {answer.status_code}")
        page = answer.json()
        meta = page.get("metadata") or {}
        for one in page.get("items") or ():
            # items of the API's own lists name no kind
            named = {"apiVersion": page.get("apiVersion"), "kind": resource.kind, **one}
            written.put(resource, None, named)
            uids.add(str((one.get("metadata") or {}).get("uid")))
        if not meta.get("continue"):
            return str(meta.get("resourceVersion") or ""), uids
        query["continue"] = str(meta["continue"])


class _GoneError(Exception):
    """The API no longer knows the version from which a watch should go on."""


def _follow(
    client: httpx2.Client,
    resource: Resource,
    place: str,
    version: str,
    written: ObjectFile,
    end: float,
    stop: Event,
    complain: Callable[[str], None],
) -> None:
    """Write the changes from a version on, until time is up or `stop` is set."""
    import httpx2

    n_failed = 0
    written.reached(resource, place, version)
    while not stop.is_set() and (left_s := end - written.now().timestamp()) > 0:
        try:
            for change, one in _changes(client, place, version, min(left_s, _LONGEST_WATCH_S)):
                version, n_failed = str((one.get("metadata") or {}).get("resourceVersion")), 0
                if change == "BOOKMARK":
                    written.reached(resource, place, version)
                else:
                    written.put(resource, change, one)
                if stop.is_set():
                    return
        except _GoneError:
            heard = written.heard
            complain(f"{place}: 410 Gone; listed again, changes since {heard:%H:%M:%SZ} are lost")
            version, uids = _listed(client, resource, place, written)
            written.gap(resource, uids, heard)
            written.reached(resource, place, version)
        except (httpx2.TransportError, ValueError) as error:
            # a line that was cut is no JSON: what it held comes again from the version before
            n_failed += 1
            if n_failed == 2:
                complain(f"{place}: {str(error) or type(error).__name__}; trying again")
            stop.wait(min(_MOST_WAIT_S, 0.1 * 2 ** min(n_failed, 10)))


def _changes(
    client: httpx2.Client, place: str, version: str, for_s: float
) -> Iterator[tuple[str, Object]]:
    """Changes with their objects as the API sends them."""
    query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
    query["timeoutSeconds"] = str(int(for_s) + 1)
    timeout_s = for_s + _SILENT_S
    with _credentials(), client.stream("GET", place, params=query, timeout=timeout_s) as answer:
        if answer.status_code == _GONE:
            raise _GoneError
        if answer.status_code in {_FORBIDDEN, _UNAUTHORISED}:
            raise CollectError(f"{place}: HTTP {answer.status_code} in the watch")
        if not answer.is_success:
            raise ValueError(f"HTTP {answer.status_code}")
        for line in answer.iter_lines():
            if not line.strip():
                continue
            value = json.loads(line)
            change, one = value.get("type"), value.get("object") or {}
            if change == "ERROR" and one.get("code") == _GONE:
                raise _GoneError
            if change == "ERROR":
                raise ValueError(str(one.get("message") or "an error of the API")[:200])
            yield str(change), one
