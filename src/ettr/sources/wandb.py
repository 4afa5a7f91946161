"""Weights & Biases' offline files (run-ID.wandb): the steps of a run's history.

A file is a header of seven bytes, then LevelDB's log format: blocks of 32 KiB with fragments of
records, each with a CRC-32; a record is a message `Record`. The run's id is in it, and so is the
Slurm job that it ran in.

**Source**: wandb_internal.proto of wandb, and "log_format.md" of LevelDB.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, TypeGuard

from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import BadRecordError
from ettr.sources.origin import READ_ERRORS, Origin
from ettr.sources.protobuf import Field, FramedMessage, WireError, fields
from ettr.sources.times import time_in
from ettr.sources.training_steps import RUN_OPTIONS, TABLE, StepRows
from ettr.tables.rows import Batch, text_of

NAME = "wandb"

_FILE_HEADER = b":W&B"
_FILE_HEADER_BYTES, _BLOCK_BYTES = 7, 32768
# checksum, length and kind of a fragment
_FRAGMENT = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_LONGEST_BYTES = 1 << 26
# fields of Record, HistoryRecord, HistoryItem, HistoryStep, RunRecord and EnvironmentRecord
_HISTORY, _RUN, _ENVIRONMENT = 2, 17, 26
_ITEM, _HISTORY_STEP, _STEP_NUMBER = 1, 2, 1
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
_RUN_ID, _SLURM = 1, 27
_MAP_KEY, _MAP_VALUE = 1, 2

_OWN_STEP, _OWN_TIME = "_step", "_timestamp"
# what trainers call the step of the training where wandb's own counts calls of `log`
_KNOWN_STEPS = ("train/global_step", "trainer/global_step", "global_step")
_MAPPED = ("step", "time", "duration_s")


@dataclass(slots=True)
class _Run:
    """What a file says of its run, and in how many records of the history a key occurs."""

    run_id: str | None = None
    slurm: dict[str, str] = field(default_factory=dict)
    keys: Counter[str] = field(default_factory=Counter)

    @property
    def job(self) -> str | None:
        """The job as accounting shows it: a task of an array and a part of a het job by theirs."""
        for whole, part, between in (
            ("array_job_id", "array_task_id", "_"),
            ("het_job_id", "het_job_offset", "+"),
        ):
            if self.slurm.get(whole) and self.slurm.get(part):
                return f"{self.slurm[whole]}{between}{self.slurm[part]}"
        return self.slurm.get("job_id") or self.slurm.get("jobid")


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """A step for each step of the history; records of another kind are skipped.

    Raises:
        SourceError: the file is corrupt or truncated as a compressed file.
        UsageError: a column that was asked for is not in the history.
    """
    run = _run_of(origin, options)
    rows = StepRows(
        NAME, origin, options, run=run.run_id, job=run.job, cluster=run.slurm.get("cluster_name")
    )
    columns = _columns(origin, options, run, rows)

    def keep(place: int, record: FramedMessage) -> None:
        items = _history(record.whole())
        step, time = items.get(columns["step"]), items.get(columns["time"])
        if step is None:
            rows.count_skipped()
            return
        moment, duration_s = (
            time_in(time, columns["time"]),
            items.get(columns.get("duration_s", "")),
        )
        if not _is_number(step) or step != step // 1:
            raise BadRecordError("bad-number", f"{columns['step']} is {step!r:.80}")
        if duration_s is not None and not _is_number(duration_s):
            raise BadRecordError("bad-duration", f"duration_s is {duration_s!r:.80}")
        rows.keep(place, int(step), moment, duration_s, loading=items)

    yield from rows.each(enumerate(_records(origin), 1), keep, lambda _: "")
    yield rows.last_batch()


def _is_number(value: object) -> TypeGuard[float]:
    # NaN and infinity are no numbers of steps or seconds
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18


def _columns(origin: Origin, options: ReadOptions, run: _Run, rows: StepRows) -> dict[str, str]:
    """The keys of the history that hold step, time and, if it was named, duration."""
    given = dict(options.column_map or {})
    wrong = [f"{ours}={theirs}" for ours, theirs in given.items() if ours not in _MAPPED]
    absent = [theirs for theirs in given.values() if theirs not in run.keys]
    if wrong or absent:
        raise UsageError(
            f"{origin}: --columns {(wrong or absent)[0]}: name a key of the history for one of "
            f"{', '.join(_MAPPED)}; it has {', '.join(sorted(run.keys)[:40]) or 'none'}"
        )
    if "step" not in given:
        counts = {key: run.keys[key] for key in _KNOWN_STEPS if run.keys[key]}
        given["step"] = max(counts, key=lambda key: counts[key]) if counts else _OWN_STEP
        if run.keys:
            rows.note(
                f"steps are counted by {given['step']!r} of the history"
                + (
                    ""
                    if counts
                    else ", which counts calls of wandb.log unless the loop gave it a step; where "
                    "the training step has a key of its own, say --columns step=KEY"
                )
            )
    return {"time": _OWN_TIME} | given


def _run_of(origin: Origin, options: ReadOptions) -> _Run:
    """What the file says of its run, by a first reading of the whole."""
    run = _Run()
    for record in _records(origin):
        try:
            for part in fields(record.data or b""):
                if part.number == _RUN:
                    run.run_id = _text_of(part.message, _RUN_ID) or run.run_id
                elif part.number == _ENVIRONMENT:
                    run.slurm.update(_slurm(part.message))
            run.keys.update(_history(record.data or b"").keys())
        except WireError:
            continue  # the second reading rejects it
    return run


def _slurm(environment: bytes) -> Iterator[tuple[str, str]]:
    for entry in fields(environment):
        if entry.number == _SLURM:
            key, value = (_text_of(entry.message, number) for number in (_MAP_KEY, _MAP_VALUE))
            if key and value:
                yield key, value


def _text_of(message: bytes, number: int) -> str | None:
    """The text of a field of a message; None where it is absent or empty."""
    return next((f.text for f in fields(message) if f.number == number), None) or None


def _history(data: bytes) -> dict[str, object]:
    """The values of a record of the history by key; none of another record."""
    values: dict[str, object] = {}
    for part in fields(data):
        if part.number == _HISTORY:
            for entry in fields(part.message):
                if entry.number == _ITEM:
                    values.update(_item(entry))
                elif entry.number == _HISTORY_STEP:
                    for number in fields(entry.message):
                        if number.number == _STEP_NUMBER:
                            values.setdefault(_OWN_STEP, number.integer)
    return values


def _item(entry: Field) -> Iterator[tuple[str, object]]:
    """The key of an item and its value, if that is a number or a text."""
    key, nested, text = "", [], b""
    for part in fields(entry.message):
        if part.number == _KEY:
            key = part.text
        elif part.number == _NESTED_KEY:
            nested.append(part.text)
        elif part.number == _VALUE_JSON:
            text = part.message
    # a histogram or a table is no step, and need not be taken apart
    if text[:1] not in (b"{", b"["):
        try:
            yield key or ".".join(nested), json.loads(text_of(text))
        except ValueError as error:
            raise WireError(str(error)) from error


def _records(origin: Origin) -> Iterator[FramedMessage]:
    """The records of a file; what is damaged is one, and reading goes on behind it."""
    try:
        with origin.open() as stream:
            yield from _assembled(stream)
    except READ_ERRORS as error:
        raise SourceError(f"{origin}: is corrupt or truncated: {error}") from error


def _assembled(stream: BinaryIO) -> Iterator[FramedMessage]:
    """Records put together from their fragments."""
    begun: bytearray | None = None
    for kind, data, detail in _fragments(stream):
        if data is None:
            begun = None
            yield FramedMessage(None, "bad-checksum", detail)
        elif kind in (_WHOLE, _FIRST):
            if begun is not None:
                yield FramedMessage(None, "torn-record", "a record begins within another")
            begun = bytearray(data) if kind == _FIRST else None
            if kind == _WHOLE:
                yield FramedMessage(data)
        elif begun is None or len(begun) + len(data) > _LONGEST_BYTES:
            if begun is not None or kind == _LAST:
                yield FramedMessage(None, "torn-record", "a record without beginning, or too long")
            begun = None
        else:
            begun += data
            if kind == _LAST:
                yield FramedMessage(bytes(begun))
                begun = None
    if begun is not None:
        yield FramedMessage(None, "torn-record", "the file ends within a record")


def _fragments(stream: BinaryIO) -> Iterator[tuple[int, bytes | None, str]]:
    """Kind and data of each fragment; no data, and why, where a block is damaged from there on."""
    block, at = _exactly(stream, _BLOCK_BYTES), _FILE_HEADER_BYTES
    while block:
        while len(block) - at >= _FRAGMENT.size:
            _, size, kind = _FRAGMENT.unpack_from(block, at)
            if not any(block[at:]):
                break  # the rest of the block was set aside, and never written
            begin, end = at + _FRAGMENT.size, at + _FRAGMENT.size + size
            if _is_fragment(block, at):
                yield kind, block[begin:end], ""
                at = end
            elif _is_fragment(block, end):
                # only what lies between is damaged: the length led to the next fragment
                yield 0, None, f"{end - at:,} bytes do not have their checksum"
                at = end
            else:
                yield 0, None, f"{len(block) - at:,} bytes, to the end of the block, are damaged"
                break
        else:
            if any(block[at:]):
                yield 0, None, f"{len(block) - at} bytes are no fragment"
        block, at = _exactly(stream, _BLOCK_BYTES), 0


def _is_fragment(block: bytes, at: int) -> bool:
    """Whether a fragment with its checksum begins at a place of a block."""
    if len(block) - at < _FRAGMENT.size:
        return False
    checksum, size, kind = _FRAGMENT.unpack_from(block, at)
    data = block[at + _FRAGMENT.size : at + _FRAGMENT.size + size]
    if len(data) != size or not _WHOLE <= kind <= _LAST:
        return False
    return zlib.crc32(data, zlib.crc32(bytes([kind]))) == int(checksum)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """That many bytes, or as many as there are."""
    block = bytearray()
    while len(block) < size and (chunk := stream.read(size - len(block))):
        block += chunk
    return bytes(block)


def matches(head: bytes, _name: str) -> float:
    """1 where the file begins as wandb's do."""
    return float(head.startswith(_FILE_HEADER) and len(head) >= _FILE_HEADER_BYTES)


SOURCE = Source(
    name=NAME,
    title="Weights & Biases offline runs",
    tables=(TABLE,),
    matches=matches,
    read=read,
    options=(*RUN_OPTIONS, "--columns"),
    how_to_get="the files wandb/offline-run-*/run-*.wandb of a run with WANDB_MODE=offline",
    guide="sources/training-metrics.md",
)
