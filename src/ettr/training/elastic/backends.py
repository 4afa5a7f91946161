"""Which ways of regrouping this installation has, and which of them ettr drives and has tried.

Nothing is promised from a version number: each is looked for by the name of what it needs.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
from dataclasses import dataclass

from ettr.training.elastic.gasp import started_by_torchrun
from ettr.training.elastic.membership import ENV_STORE


@dataclass(frozen=True, slots=True)
class Backend:
    """One way of going on after the loss of a rank.

    present: what it needs is installed. driven: ettr can use it. tried: it was run with real kills
    in ettr's own tests. active: it started this process.
    """

    name: str
    present: bool
    driven: bool
    tried: bool
    active: bool
    note: str


def backends() -> tuple[Backend, ...]:
    """Every way that is known, present or not."""
    return (
        Backend(
            "supervisor", True, True, True, ENV_STORE in os.environ,
            "`ettr elastic`: survivors keep their process; gloo on one machine",
        ),
        Backend(
            "torchrun", True, True, True, started_by_torchrun(),
            "all processes start anew, shards wait in shared memory; one machine",
        ),
        Backend(
            "nccl", _has_cuda(), True, False, False,
            "under the supervisor, by NCCL's abort: written, never run by ettr's tests",
        ),
        Backend(
            "reconfigure", _has_reconfigure(), False, False, False,
            "torch's own change of a group's members: looked for, not driven by ettr",
        ),
        Backend(
            "torchft", importlib.util.find_spec("torchft") is not None, False, False, False,
            "whole replicas: looked for, not driven by ettr; a running checkpoint works below it",
        ),
    )  # fmt: skip


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _has_reconfigure() -> bool:
    import torch.distributed as dist

    return "enable_reconfigure" in inspect.signature(dist.init_process_group).parameters
