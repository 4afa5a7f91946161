"""The head of a report for a terminal: all that its answers rest on."""

from __future__ import annotations

from ettr.report.html import Page
from ettr.report.text import wrapped


def summary_text(page: Page) -> str:
    """What the page rests on, as text: key numbers, each section's answer, what to do next."""
    width = max((len(card.label) for card in page.cards), default=0)
    lines = [page.title, page.subtitle, ""]
    if page.selection:
        lines += [wrapped(page.selection), ""]
    for note in page.site_notes:
        lines += [wrapped(note), ""]
    if page.caution:
        lines += [wrapped(page.caution), ""]
    how = [f"{one.says}: {one.how}" for one in page.first.actions if one.how] if page.first else []
    lines += [*(wrapped(f"How: {one}", "  ") for one in how), *([""] if how else [])]
    for one in page.answers:
        detail = f" ({one.detail})" if one.detail else ""
        lines.append(wrapped(f"{one.question}: {one.answer}{detail}", "  "))
    lines += [""] if page.answers else []
    lines += [
        wrapped(f"{card.label:<{width}}  {card.value}  ({card.detail})", " " * (width + 2))
        for card in page.cards
    ]
    if page.legend:
        lines += ["", wrapped(page.legend)]
    for section in page.sections[:4]:
        lines += ["", wrapped(f"{section.title}: {section.lead}")]
    if page.next_steps:
        lines += ["", "What to do next"]
        lines += [wrapped(f"{i}. {step}", "   ") for i, step in enumerate(page.next_steps, 1)]
    return "\n".join(lines)
