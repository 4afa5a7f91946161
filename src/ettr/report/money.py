"""Money next to GPU-hours: in the columns of tables, in the answers, and in the JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ettr.report.numbers import DASH, number
from ettr.report.rows import FlatColumn, FlatRows, JsonValue, Scalar, plain
from ettr.report.section import Section, TextTable

if TYPE_CHECKING:
    from ettr.plan.cost import Price

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
