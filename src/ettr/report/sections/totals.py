"""Jobs, attempts and the hours that they held."""

from __future__ import annotations

from ettr.metrics.totals import Totals
from ettr.report.numbers import number
from ettr.report.section import Section, TextTable
from ettr.words import counted

_NOT_MEASURED = "not measured"


def totals_section(totals: Totals) -> Section:
    """The counts in a sentence, and the hours."""
    hours = (totals.cpu_hours, totals.node_hours, totals.gpu_hours)
    table = TextTable(
        "Hours that jobs held",
        ("CPU-hours", "node-hours", "GPU-hours"),
        (tuple(_NOT_MEASURED if one is None else number(one, 6) for one in hours),),
        frozenset(range(3)),
        gpu_hours=((2, (totals.gpu_hours,)),),
    )
    lead = f"{counted(totals.jobs, 'job')} in {counted(totals.attempts, 'attempt')}."
    return Section("totals", "Jobs and hours", lead, (), (table,))
