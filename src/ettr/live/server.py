"""The watch's answers over HTTP: read-only, from memory, on loopback unless a token is asked."""

from __future__ import annotations

import hmac
import ipaddress
import json
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ettr.errors import UsageError

_REQUEST_S = 30.0
_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Served:
    """What is served now; a page that is not made yet is empty.

    Attributes:
        document: The keys of the report's JSON, each with its value as JSON.
        health: What `/healthz` says; its key `ok` decides the status.
    """

    metrics: bytes = b""
    page: bytes = b""
    document: Mapping[str, bytes] = field(default_factory=dict)
    health: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """Where to serve, and who may ask.

    Attributes:
        token: What a request must have as `Authorization: Bearer TOKEN`; empty for none.
    """

    host: str = "127.0.0.1"
    port: int = 9469
    token: str = ""
    cert: Path | None = None
    key: Path | None = None

    def check(self) -> None:
        """Refuse what anybody could read. Raises UsageError: no loopback, and no token."""
        try:
            is_open = not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            is_open = self.host != "localhost"
        if is_open and not self.token:
            raise UsageError(
                f"host {self.host}: other machines reach it; give token-file, or 127.0.0.1 "
                "behind a reverse proxy"
            )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that breaks off or speaks no TLS; a defect of ours is shown."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _whole(document: Mapping[str, bytes]) -> bytes:
    parts = (json.dumps(key).encode() + b": " + value for key, value in document.items())
    return b"{" + b", ".join(parts) + b"}" if document else b""


def serve(address: Address, now: Callable[[], Served]) -> ThreadingHTTPServer:
    """Start to answer in threads of this process; `shutdown` ends it.

    Raises:
        UsageError: anybody could read it, or the address or the certificate cannot be used.
    """
    address.check()

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S
        server_version, sys_version = "ettr", ""

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def log_message(self, *_: object) -> None:
            """Say nothing: who asks is the business of the proxy."""

        def _answer(self, *, with_body: bool) -> None:
            status, kind, body = self._found()
            self.send_response(status)
            if status is HTTPStatus.UNAUTHORIZED:
                self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def _found(self) -> tuple[HTTPStatus, str, bytes]:
            given = self.headers.get("Authorization", "").encode("latin-1")
            wanted = f"Bearer {address.token}".encode()
            if address.token and not hmac.compare_digest(given, wanted):
                return HTTPStatus.UNAUTHORIZED, "text/plain; charset=utf-8", b"give the token\n"
            served, path = now(), self.path.partition("?")[0]
            if path == "/healthz":
                health = served.health or {"ok": False, "says": "nothing was read yet"}
                status = HTTPStatus.OK if health["ok"] else HTTPStatus.SERVICE_UNAVAILABLE
                return status, "application/json", json.dumps(health).encode() + b"\n"
            bodies = {
                "/": ("text/html; charset=utf-8", served.page),
                "/report.json": ("application/json", _whole(served.document)),
                "/metrics": (_METRICS, served.metrics),
                **{f"/{k}.json": ("application/json", v) for k, v in served.document.items()},
            }
            if path not in bodies:
                text = f"there are /healthz, {', '.join(bodies)}\n".encode()
                return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", text
            kind, body = bodies[path]
            if not body:
                says = b"not computed yet\n"
                return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", says
            return HTTPStatus.OK, kind, body

    try:
        server = _Server((address.host, address.port), Handler)
        if address.cert is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(address.cert, address.key)
            # the handshake is of the thread that answers, so that no client holds up the others
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"{address.host}:{address.port}: cannot be served ({error}); give another port, or "
            "files of cert and key that belong together"
        ) from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
