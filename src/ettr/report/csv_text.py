"""Rows as CSV that a spreadsheet takes for what they are: numbers bare, text never a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from ettr.report.rows import FlatRows, Scalar

if TYPE_CHECKING:
    from _csv import Writer

_BEGINS_FORMULA = frozenset("=+-@\t\r\n＝＋－＠")
"""First characters, in both widths, by which spreadsheets recognise a formula.

Source:
    OWASP, CSV Injection.
"""


def csv_text(rows: FlatRows) -> str:
    """The rows with a header, lines ending in a line feed; null is an empty cell."""
    out = io.StringIO()
    write_header(out, rows.names)
    write_rows(out, rows.rows)
    return out.getvalue()


def write_header(file: TextIO, names: Iterable[str]) -> None:
    """Write the names of the columns."""
    _writer(file).writerow([_text(name) for name in names])


def write_rows(file: TextIO, rows: Iterable[Iterable[Scalar]]) -> None:
    """Write rows.

    Text that a spreadsheet would take for a formula gets an apostrophe in front; a number is
    written as it is, with all its digits.
    """
    _writer(file).writerows([cell(value) for value in row] for row in rows)


def _writer(file: TextIO) -> Writer:
    return csv.writer(file, lineterminator="\n")


def cell(value: Scalar) -> str:
    """One value as the text of its cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    return f"'{value}" if value[:1] in _BEGINS_FORMULA else value
