"""Jobs, attempts and the hours that they held."""

from __future__ import annotations

from ettr.metrics.status import Totals, totals
from ettr.report.numbers import number
from ettr.report.registry import Part
from ettr.report.section import Section, TextTable
from ettr.words import counted

_NOT_MEASURED = "not measured"


def totals_section(found: Totals) -> Section:
    """The counts in a sentence, and the hours."""
    hours = (found.cpu_hours, found.node_hours, found.gpu_hours)
    table = TextTable(
        "Hours that jobs held",
        ("CPU-hours", "node-hours", "GPU-hours"),
        (tuple(_NOT_MEASURED if one is None else number(one, 6) for one in hours),),
        frozenset(range(3)),
        gpu_hours=((2, (found.gpu_hours,)),),
    )
    lead = f"{counted(found.jobs, 'job')} in {counted(found.attempts, 'attempt')}."
    return Section("totals", "Jobs and hours", lead, (), (table,))


TOTALS = Part(
    "totals",
    place=10,
    question=totals,
    section=totals_section,
    title="Jobs and hours",
    on_page=False,
)
