"""Waits of jobs by their size, where a simulation replayed the jobs of a site, next to the real."""

from __future__ import annotations

from dataclasses import dataclass

from ettr.analysis.analysis import Analysis
from ettr.analysis.calibration.quantities import quantities_of
from ettr.analysis.calibration.record import site_record
from ettr.metrics.instants import to_seconds


@dataclass(frozen=True, slots=True)
class ReplayedWait:
    """One quantile of the waits of the jobs of one size, in seconds; None for too few jobs.

    `quantity` is named as in a back-test.
    """

    quantity: str
    real_s: float | None
    simulated_s: float | None


def replayed_waits(site: Analysis, simulated: Analysis) -> tuple[ReplayedWait, ...]:
    """Each quantile of a back-test, over the whole time of the site's logs."""
    period = site.logs_period
    real, again = (
        quantities_of(site_record(one), to_seconds(period.start), to_seconds(period.end))
        for one in (site, simulated)
    )
    return tuple(
        ReplayedWait(name, one.value, again[name].value if name in again else None)
        for name, one in real.items()
        if name.startswith("wait of ")
    )
