"""What taking the claimed nodes out would have spared, and what it costs to be wrong.

An ordinary node would have taken the place of each: it fails too. All of it is counted in the
period after the claim: in the period of the fit a node is claimed because its failures were many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval

_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class SizeUplift:
    """Failures of jobs of one size in the scored periods, with and without the claimed nodes.

    Attributes:
        of_claimed: Failures of claimed nodes, those without a culprit in equal parts.
        fall: Share of the failures that would not have been; below 0 where claimed nodes failed
            less than the others.
    """

    size_from: int | None
    size_to: int | None
    attempts: int
    failures: float
    of_claimed: float
    of_ordinary: float
    fall: Interval
    failed_share: float | None
    failed_share_without: float | None


@dataclass(frozen=True, slots=True)
class FalseAccusations:
    """The price of draining ordinary nodes.

    Attributes:
        failures_spared: Failures of claimed nodes, less those of others in their place.
        node_days_per_failure: Node-days out of service, of lemons too, for each failure spared;
            None where none is.
    """

    drain_days: float
    ordinary_claims: Interval
    node_days_lost: Interval
    failures_spared: Interval
    node_days_per_failure: float | None


def size_uplift(
    size: tuple[int | None, int | None],
    attempts: int,
    failures: float,
    of_claimed: float,
    of_ordinary: float,
    dispersion: float,
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
) -> SizeUplift:
    """The fall of the failures of one size class.

    Args:
        dispersion: variance over mean of the failures of claimed nodes, 1 or more.
    """
    without = failures - of_claimed + of_ordinary
    return SizeUplift(
        *size,
        attempts,
        failures,
        of_claimed,
        of_ordinary,
        _fall(failures, of_claimed, of_ordinary, dispersion, rng, confidence),
        failures / attempts if attempts else None,
        without / attempts if attempts else None,
    )


def _fall(
    failures: float,
    of_claimed: float,
    of_ordinary: float,
    dispersion: float,
    rng: np.random.Generator,
    confidence: float,
) -> Interval:
    """Quantiles of the fall; the means of both counts have gamma posteriors (Jeffreys)."""
    if not failures > 0:
        return Interval(None, -np.inf, 1.0)
    if not of_claimed and not of_ordinary:
        return Interval(0.0, 0.0, 0.0)
    own = dispersion * rng.gamma(of_claimed / dispersion + 0.5, 1.0, _DRAWS)
    rest = rng.gamma(max(0.0, failures - of_claimed) + 0.5, 1.0, _DRAWS)
    tail = (1 - confidence) / 2
    low, high = np.quantile((own - of_ordinary) / (own + rest), (tail, 1 - tail))
    estimate = (of_claimed - of_ordinary) / failures
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate))


def false_accusations(
    drain_days: float,
    claims: int,
    lemon_share: Interval,
    failures: float,
    fall: Interval,
) -> FalseAccusations:
    """What the claims of all windows cost and spare."""
    known = lemon_share.estimate
    ordinary = Interval(
        None if known is None else claims * (1 - known),
        claims * (1 - lemon_share.high),
        claims * (1 - lemon_share.low),
    )
    spared = Interval.unknown() if fall.estimate is None else fall.scaled(max(failures, 1e-12))
    some = spared.estimate is not None and spared.estimate > 0
    return FalseAccusations(
        drain_days,
        ordinary,
        ordinary.scaled(drain_days),
        spared,
        claims * drain_days / (spared.estimate or 1.0) if some else None,
    )
