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
    from ettr.elastic.elastic_group import ElasticGroup, EvictedError, Generation, RankFailedError
    from ettr.elastic.flight import FlightWatcher
    from ettr.elastic.nodes import Loss, SupervisorOptions, SupervisorReport
    from ettr.elastic.process_group import Timeouts
    from ettr.elastic.protection import Protection
    from ettr.elastic.rank_inventory import RecoveryReport
    from ettr.elastic.supervisor import supervise
    from ettr.elastic.torchrun import TorchrunGroup, group_from_env

__all__ = [
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
    "group_from_env",
    "supervise",
]

_NAMES = {
    "elastic_group": "ElasticGroup EvictedError Generation RankFailedError",
    "flight": "FlightWatcher",
    "process_group": "Timeouts",
    "protection": "Protection",
    "rank_inventory": "RecoveryReport",
    "supervisor": "supervise",
    "nodes": "Loss SupervisorOptions SupervisorReport",
    "torchrun": "TorchrunGroup group_from_env",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
