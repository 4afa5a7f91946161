"""Console logs of Megatron-LM, NeMo and DeepSpeed, and Megatron's progress.txt.

Read are the lines that say when a step was done, saved or begun. A line needs a stamp of its own:
`[2026-03-01 10:00:10] iteration 1/ 250000 | ...` of Megatron, `[2026-03-01 10:00:10,123] [INFO]
[logging.py:96:log_dist] [Rank 0] step=10, ...` of DeepSpeed, `[NeMo I 2026-03-01 10:00:10 ...]`.
Lines of checkpoints have none in Megatron's console; they take that of a line next to them.

**Source**: training/training.py and training/checkpointing.py of Megatron-LM, runtime/engine.py and
utils/timer.py of DeepSpeed, utils/nemo_logging.py of NeMo, of 2023 to 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import (
    COLOUR,
    SEARCHED_CHARACTERS,
    BadRecordError,
    first_texts,
    numbered_texts,
)
from ettr.sources.origin import Origin
from ettr.sources.times import has_local_stamps, time_in
from ettr.sources.training_steps import RUN_OPTIONS, TABLE, StepRows
from ettr.tables.rows import Batch

NAME = "trainer-log"

_STAMP = r"(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?P<offset>Z|[+-]\d\d:?\d\d)?"
_HEAD = re.compile(
    r"\s{0,20}(?:\[\w{1,40}\]: ?|\d{1,6}: ?){0,3}\s{0,20}"
    rf"(?:\[(?:NeMo [A-Z] )?{_STAMP}[^\]]{{0,200}}\]|{_STAMP.replace('?P<', '?P<bare_')})\s"
)
_RANK = re.compile(r"\[rank(\d{1,9})\]|\[Rank (\d{1,9})\]")
_N = r"(\d{1,18})"
# Megatron; DeepSpeed's two lines of one step; NeMo, whose steps count from 0
_STEPS = (
    re.compile(rf"iteration\s{{1,20}}{_N}/\s{{0,20}}\d{{1,18}} \|"),
    re.compile(rf"\[Rank \d{{1,9}}\] step={_N},"),
    re.compile(rf"global_step={_N}, RunningAvgSamplesPerSec"),
)
_STEP_FROM_0 = re.compile(rf"Training epoch \d.{{1,200}}global_step: {_N}\b")
_SAVED = (
    re.compile(rf"successfully saved checkpoint (?:from|at) iteration\s{{1,20}}{_N}\b"),
    re.compile(rf"Checkpoint global_step{_N} is ready now"),
)
_LOADED = re.compile(
    rf"successfully loaded checkpoint .{{0,400}}at iteration\s{{1,20}}{_N}\b", re.IGNORECASE
)
# the library of checkpoints of Megatron and NeMo states when, and for how long
_TIMED_SAVE = re.compile(
    rf"Global Checkpoint Save.{{0,80}}Iteration ?: ?{_N}.{{0,40}}Start time ?: ?(\d{{9,11}}"
    r"(?:\.\d{1,9})?)s.{0,40}[Dd]uration ?: ?(\d{1,9}(?:\.\d{1,9})?)s"
)
_DATED = re.compile(
    r"\[(?P<what>before the start of training step|after training is done)\] datetime: "
    r"(?P<iso>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"
)
_PROGRESS = re.compile(
    r"(?P<iso>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\tJob ID: (?P<job>[^\t]{0,60})\t# GPUs: \d{1,9}\t"
    r"(?P<what>Starting job|Sav(?:ing|ed) (?:async )?checkpoint)"
    r"(?:\tIteration: (?P<step>\d{1,18})\b)?"
)
_UNSTAMPED_NOTE = (
    "lines on checkpoints have no stamps; each took the time of the last stamp before it, or where "
    "it was loaded of the next one"
)
_ASYNC_NOTE = (
    "the log says when checkpoints began to be written and not when they were whole; they count as "
    "saved from then on"
)


@dataclass(slots=True)
class _Undated:
    """A line whose time or meaning a later line decides."""

    line: int
    step: int
    text: str
    time: datetime | None = None
    job: str | None = None


@dataclass(slots=True)
class _ConsoleState:
    """What is known at a line of the log."""

    time: datetime | None = None
    reached: int = 0
    loaded: _Undated | None = None
    under_way: list[_Undated] = field(default_factory=list)
    has_finished: bool = False
    saved: set[tuple[str | None, int]] = field(default_factory=set)


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Steps, saves, restores, starts and ends; lines of all other messages are skipped.

    Raises:
        SourceError: the file is corrupt or truncated.
        UsageError: stamps have no zone and the user gave none.
    """
    first = next(filter(None, map(_PROGRESS.match, first_texts(origin.head))), None)
    job = first["job"] if first else None
    rows, state = StepRows(NAME, origin, options, job=job), _ConsoleState()

    def keep(number: int, line: str) -> None:
        text = COLOUR.sub("", line[:SEARCHED_CHARACTERS])
        progress = _PROGRESS.match(text) if first else None
        if progress:
            _progress(rows, state, number, text, progress)
        elif not _console(rows, state, number, text):
            rows.count_skipped()

    yield from rows.each(numbered_texts(origin), keep)
    _reject_loaded(rows, state)
    _settle_async(rows, state)
    yield rows.last_batch()


def _progress(
    rows: StepRows, state: _ConsoleState, number: int, text: str, found: re.Match[str]
) -> None:
    """Keep what a line of progress.txt says."""
    time = _local(rows, found["iso"])
    step = None if found["step"] is None else int(found["step"])
    if step is None and found["what"] != "Starting job":
        raise BadRecordError("missing-field", "no Iteration")
    # each restart of a run is a job of its own
    rows.job_id = found["job"].strip() or rows.job_id
    if step is None:
        rows.add_event("start", number, None, time)
    elif found["what"] == "Saving async checkpoint":
        state.under_way.append(_Undated(number, step, text, time, rows.job_id))
    else:
        state.has_finished |= "async" in found["what"]
        state.saved.add((rows.job_id, step))
        rows.add_event("save", number, step, time)


def _settle_async(rows: StepRows, state: _ConsoleState) -> None:
    """Checkpoints that were begun: saved, never whole, or in a log that does not say."""
    for entry in state.under_way:
        if (entry.job, entry.step) in state.saved:
            rows.count_folded()
        elif state.has_finished or entry.time is None:
            rows.count_skipped()
            rows.note("a checkpoint that began to be written and was never whole is left out")
        else:
            rows.note(_ASYNC_NOTE)
            rows.job_id = entry.job
            rows.add_event("save", entry.line, entry.step, entry.time)


def _console(rows: StepRows, state: _ConsoleState, number: int, text: str) -> bool:
    """Whether a line of a console was kept."""
    if dated := _DATED.search(text):
        state.time = _local(rows, dated["iso"])
        _keep_loaded(rows, state, state.time)
        event = "start" if dated["what"].startswith("before") else "end"
        rows.add_event(event, number, state.reached, state.time)
        return True
    head = _HEAD.match(text)
    message = text[head.end() - 1 :] if head else text
    if timed := _TIMED_SAVE.search(message):
        end = time_in(float(timed[2]) + float(timed[3]), "the end of the save")
        rows.add_event("save", number, int(timed[1]), end, float(timed[3]))
        return True
    from_0 = _STEP_FROM_0.search(message)
    step = int(from_0[1]) + 1 if from_0 else _first(_STEPS, message)
    saved, loaded = _first(_SAVED, message), _LOADED.search(message)
    if head is not None and (step is not None or saved is not None or loaded):
        state.time = _moment(rows, head)
    if saved is not None:
        if state.time is None:
            return False
        rows.note(_UNSTAMPED_NOTE)
        rows.add_event("save", number, saved, state.time)
        return True
    if loaded:
        _reject_loaded(rows, state)
        state.loaded = _Undated(number, int(loaded[1]), text)
        state.reached = int(loaded[1])
        return True
    if step is None or head is None or state.time is None:
        return False
    _keep_loaded(rows, state, state.time)
    rank = _RANK.search(text)
    state.reached = step
    place = int(rank[1] or rank[2]) if rank else 0
    rows.keep(number, step, state.time, rank=place)
    return True


def _reject_loaded(rows: StepRows, state: _ConsoleState) -> None:
    """A load that nothing with a stamp follows, before the next one or the end, has no time."""
    if state.loaded is not None:
        entry, state.loaded = state.loaded, None
        rows.reject(entry.line, "missing-field", "no line with a stamp comes after it", entry.text)


def _keep_loaded(rows: StepRows, state: _ConsoleState, time: datetime) -> None:
    if state.loaded is not None:
        entry, state.loaded = state.loaded, None
        rows.note(_UNSTAMPED_NOTE)
        rows.add_event("restore", entry.line, entry.step, time)


def _moment(rows: StepRows, head: re.Match[str]) -> datetime:
    iso, offset = head["iso"] or head["bare_iso"], head["offset"] or head["bare_offset"]
    return time_in(iso + offset, "the stamp") if offset else _local(rows, iso)


def _local(rows: StepRows, iso: str) -> datetime:
    time = rows.local_time(iso)
    if time is None:
        raise BadRecordError("bad-timestamp", f"no time: {iso!r}")
    return time


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    found = next((found for pattern in patterns if (found := pattern.search(text))), None)
    return None if found is None else int(found[1])


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is such a log."""
    texts = [COLOUR.sub("", text) for text in first_texts(head)]
    if any(_PROGRESS.match(text) for text in texts):
        return 0.95
    stamped = (text for text in texts if _HEAD.match(text))
    patterns = (*_STEPS, _STEP_FROM_0)
    return 0.9 if any(pattern.search(text) for text in stamped for pattern in patterns) else 0.0


SOURCE = Source(
    name=NAME,
    title="Megatron-LM's, NeMo's and DeepSpeed's console logs; Megatron's progress.txt",
    tables=(TABLE,),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=has_local_stamps(_HEAD, _PROGRESS),
    options=(*RUN_OPTIONS, "--timezone"),
    how_to_get="the output of the job, such as slurm-JOBID.out; or --log-progress of Megatron",
    guide="sources/training-metrics.md",
)
