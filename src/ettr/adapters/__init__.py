"""Running checkpoints and progress records where people train: loops, Hugging Face, Lightning.

    from ettr.adapters import CheckpointedRun                  # a loop of your own
    from ettr.adapters.hugging_face import TrainerCheckpoint   # transformers.Trainer
    from ettr.adapters.lightning import LightningCheckpoint    # Lightning's Trainer

Names are loaded when they are first used; only the file of a framework imports it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ettr.adapters.loop import CheckpointedRun

__all__ = ["CheckpointedRun"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("ettr.adapters.loop"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
