"""A report in ten lines, for a mail or a chat."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass

from ettr.analysis import Analysis
from ettr.report.first_screen import first_screen
from ettr.report.numbers import moment
from ettr.report.parts import part_alone
from ettr.report.text import first_sentence, without_intervals

_TOPICS = (
    ("Lost", "goodput"),
    ("Failures", "failures"),
    ("Trend", "previous"),
    ("MTTF", "mttf"),
    ("ETTR", "runs"),
    ("Nodes", "nodes"),
    ("Lemons", "lemons"),
    ("Causes", "causes"),
)
_CELL = "vertical-align:top;padding:4px 12px 4px 0"


@dataclass(frozen=True, slots=True)
class BriefLine:
    """One line: what it is about, and what is to be said of it."""

    topic: str
    says: str


@dataclass(frozen=True, slots=True)
class Brief:
    """A report in at most eleven lines."""

    title: str
    period: str
    lines: tuple[BriefLine, ...]


def brief(analysis: Analysis) -> Brief:
    """The answers of a report, what to do first, and what to be careful with."""
    head, period = analysis.selection_head, analysis.period
    when = f"{moment(period.start)[:16]} to {moment(period.end)[:16]} UTC"
    only = "" if head.is_everything else f"; {head.words}"
    simulated = "Simulated: " if head.simulated else ""
    return Brief(
        f"{simulated}{', '.join(analysis.clusters) or 'a fleet'}",
        f"{when}{only}",
        tuple(_lines(analysis)),
    )


def _lines(analysis: Analysis) -> Iterator[BriefLine]:
    for topic, part in _TOPICS:
        for section in part_alone(part, analysis)[:1]:
            says = section.answer or first_sentence(section.lead)
            yield BriefLine(topic, without_intervals(says))
    first = first_screen(analysis, "")
    for action in first.actions[:1]:
        yield BriefLine("Do first", f"{action.says}.")
    if first.careful:
        yield BriefLine("Careful", first.careful)


def brief_text(found: Brief) -> str:
    """The lines as text."""
    width = max((len(one.topic) for one in found.lines), default=0)
    lines = [f"{one.topic:<{width}}  {one.says}" for one in found.lines]
    return "\n".join([f"{found.title}, {found.period}", *lines])


def brief_html(found: Brief) -> str:
    """The lines as a page that mail programs show: no script, no other file."""
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL};text-align:left">{html.escape(one.topic)}</th>'
        f'<td style="{_CELL}">{html.escape(one.says)}</td></tr>\n'
        for one in found.lines
    )
    title = html.escape(found.title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<title>{title}</title></head>\n<body style="font-family:sans-serif;max-width:45em">\n'
        f"<h1>{title}</h1>\n"
        f"<p>{html.escape(found.period)}</p>\n<table>{rows}</table>\n</body></html>\n"
    )
