"""Columns of time texts -> UTC; the only place where the Slurm sources attach a zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.sources.slurm.fields import NOTHING
from ettr.sources.times import UTC_NAMES, need_zone, utc_of_local

_TIME = pa.timestamp("us", tz="UTC")
_ZONED = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)$"
_LOCAL = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?$"
_EPOCH = r"^\d{9,11}(\.\d{1,9})?$"


def nothing_to_null(texts: pa.Array) -> pa.Array:
    """The texts with what sacct writes for nothing as null."""
    return pc.if_else(pc.is_in(texts, value_set=pa.array(sorted(NOTHING))), None, texts)


class TimeColumns:
    """Reads columns of times of one file and remembers what it had to assume.

    `ambiguous` counts the local times that occur twice when the clocks go back (the first is
    taken), `skipped` those that never occur when they go forward.
    """

    def __init__(self, timezone: str | None, what: str) -> None:
        self._timezone, self._what = timezone, what
        self.ambiguous = 0
        self.skipped = 0
        self.used_zone = False

    def read(self, texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
        """The column as UTC times, and which of its texts are no time at all.

        Args:
            texts: strings; what sacct writes for nothing becomes null and is not bad.

        Raises:
            UsageError: a text has no zone and the user gave none.
        """
        given = nothing_to_null(texts)
        bad = np.zeros(len(given), dtype=bool)
        if given.null_count == len(given):
            return pa.nulls(len(given), _TIME), bad
        try:
            return self._localise(given.cast(pa.timestamp("s"))), bad
        except pa.ArrowInvalid:
            return self._mixed(given)

    def _mixed(self, given: pa.Array) -> tuple[pa.Array, np.ndarray]:
        parts: list[pa.Array] = []
        known = np.zeros(len(given), dtype=bool)
        for pattern, convert in ((_LOCAL, self._local), (_ZONED, _zoned), (_EPOCH, _epoch)):
            fits = pc.match_substring_regex(given, pattern).fill_null(False)
            if not pc.any(fits).as_py():
                continue
            part = convert(pc.if_else(fits, given, None))
            known |= part.is_valid().to_numpy(zero_copy_only=False)
            parts.append(part)
        bad = given.is_valid().to_numpy(zero_copy_only=False) & ~known
        if not parts:
            return pa.nulls(len(given), _TIME), bad
        return pc.coalesce(*parts), bad

    def _local(self, texts: pa.Array) -> pa.Array:
        return self._localise(_cast(texts, pa.timestamp("us"), datetime.fromisoformat))

    def _localise(self, naive: pa.Array) -> pa.Array:
        zone = need_zone(self._timezone, self._what)
        self.used_zone = True
        stamps = naive.cast(pa.timestamp("us"))
        if zone in UTC_NAMES:
            return stamps.cast(_TIME)
        try:
            zoned = pc.assume_timezone(stamps, zone)
        except pa.ArrowInvalid:
            zoned = self._twice_or_never(stamps, zone)
        return zoned.cast(_TIME)

    def _twice_or_never(self, stamps: pa.Array, zone: str) -> pa.Array:
        """Local times of which some occur twice or never."""
        try:
            zoned = pc.assume_timezone(stamps, zone, ambiguous="earliest", nonexistent="earliest")
        except pa.ArrowInvalid:
            # Arrow finds no zone data of the system's; Python may have its own
            return pa.array(
                [None if t is None else utc_of_local(t, zone) for t in stamps.to_pylist()], _TIME
            )
        second = pc.assume_timezone(stamps, zone, ambiguous="latest", nonexistent="earliest")
        self.ambiguous += pc.sum(pc.not_equal(zoned, second)).as_py() or 0
        back = pc.local_timestamp(zoned)
        self.skipped += pc.sum(pc.not_equal(back, stamps)).as_py() or 0
        return zoned

    def notes(self) -> tuple[str, ...]:
        """What was assumed so far, one sentence each."""
        found = []
        if self.ambiguous:
            found.append(
                f"{self.ambiguous} local times lie in the hour that {self._timezone} has twice "
                "when its clocks go back; the first of the two was taken"
            )
        if self.skipped:
            found.append(
                f"{self.skipped} local times lie in the hour that {self._timezone} leaves out when "
                "its clocks go forward; the moment of the change was taken"
            )
        return tuple(found)


def _zoned(texts: pa.Array) -> pa.Array:
    return _cast(texts, _TIME, datetime.fromisoformat)


def _epoch(texts: pa.Array) -> pa.Array:
    seconds = texts.cast(pa.float64())
    return pc.multiply(seconds, 1e6).cast(pa.int64(), safe=False).cast(_TIME)


def _cast(texts: pa.Array, to: pa.DataType, one: Callable[[str], datetime]) -> pa.Array:
    try:
        return texts.cast(to)
    except pa.ArrowInvalid:
        return pa.array([_or_none(text, one) for text in texts.to_pylist()], to)


def _or_none(text: str | None, one: Callable[[str], datetime]) -> datetime | None:
    if text is None:
        return None
    try:
        stamp = one(text)
        return stamp.astimezone(UTC) if stamp.tzinfo is not None else stamp
    except (ValueError, OverflowError):
        return None
