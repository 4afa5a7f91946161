"""How much of a failure rate may be false attribution, in words."""

from __future__ import annotations

from typing import Protocol

from ettr.analysis import Analysis
from ettr.facts import Facts
from ettr.metrics.rates import RatesWithoutFalse, RateWithoutFalse
from ettr.report.numbers import between, number
from ettr.words import counted

LEAST_FALSE = 1.0
"""Fewer false failures than this are not worth a note on a rate."""


class OfFalseRate(Protocol):
    """What `rate_without_false` takes."""

    rates_without_false: RatesWithoutFalse | None


def rate_without_false(_: Facts, given: OfFalseRate) -> RateWithoutFalse | None:
    """The rate that a store gives a projection, with and without false failures."""
    return projecting_rate(given)


def projecting_rate(given: OfFalseRate | Analysis) -> RateWithoutFalse | None:
    """The same of an analysis."""
    found = given.rates_without_false
    return None if found is None else found.best


def has_false(rate: RateWithoutFalse | None) -> bool:
    """Whether one failure or more behind the rate is expected to be false."""
    return rate is not None and (rate.expected_false.estimate or 0.0) >= LEAST_FALSE


def with_and_without(found: RatesWithoutFalse | None) -> str:
    """The rate as counted and without the false failures, of large jobs where any ran.

    Empty where not even the upper end of their number is one failure.
    """
    if found is None:
        return ""
    rate = found.best
    if rate.expected_false.estimate is None or rate.expected_false.high < LEAST_FALSE:
        return ""
    large = f" of jobs of more than {found.above_gpus} GPUs"
    return (
        f"Of the {counted(rate.failures, 'failure')}"
        f"{large if rate is found.large_jobs else ''}, {number(rate.on_evidence)} "
        f"{'rests' if rate.on_evidence == 1 else 'rest'} on a check alone, "
        f"{between(rate.expected_false)} of them expected to be false: "
        f"{between(rate.per_1000_node_days)} per 1,000 node-days with those, "
        f"{between(rate.without_false_per_1000_node_days)} without."
    )


def false_note(rate: RateWithoutFalse | None) -> str:
    """What false attribution may add to a rate that something is projected with; empty for little.

    Args:
        rate: with and without the false failures; None where none was measured.
    """
    if rate is None or not has_false(rate):
        return ""
    return (
        f"Of the {counted(rate.failures, 'failure')} behind the failure rate some "
        f"{between(rate.expected_false)} are expected to be false, blamed on faults that ended "
        "nothing: without them the rate would be "
        f"{between(rate.without_false_per_1000_node_days)} per 1,000 node-days."
    )
