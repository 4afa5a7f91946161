"""The record of one training run: events, line codec, recorder, split of the wall clock.

    from ettr.progress import Goodput, ProgressRecorder

    live = Goodput()
    recorder = ProgressRecorder("progress.jsonl", run="gpt-7b", listener=live.add)

Standard library only; names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ettr.progress.events import (
        EVENTS,
        BadLineError,
        ProgressEvent,
        decode_line,
        parse_line,
        read_progress,
    )
    from ettr.progress.goodput import Goodput, GoodputSplit, goodput_of_events, goodput_of_file
    from ettr.progress.google import read_google_goodput, read_google_goodput_file
    from ettr.progress.recorder import ProgressRecorder
    from ettr.progress.split import RunState

__all__ = [
    "EVENTS",
    "BadLineError",
    "Goodput",
    "GoodputSplit",
    "ProgressEvent",
    "ProgressRecorder",
    "RunState",
    "decode_line",
    "goodput_of_events",
    "goodput_of_file",
    "parse_line",
    "read_google_goodput",
    "read_google_goodput_file",
    "read_progress",
]

_MODULE_OF = {
    "EVENTS": "events",
    "BadLineError": "events",
    "Goodput": "goodput",
    "GoodputSplit": "goodput",
    "ProgressEvent": "events",
    "ProgressRecorder": "recorder",
    "RunState": "split",
    "decode_line": "events",
    "goodput_of_events": "goodput",
    "goodput_of_file": "goodput",
    "parse_line": "events",
    "read_google_goodput": "google",
    "read_google_goodput_file": "google",
    "read_progress": "events",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
