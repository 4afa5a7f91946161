"""Lists of a result as flat rows: a column for each number, for CSV and data frames.

The columns follow from the types of the result, so that they are the same whatever the data. The
values are those of the JSON document: what the logs do not bear is null there and here.

An interval `x` becomes the columns `x`, `x_low` and `x_high`; a field `b` of an object `a` becomes
`a_b` (a field `a_b` of it stays `a_b`); a list becomes the text of its JSON.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    TextIO,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ettr.errors import UsageError
from ettr.estimates.interval import Interval
from ettr.report.numbers import DASH, number
from ettr.report.section import Section, TextTable, wrapped

if TYPE_CHECKING:
    from _csv import Writer

    import pyarrow as pa
    from _typeshed import DataclassInstance

    from ettr.analysis.selecting import SelectionHead
    from ettr.plan.cost import Price


# -- results as a JSON document: documented in docs/reference/report-json.md, and versioned --------


REPORT_FORMAT = "ettr-report"
REPORT_VERSION = 1

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


def plain(value: object) -> JsonValue:
    """A frozen result as what JSON holds: field names become keys, times ISO 8601 in UTC.

    A number that is not finite becomes null, as JSON has no name for it; so does a function.

    Raises:
        TypeError: a value of a type that no result holds.
    """
    # nearly every value first: a report of a large site holds a million of them
    if value is None or type(value) is str or type(value) is int or type(value) is bool:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return plain_fields(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [item if type(item) in _AS_THEY_ARE else plain(item) for item in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, datetime):
        # Spark hands out times in UTC without saying so
        aware = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.isoformat().replace("+00:00", "Z")
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    if callable(value):
        return None
    raise TypeError(f"{type(value).__name__}: no result of this type has a form in JSON")


def plain_fields(result: DataclassInstance) -> dict[str, JsonValue]:
    """The fields of a frozen result by name, each as what JSON holds.

    A field whose name has changed keeps its key, under `json` in its metadata.
    """
    made: dict[str, JsonValue] = {}
    for key, name in _keys(type(result)):
        value = getattr(result, name)
        # most fields: a call for each of a million takes longer than all the rest
        made[key] = value if type(value) in _AS_THEY_ARE else plain(value)
    return made


@cache
def _keys(kind: type[DataclassInstance]) -> tuple[tuple[str, str], ...]:
    """Key and name of each field of a kind of result: asked for once a kind, not once a row."""
    return tuple((field.metadata.get("json", field.name), field.name) for field in fields(kind))


# -- lists of a result as flat rows: a column for each number, for CSV and data frames -------------


Scalar: TypeAlias = bool | int | float | str | datetime | None


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """One column: its name, the keys that lead to its value, and the type of what is there.

    `kind` is bool, int, float, datetime or str; any other value becomes the text of its JSON.
    """

    name: str
    keys: tuple[str, ...]
    kind: type


@dataclass(frozen=True, slots=True)
class FlatRows:
    """Rows of one list of a result."""

    columns: tuple[FlatColumn, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, typed also where there is no row."""
        import pyarrow as pa

        arrow = {
            bool: pa.bool_(),
            int: pa.int64(),
            float: pa.float64(),
            datetime: pa.timestamp("us", "UTC"),
        }
        schema = pa.schema([(c.name, arrow.get(c.kind, pa.string())) for c in self.columns])
        return pa.Table.from_pylist(
            [dict(zip(self.names, row, strict=True)) for row in self.rows], schema
        )


def flat_columns(of: type) -> tuple[FlatColumn, ...]:
    """The columns of a list whose entries are of this frozen dataclass."""
    return tuple(_columns(of, (), ""))


def flat_rows(of: type, entries: JsonValue) -> FlatRows:
    """The entries of a list of the JSON document as rows."""
    columns = flat_columns(of)
    listed = entries if isinstance(entries, list) else []
    return FlatRows(columns, tuple(tuple(_value(one, c) for c in columns) for one in listed))


def rows_of(result: DataclassInstance, document: JsonValue, name: str) -> FlatRows:
    """A list of a result as rows, with the values that its document has."""
    if not name:
        return flat_rows(type(result), [document])
    keys = {field.name: field.metadata.get("json", field.name) for field in fields(result)}
    entries = document.get(keys[name]) if isinstance(document, dict) else None
    return flat_rows(lists_of(type(result))[name], entries)


def lists_of(result: type) -> dict[str, type]:
    """The fields of a result that are lists of frozen dataclasses, with the type of an entry."""
    if not is_dataclass(result):
        return {}
    hints = field_types(result)
    found: dict[str, type] = {}
    for field in fields(result):
        args = get_args(hints[field.name])
        if get_origin(hints[field.name]) in {tuple, list} and args and isinstance(args[0], type):
            entry: type = args[0]
            if is_dataclass(entry):
                found[field.name] = entry
    return found


def known_list(result: DataclassInstance, name: str) -> str:
    """The name of a list of a result. Raises UsageError: it has no such list."""
    lists = lists_of(type(result))
    if name not in lists:
        raise UsageError(f"--table {name}: no such table; give {' or '.join(lists) or 'none'}")
    return name


def field_types(of: type, names: dict[str, object] | None = None) -> dict[str, object]:
    """The types of the fields of a dataclass.

    Args:
        names: What names mean that its module imports for type checkers only; `object` where they
            are not among these.
    """
    absent = dict(names or {})
    while True:
        try:
            return dict(get_type_hints(of, localns=absent))
        except NameError as error:
            name = str(error.name)
            if name in absent:
                raise
            absent[name] = object


def summary_rows(document: JsonValue) -> FlatRows:
    """Any document as two columns: the path of each value, and the value as text or number."""
    columns = (FlatColumn("key", (), str), FlatColumn("value", (), object))
    return FlatRows(columns, tuple(_leaves(document, "")))


def document_of(result: object) -> JsonValue:
    """A result as its JSON document; null for none."""
    return plain_fields(cast("DataclassInstance", result)) if is_dataclass(result) else None


def _leaves(value: JsonValue, path: str) -> Iterator[tuple[str, Scalar]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _leaves(item, f"{path}[{place}]")
    else:
        yield path, value


def _dataclass(of: type) -> type[DataclassInstance]:
    if not is_dataclass(of):
        raise TypeError(f"{of.__name__}: is not a dataclass, so its columns are not known")
    return of


def _columns(of: type, keys: tuple[str, ...], prefix: str) -> Iterator[FlatColumn]:
    hints = field_types(of)
    for field in fields(_dataclass(of)):
        kind = _without_none(hints[field.name])
        path = (*keys, str(field.metadata.get("json", field.name)))
        # the class of sizes `size` has `size_from`, not `size_size_from`
        name = field.name if field.name.startswith(prefix) else f"{prefix}{field.name}"
        if kind is Interval:
            yield FlatColumn(name, (*path, "estimate"), float)
            yield FlatColumn(f"{name}_low", (*path, "low"), float)
            yield FlatColumn(f"{name}_high", (*path, "high"), float)
        elif isinstance(kind, type) and is_dataclass(kind):
            yield from _columns(kind, path, f"{name}_")
        else:
            yield FlatColumn(name, path, _scalar(kind))


def _without_none(hint: object) -> object:
    """The type without `| None`; a union of several stays as it is."""
    if get_origin(hint) in {Union, UnionType}:
        left = [one for one in get_args(hint) if one is not NoneType]
        return left[0] if len(left) == 1 else hint
    return hint


def _scalar(hint: object) -> type:
    if not isinstance(hint, type) or get_origin(hint) is not None:
        return object
    if issubclass(hint, Enum):
        return str
    return hint if hint in {bool, int, float, str, datetime} else object


def _value(entry: JsonValue, column: FlatColumn) -> Scalar:
    value = entry
    for key in column.keys:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return None
    if column.kind is datetime and isinstance(value, str):
        return datetime.fromisoformat(value)
    if column.kind is float and isinstance(value, int):
        return float(value)
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def json_rows(entries: Sequence[dict[str, JsonValue]]) -> FlatRows:
    """Entries of which only the JSON is known, all with the same keys, as rows."""
    names = list(dict.fromkeys(key for entry in entries for key in entry))
    columns = tuple(FlatColumn(name, (name,), object) for name in names)
    return FlatRows(
        columns, tuple(tuple(_value(entry, column) for column in columns) for entry in entries)
    )


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


# -- money next to GPU-hours: in the columns of tables, in the answers, and in the JSON ------------


_DIGITS = 4


def price_words(price: Price) -> str:
    """The price as a sentence names it: 2.50 USD a GPU-hour."""
    return f"{number(price.per_gpu_hour)} {price.currency} a GPU-hour"


def money(price: Price, gpu_hours: float | None, digits: int = _DIGITS) -> str:
    """What so many GPU-hours cost, with the currency; a dash where they are not known."""
    if gpu_hours is None:
        return DASH
    return f"{number(gpu_hours * price.per_gpu_hour, digits)} {price.currency}"


def priced(section: Section, price: Price | None) -> Section:
    """The section with a column of money after each of GPU-hours, and its totals in the lead."""
    if price is None or not (section.gpu_hours or any(one.gpu_hours for one in section.tables)):
        return section
    tables = tuple(_priced_table(table, price) for table in section.tables)
    totals = ", ".join(
        f"{money(price, hours)} {what}" for what, hours in section.gpu_hours if hours is not None
    )
    if not totals:
        return replace(section, tables=tables, notes=(*section.notes, f"{price_words(price)}."))
    costs = f" At {price_words(price)}: {totals}."
    first = f" At {price_words(price)}: {totals.partition(', ')[0]}."
    answer = section.answer and section.answer + first
    return replace(section, lead=section.lead + costs, answer=answer, tables=tables)


def _priced_table(table: TextTable, price: Price) -> TextTable:
    headers, rows = list(table.headers), [list(row) for row in table.rows]
    numeric = set(table.numeric)
    for place, hours in sorted(table.gpu_hours, reverse=True):
        header = table.headers[place].replace("GPU-hours", "").strip(" ,")
        headers.insert(place + 1, f"{price.currency} {header}".strip())
        for row, value in zip(rows, hours, strict=True):
            cost = None if value is None else value * price.per_gpu_hour
            row.insert(place + 1, number(cost, _DIGITS))
        numeric = {one + 1 if one > place else one for one in numeric} | {place + 1}
    return replace(
        table,
        headers=tuple(headers),
        rows=tuple(map(tuple, rows)),
        numeric=frozenset(numeric),
        gpu_hours=(),
    )


def with_costs(part: JsonValue, price: Price | None) -> JsonValue:
    """The document with `x_gpu_hours_cost` next to each `x_gpu_hours`, in the price's currency.

    Null where the GPU-hours are; unchanged without a price.
    """
    if isinstance(part, dict):
        return object_with_costs(part, price)
    if price is None or not isinstance(part, list):
        return part
    return [with_costs(one, price) for one in part]


def object_with_costs(part: dict[str, JsonValue], price: Price | None) -> dict[str, JsonValue]:
    """The same of an object."""
    if price is None:
        return part
    made: dict[str, JsonValue] = {}
    for key, value in part.items():
        made[key] = with_costs(value, price)
        if _counts_gpu_hours(key):
            made[f"{key}_cost"] = _cost_of(value, price)
    return made


def _cost_of(value: JsonValue, price: Price) -> JsonValue:
    """Money of a number of GPU-hours, or of an object of several such as an estimate's bounds."""
    if isinstance(value, dict):
        return {key: _cost_of(one, price) for key, one in value.items()}
    return value * price.per_gpu_hour if isinstance(value, (int, float)) else None


def with_price(part: JsonValue, price: Price | None) -> JsonValue:
    """The document with the price itself, under `price`; unchanged without one."""
    return part if price is None or not isinstance(part, dict) else {"price": plain(price), **part}


def rows_with_costs(rows: FlatRows, price: Price | None) -> FlatRows:
    """Flat rows with the same columns of money, and the currency as the last column."""
    places = [place for place, name in enumerate(rows.names) if _counts_gpu_hours(name)]
    if price is None or not places:
        return rows
    added = (
        *(FlatColumn(f"{rows.names[place]}_cost", (), float) for place in places),
        FlatColumn("currency", (), str),
    )
    return FlatRows(
        (*rows.columns, *added),
        tuple(
            (*row, *(_cost(row[place], price) for place in places), price.currency)
            for row in rows.rows
        ),
    )


def _cost(value: Scalar, price: Price) -> float | None:
    return value * price.per_gpu_hour if isinstance(value, (int, float)) else None


def _counts_gpu_hours(name: str) -> bool:
    return name.endswith(("gpu_hours", "gpu_hours_gained")) and not name.startswith("share_of")


# -- what an answer is about, before its first number ----------------------------------------------


def selection_text(head: SelectionHead) -> str:
    """The selection and what its reader must know, as lines; empty for all of a store of logs."""
    lines = [wrapped(head.simulated)] if head.simulated else []
    if not head.is_everything:
        lines += [wrapped(head.sentence), *(wrapped(f"* {note}", "  ") for note in head.notes)]
    return "\n".join(lines)


def selection_line(head: SelectionHead) -> str:
    """The same as one paragraph of a page."""
    return " ".join(filter(None, (head.simulated, head.sentence, *head.notes)))


def simulation_line(head: SelectionHead) -> str:
    """What a simulation leaves out and what nobody validated; empty where that is not known."""
    made = []
    if head.back_test:
        made.append(f"Back-test of what was simulated: {head.back_test}.")
    if head.not_validated:
        made.append(f"Not validated: {'; '.join(head.not_validated)}.")
    if head.not_simulated:
        made.append(f"Not simulated: {', '.join(head.not_simulated)}.")
    return " ".join(made)


def with_selection(part: JsonValue, head: SelectionHead) -> JsonValue:
    """A part of the document with the selection that it is about, under `selection`."""
    return {"selection": plain(head), **part} if isinstance(part, dict) else part
