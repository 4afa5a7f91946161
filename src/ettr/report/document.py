"""Results as a JSON document: documented in docs/reference/report-json.md, and versioned."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
