"""TensorBoard's event files: the steps at which one scalar has points.

A file is records: the length in eight bytes, its checksum, the data, its checksum; the data is an
`Event`. Which scalar counts the steps, the user says with --series; else the one with most points,
since others (validation, a metric of each epoch) may count something else.

**Source**: record_writer.h, event.proto and summary.proto of TensorFlow.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO, NamedTuple

from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.origin import READ_ERRORS, Origin
from ettr.sources.protobuf import FramedMessage, WireError, fields
from ettr.sources.times import time_in
from ettr.sources.training_steps import LOADING_S, LOADING_SHARE, RUN_OPTIONS, TABLE, StepRows
from ettr.tables.rows import Batch

NAME = "tensorboard"

# the length and its checksum, and the checksum of the data
_HEADER, _FOOTER_BYTES, _FLOAT = struct.Struct("<QI"), 4, struct.Struct("<f")
# images and graphs are smaller; a longer record is damage
_LONGEST_BYTES = 1 << 28
# how far the next record is looked for behind a damaged one
_SEARCHED_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 20
_MOST_SERIES = 100_000
# fields of Event, Summary, Summary.Value, SummaryMetadata and its PluginData
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE = 1
_TAG, _SIMPLE_VALUE, _TENSOR, _METADATA = 1, 2, 8, 9
_PLUGIN, _PLUGIN_NAME = 1, 1
_SCALARS = "scalars"


class _Event(NamedTuple):
    wall_time_s: float | None
    step: int
    scalars: tuple[str, ...]
    loading: dict[str, float]


# of each step torchtitan's times of loading, which have records of their own
_Loading = dict[int, dict[str, float]]


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """A step for each step of the chosen scalar; records without it are skipped.

    Raises:
        SourceError: the file is corrupt or truncated as a compressed file.
        UsageError: the file has no such series.
    """
    rows = StepRows(NAME, origin, options)
    loading: _Loading = {}
    series = _chosen(origin, options, rows, loading)
    tensor_scalars: set[str] = set()

    def keep(place: int, record: FramedMessage) -> None:
        event = _event(record.whole(), tensor_scalars)
        if series not in event.scalars:
            rows.count_skipped()
            return
        time = time_in(event.wall_time_s, "wall_time")
        rows.keep(place, event.step, time, loading=loading.get(event.step))

    yield from rows.each(enumerate(_records(origin, check=True), 1), keep, lambda _: "")
    yield rows.last_batch()


def _chosen(origin: Origin, options: ReadOptions, rows: StepRows, loading: _Loading) -> str | None:
    """The series whose points are the steps; None where the file has no scalar.

    On the way the times of loading are noted, which stand behind the step that they are of.
    """
    points: Counter[str] = Counter()
    tensor_scalars: set[str] = set()
    for record in _records(origin, check=False):
        try:
            event = _event(record.data or b"", tensor_scalars)
        except WireError:
            continue
        if event.loading:
            loading.setdefault(event.step, {}).update(event.loading)
        points.update(tag for tag in event.scalars if tag in points or len(points) < _MOST_SERIES)
    if options.series is not None:
        if options.series not in points:
            known = ", ".join(repr(tag) for tag, _ in points.most_common(20)) or "none"
            raise UsageError(
                f"{origin}: has no scalar {options.series!r} for --series; it has: {known}"
            )
        return options.series
    if not points:
        return None
    # of equals the first: a counter keeps the order in which its keys came
    chosen, count = points.most_common(1)[0]
    if len(points) > 1:
        others = "other" if len(points) == 2 else "others"
        rows.note(
            f"steps are those of {chosen!r}, of {len(points):,} scalars the one with most points "
            f"({count:,}); --series NAME takes one of the {others}"
        )
    return chosen


def _event(data: bytes, tensor_scalars: set[str]) -> _Event:
    """What an event says of steps."""
    wall_time_s, step, scalars = None, 0, []
    loading: dict[str, float] = {}
    for field in fields(data):
        if field.number == _WALL_TIME:
            wall_time_s = field.double
        elif field.number == _STEP:
            step = field.integer
        elif field.number == _SUMMARY:
            scalars = [
                tag
                for value in fields(field.message)
                if value.number == _VALUE
                and (tag := _scalar_tag(value.message, tensor_scalars)) is not None
            ]
            if LOADING_S in scalars or LOADING_SHARE in scalars:
                loading.update(_loading(field.message))
    return _Event(wall_time_s, step, tuple(scalars), loading)


def _loading(summary: bytes) -> Iterator[tuple[str, float]]:
    """Times of loading among the scalars of a summary, which torchtitan writes as one float."""
    for value in fields(summary):
        parts = (
            {part.number: part for part in fields(value.message)} if value.number == _VALUE else {}
        )
        if _TAG in parts and _SIMPLE_VALUE in parts:
            tag, number = parts[_TAG].text, parts[_SIMPLE_VALUE].value
            if tag in (LOADING_S, LOADING_SHARE) and isinstance(number, bytes):
                yield tag, float(_FLOAT.unpack(number[: _FLOAT.size].ljust(_FLOAT.size))[0])


def _scalar_tag(value: bytes, tensor_scalars: set[str]) -> str | None:
    """The tag of a value that is one number; None for images, histograms and texts."""
    tag, is_number, is_tensor, plugin = "", False, False, ""
    for field in fields(value):
        if field.number == _TAG:
            tag = field.text
        elif field.number == _SIMPLE_VALUE:
            is_number = True
        elif field.number == _TENSOR:
            is_tensor = True
        elif field.number == _METADATA:
            plugin = _plugin(field.message)
    if is_tensor and plugin == _SCALARS and len(tensor_scalars) < _MOST_SERIES:
        tensor_scalars.add(tag)
    return tag if is_number or (is_tensor and tag in tensor_scalars) else None


def _plugin(metadata: bytes) -> str:
    for field in fields(metadata):
        if field.number == _PLUGIN:
            return next((f.text for f in fields(field.message) if f.number == _PLUGIN_NAME), "")
    return ""


class _Bytes:
    """A stream of which some bytes are held, so that a place can be looked at before it is left."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.held = bytearray()

    def fill(self, size: int) -> bool:
        """Hold that many bytes; whether there are so many."""
        while len(self.held) < size:
            chunk = self._stream.read(_CHUNK_BYTES)
            if not chunk:
                return False
            self.held += chunk
        return True

    def take(self, size: int) -> bytes:
        taken = bytes(self.held[:size])
        del self.held[:size]
        return taken


def _records(origin: Origin, *, check: bool) -> Iterator[FramedMessage]:
    """The records of a file; a damaged stretch is one, and reading goes on behind it."""
    try:
        with origin.open() as stream:
            yield from _framed(_Bytes(stream), check=check)
    except READ_ERRORS as error:
        raise SourceError(f"{origin}: is corrupt or truncated: {error}") from error


def _framed(source: _Bytes, *, check: bool) -> Iterator[FramedMessage]:
    while source.fill(1):
        size = _data_bytes(source)
        if size is None:
            yield _behind_damage(source)
            continue
        whole = _HEADER.size + size + _FOOTER_BYTES
        if not source.fill(whole):
            detail = f"the file ends {whole - len(source.held)} bytes before the record does"
            source.held.clear()
            yield FramedMessage(None, "torn-record", detail)
            return
        record = source.take(whole)
        data = record[_HEADER.size : -_FOOTER_BYTES]
        if check and _masked(data) != int.from_bytes(record[-_FOOTER_BYTES:], "little"):
            yield FramedMessage(
                None, "bad-checksum", "the record's data does not have its checksum"
            )
        else:
            yield FramedMessage(data)


def _data_bytes(source: _Bytes, at: int = 0) -> int | None:
    """The length that the header at a place states; None where it is no header."""
    if not source.fill(at + _HEADER.size):
        return None
    size, checksum = _HEADER.unpack_from(source.held, at)
    is_header = size <= _LONGEST_BYTES and _masked(source.held[at : at + 8]) == checksum
    return int(size) if is_header else None


def _behind_damage(source: _Bytes) -> FramedMessage:
    """Go on to the next header, or to the end of the file."""
    at = 1
    while at < _SEARCHED_BYTES and source.fill(at + _HEADER.size):
        # lengths are below 2 ** 32, so that four bytes of a header are 0
        zeros = source.held.find(b"\0\0\0\0", at + 4)
        if zeros < 0:
            at = len(source.held) - 7
            source.fill(len(source.held) + 1)
            continue
        at = max(at, zeros - 4)
        if _data_bytes(source, at) is not None:
            source.take(at)
            return FramedMessage(None, "bad-checksum", f"{at:,} bytes are no record")
        at += 1
    lost = len(source.held)
    source.held.clear()
    while source.fill(1):  # too far to look for a record: what follows is lost, and is counted
        lost += len(source.held)
        source.held.clear()
    return FramedMessage(None, "bad-checksum", f"the last {lost:,} bytes are no record")


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def _masked(data: bytes | bytearray) -> int:
    """The CRC-32C of the data, masked as TensorFlow masks it."""
    table, value = _crc_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return (value >> 15 | value << 17) + 0xA282EAD8 & 0xFFFFFFFF


def matches(head: bytes, _name: str) -> float:
    """1 where the file begins with a record whose length has its checksum."""
    if len(head) < _HEADER.size:
        return 0.0
    size, checksum = _HEADER.unpack_from(head)
    return float(size <= _LONGEST_BYTES and _masked(head[:8]) == checksum)


SOURCE = Source(
    name=NAME,
    title="TensorBoard event files",
    tables=(TABLE,),
    matches=matches,
    read=read,
    options=(*RUN_OPTIONS, "--series"),
    how_to_get="the files events.out.tfevents.* below the log folder of a run",
    guide="sources/training-metrics.md",
)
