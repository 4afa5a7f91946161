"""Which ways of regrouping this installation has, and which of them ettr drives and has tried.

No version number is trusted: each is looked for by the name of what it needs.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from ettr.elastic.membership.rendezvous import ENV_STORE
from ettr.elastic.torchrun import started_by_torchrun


@dataclass(frozen=True, slots=True)
class ElasticBackend:
    """One way of going on after the loss of a rank.

    Attributes:
        present: What it needs is installed.
        driven: ettr can use it.
        tried: It was run with real kills in ettr's own tests.
        active: It started this process.
    """

    name: str
    present: bool
    driven: bool
    tried: bool
    active: bool
    note: str


def available_backends() -> tuple[ElasticBackend, ...]:
    """Every way that is known, present or not."""
    return (
        ElasticBackend(
            name="supervisor",
            present=True,
            driven=True,
            tried=True,
            active=ENV_STORE in os.environ,
            note="`ettr elastic`: survivors keep their process; gloo, one node or several",
        ),
        ElasticBackend(
            name="torchrun",
            present=True,
            driven=True,
            tried=True,
            active=started_by_torchrun(),
            note="all processes are restarted, shards wait in shared memory; one machine",
        ),
        ElasticBackend(
            name="nccl",
            present=_has_cuda(),
            driven=True,
            tried=False,
            active=False,
            note="under the supervisor, by NCCL's abort: written, never run by ettr's tests",
        ),
        ElasticBackend(
            name="torchft",
            present=importlib.util.find_spec("torchft") is not None,
            driven=True,
            tried=True,
            active=False,
            note="whole replicas in your own loop; `ReplicaTier` adds the disk and the record",
        ),
    )


def _has_cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())
