"""Nodes of a cluster as network namespaces of this machine (Linux, root, iproute2)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from forked_python import ForkedProcess, fork_server


def why_not() -> str | None:
    """Why this machine cannot have them; None: it can."""
    if shutil.which("ip") is None:
        return "needs `ip` of iproute2"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    probe = f"ettr-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        return "this machine allows no network namespaces"
    _ip("netns", "delete", probe)
    return None


@dataclass(frozen=True)
class NodeNetwork:
    """One node: a namespace with an address on the bridge of the cluster."""

    namespace: str
    link: str  # the bridge's end of its cable
    address: str

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], output: IO[str]
    ) -> ForkedProcess:
        """Start a Python program on the node; what it prints and complains of goes to one file."""
        streams = (0, output.fileno(), output.fileno())
        return fork_server().start(command, environment, streams=streams, network=self.namespace)

    def pids(self) -> list[int]:
        """Of all processes on the node."""
        return [int(pid) for pid in _ip("netns", "pids", self.namespace).split()]

    def kill(self) -> None:
        """Kill every process on the node with SIGKILL, twice, as one may have forked meanwhile."""
        for _ in range(2):
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def cut(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        """Plug it in again."""
        _ip("link", "set", self.link, "up")


@contextlib.contextmanager
def cluster(names: Sequence[str], *, subnet: int) -> Iterator[dict[str, NodeNetwork]]:
    """Nodes that reach each other, and nothing else, until the context ends.

    Args:
        subnet: third byte of their addresses; different for clusters at the same time.
    """
    tag = f"{os.getpid() % 100_000}"
    bridge = f"ebr{tag}"
    nodes = {
        name: NodeNetwork(f"ettr{tag}-{name}", f"e{tag}{name}", f"10.231.{subnet}.{10 + index}")
        for index, name in enumerate(names)
    }
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for node in nodes.values():
            _ip("netns", "add", node.namespace)
            peer = ["peer", "name", "eth0", "netns", node.namespace]
            _ip("link", "add", node.link, "type", "veth", *peer)
            _ip("link", "set", node.link, "master", bridge, "up")
            inside = ["-n", node.namespace]
            _ip(*inside, "addr", "add", f"{node.address}/24", "dev", "eth0")
            _ip(*inside, "link", "set", "eth0", "up")
            _ip(*inside, "link", "set", "lo", "up")
        yield nodes
    finally:
        for node in nodes.values():
            if Path(f"/run/netns/{node.namespace}").exists():
                node.kill()
                _ip("netns", "delete", node.namespace)
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True, check=False)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout
