"""Since when a node has been failing: the posterior of the moment at which its rate rose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from ettr.defaults import CONFIDENCE
from ettr.lemons.model import MIN_RATIO, Floats

ALWAYS = 0.5
"""Probability before the data that the node failed so from the first day of the logs on."""
_MOMENTS = 400
_RATIOS = np.exp(np.linspace(np.log(MIN_RATIO), np.log(5000.0), 60))
"""Wider than those of the fleet's lemons: where few other nodes fail, one may stand out by more."""


@dataclass(frozen=True, slots=True)
class Onset:
    """When the rate of a node rose, in days of its exposure, if it is a lemon at all.

    Attributes:
        from_start: Probability that it was so from the beginning of its exposure.
    """

    from_start: float
    low_days: float
    median_days: float
    high_days: float


def onset(
    failure_days: Floats,
    weights: Floats,
    exposure_days: float,
    bulk_per_node_day: float,
    confidence: float = CONFIDENCE,
) -> Onset:
    """The moment from which on a node fails k times as often as ordinary nodes; before, as they do.

    k is averaged, its logarithm evenly spread from `MIN_RATIO` on. Half of the probability before
    the data is on the beginning of the logs, the rest is spread evenly over the exposure.

    Args:
        failure_days: exposure of the node until each of its failures, in days.
        weights: what each failure counts for, of the same shape.

    Raises:
        ValueError: there is no failure or no exposure.
    """
    if not len(failure_days) or not exposure_days > 0:
        raise ValueError("an onset needs a failure and an exposure over 0")
    moments = np.linspace(0.0, exposure_days, _MOMENTS, endpoint=False)
    later = (failure_days[None, :] >= moments[:, None]) @ weights
    gain = later[:, None] * np.log(_RATIOS)
    gain -= (_RATIOS - 1) * bulk_per_node_day * (exposure_days - moments)[:, None]
    log_weight = logsumexp(gain, axis=1)
    log_weight += np.log(np.where(moments > 0, (1 - ALWAYS) / (_MOMENTS - 1), ALWAYS))
    weight = np.exp(log_weight - logsumexp(log_weight))
    tail = (1 - confidence) / 2
    low, middle, high = moments[
        np.minimum(np.searchsorted(np.cumsum(weight), (tail, 0.5, 1 - tail)), _MOMENTS - 1)
    ]
    return Onset(float(weight[0]), float(low), float(middle), float(high))
