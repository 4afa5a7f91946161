"""Metrics as people write them themselves: a JSON object a line, or CSV with a header.

Each record has the number of a step and the time at which it was written. Which columns these are
is known by the names that are in use, or said with --columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from ettr.errors import UsageError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import RecordShape, head_objects, json_records
from ettr.sources.lines import BadRecordError, cells_of, csv_lines, first_texts, json_part
from ettr.sources.origin import Origin
from ettr.sources.times import time_of
from ettr.sources.training_steps import RUN_OPTIONS, TABLE, StepRows, torn_line
from ettr.tables.rows import Batch, clean

NAME = "metrics"

# in the order in which they are looked for; `time` is often seconds since the start: last
_STEP_NAMES = (
    *("train/global_step", "trainer/global_step", "global_step", "_step", "step", "iteration"),
    *("iter", "Step"),
)
_TIME_NAMES = ("timestamp", "_timestamp", "wall_time", "Wall time", "datetime", "ts", "time")
_JOB_NAMES = ("slurm_job_id", "SLURM_JOB_ID", "job_id")
_MAPPED = ("step", "time", "duration_s", "rank", "job_id")
# columns of our own tables, and keys of others' logs, that a file of metrics does not have
_OTHERS = frozenset({"event", "check", "event_type", "node", "node_id", "run_id", "v"})
_LONGEST_NUMBER = 40


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """A step for each record with another step than the one before; those without are skipped.

    Raises:
        SourceError: the file is corrupt or truncated.
        UsageError: no column is known to hold the step or the time, or a local time needs a zone.
    """
    columns = _columns(origin, options)
    names, lines = ([], None) if json_part(origin.head) else csv_lines(origin)
    rows = StepRows(NAME, origin, options, job=_job_of(origin, columns))

    def keep(line: int, cells: Mapping[str, object]) -> None:
        given = {ours: clean(cells.get(theirs)) for ours, theirs in columns.items()}
        if given["step"] is None:
            rows.count_skipped()
            return
        step, rank = _whole(given["step"]), _whole(given.get("rank") or "0")
        duration_s = _number(given.get("duration_s"))
        time = _time(rows, cells.get(columns["time"]))
        if step is None or rank is None:
            raise BadRecordError("bad-number", f"step is {given['step']!r:.80}")
        if time is None:
            detail = f"{columns['time']} is {given['time']!r:.80}, no moment of 1980 to 2200"
            raise BadRecordError("bad-timestamp", detail)
        if duration_s is None and given.get("duration_s") is not None:
            raise BadRecordError("bad-duration", f"duration_s is {given['duration_s']!r:.80}")
        rows.keep(line, step, time, duration_s, rank=rank, loading=cells)

    if lines is None:
        yield from rows.each_object(keep)
    else:
        yield from rows.each_row(keep, names, lines, torn_line(origin))
    yield rows.last_batch()


def _number(text: str | None) -> float | None:
    """A finite number; None for all else."""
    try:
        number = float(text) if text is not None and len(text) <= _LONGEST_NUMBER else None
    except ValueError:
        return None
    return number if number is not None and abs(number) < 1e18 else None


def _whole(text: str) -> int | None:
    """A whole number, also one that a table of floats has made of it; None for all else."""
    if text.removeprefix("-").isdigit() and text.isascii() and len(text) < 20:
        return int(text)
    number = _number(text)
    return int(number) if number is not None and number == int(number) else None


def _time(rows: StepRows, given: object) -> datetime | None:
    time = time_of(_number_or_text(given))
    if time is None and (text := _local(given)) is not None:
        return rows.local_time(text)
    return time


def _number_or_text(given: object) -> object:
    # a CSV file writes times as 1.7e9 and with more digits than `time_of` takes for a stamp
    number = _number(given) if isinstance(given, str) else None
    return given if number is None else number


def _local(given: object) -> str | None:
    """A time of a calendar without an offset, as text; None for all else."""
    try:
        stamp = datetime.fromisoformat(given.strip()) if isinstance(given, str) else None
    except ValueError:
        return None
    return stamp.isoformat() if stamp is not None and stamp.tzinfo is None else None


def _columns(origin: Origin, options: ReadOptions) -> dict[str, str]:
    """The file's names of our columns."""
    names = _names(origin.head)
    columns = _known(names) | (options.column_map or {})
    problems = [
        f"{ours}: not one of {', '.join(_MAPPED)}" for ours in columns if ours not in _MAPPED
    ]
    problems += [
        f"{ours}: no column is known to hold it; name it with --columns {ours}=THEIRS"
        for ours in ("step", "time")
        if ours not in columns
    ]
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise UsageError(
            f"{origin}: cannot be read as metrics:{lines}\nits columns are {', '.join(names[:40])}"
        )
    return columns


def _known(names: Sequence[str]) -> dict[str, str]:
    known = {"step": _STEP_NAMES, "time": _TIME_NAMES, "job_id": _JOB_NAMES, "rank": ("rank",)}
    pairs = ((ours, next((n for n in some if n in names), None)) for ours, some in known.items())
    return {ours: theirs for ours, theirs in pairs if theirs is not None}


# by which the first record is found behind bad bytes in a document of one line
_SHAPE = RecordShape(lambda record: {"step", "time"} <= _known(list(record)).keys())


def _names(head: bytes) -> list[str]:
    """The names of a file's columns, as its first bytes show them."""
    objects = head_objects(head, shape=_SHAPE)
    if objects:
        return list(dict.fromkeys(key for one in objects for key in one))
    first = next(iter(first_texts(head)), "")
    return cells_of(first) or []


def _job_of(origin: Origin, columns: Mapping[str, str]) -> str | None:
    """The one job that the file names; None where it names none."""
    if "job_id" not in columns:
        return None
    values: Iterator[object]
    if json_part(origin.head):
        values = (record.value for record in json_records(origin))
    else:
        names, lines = csv_lines(origin)
        values = (dict(zip(names, cells_of(text) or [], strict=False)) for _, text in lines)
    jobs: dict[str, None] = {}
    for value in values:
        job = clean(value.get(columns["job_id"])) if isinstance(value, dict) else None
        if job is not None:
            jobs[job] = None
        if len(jobs) > 1:
            raise UsageError(
                f"{origin}: names the jobs {' and '.join(jobs)} in {columns['job_id']!r}; write "
                "a file for each, and read them one by one"
            )
    return next(iter(jobs), None)


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is a file of metrics: it has names for a step and a time."""
    names = _names(head)
    known = _known(names)
    return 0.6 if {"step", "time"} <= known.keys() and not _OTHERS & set(names) else 0.0


def names_step_alone(head: bytes) -> str | None:
    """The column of steps of a file that has no known one of times; None for any other file."""
    names = _names(head)
    known = _known(names)
    if "step" not in known or "time" in known or _OTHERS & set(names):
        return None
    return known["step"]


def prints_local(head: bytes) -> bool:
    """Whether the first records hold a time without an offset."""
    time = _known(_names(head)).get("time")
    if time is None:
        return False
    objects = head_objects(head, shape=_SHAPE)
    if objects:
        return any(_local(one.get(time)) is not None for one in objects)
    names = _names(head)
    lines = (cells_of(text) or [] for text in first_texts(head, most=20)[1:])
    return any(
        _local(cells[names.index(time)]) is not None for cells in lines if len(cells) == len(names)
    )


SOURCE = Source(
    name=NAME,
    title="metrics of a training run, JSON lines or CSV",
    tables=(TABLE,),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=prints_local,
    options=(*RUN_OPTIONS, "--columns", "--timezone"),
    how_to_get="a file with a step and a time in each line, as your training loop writes it",
    guide="sources/training-metrics.md",
)
