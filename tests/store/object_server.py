"""As much of S3 as a store asks for, on loopback, with the faults that a real server has."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape


class ObjectServer(ThreadingHTTPServer):
    """Objects in memory.

    Attributes:
        requests: method and path of each request so far.
        day: of March 2026, which it is for objects that are put.
        before, after: called with each request before and after it is carried out; one of which
            `before` is true is not carried out, and has no answer.
        faults: by the beginning of a method and path, how often to answer with what: 503, `cut`
            (half a body), `flip` (a changed byte), `lost` (carried out, answered by 500).
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.day, self.days = 1, dict[str, int]()
        self.faults: dict[str, list[str]] = {}
        self.is_conditional, self.is_read_only = True, False
        self.before: Callable[[str], bool] = lambda label: False
        self.after: Callable[[str], object] = lambda label: None
        self.lock = threading.RLock()

    @property
    def endpoint(self) -> str:
        """What AWS_ENDPOINT_URL holds."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """Nothing: clients are killed here."""


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    with ObjectServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


_GENERATION = "x-goog-if-generation-match"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectServer

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        server, parts = self.server, urlsplit(self.path)
        key = unquote(parts.path).lstrip("/")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        with server.lock:
            label = f"{self.command} {key}"
            server.requests.append(label)
            waiting = next((w for k, w in server.faults.items() if k in label and w), [])
            fault = waiting.pop(0) if waiting else ""
            if server.before(label):
                self.close_connection = True
                return None
            if fault == "503":
                return self._answer(503, b"<Error><Code>SlowDown</Code></Error>")
            status, answer = self._carry_out(key, parse_qs(parts.query), body)
            server.after(label)
        if fault == "lost":
            return self._answer(500, b"")
        return self._answer(status, answer, fault)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

    def _carry_out(self, key: str, query: dict[str, list[str]], body: bytes) -> tuple[int, bytes]:
        objects = self.server.objects
        if self.command not in {"GET", "HEAD"} and self.server.is_read_only:
            return 403, b"<Error><Code>AccessDenied</Code></Error>"
        if self.command == "PUT":
            # S3 and Azure, Google
            is_new = self.headers.get("if-none-match") or self.headers.get(_GENERATION) == "0"
            if self.server.is_conditional and is_new and key in objects:
                return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
            objects[key], self.server.days[key] = body, self.server.day
            return 200, b""
        if self.command == "POST":
            root = ElementTree.fromstring(body)  # noqa: S314 - of our own client
            keys = [found.text or "" for found in root.iter() if found.tag.endswith("Key")]
            for one in keys:
                objects.pop(f"{key.rstrip('/')}/{one}", None)
            rows = "".join(f"<Deleted><Key>{escape(one)}</Key></Deleted>" for one in keys)
            return 200, f"<DeleteResult>{rows}</DeleteResult>".encode()
        if self.command == "DELETE":
            objects.pop(key, None)
            return 204, b""
        if query.get("comp") == ["list"]:
            return 200, self._listed_blobs(key.rstrip("/"), query.get("prefix", [""])[0])
        if "list-type" in query:
            return 200, self._listed(key.rstrip("/"), query.get("prefix", [""])[0])
        if key not in objects:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>"
        return 200, objects[key]

    def _listed(self, bucket: str, prefix: str) -> bytes:
        rows = "".join(
            f"<Contents><Key>{escape(key[len(bucket) + 1 :])}</Key><Size>{len(data)}</Size>"
            f"<LastModified>2026-03-{self.server.days[key]:02}T12:00:00.000Z</LastModified>"
            "<ETag>e</ETag></Contents>"
            for key, data in sorted(self.server.objects.items())
            if key.startswith(f"{bucket}/{prefix}")
        )
        return (
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
        )

    def _listed_blobs(self, container: str, prefix: str) -> bytes:
        rows = "".join(
            f"<Blob><Name>{escape(key[len(container) + 1 :])}</Name><Properties><Last-Modified>"
            f"Sun, {self.server.days[key]:02} Mar 2026 12:00:00 GMT</Last-Modified>"
            f"<Content-Length>{len(data)}</Content-Length><Content-Type>b</Content-Type>"
            "<Etag>e</Etag></Properties></Blob>"
            for key, data in sorted(self.server.objects.items())
            if key.startswith(f"{container}/{prefix}")
        )
        return f"<EnumerationResults><Blobs>{rows}</Blobs></EnumerationResults>".encode()

    def _answer(self, status: int, body: bytes, fault: str = "") -> None:
        if fault == "flip" and body:
            body = body[:-9] + bytes([body[-9] ^ 1]) + body[-8:]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("x-goog-generation", "1")
        self.send_header("Last-Modified", "Sun, 01 Mar 2026 12:00:00 GMT")
        self.end_headers()
        if fault == "cut":
            body = body[: len(body) // 2]
            self.close_connection = True
        if self.command != "HEAD":
            self.wfile.write(body)
