"""The console log of torchtitan: its steps, saves, loads and starts.

A line is `[titan] 2026-03-01 10:00:00,123 - root - INFO - MESSAGE`, in local time and in colours,
behind the rank that torchrun writes before it (`[rank0]:`). Every `log_freq`th step is logged.

**Source**: tools/logging.py, components/metrics.py, components/checkpoint.py and train.py of
torchtitan, of 2024 to 2026.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import (
    COLOUR,
    SEARCHED_CHARACTERS,
    BadRecordError,
    first_texts,
    numbered_texts,
)
from ettr.sources.origin import Origin
from ettr.sources.times import has_local_stamps
from ettr.sources.training_steps import RUN_OPTIONS, TABLE, StepRows
from ettr.tables.rows import Batch

NAME = "torchtitan"

_HEAD = re.compile(
    r"(?:\[\w{1,40}\]: ?|\d{1,6}: ?|\[rank(?P<rank>\d{1,9})\]: ?){0,3}(?:\[titan\] )?"
    r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - \S{1,80} - [A-Z]+ - "
)
_RANK = re.compile(r"\[rank(\d{1,9})\]")
_STEP = re.compile(r"step: {0,20}(\d{1,18})\b.{0,40}?loss:")
_SECONDS = r"(\d{1,9}(?:\.\d{1,9})?)"
_SAVED = re.compile(rf"Finished saving the checkpoint.{{0,60}}? ?in {_SECONDS} seconds")
_LOADED = re.compile(rf"Finished loading the checkpoint in {_SECONDS} seconds")
_STARTS = re.compile(r"Training starts at step (\d{1,18})\b")
_COMPLETED = "Training completed"

_SAVE_NOTE = (
    "the log does not say which step a checkpoint is of; it was taken for the last step that was "
    "logged before, so that up to one interval of logging counts as not saved"
)


class _Load(NamedTuple):
    """A checkpoint was loaded; of which step, the line on which the training starts says."""

    line: int
    time: datetime
    duration_s: float
    text: str


@dataclass(slots=True)
class _Rank:
    """What is known of one rank at a line of the log."""

    reached: int = 0
    load: _Load | None = None


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Events of each rank that logged; lines of all other messages are skipped.

    Raises:
        SourceError: the file is corrupt or truncated.
        UsageError: the user gave no zone.
    """
    rows, ranks = StepRows(NAME, origin, options), defaultdict[int, _Rank](_Rank)
    yield from rows.each(numbered_texts(origin), partial(_keep, rows, ranks))
    for rank in ranks.values():
        _reject_load(rows, rank)
    yield rows.last_batch()


def _keep(rows: StepRows, ranks: dict[int, _Rank], number: int, line: str) -> None:
    """Keep what a message says, or count its line as skipped."""
    text = COLOUR.sub("", line[:SEARCHED_CHARACTERS])
    head = _HEAD.match(text)
    if head is None:
        rows.count_skipped()
        return
    message = text[head.end() :]
    step, saved = _STEP.match(message), _SAVED.match(message)
    loaded, starts = _LOADED.match(message), _STARTS.match(message)
    if not (step or saved or loaded or starts or message.startswith(_COMPLETED)):
        rows.count_skipped()
        return
    time = rows.local_time(head["stamp"])
    if time is None:
        raise BadRecordError("bad-timestamp", f"{head['stamp']} is not a time")
    place = int(found[1]) if (found := _RANK.search(head[0])) else 0
    rank = ranks[place]
    if step:
        rank.reached = int(step[1])
        rows.keep(number, rank.reached, time, rank=place)
    elif saved:
        rows.note(_SAVE_NOTE)
        rows.add_event("save", number, rank.reached, time, float(saved[1]), rank=place)
    elif loaded:
        _reject_load(rows, rank)
        rank.load = _Load(number, time, float(loaded[1]), text)
    elif starts:
        rank.reached = max(int(starts[1]) - 1, 0)
        _start(rows, rank, place, number, time)
    else:
        rows.add_event("end", number, rank.reached, time, rank=place)


def _start(rows: StepRows, rank: _Rank, place: int, number: int, time: datetime) -> None:
    """Keep the start, and before it the load that it follows."""
    if rank.load is not None:
        load, rank.load = rank.load, None
        rows.add_event("restore", load.line, rank.reached, load.time, load.duration_s, rank=place)
    rows.add_event("start", number, rank.reached, time, rank=place)


def _reject_load(rows: StepRows, rank: _Rank) -> None:
    """A load after which no training starts is of no known step."""
    if rank.load is not None:
        detail = "no later line says at which step training starts"
        rows.reject(rank.load.line, "missing-field", detail, rank.load.text)
        rank.load = None


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is a log of torchtitan."""
    texts = [COLOUR.sub("", text) for text in first_texts(head)]
    heads = [(text, match) for text in texts if (match := _HEAD.match(text))]
    if any("[titan]" in match[0] for _, match in heads):
        return 0.9
    messages = [text[match.end() :] for text, match in heads]
    return 0.7 if any(_STEP.match(one) or _STARTS.match(one) for one in messages) else 0.0


SOURCE = Source(
    name=NAME,
    title="torchtitan's console log",
    tables=(TABLE,),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=has_local_stamps(_HEAD),
    options=(*RUN_OPTIONS, "--timezone"),
    how_to_get="the output of the job, such as slurm-JOBID.out; TZ=UTC in the job makes it plain",
    guide="sources/training-metrics.md",
)
