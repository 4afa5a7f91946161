"""A part of a report as its page, its JSON document and its rows: what it was registered with."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from ettr.analysis import Analysis
from ettr.report.document import JsonValue, plain, plain_fields
from ettr.report.money import priced, rows_with_costs, with_costs
from ettr.report.registry import NO_JOBS, PARTS, Part
from ettr.report.rows import FlatRows, known_list, rows_of
from ettr.report.section import Section
from ettr.report.withheld import borne, gpu_hours_are_borne, without_gpu_hours


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
