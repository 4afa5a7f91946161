"""Scenarios as TOML that a person can read: each value with its interval and its source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields

from ettr.sim.cluster.scenario import ABOUT, ClusterScenario
from ettr.sim.cluster.scenario_file import FORMAT
from ettr.sim.cluster.scenario_parts import Part
from ettr.sim.cluster.validation import Validation

_VALIDATION = re.compile(r"(?ms)^\[validation\]$.*?(?=^\[|\Z)")


def text_of(scenario: ClusterScenario, comments: Sequence[str] = ()) -> str:
    """The text of a scenario's file; `scenario_of` makes the same scenario of it.

    Args:
        scenario: Each of its values has a source.
        comments: Lines at the head of the file.
    """
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
