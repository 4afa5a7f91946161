"""A report in ten lines, for a mail or a chat."""

from __future__ import annotations

import html
from dataclasses import dataclass

from ettr.analysis import Analysis
from ettr.report.first_screen import FirstScreen, first_screen
from ettr.report.plain_words import share_words
from ettr.report.text import wrapped

_CELL = "vertical-align:top;padding:4px 12px 4px 0"


@dataclass(frozen=True, slots=True)
class BriefLine:
    """One line: what it is about, and what is to be said of it."""

    topic: str
    says: str


@dataclass(frozen=True, slots=True)
class Brief:
    """The first screen in at most ten lines."""

    title: str
    period: str
    lines: tuple[BriefLine, ...]


def brief(analysis: Analysis) -> Brief:
    """The answers of a report, what to do first, and what to be careful with."""
    simulated = "Simulated: " if analysis.selection_head.simulated else ""
    clusters = " and ".join(analysis.clusters) or "a fleet"
    return brief_of_screen(first_screen(analysis, f"{simulated}{clusters}"))


def brief_of_screen(first: FirstScreen) -> Brief:
    """The first screen as lines."""
    lines = []
    for one in first.headlines:
        more = ", ".join(filter(None, (*one.small, one.assumes)))
        lines.append(BriefLine(one.question, one.answer + (f" ({more})" if more else "")))
    if first.bars is not None:
        causes = (f"{row.name} {share_words(row.share)}" for row in first.bars.rows)
        lines.append(BriefLine("Why", ", ".join(causes)))
    topics = ("Do first", *["Then"] * len(first.actions))
    lines += [BriefLine(of, one.says) for of, one in zip(topics, first.actions, strict=False)]
    careful = " ".join(filter(None, (*first.notes, first.careful)))
    if careful:
        lines.append(BriefLine("Careful", careful))
    return Brief(first.title, first.period, tuple(lines))


def brief_text(found: Brief) -> str:
    """The lines as text, wrapped for a terminal."""
    lines = [f"{found.title}, {found.period}"]
    lines += [f"{one.topic}: {one.says}" for one in found.lines]
    return "\n".join(wrapped(line, "   ") for line in lines)


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
