"""The only place that knows the order of the stages: a store in, every result of a report out.

Modules of questions are loaded when they are first asked for: some take longer than a command.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

if not TYPE_CHECKING:

    def __getattr__(name: str) -> ModuleType:
        if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")


from ettr.analysis.analysis import Analysis
from ettr.analysis.assumptions import Assumptions

__all__ = ["Analysis", "Assumptions"]
