"""Keep the survivors of a killed rank: same process, parameters and moments, a new group.

In the training script:

    from ettr.elastic import Protection, group_from_env

    group_from_env(Protection(buddy=True)).run(train)    # train(generation), again after a loss

Start it with `ettr elastic -n 4 -- python train.py`, or with stock torchrun. `supervise` is the
same as the command, from Python. Names are loaded when they are first used: importing this package
needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ettr.elastic.elastic_group import ElasticGroup
    from ettr.elastic.flight import FlightWatcher
    from ettr.elastic.generation import EvictedError, Generation, RankFailedError
    from ettr.elastic.membership.process_group import Timeouts
    from ettr.elastic.protection import Protection
    from ettr.elastic.restore.rank_inventory import RecoveryReport
    from ettr.elastic.supervision.supervisor import supervise
    from ettr.elastic.supervision.worker_process import Loss, SupervisorOptions, SupervisorReport
    from ettr.elastic.torchrun import (
        ElasticBackend,
        TorchrunGroup,
        available_backends,
        group_from_env,
    )

__all__ = [
    "ElasticBackend",
    "ElasticGroup",
    "EvictedError",
    "FlightWatcher",
    "Generation",
    "Loss",
    "Protection",
    "RankFailedError",
    "RecoveryReport",
    "SupervisorOptions",
    "SupervisorReport",
    "Timeouts",
    "TorchrunGroup",
    "available_backends",
    "group_from_env",
    "supervise",
]

_MODULE_OF = {
    "ElasticBackend": "torchrun",
    "ElasticGroup": "elastic_group",
    "EvictedError": "generation",
    "FlightWatcher": "flight",
    "Generation": "generation",
    "Loss": "supervision.worker_process",
    "Protection": "protection",
    "RankFailedError": "generation",
    "RecoveryReport": "restore.rank_inventory",
    "SupervisorOptions": "supervision.worker_process",
    "SupervisorReport": "supervision.worker_process",
    "Timeouts": "membership.process_group",
    "TorchrunGroup": "torchrun",
    "available_backends": "torchrun",
    "group_from_env": "torchrun",
    "supervise": "supervision.supervisor",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
