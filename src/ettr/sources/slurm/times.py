"""Columns of time texts -> UTC; the only place where the Slurm sources attach a zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ettr.sources.limits import EARLIEST, LATEST
from ettr.sources.node_lists import NodeLists
from ettr.sources.slurm import fields as words
from ettr.sources.slurm.fields import NOTHING
from ettr.sources.times import BY_JOB, FIRST_TAKEN, NEVER, UTC_NAMES, need_zone, utc_of_local
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_MINUTE
from ettr.words import by_number

_TIME = pa.timestamp("us", tz="UTC")
_EARLIEST, _LATEST = pa.scalar(EARLIEST, _TIME), pa.scalar(LATEST, _TIME)
_ZONED = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)$"
_LOCAL = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?$"
_COARSE_S = 10 * SECONDS_PER_MINUTE  # under every change of a clock, over what accounting rounds
_EPOCH = r"^\d{9,11}(\.\d{1,9})?$"


def nothing_to_null(texts: pa.Array) -> pa.Array:
    """The texts with what sacct writes for nothing as null."""
    return pc.if_else(pc.is_in(texts, value_set=pa.array(sorted(NOTHING))), None, texts)


# by how much later than the first moment of a local time its second one is, null elsewhere
Folds = dict[str, pa.Array]


class TimeColumns:
    """Reads columns of times of one file and counts what it had to assume.

    A local time that occurs twice when the clocks go back is read as the first; `folds` says for
    the columns read since the last `settle` how much later the second is. `settle` decides by the
    other times of a record. `counts` has what was assumed, by the sentence that says it.
    """

    def __init__(self, timezone: str | None, what: str, settled_by: str = BY_JOB) -> None:
        self._timezone, self._what, self._settled_by = timezone, what, settled_by
        self.counts: Counter[str] = Counter()
        self.folds: Folds = {}

    def read(self, texts: pa.Array, field: str = "") -> tuple[pa.Array, np.ndarray]:
        """The column as UTC times, and which of its texts are no time at all.

        Raises:
            UsageError: a text has no zone and the user gave none.
        """
        found, bad = self._read(texts, field)
        outside = pc.or_(pc.less(found, _EARLIEST), pc.greater(found, _LATEST)).fill_null(False)
        if pc.any(outside).as_py():
            bad = bad | outside.to_numpy(zero_copy_only=False)
            found = pc.if_else(outside, None, found)
        return found, bad

    def _read(self, texts: pa.Array, field: str) -> tuple[pa.Array, np.ndarray]:
        given = nothing_to_null(texts)
        bad = np.zeros(len(given), dtype=bool)
        if given.null_count == len(given):
            return pa.nulls(len(given), _TIME), bad
        try:
            return self._localise(given.cast(pa.timestamp("s")), field), bad
        except pa.ArrowInvalid:
            return self._mixed(given, field)

    def _mixed(self, given: pa.Array, field: str) -> tuple[pa.Array, np.ndarray]:
        parts: list[pa.Array] = []
        known = np.zeros(len(given), dtype=bool)

        def local(texts: pa.Array) -> pa.Array:
            return self._localise(_cast(texts, pa.timestamp("us"), datetime.fromisoformat), field)

        for pattern, convert in ((_LOCAL, local), (_ZONED, _zoned), (_EPOCH, _epoch)):
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

    def _localise(self, naive: pa.Array, field: str) -> pa.Array:
        zone = need_zone(self._timezone, self._what)
        stamps = naive.cast(pa.timestamp("us"))
        if zone in UTC_NAMES:
            return stamps.cast(_TIME)
        try:
            return pc.assume_timezone(stamps, zone).cast(_TIME)
        except pa.ArrowInvalid:
            return self._twice_or_never(stamps, zone, field)

    def _twice_or_never(self, stamps: pa.Array, zone: str, field: str) -> pa.Array:
        """Local times of which some occur twice or never."""
        try:
            first = pc.assume_timezone(stamps, zone, ambiguous="earliest", nonexistent="earliest")
            second = pc.assume_timezone(stamps, zone, ambiguous="latest", nonexistent="earliest")
            never = pc.not_equal(pc.local_timestamp(first), stamps).fill_null(False)
            first, second = first.cast(_TIME), second.cast(_TIME)
        except pa.ArrowInvalid:
            # Arrow finds no zone data of the system's; Python may have its own
            first, second = (_by_python(stamps, zone, fold) for fold in (0, 1))
            never = pc.less(second, first).fill_null(False)
        n_never = int(pc.sum(never).as_py() or 0)
        if n_never:
            self.counts[NEVER] += n_never
            first = pc.if_else(never, _by_python(pc.if_else(never, stamps, None), zone, 0), first)
        twice = pc.and_(pc.greater(second, first).fill_null(False), pc.invert(never))
        if pc.any(twice).as_py():
            later = pc.subtract(second.cast(pa.int64()), first.cast(pa.int64()))
            self.folds[field] = pc.if_else(twice, later, None)
        return first

    def settle(
        self, columns: Mapping[str, pa.Array], lasted_s: pa.Array | None = None
    ) -> dict[str, pa.Array]:
        """The columns, where of two moments that a local time may mean the one is taken that fits.

        It fits where the record lasted as long as it says, and its times follow each other. Where
        both fit, the first is taken.

        Args:
            columns: times by field, in the order in which they follow each other; the span is from
                `start` to `end`.
        """
        folds = {name: column for name, column in self.folds.items() if name in columns}
        for column in (fold for name, fold in self.folds.items() if name not in columns):
            self.counts[FIRST_TAKEN] += len(column) - column.null_count
        self.folds = {}
        if not folds:
            return dict(columns)
        at = np.zeros(len(next(iter(folds.values()))), dtype=bool)
        for fold in folds.values():
            at |= fold.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(at)
        where = pa.array(rows)
        times = {
            name: column.cast(pa.int64()).take(where).to_pylist()
            for name, column in columns.items()
        }
        later = {name: fold.take(where).to_pylist() for name, fold in folds.items()}
        lasted = lasted_s.take(where).to_pylist() if lasted_s is not None else [None] * len(rows)
        for k in range(len(rows)):
            record = {name: values[k] for name, values in times.items()}
            shifts = {name: values[k] for name, values in later.items() if values[k] is not None}
            taken, is_sure = _best_folds(record, shifts, lasted[k])
            for name, shift in shifts.items():
                times[name][k] += shift if name in taken else 0
                self.counts[self._settled_by if is_sure[name] else FIRST_TAKEN] += 1
        return {name: _replaced(columns[name], rows, times[name]) for name in columns}

    def notes(self) -> tuple[str, ...]:
        """What was assumed so far, one sentence each."""
        for fold in self.folds.values():  # read, and not settled
            self.counts[FIRST_TAKEN] += len(fold) - fold.null_count
        self.folds = {}
        return tuple(
            by_number(sentence.format(zone=self._timezone), n)
            for sentence, n in self.counts.items()
        )


def _best_folds(
    record: Mapping[str, int | None], shifts: Mapping[str, int], lasted_s: float | None
) -> tuple[frozenset[str], dict[str, bool]]:
    """Which of the times mean the second moment, and whether that is sure for each."""
    ranked = sorted(
        (_misfit(record, shifts, chosen, lasted_s), len(chosen), chosen)
        for n in range(len(shifts) + 1)
        for chosen in combinations(sorted(shifts), n)
    )
    least, _, best = ranked[0]
    fitting = [chosen for misfit, _, chosen in ranked if misfit == least]
    sure = {name: len({name in chosen for chosen in fitting}) == 1 for name in shifts}
    return frozenset(best), sure


def _misfit(
    record: Mapping[str, int | None],
    shifts: Mapping[str, int],
    chosen: Collection[str],
    lasted_s: float | None,
) -> tuple[int, int]:
    """How badly a choice fits the runtime, in tens of minutes, and the times out of order."""
    times = {
        name: None if at is None else at + (shifts[name] if name in chosen else 0)
        for name, at in record.items()
    }
    known = [at for at in times.values() if at is not None]
    disorder = sum(later < earlier for earlier, later in pairwise(known))
    start, end = times.get("start"), times.get("end")
    if lasted_s is None or start is None or end is None:
        return 0, disorder
    off_s = abs((end - start) / MICROSECONDS_PER_SECOND - lasted_s)
    return round(off_s / _COARSE_S), disorder


def _replaced(column: pa.Array, rows: np.ndarray, values: list[int | None]) -> pa.Array:
    made = column.cast(pa.int64()).fill_null(0).to_numpy().copy()
    made[rows] = [value or 0 for value in values]
    nothing = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(made, pa.int64(), mask=nothing).cast(_TIME)


def _by_python(stamps: pa.Array, zone: str, fold: int) -> pa.Array:
    return pa.array(
        [None if t is None else utc_of_local(t, zone, fold) for t in stamps.to_pylist()], _TIME
    )


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


Mask = npt.NDArray[np.bool_]
INT, FLOAT, TEXT = pa.int64(), pa.float64(), pa.string()


class JobRecords:
    """Job records as columns of texts by field, and which of them turned out to be bad.

    `times` and `node_lists` read the texts of one log, and keep what they assumed; `accelerators`
    are generic resources that count as GPUs, `n_cut_lists` node lists whose end is missing.
    """

    def __init__(
        self,
        columns: dict[str, pa.Array],
        n: int,
        times: TimeColumns,
        node_lists: NodeLists,
        accelerators: tuple[str, ...] = (),
    ) -> None:
        self.columns, self.n, self.accelerators = columns, n, accelerators
        self.n_cut_lists = 0
        self.times, self.node_lists = times, node_lists
        self.none: Mask = np.zeros(n, dtype=bool)
        self.is_bad: Mask = np.zeros(n, dtype=bool)
        # how many nodes each record lists, once its list was read
        self.n_listed: pa.Array = pa.nulls(n, INT)
        # index, reason and detail of each
        self.bad: list[tuple[int, str, str]] = []
        # several columns come from one field
        self._texts: dict[str, pa.Array] = {}
        self._distinct: dict[str, pa.DictionaryArray] = {}
        self._fitting: dict[tuple[str, str], pa.Array] = {}

    def reject(self, wrong: Any, reason: str, field: str) -> None:
        """Mark records as bad; the first reason of each is the one that counts."""
        if not isinstance(wrong, np.ndarray):
            wrong = wrong.to_numpy(zero_copy_only=False).astype(bool)
        for i in np.flatnonzero(wrong & ~self.is_bad):
            value = self.columns[field][int(i)].as_py() if field in self.columns else None
            self.bad.append((int(i), reason, f"{field} is {value!r:.120}"))
        self.is_bad |= wrong

    def text(self, field: str) -> pa.Array:
        """A column of strings, "" as null; all null where the log has no such field."""
        if field not in self.columns:
            return pa.nulls(self.n, TEXT)
        if field not in self._texts:
            column = self.columns[field]
            empty = pc.equal(column, "")
            # a copy of a column of texts takes as long as reading it
            self._texts[field] = (
                pc.if_else(empty, None, column) if pc.any(empty).as_py() else column
            )
        return self._texts[field]

    def distinct(self, field: str) -> pa.DictionaryArray:
        """The same with each distinct text once."""
        if field not in self._distinct:
            self._distinct[field] = self.text(field).dictionary_encode()
        return self._distinct[field]

    def fitting(self, field: str, pattern: str) -> pa.Array:
        """The texts that a pattern fits, the others null."""
        if (field, pattern) not in self._fitting:
            self._fitting[field, pattern] = fitting(self.text(field), pattern)
        return self._fitting[field, pattern]

    def integers(self, field: str) -> tuple[pa.Array, Mask]:
        """A column of whole numbers, by one cast where every text is one."""
        text = self.text(field)
        try:
            return text.cast(INT), self.none
        except pa.ArrowInvalid:
            return mapped(text, words.integer, INT)


def matches(texts: pa.Array, pattern: str) -> Mask:
    """Which texts the pattern fits."""
    found: Mask = (
        pc.match_substring_regex(texts, pattern).fill_null(False).to_numpy(zero_copy_only=False)
    )
    return found


def fitting(texts: pa.Array, pattern: str) -> pa.Array:
    """The texts that a pattern fits, the others null."""
    fits = pc.match_substring_regex(texts, pattern)
    return pc.if_else(fits, texts, None) if pc.any(fits).as_py() else pa.nulls(len(texts), TEXT)


def mapped(
    texts: pa.Array | pa.DictionaryArray, parse: Callable[[str], Any], kind: pa.DataType
) -> tuple[pa.Array, Mask]:
    """Each distinct text parsed once; and which texts could not be."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind), np.zeros(len(texts), dtype=bool)
    codes = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
    values: list[Any] = []
    wrong: list[bool] = []
    for text in codes.dictionary.to_pylist():
        try:
            values.append(None if text is None else parse(text))
            wrong.append(False)
        except ValueError:
            values.append(None)
            wrong.append(True)
    bad: Mask = np.zeros(len(texts), dtype=bool)
    if any(wrong):
        bad = (
            pa.array(wrong).take(codes.indices).fill_null(False).to_numpy(zero_copy_only=False)
        ).astype(bool)
    return pa.array(values, kind).take(codes.indices), bad
