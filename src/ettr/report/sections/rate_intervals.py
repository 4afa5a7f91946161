"""A rate with its interval under each assumption on clustering, the one to believe named."""

from __future__ import annotations

from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import FleetSpread, Spread, clustered_interval
from ettr.report.numbers import PER_NODE_DAYS, between
from ettr.report.section import TextTable


def intervals_table(
    rate: FailureRate,
    found: FleetSpread | None,
    confidence: float,
    what: str = "failure",
    *,
    at_most: bool = False,
) -> TextTable:
    """The exact interval, and those of the spread over nodes and over time where it is known.

    `at_most`: only nodes with trouble are known, so that the upper end is all that is.
    """
    rows: list[tuple[str, Interval, Spread | None]] = [
        ("independent (Poisson)", rate.interval(confidence), None)
    ]
    if found is not None:
        for one in (found.over_nodes, found.over_time):
            if one is not None and one.is_known:
                units = (
                    "nodes" if one.window_days is None else f"windows of {one.window_days:.3g} d"
                )
                label = f"clustered, as between {units}"
                rows.append((label, clustered_interval(rate, one, confidence), one))
    believed = None if found is None or not found.believed.is_clustered else found.believed
    return TextTable(
        f"The {what} rate under each assumption, per 1,000 node-days",
        (f"if {what}s are", "rate", "recommended"),
        tuple(
            (label, between(_known(interval, at_most)), "yes" if one == believed else "")
            for label, interval, one in rows
        ),
        frozenset({1}),
    )


def _known(interval: Interval, at_most: bool) -> Interval:
    shown = interval.scaled(PER_NODE_DAYS)
    return Interval(None, 0.0, shown.high) if at_most else shown
