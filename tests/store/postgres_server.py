"""A PostgreSQL server of the tests' own, on a socket in a folder and on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import SEARCH_PATH

# the server refuses to run as root
USER = "postgres" if os.geteuid() == 0 else None


@contextmanager
def running() -> Iterator[str]:
    """URL of the server, without a database; its data lies in a new temporary folder."""
    # not in pytest's own: the user of the server may not enter it
    with (
        tempfile.TemporaryDirectory(prefix="ettr-postgres-") as folder,
        _running(Path(folder)) as url,
    ):
        yield url


@contextmanager
def _running(place: Path) -> Iterator[str]:
    if USER:
        shutil.chown(place, USER)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = place / "data"
    _run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
    flags = (
        f"-k {place} -p {port} -c listen_addresses=127.0.0.1 -c fsync=off -c timezone=Asia/Tokyo"
    )
    _run("pg_ctl", "-D", data, "-o", flags, "-l", place / "log", "-w", "start")
    try:
        yield f"postgres://postgres@127.0.0.1:{port}"
    finally:
        _run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def _run(name: str, *words: str | Path) -> None:
    program = shutil.which(name, path=SEARCH_PATH)
    assert program, name
    subprocess.run(
        [program, *map(str, words)], user=USER, cwd="/", check=True, stdout=subprocess.DEVNULL
    )
