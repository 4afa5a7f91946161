"""Processes killed at every request to object storage, and committers at once.

The server is the stub of the tests, on loopback: S3's requests with conditional writes. A process
that commits rows to a store, or copies a checkpoint, is killed by SIGKILL before its k-th request
is carried out, and in another draw after it, for each k. Afterwards another process reads: all as
before, all as after, or anything else. Then the same is done again undisturbed, and must give what
an undisturbed process gives. Committers each make a number of commits to one store at once: each
version must have one manifest, and no row may be missing. A server that ignores the condition must
be refused before anything is written that a reader takes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from campaigns import Table

if TYPE_CHECKING:
    from store.object_server import ObjectServer

TITLE = "Stores and checkpoints in object storage"
SIZE = 20
"""Commits of each of eight committers; a kill at every request wherever it is 20, else at some."""
COMMITTERS = 8
STORE, COPY = "s3://logs/site", "s3://logs/run"
TESTS = Path(__file__).resolve().parents[1] / "tests"
COMMIT = """
import sys
from store.test_bucket_store import put
for name in sys.argv[1].split(","):
    put(name, name)
"""
UPLOAD = "import sys; from ettr.checkpoint import upload; upload(sys.argv[1], 's3://logs/run')"


def run(size: int) -> Table:
    """A row for each kind of draw."""
    sys.path.insert(0, str(TESTS))
    from store.object_server import object_server

    rows = []
    with tempfile.TemporaryDirectory() as above, object_server() as server:
        folder = Path(above)
        os.environ |= {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "hush-hush",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        for what in ("commit", "copy"):
            rows.append((what, *_killed(server, folder, what, max(1, 20 // size))))
        server.objects.clear()
        rows.append((f"{COMMITTERS} committers", *_at_once(server, folder, size)))
        server.objects.clear()
        rows.append(("a server without conditions", *_unconditional(server, folder)))
    held = all(row[5] == "0" for row in rows)
    verdict = "Held: one winner each, nothing lost or mixed." if held else "Not held: see `other`."
    asked = "as before or as after each kill; each version one winner; no row missing; refusal"
    headers = ("draw", "draws", "requests", "as_before", "as_after", "other")
    return Table(headers, tuple(rows), "k of each request", asked, verdict)


def _killed(server: ObjectServer, folder: Path, what: str, step: int) -> tuple[str, ...]:
    from ettr.checkpoint import upload

    run_folder = folder / "run"
    run_folder.mkdir(exist_ok=True)
    (run_folder / "rank0").write_text("before")
    if what == "commit":
        _process(COMMIT, "before", folder)
    else:
        upload(run_folder, COPY)
        (run_folder / "rank0").write_text("after")
    begun = dict(server.objects), dict(server.days)
    program, word = (COMMIT, "after") if what == "commit" else (UPLOAD, str(run_folder))
    first = len(server.requests)
    _process(program, word, folder)
    n_requests = len(server.requests) - first
    found: Counter[str] = Counter()
    for k in range(0, n_requests, step):
        for when in ("before", "after"):
            server.objects.clear()
            server.objects.update(begun[0])
            server.days.update(begun[1])
            killed = _kill_at(server, when, k, program, word, folder)
            state = _state(what, folder)
            _process(program, word, folder)
            again = _state(what, folder)
            is_good = killed and state in {"before", "after"} and again == "after"
            found[state if is_good else "other"] += 1
    draws = sum(found.values())
    return tuple(map(str, (draws, n_requests, found["before"], found["after"], found["other"])))


def _kill_at(
    server: ObjectServer, when: str, k: int, program: str, word: str, folder: Path
) -> bool:
    """Whether a process was killed at its k-th request."""
    victim: list[subprocess.Popen[bytes]] = []
    left = [k]

    def kill(_: str) -> bool:
        left[0] -= 1
        if left[0] == -1:
            victim[0].kill()
        return left[0] < 0

    setattr(server, when, kill)
    with server.lock:
        victim.append(_started(program, word, folder))
    code = victim[0].wait()
    server.before, server.after = lambda _: False, lambda _: None
    return code == -signal.SIGKILL


def _state(what: str, folder: Path) -> str:
    """What another machine reads."""
    from ettr.checkpoint import download
    from ettr.store import open_store

    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        os.environ["XDG_CACHE_HOME"] = fresh
        if what == "copy":
            download(COPY, Path(fresh) / "copy")
            return (Path(fresh) / "copy" / "rank0").read_text()
        with open_store(STORE) as store:
            rows = {row["job_id"] for row in store.rows("attempts").to_pylist()}
            names = {file.file_id for file in store.files()}
        if rows != names:
            return "mixed"
        return {frozenset({"before"}): "before"}.get(
            frozenset(rows), "after" if rows == {"before", "after"} else "mixed"
        )


def _at_once(server: ObjectServer, folder: Path, size: int) -> tuple[str, ...]:
    from ettr.store import open_store

    _process(COMMIT, "first", folder)
    names = [[f"c{one}-{turn}" for turn in range(size)] for one in range(COMMITTERS)]
    first = len(server.requests)
    begun = [
        _started(COMMIT, ",".join(own), folder / f"machine{one}") for one, own in enumerate(names)
    ]
    codes = [process.wait() for process in begun]
    expected = {"first", *(name for own in names for name in own)}
    with open_store(STORE) as store:
        rows = {row["job_id"] for row in store.rows("attempts").to_pylist()}
    manifests = sum("/manifest/" in key for key in server.objects)
    lost = len(expected ^ rows) + sum(code != 0 for code in codes)
    lost += manifests != len(expected) + 1
    n_requests = len(server.requests) - first
    return tuple(map(str, (COMMITTERS * size, n_requests, 0, len(rows) - 1, lost)))


def _unconditional(server: ObjectServer, folder: Path) -> tuple[str, ...]:
    from ettr.checkpoint import CheckpointError, upload
    from ettr.errors import StoreError
    from ettr.store import open_store

    server.is_conditional = False
    refused = 0
    try:
        open_store(STORE, create=True).close()
    except StoreError as error:
        refused += "ignores If-None-Match" in str(error)
    try:
        upload(folder / "run", COPY)
    except CheckpointError as error:
        refused += "ignores If-None-Match" in str(error)
    server.is_conditional = True
    return ("2", "", str(refused), "0", str(2 - refused))


def _started(program: str, word: str, folder: Path) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([str(TESTS), *sys.path])
    environ = {**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(folder / "own")}
    return subprocess.Popen(
        [sys.executable, "-c", program, word], env=environ, stderr=subprocess.DEVNULL
    )


def _process(program: str, word: str, folder: Path) -> None:
    if _started(program, word, folder).wait():
        raise SystemExit(f"{program.split(';', maxsplit=1)[0]}: did not end well")
