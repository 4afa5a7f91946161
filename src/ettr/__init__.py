"""ettr: where the GPU hours of an ML cluster go, and how to win them back.

    import ettr

    with ettr.open("site") as fleet:
        fleet.mttf.to_pandas()

Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ettr.version import __version__

if TYPE_CHECKING:
    from ettr import checkpoint, progress
    from ettr.analysis import Assumptions
    from ettr.api.fleet import Fleet
    from ettr.api.fleet import open_fleet as open  # noqa: A004 - `ettr.open` is how it is called
    from ettr.api.fleet import read_logs as read
    from ettr.api.questions import compare, plan_run, project
    from ettr.api.result import Result
    from ettr.selection import Selection

__all__ = [
    "Assumptions",
    "Fleet",
    "Result",
    "Selection",
    "__version__",
    "checkpoint",
    "compare",
    "open",
    "plan_run",
    "progress",
    "project",
    "read",
]

_PLACE_OF = {
    "Assumptions": ("analysis", "Assumptions"),
    "Fleet": ("api.fleet", "Fleet"),
    "Result": ("api.result", "Result"),
    "Selection": ("selection", "Selection"),
    "compare": ("api.questions", "compare"),
    "open": ("api.fleet", "open_fleet"),
    "plan_run": ("api.questions", "plan_run"),
    "project": ("api.questions", "project"),
    "read": ("api.fleet", "read_logs"),
}
_ROOMS = ("checkpoint", "progress")


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return importlib.import_module(f"ettr.{name}")
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'ettr' has no attribute {name!r}")
    module, attribute = _PLACE_OF[name]
    return getattr(importlib.import_module(f"ettr.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
