"""SuperBench's results: a line of JSON for each node, judged by a rule file where one is at hand.

Format: SuperBench 0.12, "Data diagnosis"; `results-summary.jsonl` and a rule file in YAML, whose
`criteria` and `condition` are read, and no other rule.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import (
    JsonObject,
    RecordShape,
    head_objects,
)
from ettr.sources.lines import BadRecordError, text_in
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.tables.rows import Batch

NAME = "superbench"
RULES = "rules.yaml"
"""A rule file of this name next to the results is read with them."""
_MOST_RULE_BYTES = 1_000_000
_MOST_NAMED = 5
_KEY = re.compile(r"^(\s*)(\S.*?)\s*:\s*(?:&\S+\s*)?$")
_VALUE = re.compile(r"^\s*(criteria|condition|name)\s*:\s*['\"]?([\w.+-]+)['\"]?\s*(?:#.*)?$")
_ANCHOR = re.compile(r"^\s*(\w+)\s*:\s*&(\w+)\s*$")
_USED = re.compile(r"^\s*<<\s*:\s*\*(\w+)\s*$")


def _is_result(value: JsonObject) -> bool:
    return "node" in value and any("/" in key for key in value)


_SHAPE = RecordShape(_is_result, re.compile('"node"'))


@dataclass(frozen=True, slots=True)
class MetricRule:
    """What a metric has to be: within `condition` of `criteria`, or equal to it."""

    metric: re.Pattern[str]
    criteria: float
    condition: float | None

    def breaks(self, value: float) -> bool:
        """Whether a value is out of bounds; the sign of the condition says to which side."""
        if self.condition is None or not self.criteria:
            return value != self.criteria
        change = value / self.criteria - 1
        return change < self.condition if self.condition < 0 else change > self.condition


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """One event for each benchmark of a node: critical where a rule or its return code says so."""
    rows = LogRows(NAME, origin, options)
    rules = _rules_beside(origin, rows)
    rows.note_time_of_file("results")
    yield from rows.each_object(partial(_keep, rows, rules), _SHAPE)
    yield rows.batch()


def _keep(rows: LogRows, rules: list[MetricRule], line: int, value: JsonObject) -> None:
    node = text_in(value.get("node"), "node")
    metrics = {name: found for name, found in value.items() if "/" in name and _is_number(found)}
    if not metrics:
        raise BadRecordError("missing-field", "every metric is missing")
    broken: defaultdict[str, list[str]] = defaultdict(list)
    for name, found in metrics.items():
        if _breaks(name, float(found), rules):  # type: ignore[arg-type]
            broken[name.split("/")[0]].append(f"{name}={found:g}")
    for benchmark in sorted({name.split("/")[0] for name in metrics}):
        own = broken[benchmark]
        more = f" and {len(own) - _MOST_NAMED} more" if len(own) > _MOST_NAMED else ""
        rows.events.add(
            line=line,
            time=rows.origin.changed,
            node=node,
            check=f"superbench {re.sub(r':.*', '', benchmark)}",
            severity="critical" if own else "ok",
            message=", ".join(own[:_MOST_NAMED]) + more if own else None,
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _breaks(name: str, value: float, rules: list[MetricRule]) -> bool:
    ruled = [rule for rule in rules if rule.metric.fullmatch(name)]
    if ruled:
        return any(rule.breaks(value) for rule in ruled)
    return name.rsplit("/", 1)[-1].startswith("return_code") and value != 0


def _rules_beside(origin: Origin, rows: LogRows) -> list[MetricRule]:
    """Rules of the file next to the results; without one only return codes are judged."""
    path = origin.path.parent / RULES
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_RULE_BYTES)
    except (OSError, UnicodeDecodeError, ValueError):
        rows.note(f"no {RULES} lies next to the results: only return codes are judged")
        return []
    found = metric_rules(text)
    rows.note(f"{len(found)} rules of {RULES} judge the results")
    return found


def metric_rules(text: str) -> list[MetricRule]:
    """The rules of a rule file: patterns of metrics, each with criteria and condition.

    SuperBench writes indented YAML with anchors of rules; what else YAML may be is not read.
    """
    conditions: dict[str, float | None] = {}
    found: list[MetricRule] = []
    anchor, open_rule = None, False
    for line in text.splitlines():
        if match := _ANCHOR.match(line):
            anchor, open_rule = match[2], False
            conditions[anchor] = None
        elif match := _VALUE.match(line):
            try:
                number = float(match[2])
            except ValueError:
                continue
            if match[1] == "condition" and anchor is not None:
                conditions[anchor] = number
            elif match[1] == "condition" and open_rule:
                found[-1] = replace(found[-1], condition=number)
            elif match[1] == "criteria" and open_rule:
                found[-1] = replace(found[-1], criteria=number)
        elif (match := _USED.match(line)) and open_rule:
            found[-1] = replace(found[-1], condition=conditions.get(match[1]))
        elif (match := _KEY.match(line)) and "/" in match[2]:
            anchor = None
            try:
                pattern = re.compile(match[2])
            except (re.error, RecursionError):
                open_rule = False
                continue
            open_rule = len(match[2]) < 200
            if open_rule:
                found.append(MetricRule(pattern, math.nan, None))
    return [rule for rule in found if not math.isnan(rule.criteria)]


def matches(head: bytes, _name: str) -> float:
    """How sure it is that these are SuperBench's results."""
    values = list(head_objects(head, most=3, shape=_SHAPE))
    return 0.9 if any(_is_result(one) for one in values) else 0.0


SOURCE = Source(
    name=NAME,
    title="SuperBench results (JSON lines), with rules.yaml next to them",
    tables=("events",),
    matches=matches,
    read=read,
    options=("--cluster",),
    guide="sources/validation.md",
    how_to_get="sb run; the file results-summary.jsonl, and the rule file as rules.yaml",
)
