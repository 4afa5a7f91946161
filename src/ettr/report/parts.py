"""A part of a report as its page, its JSON document and its rows: what it was registered with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

from ettr.analysis import Analysis
from ettr.report.numbers import DASH
from ettr.report.registry import NO_JOBS, PARTS, Part
from ettr.report.rows import (
    FlatRows,
    JsonValue,
    known_list,
    plain,
    plain_fields,
    priced,
    rows_of,
    rows_with_costs,
    with_costs,
)
from ettr.report.section import Section, TextTable

# -- what the logs do not bear is null in the JSON document and a dash in tables, never 0 ----------
# A count or a sum over rows of a table that nobody filled comes out as 0. `borne` takes
# such figures out of the document again, by which kinds of logs were read, and `without_gpu_hours`
# takes those of GPUs out of a section.


_GIVEN = frozenset(
    {
        "above_gpus",
        "assumptions",
        "cap_min",
        "confidence",
        "false_discovery",
        "gap_h",
        "gpus_per_node",
        "min_gpus",
        "min_ratio",
        "min_scheduled_h",
        "published_below",
        "rule_window_s",
        "step_days",
        "window_days",
    }
)
"""Keys of what was given or assumed: known whatever the logs hold."""
_QUALITY_OF_JOBS = frozenset(
    {
        "running_attempts",
        "pending_attempts",
        "clocks",
        "nodes_not_in_inventory",
        "attempts_without_nodes",
        "attempts_without_gpu_count",
        "attempt_node_hours",
        "allocation_node_hours",
        "exposure",
    }
)
_OF_GPUS = ("gpu_hours", "gpu_hours_gained", "preempted_gpus")
"""How keys end of what is known only where jobs name their GPUs."""
_OF_NO_JOBS = frozenset({"nodes", "incidents", "below_ettr"})
"""Parts whose GPU-hours rest on no job."""
_OF_RESTARTS = frozenset({"in_job_restarts", "interruption_mttf_h"})
_OF_CHECKS = frozenset({"co_occurrence", "false_attribution", "false_failures"})
_OF_ATTEMPTS = frozenset({"unattributed", "failed"})
_OF_STATES = frozenset({"repair_h"})
_OF_OUTAGES = frozenset({"error_and_outage", "outage_only"})


def borne(registered: Part[Any], part: JsonValue, analysis: Analysis) -> JsonValue:
    """A part of the document with every figure null that the logs do not bear."""
    name, logs = registered.name, analysis.logs_read
    if not logs.jobs:
        if registered.title or (name == "runs" and not logs.progress):
            return _all_withheld(part)
        part = _without_jobs(name, part)
    elif not analysis.gpus_are_known:
        part = _withheld(part, lambda key: key.endswith(_OF_GPUS))
        if name in ("goodput", "planning"):  # of which a sum or an empty size makes 0
            part = _withheld(part, lambda key: key == "n_gpus")
    if name == "mttf" and logs.jobs and not logs.progress:
        part = _withheld(part, _OF_RESTARTS.__contains__)
    if name == "attribution" and not logs.errors and not logs.node_states:
        part = _withheld(part, _OF_CHECKS.__contains__)
    if name == "nodes" and isinstance(part, dict):
        part = {**part, **_without_states(part)} if not logs.node_states else part
        part = {**part, **_without_nodes(part)} if not analysis.fleet.spans_s else part
    if name == "goodput" and not logs.controller:
        part = _withheld(part, lambda key: key == "told_by_log")
    if name == "quality" and not logs.node_states:
        part = _withheld(part, lambda key: key == "node_down_pairs")
    return part


def gpu_hours_are_borne(name: str, analysis: Analysis) -> bool:
    """Whether GPU-hours of a part are measured: they rest on no job, or jobs name their GPUs."""
    return name in _OF_NO_JOBS or analysis.gpus_are_known


def without_gpu_hours(section: Section) -> Section:
    """A section with a dash for the GPU-hours in every table, for logs that bear none."""
    return replace(section, tables=tuple(map(_dashed, section.tables)), gpu_hours=())


def _dashed(table: TextTable) -> TextTable:
    """The table without its GPU-hours; a cell that already says why it has none stays."""
    rows = [list(row) for row in table.rows]
    for place, hours in table.gpu_hours:
        for row, value in zip(rows, hours, strict=True):
            row[place] = row[place] if value is None else DASH
    return replace(table, rows=tuple(map(tuple, rows)), gpu_hours=())


def _without_jobs(name: str, part: JsonValue) -> JsonValue:
    if name == "attribution":
        return _withheld(part, (_OF_CHECKS | _OF_ATTEMPTS).__contains__)
    if name == "mttf" and isinstance(part, dict) and not part["line"]:
        return {**part, "rate_used": _all_withheld(part["rate_used"])}
    if name == "quality":
        return _withheld(part, _QUALITY_OF_JOBS.__contains__)
    return part


def _without_states(nodes: dict[str, JsonValue]) -> dict[str, JsonValue]:
    known = {key: _all_withheld(nodes[key]) for key in _OF_STATES}
    faults = nodes["faults"]
    if isinstance(faults, dict):
        known["faults"] = _withheld(faults, _OF_OUTAGES.__contains__)
    return known


def _without_nodes(nodes: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Where no log names a node, how many there are is not known."""
    counts = ("nodes", "nodes_without_gpu_count", "nodes_with_gpus_of_jobs")
    return dict.fromkeys((*counts, "in_service_node_hours", "measured_node_hours"))


def _withheld(part: JsonValue, chosen: Callable[[str], bool]) -> JsonValue:
    """The part, with the figures below the chosen keys null."""
    if isinstance(part, list):
        return [_withheld(item, chosen) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _all_withheld(value) if chosen(key) else _withheld(value, chosen)
        for key, value in part.items()
    }


def _all_withheld(part: JsonValue) -> JsonValue:
    """The same shape without any figure; what was given or assumed stays."""
    if isinstance(part, dict):
        return {
            key: value if key in _GIVEN else _all_withheld(value) for key, value in part.items()
        }
    if isinstance(part, list):
        return [_all_withheld(item) for item in part]
    return None if isinstance(part, (bool, int, float)) else part


# -- a part of a report as its page, its JSON document and its rows: what it was registered with


def result(part: Part[Any], analysis: Analysis) -> object:
    """What the JSON document holds under the part's key, before figures are withheld."""
    found = None if part.question is None else analysis.ask(part.question)
    if not part.joined:
        return found
    own = {} if found is None else plain_fields(found)
    return own | {key: analysis.ask(question) for key, question in part.joined.items()}


def part_sections(name: str, analysis: Analysis) -> tuple[Section, ...]:
    """What the page shows of a part: a dash for GPU-hours that nobody measured, money if priced."""
    shown = PARTS[name].on_page
    is_shown = shown if isinstance(shown, bool) else shown(analysis)
    return part_alone(name, analysis) if is_shown else ()


def part_alone(name: str, analysis: Analysis) -> tuple[Section, ...]:
    """What a reader sees of a part by itself, also of one that the page shows within another."""
    made = _sections(PARTS[name], analysis)
    if not gpu_hours_are_borne(name, analysis):
        return tuple(map(without_gpu_hours, made))
    return tuple(priced(section, analysis.price) for section in made)


def _sections(part: Part[Any], analysis: Analysis) -> tuple[Section, ...]:
    if part.title and not analysis.logs_read.jobs:
        return (Section(part.name.replace("_", "-"), part.title, NO_JOBS),)
    if part.sections is not None:
        return part.sections(analysis)
    if part.section is None or part.question is None:
        return ()
    return (part.section(analysis.ask(part.question)),)


def part_document(name: str, analysis: Analysis) -> JsonValue:
    """What the JSON document holds under a part's key: null where the logs bear no figure."""
    part = PARTS[name]
    found = borne(part, plain(result(part, analysis)), analysis)
    return with_costs(found, analysis.price)


def part_rows(name: str, analysis: Analysis, table: str | None = None) -> FlatRows:
    """A list of a part as rows, the main one unless named; no rows where there is no result.

    Raises:
        UsageError: the part has no such list; the message names those it has.
    """
    part = PARTS[name]
    value = None if part.question is None else analysis.ask(part.question)
    document = part_document(name, analysis)
    for key, question in part.joined.items():
        joined = analysis.ask(question)
        if table is not None and table.startswith(f"{key}.") and isinstance(document, dict):
            value, document, table = joined, document.get(key), table.partition(".")[2]
            break
    if not is_dataclass(value) or isinstance(value, type):
        return FlatRows((), ())
    rows = rows_of(value, document, part.main if table is None else known_list(value, table))
    return rows_with_costs(rows, analysis.price)
