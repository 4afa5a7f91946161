"""What an answer is about, before its first number."""

from __future__ import annotations

from ettr.analysis.selecting import SelectionHead
from ettr.report.rows import JsonValue, plain
from ettr.report.text import wrapped


def selection_text(head: SelectionHead) -> str:
    """The selection and what its reader must know, as lines; empty for all of a store of logs."""
    lines = [wrapped(head.simulated)] if head.simulated else []
    if not head.is_everything:
        lines += [wrapped(head.sentence), *(wrapped(f"* {note}", "  ") for note in head.notes)]
    return "\n".join(lines)


def selection_line(head: SelectionHead) -> str:
    """The same as one paragraph of a page."""
    return " ".join(filter(None, (head.simulated, head.sentence, *head.notes)))


def simulation_line(head: SelectionHead) -> str:
    """What a simulation leaves out and what nobody validated; empty where that is not known."""
    made = []
    if head.back_test:
        made.append(f"Back-test of what was simulated: {head.back_test}.")
    if head.not_validated:
        made.append(f"Not validated: {'; '.join(head.not_validated)}.")
    if head.not_simulated:
        made.append(f"Not simulated: {', '.join(head.not_simulated)}.")
    return " ".join(made)


def with_selection(part: JsonValue, head: SelectionHead) -> JsonValue:
    """A part of the document with the selection that it is about, under `selection`."""
    return {"selection": plain(head), **part} if isinstance(part, dict) else part
