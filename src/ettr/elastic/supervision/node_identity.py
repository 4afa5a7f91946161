"""What a node is called, where nodes meet, and through which interface. Standard library only."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ettr.errors import UsageError

if TYPE_CHECKING:
    from torch.distributed import TCPStore

_LOOPBACK = "lo"
_SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface
# Below the ephemeral ports of Linux; under Slurm the job's number picks one.
_FIRST_PORT, _N_PORTS = 20_000, 10_000


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """One node of a run."""

    name: str
    index: int | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the nodes of a run meet."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Meeting:
        """From HOST:PORT."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise UsageError(
                f"--rdzv {text}: give HOST:PORT, a host that every node reaches and a free port "
                f"of it, such as node001:29400"
            )
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def this_node(environment: Mapping[str, str], name: str | None, rack: str | None) -> NodeIdentity:
    """This node, by what was given, by Slurm, or by its host name."""
    index = environment.get("SLURM_NODEID", "")
    return NodeIdentity(
        name or environment.get("SLURMD_NODENAME") or socket.gethostname(),
        int(index) if index.isdecimal() else None,
        rack,
    )


def slurm_meeting(environment: Mapping[str, str], first_node: str) -> Meeting:
    """Where the nodes of a Slurm step meet: on the first, at a port that the job's number picks."""
    job = environment.get("SLURM_JOB_ID", "0")
    number = int(job) if job.isdecimal() else 0
    return Meeting(first_node, _FIRST_PORT + number % _N_PORTS)


def listen(meeting: Meeting) -> socket.socket | None:
    """A listener at the meeting place; None: it is another node's, or another process has it."""
    try:
        return socket.create_server((meeting.host, meeting.port), backlog=128)
    except OSError:
        return None


def interface_towards(host: str) -> str | None:
    """Name of the interface through which a host is reached; None: unknown."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing; picks the interface of the route
        address = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                if socket.inet_ntoa(reply[20:24]) == address:
                    return name
    return None


def with_interface(environment: Mapping[str, str], host: str) -> dict[str, str]:
    """The environment of ranks, with gloo on the interface that leads to a host."""
    result = dict(environment)
    # An address of loopback that is not the interface's own (Debian's 127.0.1.1 of the host name)
    # is found on no interface.
    loopback = _LOOPBACK if host.startswith("127.") else None
    if "GLOO_SOCKET_IFNAME" not in result and (interface := interface_towards(host) or loopback):
        result["GLOO_SOCKET_IFNAME"] = interface
    return result


def in_slurm_step(environment: Mapping[str, str]) -> bool:
    """Whether `srun` started this process."""
    return "SLURM_STEP_ID" in environment and "SLURM_PROCID" in environment


LOOPBACK = "127.0.0.1"
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Gathering:
    """How other nodes join a run.

    Attributes:
        meeting: Where; the host is this machine, by an address that all nodes reach.
    """

    meeting: Meeting
    listener: socket.socket
    node: NodeIdentity
    token: str = ""


def serve_store(host: str) -> TCPStore:
    """A store that listens on one address of this machine, at any free port.

    torch's own listens on every interface, and asks nobody who they are.
    """
    from torch.distributed import TCPStore

    def serve(*, use_libuv: bool) -> TCPStore:
        listener = socket.create_server((host, 0), backlog=_BACKLOG)
        port = listener.getsockname()[1]
        store: TCPStore = TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
            use_libuv=use_libuv,
        )
        return store

    try:
        return serve(use_libuv=True)
    except RuntimeError:  # before torch 2.8 libuv's server takes no listener
        return serve(use_libuv=False)
