"""Where ranks and nodes meet: the key-value store in the supervisor's process, and its listener."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ettr.elastic.supervision.node_identity import Meeting, NodeIdentity

if TYPE_CHECKING:
    from torch.distributed import TCPStore

LOOPBACK = "127.0.0.1"
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Gathering:
    """How other nodes join a run.

    Attributes:
        meeting: Where; the host is this machine, by an address that all nodes reach.
        listener: Listens there.
        node: This machine.
        token: The secret that agents must know; empty: none.
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
