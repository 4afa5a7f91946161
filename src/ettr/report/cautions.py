"""What a reader must know before the first number."""

from __future__ import annotations

from ettr.analysis import Analysis
from ettr.report.numbers import duration, number
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY

FEW_NODE_DAYS = 5.0
SHORT_LOG_H = 1.0


def short_logs(analysis: Analysis) -> str | None:
    """A sentence on rates that rest on next to no exposure; None where there is enough.

    Too little is less than five node-days of runtime (in service, for logs of faults alone), or
    logs that span less than an hour.
    """
    node_days, of_what = _exposure(analysis)
    span_days = analysis.period.days
    if not node_days:
        return None
    if node_days >= FEW_NODE_DAYS and span_days * HOURS_PER_DAY >= SHORT_LOG_H:
        return None
    return (
        f"The logs span {duration(SECONDS_PER_DAY * span_days)} and hold {number(node_days)} "
        f"node-days {of_what}: every rate per 1,000 node-days, and whatever follows from it, is "
        "extrapolated from that and says nothing about a cluster."
    )


def _exposure(analysis: Analysis) -> tuple[float, str]:
    if not analysis.totals.attempts and analysis.faults is not None:
        return analysis.faults.in_service.node_days, "in service"
    return analysis.rates.all_jobs.node_days, "of runtime"
