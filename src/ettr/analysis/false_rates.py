"""The failure rates of a store without the failures that chance explains."""

from __future__ import annotations

from typing import Protocol

from ettr.attribution.background import FalseFailures, FalseFailuresBySize
from ettr.estimates.exact import FleetSpread
from ettr.facts import Facts
from ettr.metrics.logs_read import LogsRead
from ettr.metrics.rates import (
    EstimatedRate,
    RatesBySymptom,
    RatesWithoutFalse,
    RateWithoutFalse,
    rate_without_false,
)


class OfFalseRates(Protocol):
    """What `rates_without_false` takes."""

    logs_read: LogsRead
    rates: RatesBySymptom
    false_failures: FalseFailuresBySize


def rates_without_false(_: Facts, given: OfFalseRates) -> RatesWithoutFalse | None:
    """The rates of all and of large jobs, with and without the false failures.

    None where the logs hold no jobs, or no log of nodes: there no failure rests on a check, and
    none was measured that could be false.
    """
    logs = given.logs_read
    if not logs.jobs or not (logs.errors or logs.node_states):
        return None
    rates, false = given.rates, given.false_failures

    def without(
        rate: EstimatedRate, wrong: FalseFailures, clustering: FleetSpread | None
    ) -> RateWithoutFalse:
        return rate_without_false(
            rate,
            wrong.on_evidence,
            wrong.expected_false,
            rates.confidence,
            None if clustering is None else clustering.believed,
        )

    return RatesWithoutFalse(
        rates.above_gpus,
        without(rates.all_jobs, false.all_jobs, rates.clustering_all_jobs),
        without(rates.large_jobs, false.large_jobs, rates.clustering_large_jobs),
    )
