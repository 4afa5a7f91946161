"""One answer of a command as a page of its own, in the style of the report."""

from __future__ import annotations

from ettr.report.html import Page
from ettr.report.numbers import legend
from ettr.report.section import Section
from ettr.version import __version__


def answer_page(
    section: Section,
    title: str,
    confidence: float | None,
    selection: str = "",
    caution: str | None = None,
) -> Page:
    """The page before it is rendered.

    Args:
        section: the answer.
        title: what it is about.
        confidence: of its intervals; None where it says itself what its intervals are.
        selection: what is left out; empty where nothing is.
        caution: what must be read before the numbers; None for nothing.
    """
    return Page(
        title=title,
        subtitle="",
        caution=caution,
        cards=(),
        next_steps=(),
        sections=(section,),
        footer=f"ettr {__version__}. Times are UTC.",
        selection=selection,
        legend="" if confidence is None else legend(confidence),
    )
