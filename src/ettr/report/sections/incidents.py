"""What incident ledgers state, apart from everything that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ettr.analysis import questions
from ettr.metrics.outages import IncidentLedger, StatedLoss
from ettr.report.numbers import moment, number
from ettr.report.registry import Part
from ettr.report.section import Section, TextTable
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis


def incidents_section(ledger: IncidentLedger) -> Section:
    """Stated hours by kind of incident."""
    total = ledger.total
    lead = (
        f"{counted(total.incidents, 'incident')} from {moment(ledger.first)} to "
        f"{moment(ledger.last)}: {_hours(total)}."
    )
    if total.without_hours:
        lead += f" {counted(total.without_hours, 'of them states', 'of them state')} no hours."
    return Section(
        "incidents",
        "What incident ledgers state",
        lead,
        (),
        (
            TextTable(
                "Incidents by kind",
                ("kind", "incidents", "hours lost, stated", "GPU-hours lost, stated", "no hours"),
                tuple((one.kind, *_cells(one.stated)) for one in ledger.by_kind),
                frozenset(range(1, 5)),
                gpu_hours=((3, tuple(one.stated.lost_gpu_hours for one in ledger.by_kind)),),
            ),
        ),
        (
            "These hours are as people wrote them down. They are part of no other number of this "
            "report, and an incident may also be a failure that is counted there.",
        ),
        gpu_hours=(("lost, as stated", total.lost_gpu_hours),),
    )


def _hours(stated: StatedLoss) -> str:
    sums = [
        f"{number(value, 4)} {unit}"
        for value, unit in ((stated.lost_h, "hours"), (stated.lost_gpu_hours, "GPU-hours"))
        if value is not None
    ]
    return f"{' and '.join(sums)} lost, as stated" if sums else "none states what was lost"


def _cells(stated: StatedLoss) -> tuple[str, ...]:
    return (
        number(stated.incidents),
        number(stated.lost_h, 4),
        number(stated.lost_gpu_hours, 4),
        number(stated.without_hours),
    )


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    return () if analysis.incidents is None else (incidents_section(analysis.incidents),)


INCIDENTS = Part(
    "incidents", place=170, question=questions.incidents, sections=_sections, in_python=False
)
