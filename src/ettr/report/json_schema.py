"""The JSON Schema of `ettr report --json`, made from the types of the results.

Keys may be added within a version, so that no object forbids further ones. Every number may be
null: what the logs do not bear is.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from importlib import resources
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from ettr.report.answers import Answer
from ettr.report.findings import Finding
from ettr.report.registry import PARTS
from ettr.report.rows import REPORT_FORMAT, REPORT_VERSION, field_types
from ettr.tables import FAILURES
from ettr.tables.columns import Kind

Schema: TypeAlias = dict[str, Any]

FILE = "report.schema.json"
_ADDRESS = "https://json-schema.org/draft/2020-12/schema"


def published_schema() -> Schema:
    """The schema that is shipped with the package."""
    text = (resources.files("ettr.report") / FILE).read_text("utf-8")
    made: Schema = json.loads(text)
    return made


def report_schema() -> Schema:
    """The schema of the whole document."""
    made = _Maker()
    parts = {name: made.part(of, more) for name, (of, more) in _parts().items()}
    head: Schema = {
        "format": {"const": REPORT_FORMAT},
        "version": {"const": REPORT_VERSION},
        "ettr": {"type": "string"},
        "clusters": {"type": "array", "items": {"type": "string"}},
        "findings": {"type": "array", "items": made.of(Finding)},
        "summary": {"type": "array", "items": made.of(Answer)},
        "next_steps": {"type": "array", "items": {"type": "string"}},
    }
    return {
        "$schema": _ADDRESS,
        "title": "ettr report",
        "description": "What `ettr report --json` prints; each `ettr METRIC --json` is one key.",
        "type": "object",
        "required": [*head, *parts],
        "properties": {**head, **parts},
        "$defs": dict(sorted(made.definitions.items())),
    }


def _parts() -> dict[str, tuple[object, dict[str, object]]]:
    """The type of each part, and the keys that are added to it."""
    from ettr.analysis.selecting import SelectionHead
    from ettr.metrics.instants import Period

    found: dict[str, tuple[object, dict[str, object]]] = {
        "period": (Period, {}),
        "selection": (SelectionHead, {}),
    }
    for name, part in PARTS.items():
        joined = {key: _found_by(question) for key, question in part.joined.items()}
        found[name] = None if part.question is None else _found_by(part.question), joined
    return found


def _found_by(question: Callable[..., object]) -> object:
    """The type that a question returns."""
    return get_type_hints(question, include_extras=True)["return"]


def _for_checkers_only() -> dict[str, object]:
    """Types of fields whose modules import them for type checkers only."""
    from ettr.models.compare import Funnel

    return {"Funnel": Funnel}


class _Maker:
    """Schemas of types; each dataclass once, under `$defs`."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._names = _for_checkers_only()

    def part(self, of: object, more: dict[str, object]) -> Schema:
        """The schema of a part: that of a type, with further keys."""
        if not more:
            return self.of(of)
        own = {} if of is None else self._object(of)
        added = {key: self.of(hint) for key, hint in more.items()}
        return {
            "type": "object",
            "required": [*own.get("required", ()), *added],
            "properties": {**own.get("properties", {}), **added},
        }

    def of(self, hint: object) -> Schema:
        """The schema of what a field of this type becomes."""
        if FAILURES in getattr(hint, "__metadata__", ()):
            return {"type": "array", "items": _row_schema()}
        origin, args = get_origin(hint), get_args(hint)
        if origin in {Union, types.UnionType}:
            return self._union(args)
        if origin is Literal:
            return {"enum": [*args, None]}
        if origin in {tuple, list, set, frozenset}:
            return self._array(args)
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(args[1])}
        if isinstance(hint, type):
            return self._class(hint)
        # a function has no form in JSON
        return {"type": "null"} if origin is Callable else {}

    def _union(self, args: tuple[object, ...]) -> Schema:
        known = [self.of(arg) for arg in args if arg is not NoneType]
        return {"anyOf": [*known, {"type": "null"}]} if {} not in known else {}

    def _array(self, args: tuple[object, ...]) -> Schema:
        kinds = [self.of(arg) for arg in args if arg is not Ellipsis]
        unique = [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
        return {"type": "array", "items": unique[0] if len(unique) == 1 else {"anyOf": unique}}

    def _class(self, of: type) -> Schema:
        if is_dataclass(of):
            if of.__name__ not in self.definitions:
                self.definitions[of.__name__] = {}  # a type that holds itself ends here
                self.definitions[of.__name__] = self._object(of)
            return {"$ref": f"#/$defs/{of.__name__}"}
        if issubclass(of, Enum) or of in {str, Path}:
            return {"type": ["string", "null"]}
        if of is datetime:
            return {"type": ["string", "null"], "format": "date-time"}
        named = {bool: "boolean", int: "integer", float: "number"}
        return {"type": [named[of], "null"]} if of in named else {}

    def _object(self, of: object) -> Schema:
        if not is_dataclass(of) or not isinstance(of, type):
            raise TypeError(f"{of}: only a dataclass has keys")
        hints = field_types(of, self._names)
        keys = {field.metadata.get("json", field.name): hints[field.name] for field in fields(of)}
        return {
            "type": "object",
            "required": list(keys),
            "properties": {key: self.of(hint) for key, hint in keys.items()},
        }


def _row_schema() -> Schema:
    """One row of the table `failures`."""
    kinds = {
        Kind.STRING: "string",
        Kind.INT: "integer",
        Kind.FLOAT: "number",
        Kind.BOOL: "boolean",
        Kind.TIME: "string",
    }
    return {
        "type": "object",
        "required": list(FAILURES.names),
        "properties": {
            column.name: {
                "type": [kinds[column.kind], "null"],
                "description": column.means,
                **({"format": "date-time"} if column.kind is Kind.TIME else {}),
            }
            for column in FAILURES
        },
    }
