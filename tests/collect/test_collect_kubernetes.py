"""`ettr collect kubernetes` against an API server of the test's own that ends, cuts and forgets."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.program import ettr
from ettr.collect import kubernetes as collected
from ettr.collect.running import CollectError
from ettr.sources.kubernetes import SOURCE, kept_of
from source_samples import read_all, rows_of
from sources.kubernetes_objects import condition, node_object, stamp

pytest.importorskip("lightkube")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
Object = dict[str, Any]


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def job(version: int, **status: object) -> Object:
    meta = {"name": "train", "namespace": "ml", "uid": "j", "creationTimestamp": stamp(NOON)}
    return {"metadata": meta | {"resourceVersion": str(version)}, "spec": {}, "status": status}


def pod(name: str, node: str, begin: float, version: int, end: float | None = None) -> Object:
    """A pod of the job, with what must never be written beside it."""
    owner = {"kind": "Job", "name": "train", "uid": "j", "controller": True}
    meta = {"name": name, "namespace": "ml", "uid": name, "creationTimestamp": stamp(at(begin))}
    meta |= {"ownerReferences": [owner], "annotations": {"a": "PLANTED"}}
    meta["resourceVersion"] = str(version)
    own = {"name": "c", "env": [{"name": "T", "value": "PLANTED"}], "args": ["PLANTED"]}
    own["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    status: Object = {"phase": "Running", "startTime": stamp(at(begin))}
    status["conditions"] = [condition("Ready", at(begin))]
    if end is not None:
        over = {"exitCode": 0, "finishedAt": stamp(at(end)), "message": "PLANTED"}
        status |= {"phase": "Succeeded"}
        status["containerStatuses"] = [{"name": "c", "state": {"terminated": over}}]
    return {"metadata": meta, "spec": {"nodeName": node, "containers": [own]}, "status": status}


def change(kind: str, one: Object, change: str = "MODIFIED") -> bytes:
    named = {"kind": kind, "apiVersion": "v1", **one}
    return json.dumps({"type": change, "object": named}).encode() + b"\n"


def node(name: str, minutes: float, version: int) -> Object:
    ready = condition("Ready", NOON, lastHeartbeatTime=stamp(at(minutes)))
    made = node_object({"node": name, "n_gpus": 8}, NOON, [ready], False)
    made["metadata"] |= {"resourceVersion": str(version)}
    return made


GONE = b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}\n'
P1_OVER = change("Pod", pod("p1", "g2", 0, 101, 30))
P2_NEW = change("Pod", pod("p2", "g3", 31, 102), "ADDED")
BOOKMARK = change("Pod", {"metadata": {"resourceVersion": "105"}}, "BOOKMARK")


class Cluster(BaseHTTPRequestHandler):
    """Lists by page, and watches that are cut within a line, repeat changes, and are gone."""

    n_pods_listed: ClassVar[int] = 0
    asked: ClassVar[list[tuple[str, str | None]]] = []
    tokens: ClassVar[set[str | None]] = set()
    forbidden: ClassVar[tuple[str, ...]] = ()
    done: ClassVar[threading.Event]

    # what a watch of pods sends, by the version that it goes on from
    watched: ClassVar[dict[str, bytes]] = {
        "100": P1_OVER + P2_NEW[:70],
        # late and repeated: a server may send again what it sent
        "101": P1_OVER + P2_NEW + P2_NEW + BOOKMARK,
        "105": GONE,
    }

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: one[0] for name, one in parse_qs(parts.query).items()}
        self.tokens.add(self.headers["Authorization"])
        place = parts.path
        if any(place.endswith(name) for name in self.forbidden):
            self.answer(403, {})
        elif place == "/apis/batch":
            self.answer(200, {"preferredVersion": {"groupVersion": "batch/v1"}})
        elif place not in {
            "/api/v1/pods",
            "/api/v1/nodes",
            "/api/v1/events",
            "/apis/batch/v1/jobs",
        }:
            self.answer(404, {})
        elif "watch" in query:
            self.watch(place, query["resourceVersion"])
        else:
            self.answer(200, self.listed(place, query))

    def listed(self, place: str, query: dict[str, str]) -> Object:
        items: list[Object] = []
        meta: Object = {"resourceVersion": "100"}
        if place.endswith("nodes"):
            items = [node("g1", 0, 90)]
        elif place.endswith("jobs"):
            items = [job(99)]
        elif place.endswith("pods") and query["limit"] != "1":
            if "continue" in query:
                items = [pod("p1", "g2", 0, 98), pod("lost", "g4", 0, 97)]
            elif type(self).n_pods_listed:
                # the second time: the job is over, and one pod was deleted unseen
                items = [pod("p0", "g1", 0, 110, 60), pod("p2", "g3", 31, 111, 60)]
                meta["resourceVersion"] = "120"
            else:
                items = [pod("p0", "g1", 0, 96)]
                meta["continue"] = "more"
            type(self).n_pods_listed += 1
        return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items}

    def watch(self, place: str, version: str) -> None:
        self.asked.append((place, version))
        self.send_response(200)
        self.end_headers()
        if place.endswith("pods") and version in self.watched:
            self.wfile.write(self.watched[version])
            return
        if place.endswith("pods"):
            self.done.set()
        elif place.endswith("nodes"):
            for minutes in range(5, 65, 5):
                self.wfile.write(change("Node", node("g1", minutes, 100 + minutes)))
        elif place.endswith("jobs"):
            over = job(
                121, completionTime=stamp(at(60)), conditions=[condition("Complete", at(60))]
            )
            self.wfile.write(change("Job", over))
        self.wfile.flush()
        self.done.wait(60)

    def answer(self, status: int, value: Object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Cluster]]:
    made = type("OneCluster", (Cluster,), {"n_pods_listed": 0, "asked": [], "tokens": set()})
    made.done = threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_address[1]}"
        config = {
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": place}}],
            "users": [{"name": "u", "user": {"token": "PLANTED-token"}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield made
        made.done.set()
        server.shutdown()


def test_a_watch_that_is_cut_repeated_and_gone_loses_and_doubles_nothing(tmp_path, cluster):
    path, said = tmp_path / "k.jsonl", []
    with collected.client(None) as client:
        # the clock stands until the last watch began, then it is time
        done = collected.collect_kubernetes(
            client,
            path,
            3600,
            kept_of,
            lambda: at(240 if cluster.done.is_set() else 62),
            said.append,
            {},
        )
    assert [version for place, version in cluster.asked if place.endswith("pods")] == [
        "100",
        "101",
        "105",
        "120",
    ]
    assert done.n_gaps == 1
    assert "410 Gone" in " ".join(said)
    assert cluster.tokens == {"Bearer PLANTED-token"}
    assert "PLANTED" not in path.read_text()
    # a cut line was taken again, and no line is half written
    assert all(json.loads(line) for line in path.read_text().splitlines())
    batches = read_all(SOURCE, path)
    (attempt,) = rows_of(batches, "attempts")
    assert (attempt["state"], attempt["start"], attempt["end"]) == ("COMPLETED", NOON, at(60))
    held = {row["node"]: row["elapsed_s"] / 60 for row in rows_of(batches, "allocations")}
    # the pod that was gone after the gap had been there when the watch was last heard
    assert held == {"g1": 60, "g2": 30, "g3": 29, "g4": 62}
    assert [row["node"] for row in rows_of(batches, "nodes")] == ["g1"]


def test_who_may_not_list_is_told_the_role_that_may(tmp_path, cluster):
    cluster.forbidden = ("/events",)
    done = ettr("collect", "kubernetes", tmp_path / "logs", "--json")
    assert done.code == 0
    assert done.json[0]["objects"] == 5  # a node, a job, three pods
    assert "events: HTTP 403" in done.err
    cluster.forbidden = ("/pods",)
    cluster.n_pods_listed = 0
    with collected.client(None) as client, pytest.raises(CollectError, match="--role"):
        collected.collect_kubernetes(
            client, tmp_path / "k", 0, kept_of, lambda: NOON, lambda _: None, {}
        )
    role = json.loads(ettr("collect", "kubernetes", "--role").out)
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert "secrets" not in json.dumps(role)


def test_a_later_collection_goes_on_where_the_one_before_was(tmp_path, cluster):
    """What happened between two is asked for again, though the new lists no longer show it."""
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    with collected.client(None) as client:
        collected.collect_kubernetes(client, first, 0, kept_of, lambda: at(62), str, {})
        # as after kill -9 within a line
        first.write_bytes(first.read_bytes() + P2_NEW[:40])
        reached = collected.versions_reached(first)
        assert reached["v1", "Pod"] == "100"
        collected.collect_kubernetes(
            client,
            second,
            3600,
            kept_of,
            lambda: at(240 if cluster.done.is_set() else 62),
            lambda _: None,
            reached,
        )
    assert ("/api/v1/pods", "100") in cluster.asked
    held = {
        row["node"]: row["elapsed_s"] / 60
        for row in rows_of(read_all(SOURCE, second), "allocations")
    }
    assert held["g2"] == 30


def test_a_collection_that_failed_does_not_hide_where_the_one_before_ended(tmp_path, cluster):
    logs = tmp_path / "logs"
    assert ettr("collect", "kubernetes", logs).code == 0
    (whole,) = logs.iterdir()
    whole.rename(logs / "kubernetes-20260301T120000Z.jsonl")
    (logs / "kubernetes-20260301T120100Z.jsonl").write_bytes(b"")
    cluster.asked.clear()
    cluster.n_pods_listed = 0
    assert ettr("collect", "kubernetes", logs, "--watch", "1s").code == 0
    assert ("/api/v1/pods", "100") in cluster.asked


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("contexts: [", "no cluster to ask"),
        ({"exec": {"apiVersion": "none/v9", "command": "false"}}, "kubectl get nodes"),
        (
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "false"}},
            "kubectl get nodes",
        ),
        (
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}},
            "prints no token",
        ),
    ],
)
def test_a_kubeconfig_that_gives_no_token_is_a_sentence(tmp_path, cluster, config, says):
    path = tmp_path / "config"
    whole = json.loads(path.read_text())
    if isinstance(config, dict):
        whole["users"][0]["user"] = config
        config = json.dumps(whole)
    path.write_text(config)
    done = ettr("collect", "kubernetes", tmp_path / "logs")
    assert done.code == 1
    assert says in done.err


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_plugin_is_asked_in_the_version_of_the_kubeconfig(tmp_path, cluster, version):
    """A plugin prints a credential of the version that it is asked for, as those of clouds do."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\nimport json, os\n"
        'asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])\n'
        'token = asked["apiVersion"].rpartition("/")[2] + os.environ["OWN"]\n'
        'print(json.dumps({**asked, "status": {"token": token}}))\n'
    )
    plugin.chmod(0o700)
    path = tmp_path / "config"
    whole = json.loads(path.read_text())
    api = f"client.authentication.k8s.io/{version}"
    own = {"apiVersion": api, "command": str(plugin), "env": [{"name": "OWN", "value": "-x"}]}
    whole["users"][0]["user"] = {"exec": own | {"interactiveMode": "Never"}}
    path.write_text(json.dumps(whole))
    done = ettr("collect", "kubernetes", tmp_path / "logs")
    assert done.code == 0, done.err
    assert cluster.tokens == {f"Bearer {version}-x"}
