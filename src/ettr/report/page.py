"""An analysis as a report: the sections in order, the key numbers, what to do next."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ettr.analysis import Analysis
from ettr.report.actions import actions, loss_by_interval, sentences
from ettr.report.answers import five_lines
from ettr.report.findings import caution, findings
from ettr.report.first_screen import first_screen
from ettr.report.html import Page
from ettr.report.numbers import (
    NO_GPUS,
    NOT_MEASURED,
    duration,
    legend,
    moment,
    number,
)
from ettr.report.parts import part_document, part_sections
from ettr.report.registry import PARTS
from ettr.report.rows import (
    REPORT_FORMAT,
    REPORT_VERSION,
    plain,
    price_words,
    selection_line,
    simulation_line,
)
from ettr.report.section import Section, wrapped
from ettr.units import SECONDS_PER_DAY
from ettr.version import __version__
from ettr.words import counted

ALLOCATIONS = 100_000
"""New objects after which the collector looks; Python's own number is 700."""


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let the collector look less often until the context is left.

    A report makes a million small objects that live to its end. To look among them for cycles took
    a twentieth of its time and found next to nothing.
    """
    usual = gc.get_threshold()
    gc.set_threshold(max(ALLOCATIONS, usual[0]), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


# called as each part begins, with its name and how many are done
Progress = Callable[[str, int], None]

_WITHOUT_JOBS = ("nodes", "incidents", "runs", "mttf", "projection", "quality")
"""What comes first where the logs hold no jobs: the parts that other logs can fill."""


def sections(analysis: Analysis, on_part: Progress | None = None) -> Iterator[Section]:
    """Every section of the report, in order."""
    names = list(PARTS)
    if not analysis.logs_read.jobs:
        first = _without_jobs(analysis)
        names.sort(key=lambda name: first.index(name) if name in first else len(first))
    for n_done, name in enumerate(names):
        if on_part:
            on_part(name, n_done)
        yield from part_sections(name, analysis)


def _without_jobs(analysis: Analysis) -> tuple[str, ...]:
    """The parts that a store without jobs can fill, in their order."""
    logs = analysis.logs_read
    if logs.progress and not (logs.errors or logs.node_states):
        return ("runs", "mttf", "projection", "quality")
    filled = [name for name in _WITHOUT_JOBS if name != "runs" or logs.progress]
    return tuple(filled)


@fewer_collections()
def page(analysis: Analysis, on_part: Progress | None = None) -> Page:
    """The whole report before it is rendered."""
    rendered = tuple(sections(analysis, on_part))
    first = first_screen(analysis, report_title(analysis))
    period = analysis.period
    return Page(
        title=report_title(analysis),
        subtitle=(
            f"{moment(period.start)} to {moment(period.end)} UTC, "
            f"{duration(SECONDS_PER_DAY * period.days)}; {_what_ran(analysis)}{_price(analysis)}"
        ),
        selection=_selected(analysis),
        site_notes=analysis.quality.site_notes,
        caution=caution(analysis),
        answers=five_lines(analysis, sentences(first.actions)),
        sections=rendered,
        first=first,
        footer=f"ettr {__version__}. Times are UTC.",
        legend=legend(analysis.assumptions.confidence),
    )


def report_title(analysis: Analysis) -> str:
    """Whose report it is, and whether a simulation wrote the logs."""
    simulated = "Simulated: reliability" if analysis.selection_head.simulated else "Reliability"
    return f"{simulated} of {' and '.join(analysis.clusters) or 'a fleet'}"


def _selected(analysis: Analysis) -> str:
    """The selection with what its reader must know; empty for all of a store of logs."""
    head = analysis.selection_head
    return " ".join(filter(None, (selection_line(head), simulation_line(head))))


def _price(analysis: Analysis) -> str:
    return "" if analysis.price is None else f", at {price_words(analysis.price)}"


def _what_ran(analysis: Analysis) -> str:
    if not analysis.logs_read.jobs:
        return "no job accounting"
    ran = analysis.totals
    hours = f"GPU-hours {NOT_MEASURED}: {NO_GPUS}"
    if analysis.gpus_are_known:
        hours = f"{number(ran.gpu_hours, 7)} GPU-hours"
    return f"{counted(ran.jobs, 'job')} in {counted(ran.attempts, 'attempt')}, {hours}"


@fewer_collections()
def document(analysis: Analysis, on_part: Progress | None = None) -> dict[str, object]:
    """The same numbers as JSON; docs/reference/report-json.md says what each key holds."""
    made: dict[str, object] = {
        "format": REPORT_FORMAT,
        "version": REPORT_VERSION,
        "ettr": __version__,
        "clusters": list(analysis.clusters),
        "period": plain(analysis.period),
        "selection": plain(analysis.selection_head),
        **({} if analysis.price is None else {"price": plain(analysis.price)}),
    }
    for n_done, name in enumerate(PARTS):
        if on_part:
            on_part(name, n_done)
        made[name] = part_document(name, analysis)
    steps = sentences(actions(analysis, loss_by_interval(analysis)))
    made["findings"] = [plain(one) for one in findings(analysis)]
    made["summary"] = [plain(one) for one in five_lines(analysis, steps)]
    made["next_steps"] = list(steps)
    return made


# -- the head of a report for a terminal: all that its answers rest on -----------------------------


def summary_text(page: Page) -> str:
    """What the page rests on, as text: its answers, those of its sections, what to do next."""
    lines = [page.title, page.subtitle, ""]
    for text in filter(None, (page.selection, *page.site_notes, page.caution)):
        lines += [wrapped(text), ""]
    for one in page.answers:
        detail = f" ({one.detail})" if one.detail else ""
        lines.append(wrapped(f"{one.question}: {one.answer}{detail}", "  "))
    if page.legend:
        lines += ["", wrapped(page.legend)]
    for section in page.sections[:4]:
        lines += ["", wrapped(f"{section.title}: {section.lead}")]
    if page.first and page.first.actions:
        lines += ["", "What to do next"]
        steps = enumerate(sentences(page.first.actions), 1)
        lines += [wrapped(f"{i}. {step}", "   ") for i, step in steps]
    return "\n".join(lines)
