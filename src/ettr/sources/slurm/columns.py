"""Columns of texts, read once per distinct text, and the records that turn out to be bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ettr.sources.node_lists import NodeLists
from ettr.sources.slurm import fields as words
from ettr.sources.slurm.times import TimeColumns

Mask = npt.NDArray[np.bool_]
INT, FLOAT, TEXT = pa.int64(), pa.float64(), pa.string()


class JobRecords:
    """Job records as columns of texts by field, and which of them turned out to be bad.

    `times` and `node_lists` read the texts of one log, and keep what they assumed.
    """

    def __init__(
        self, columns: dict[str, pa.Array], n: int, times: TimeColumns, node_lists: NodeLists
    ) -> None:
        self.columns, self.n = columns, n
        self.times, self.node_lists = times, node_lists
        self.none: Mask = np.zeros(n, dtype=bool)
        self.is_bad: Mask = np.zeros(n, dtype=bool)
        # how many nodes each record lists, once its list was read
        self.n_listed: pa.Array = pa.nulls(n, INT)
        self._found: list[tuple[int, str, str]] = []
        # several columns come from one field
        self._texts: dict[str, pa.Array] = {}
        self._distinct: dict[str, pa.DictionaryArray] = {}

    def reject(self, wrong: Any, reason: str, field: str) -> None:
        """Mark records as bad; the first reason of each is the one that counts."""
        if not isinstance(wrong, np.ndarray):
            wrong = wrong.to_numpy(zero_copy_only=False).astype(bool)
        for i in np.flatnonzero(wrong & ~self.is_bad):
            value = self.columns[field][int(i)].as_py() if field in self.columns else None
            self._found.append((int(i), reason, f"{field} is {value!r:.120}"))
        self.is_bad |= wrong

    def bad(self) -> list[tuple[int, str, str]]:
        """Index, reason and detail of each bad record."""
        return self._found

    def text(self, field: str) -> pa.Array:
        """A column of strings, "" as null; all null where the log has no such field."""
        if field not in self.columns:
            return pa.nulls(self.n, TEXT)
        if field not in self._texts:
            column = self.columns[field]
            self._texts[field] = pc.if_else(pc.equal(column, ""), None, column)
        return self._texts[field]

    def distinct(self, field: str) -> pa.DictionaryArray:
        """The same with each distinct text once."""
        if field not in self._distinct:
            self._distinct[field] = self.text(field).dictionary_encode()
        return self._distinct[field]

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
