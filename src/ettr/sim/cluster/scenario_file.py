"""Scenarios in TOML: every value with its unit in its name and a source next to it.

A value is written `name = { value = 8, source = "paper" }`, or plainly in a table that has a
`source` for all its values. One that was estimated has the ends of its 90 % interval next to it:
`{ value = 4.2, low = 3.1, high = 5.6, source = "fitted to site" }`. `[validation]` is written by
`ettr simulate backtest`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from datetime import date
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import TypeVar, get_args, get_origin, get_type_hints

from ettr.errors import UsageError
from ettr.files import toml_tables
from ettr.sim.cluster.scenario import ABOUT, ClusterScenario, Validation
from ettr.sim.cluster.scenario_parts import Part

FORMAT = "ettr cluster scenario 1"
SHIPPED = ("rsc-1-like", "rsc-2-like", "seren-like", "kalos-like", "philly-like", "small")
_KINDS = {name: kind for name, kind in get_type_hints(ClusterScenario).items() if name not in ABOUT}
_LISTS: Mapping[str, type[Part]] = {
    name: get_args(kind)[0] for name, kind in _KINDS.items() if get_origin(kind) is tuple
}
_OPTIONAL: Mapping[str, type[Part]] = {
    name: get_args(kind)[0] for name, kind in _KINDS.items() if get_origin(kind) is UnionType
}
_PARTS: Mapping[str, type[Part]] = {
    name: kind for name, kind in _KINDS.items() if name not in {*_LISTS, *_OPTIONAL}
}
_OF_A_VALUE = ("value", "source", "low", "high")
PartT = TypeVar("PartT", bound=Part)


def scenario_text(where: str) -> tuple[str, str]:
    """The text of a scenario, and its name: that of a file, or of one that is shipped.

    Raises:
        UsageError: it is neither, or cannot be read.
    """
    if where in SHIPPED:
        text = files("ettr.sim.cluster").joinpath("scenarios", f"{where}.toml").read_text("utf-8")
        return text, f"{where}.toml"
    path = Path(where)
    try:
        return path.read_text("utf-8"), path.name
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{where}: cannot be read as a scenario ({error}); give a TOML file, or one that is "
            f"shipped: {', '.join(SHIPPED)}"
        ) from None


def scenario_of(text: str, where: str = "scenario") -> ClusterScenario:
    """The scenario in the text of a file.

    Raises:
        UsageError: it is no such file; all problems in one message.
    """
    tables = toml_tables(text, where, FORMAT, "a cluster scenario")
    return _ScenarioReader(where).scenario(tables)


class _ScenarioReader:
    """Makes values of tables, and collects what is wrong with them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._problems: list[str] = []
        self._sources: dict[str, str] = {}
        self._intervals: dict[str, tuple[float, float]] = {}

    def scenario(self, tables: Mapping[str, object]) -> ClusterScenario:
        known = {"format", "name", "validation", *_PARTS, *_LISTS, *_OPTIONAL}
        self._problems += [f"{name}: no such table" for name in tables if name not in known]
        name = tables.get("name")
        if not isinstance(name, str) or not name or not name.isprintable() or "/" in name:
            self._problems.append(
                f"name: {str(name)[:60]!r} is not a name of a cluster; give a text that can be "
                "printed, without a slash"
            )
        parts = {key: self._part(kind, key, tables.get(key)) for key, kind in _PARTS.items()}
        for key, kind in _OPTIONAL.items():
            if key in tables:
                parts[key] = self._part(kind, key, tables[key])
        lists = {key: self._list(kind, key, tables.get(key, [])) for key, kind in _LISTS.items()}
        validation = self._validation(tables.get("validation"))
        if self._problems:
            raise UsageError(
                f"{self._where}: cannot be read as a scenario:"
                + "".join(f"\n  {one}" for one in self._problems)
            )
        return ClusterScenario(
            name=name,  # type: ignore[arg-type]
            sources=self._sources,
            intervals=self._intervals,
            validation=validation,
            **parts,  # type: ignore[arg-type]
            **lists,  # type: ignore[arg-type]
        )

    def _validation(self, table: object) -> Validation | None:
        """The verdict of a back-test; it is written by a command, and is not to be edited."""
        if table is None:
            return None
        known = {one.name for one in fields(Validation)}
        if isinstance(table, dict) and set(_names(Validation)) <= set(table) <= known:
            values = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in table.items()
            }
            kinds = get_type_hints(Validation)
            if all(_is_of(values[name], kinds[name]) for name in values):
                return Validation(**values)  # type: ignore[arg-type]
        self._problems.append(
            "validation: is not as `ettr simulate backtest` writes it; remove the table, or "
            "back-test the scenario again"
        )
        return None

    def _list(self, kind: type[PartT], key: str, entries: object) -> tuple[PartT, ...]:
        if not isinstance(entries, list):
            self._problems.append(f"{key}: write each as a table, [[{key}]]")
            return ()
        made = [self._part(kind, f"{key}[{i + 1}]", entry) for i, entry in enumerate(entries)]
        return tuple(one for one in made if one is not None)

    def _part(self, kind: type[PartT], key: str, table: object) -> PartT | None:
        if not isinstance(table, dict):
            self._problems.append(f"{key}: is absent; it needs {', '.join(_names(kind))}")
            return None
        shared = table.get("source")
        hints = get_type_hints(kind)
        values: dict[str, object] = {}
        for name, given in table.items():
            if name == "source":
                continue
            if name not in hints:
                self._problems.append(f"{key}.{name}: no such value; there are: {', '.join(hints)}")
                continue
            values[name] = self._value(f"{key}.{name}", given, hints[name], shared)
        absent = [name for name in _names(kind) if name not in table]
        if absent:
            self._problems.append(f"{key}: lacks {', '.join(absent)}")
        if absent or any(value is None for value in values.values()):
            return None
        return kind(**values)  # type: ignore[arg-type]

    def _interval(self, key: str, given: Mapping[str, object]) -> None:
        """Keep the interval of a value, if it has one."""
        ends = given.get("low"), given.get("high")
        if ends == (None, None):
            return
        whole = (ends[0], given.get("value"), ends[1])
        numbers = [float(one) for one in whole if _is_of(one, float)]  # type: ignore[arg-type]
        if len(numbers) == 3 and numbers == sorted(numbers):
            self._intervals[key] = numbers[0], numbers[2]
        else:
            self._problems.append(f"{key}: give low and high as numbers with the value between")

    def _value(self, key: str, given: object, kind: object, shared: object) -> object:
        value, source = given, shared
        if isinstance(given, dict):
            if unknown := [name for name in given if name not in _OF_A_VALUE]:
                self._problems.append(
                    f"{key}: has no use for {', '.join(unknown)}; a value has "
                    f"{', '.join(_OF_A_VALUE)}"
                )
            value, source = given.get("value"), given.get("source", shared)
            self._interval(key, given)
        if not isinstance(source, str) or not source:
            self._problems.append(
                f'{key}: has no source; say where it comes from: "paper", "assumed", or a log'
            )
            return None
        self._sources[key] = source
        if kind is str and isinstance(value, str):
            return value
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                number = float(value)
        if kind is float and not math.isnan(number):
            return number
        if kind is int and number.is_integer():
            return int(value)  # type: ignore[call-overload]
        wanted = {str: "a text", float: "a number", int: "a whole number"}[kind]  # type: ignore[index]
        shown = value.isoformat() if isinstance(value, date) else repr(value)
        quotes = ", in quotes" if kind is str else ""
        self._problems.append(f"{key}: {shown} is not {wanted}{quotes}")
        return None


def _is_of(value: object, kind: object) -> bool:
    """Whether a value of a file is of a kind; a whole number is a number, too."""
    if kind is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(value)  # type: ignore[arg-type]
    if kind in (int, str):
        return type(value) is kind
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)


def _names(kind: type[PartT] | type[Validation]) -> list[str]:
    """The values that a table must have."""
    return [one.name for one in fields(kind) if one.default is MISSING]


_VALIDATION = re.compile(r"(?ms)^\[validation\]$.*?(?=^\[|\Z)")


def text_of(scenario: ClusterScenario, comments: Sequence[str] = ()) -> str:
    """The text of a scenario's file; `scenario_of` makes the same scenario of it."""
    lines = [f"# {line}".rstrip() for line in comments]
    lines += [f"format = {_text(FORMAT)}", f"name = {_text(scenario.name)}"]
    for name in scenario.__dataclass_fields__:
        value = getattr(scenario, name)
        if name in ABOUT or value is None:
            continue
        if isinstance(value, tuple):
            for i, part in enumerate(value):
                lines += ["", f"[[{name}]]", *_lines(scenario, part, f"{name}[{i + 1}]")]
        else:
            lines += ["", f"[{name}]", *_lines(scenario, value, name)]
    text = "\n".join(lines) + "\n"
    return text if scenario.validation is None else with_validation(text, scenario.validation)


def with_validation(text: str, found: Validation) -> str:
    """The text of a scenario's file with the verdict of a back-test in place of an earlier one."""
    table = ["[validation]", "# written by ettr simulate backtest"]
    for one in fields(found):
        if getattr(found, one.name) == one.default:
            continue
        table.append(f"{one.name} = {_literal(getattr(found, one.name))}")
    return _VALIDATION.sub("", text).rstrip() + "\n\n" + "\n".join(table) + "\n"


def _lines(scenario: ClusterScenario, part: Part, where: str) -> Iterator[str]:
    for one in fields(part):
        value = getattr(part, one.name)
        key = f"{where}.{one.name}"
        if key not in scenario.sources and one.default is not MISSING and value == one.default:
            continue
        ends = scenario.intervals.get(key)
        interval = "" if ends is None else f", low = {ends[0]!r}, high = {ends[1]!r}"
        source = _text(scenario.sources.get(key, "assumed"))
        yield f"{one.name} = {{ value = {_literal(value)}{interval}, source = {source} }}"


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_text(str(one)) for one in value) + "]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return "inf" if math.isinf(value) else repr(value)
    return str(value)


def _text(value: str) -> str:
    """A basic string of TOML."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in quoted) + '"'
