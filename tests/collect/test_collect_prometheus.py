"""`ettr collect prometheus`: what a server recorded, in pieces, and each outage once."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.program import ettr
from ettr.sources.prometheus import SOURCE
from source_samples import read_all, rows_of

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
# by node, outages in minutes from the beginning; they lie across days and pieces
DOWN = {"g1": [(200, 300), (1000, 9000)], "g2": [(12_000, 12_960)], "g3": []}
READY = {"__name__": "kube_node_status_condition", "condition": "Ready", "status": "true"}


def ready(node: str, minute: int) -> str:
    return "0" if any(a <= minute < b for a, b in DOWN[node]) else "1"


def outages(path: Path) -> set[tuple[str, float, float | None]]:
    """What the source reads, in minutes from the beginning."""
    rows = rows_of(read_all(SOURCE, path), "node_states")

    def minutes(moment: datetime | None) -> float | None:
        return None if moment is None else (moment - BEGIN).total_seconds() / 60

    return {(row["node"], minutes(row["start"]), minutes(row["end"])) for row in rows}


TRUE = {("g1", 200.0, 300.0), ("g1", 1000.0, 9000.0), ("g2", 12_000.0, None)}


class Server(BaseHTTPRequestHandler):
    """Answers as Prometheus does, 11,000 points at most; the first answers fail."""

    faults: ClassVar[list[str]] = []
    tokens: ClassVar[set[str | None]] = set()
    points: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        query = {name: one[0] for name, one in parse_qs(urlsplit(self.path).query).items()}
        self.tokens.add(self.headers["Authorization"])
        fault = self.faults.pop(0) if self.faults else ""
        start, end, step = (float(query[name]) for name in ("start", "end", "step"))
        times = [start + step * place for place in range(int((end - start) / step) + 1)]
        self.points.append(len(times))
        if len(times) > 11_000 or fault == "too many samples":
            self.answer(422, b'{"status":"error","error":"exceeded maximum resolution"}')
            return
        if fault == "moved":
            self.send_response(302)
            self.send_header("Location", f"http://{self.headers['Host']}/elsewhere")
            self.end_headers()
            return
        series = []
        if query["query"].startswith("kube_node_status_condition"):
            minutes = [int((moment - BEGIN.timestamp()) // 60) for moment in times]
            series = [
                {
                    "metric": READY | {"node": node},
                    "values": [[t, ready(node, at)] for t, at in zip(times, minutes, strict=True)],
                }
                for node in DOWN
            ]
        data = {"resultType": "matrix", "result": series}
        whole = {"status": "success", "data": data}
        if fault == "partial":
            whole["warnings"] = ["store s3 did not answer"]
        body = json.dumps(whole).encode()
        self.answer(503 if fault == "busy" else 200, body[:50] if fault == "cut" else body)

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[type[Server], str]]:
    made = type("OneServer", (Server,), {"faults": [], "tokens": set(), "points": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield made, f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_pieces_of_two_collections_give_each_outage_once(tmp_path, server):
    made, url = server
    made.faults[:] = ["busy", "cut", "", "too many samples"]
    (tmp_path / "token").write_text("PLANTED-token\n")
    words = ("collect", "prometheus", url, tmp_path, "--token-file", tmp_path / "token")
    first = ettr(*words, "--since", "2026-03-01", "--until", "2026-03-04T00:00:30Z")
    assert first.code == 0, first.err
    path = tmp_path / "prometheus.jsonl"
    # as after kill -9 within an answer
    path.write_bytes(path.read_bytes() + b'{"query":"kube')
    second = ettr(*words, "--until", "2026-03-09T23:59:00Z", "--json")
    assert second.code == 0, second.err
    assert outages(path) == TRUE
    assert max(made.points) <= 11_000
    assert made.tokens == {"Bearer PLANTED-token"}
    assert "PLANTED" not in path.read_text() + first.out + first.err + second.out + second.err
    # 39 thousand samples, of which the values that stay are left out
    assert path.stat().st_size < 20_000


def test_a_token_follows_no_redirection_and_a_password_is_refused(tmp_path, server):
    made, url = server
    made.faults[:] = ["moved"]
    done = ettr("collect", "prometheus", url, tmp_path, "--since", "2026-03-01")
    assert done.code == 1
    assert "HTTP 302" in done.err
    assert len(made.points) == 1
    named = ettr("collect", "prometheus", "http://ann:PLANTED@h", tmp_path, "--since", "2026-03-01")
    assert named.code == 1
    assert "PLANTED" not in named.err


def test_what_is_to_come_and_what_the_server_lacks_is_not_taken_for_nothing(tmp_path, server):
    made, url = server
    made.faults[:] = ["partial"]
    words = ("collect", "prometheus", url, tmp_path, "--since", f"{datetime.now(UTC):%Y-%m-%d}")
    done = ettr(*words, "--until", "2199-01-01")
    assert done.code == 0, done.err
    assert "may lack data: store s3 did not answer" in done.err
    text = (tmp_path / "prometheus.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert all(line["end"] <= time.time() for line in lines)


def test_a_file_of_another_kind_is_left_as_it_is(tmp_path, server):
    path = tmp_path / "prometheus.jsonl"
    path.write_text('{"metric": "up"}\n')
    done = ettr("collect", "prometheus", server[1], tmp_path, "--since", "2026-03-01")
    assert (done.code, path.read_text()) == (1, '{"metric": "up"}\n')
    assert "give another folder" in done.err


@pytest.mark.prometheus
def test_a_real_server_gives_the_outages(tmp_path):
    """32 hours each 10 s are more points than the server gives at once."""
    lines = ["# TYPE kube_node_status_condition gauge"]
    for node in DOWN:
        labels = f'condition="Ready",status="true",node="{node}"'
        lines += [
            f"kube_node_status_condition{{{labels}}} {ready(node, at)} "
            f"{int(BEGIN.timestamp()) + 60 * at}"
            for at in range(32 * 60)
        ]
    (tmp_path / "past.om").write_text("\n".join([*lines, "# EOF", ""]))
    (tmp_path / "empty.yml").write_text("global: {}\n")
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "past.om", "data"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["--config.file=empty.yml", "--storage.tsdb.path=data", "--log.level=error"]
    words += [f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y"]
    with subprocess.Popen(["prometheus", *words], cwd=tmp_path) as running:
        try:
            wait_for(f"http://{address}/-/ready")
            done = ettr(
                *("collect", "prometheus", f"http://{address}", tmp_path / "logs"),
                *("--since", "2026-03-01", "--until", "2026-03-02T07:59:00Z", "--step", "10s"),
            )
        finally:
            running.terminate()
    assert done.code == 0, done.err
    assert outages(tmp_path / "logs" / "prometheus.jsonl") == {
        ("g1", 200.0, 300.0),
        ("g1", 1000.0, None),
    }


def wait_for(url: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310
            return
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    raise TimeoutError(url)
