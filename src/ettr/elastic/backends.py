"""Which ways of regrouping this installation has, and which of them ettr drives and has tried.

Nothing is promised from a version number: each is looked for by the name of what it needs.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from ettr.elastic.rendezvous import ENV_STORE
from ettr.elastic.torchrun import started_by_torchrun


@dataclass(frozen=True, slots=True)
class ElasticBackend:
    """One way of going on after the loss of a rank.

    present: what it needs is installed. driven: ettr can use it. tried: it was run with real kills
    in ettr's own tests. active: it started this process, or was chosen for it.
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
            "supervisor",
            True,
            True,
            True,
            ENV_STORE in os.environ,
            "`ettr elastic`: survivors keep their process; gloo on one machine",
        ),
        ElasticBackend(
            "torchrun",
            True,
            True,
            True,
            started_by_torchrun(),
            "all processes start anew, shards wait in shared memory; one machine",
        ),
        ElasticBackend(
            "nccl",
            _has_cuda(),
            True,
            False,
            False,
            "under the supervisor, by NCCL's abort: written, never run by ettr's tests",
        ),
        ElasticBackend(
            "torchft",
            importlib.util.find_spec("torchft") is not None,
            True,
            True,
            False,
            "whole replicas in your own loop: `ReplicaTier` is the disk and the record beneath",
        ),
    )


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
