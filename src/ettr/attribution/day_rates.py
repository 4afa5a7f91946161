"""Rates of system software by day, of which nothing is assumed but that days have them by one law.

Most days have none, some are bad, or all are alike: the law is a weight for each rate of a grid,
found from the days themselves. Each day weighs the rates by how likely they make what ended that
day and what did not; whether an end was by software stays open in that, so that many doubtful ends
on ordinary days do not add up to a rate.

Source:
    Laird (1978), JASA 73, for the law of rates by maximum likelihood; Efron (2014), Statistical
    Science 29, for its use as a prior.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATES = np.concatenate([[0.0], np.geomspace(1e-3, 10.0, 24)])
"""The grid, over the rate of all interruptions."""
ZERO_BEFORE = 0.2
"""Share of days without any, before the data; the other rates are equally likely."""
DAYS_BEFORE = 5.0
"""Weight of that, in days."""
_ROUNDS = 30
_LEAST = 1e-9


def rates_without_own(
    per_rate: Floats,
    weight: Floats,
    day: Ints,
    days: int,
    node_days: float,
    least_zero: float = 0.0,
) -> Floats:
    """Expected rate per node-day at each interruption, as the others have it.

    Args:
        least_zero: share of days that are taken to be without any, at least.
    """
    rates = RATES * len(day) / node_days
    # rate by rate: an array of all ends and rates would be slow
    gains = [weight * np.log1p(per_rate * rate) for rate in rates]
    logs = np.stack([np.bincount(day, gain, days) for gain in gains], axis=1)
    logs = np.asarray(logs - rates * node_days / days, dtype=np.float64)
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights = likely * _law(likely, least_zero)
    whole, summed = np.zeros(len(day)), np.zeros(len(day))
    whole_weight = weight == 1
    for rate, gain, of_day in zip(rates, gains, weights.T, strict=True):
        without = np.where(whole_weight, 1 / (1 + per_rate * rate), 1.0)
        without[~whole_weight] = np.exp(-gain[~whole_weight])
        without *= of_day[day]
        whole += without
        summed += rate * without
    return np.maximum(summed / whole, _LEAST)


def _law(likely: Floats, least_zero: float) -> Floats:
    """Weight of each rate, from how likely it makes each day; shape (rates,)."""
    days = len(likely)
    before = np.full(len(RATES), (1 - ZERO_BEFORE) / (len(RATES) - 1))
    before[0] = ZERO_BEFORE
    law = before
    for _ in range(_ROUNDS):
        of_day = law * likely
        of_day /= of_day.sum(axis=1, keepdims=True)
        law = (of_day.sum(axis=0) + DAYS_BEFORE * before) / (days + DAYS_BEFORE)
        if law[0] < least_zero:
            law[1:] *= (1 - least_zero) / law[1:].sum()
            law[0] = least_zero
    return law
