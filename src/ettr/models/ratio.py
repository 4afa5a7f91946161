"""The ratio of two failure rates whose failures may cluster, and of one fleet before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import Axis, Spread
from ettr.models.compare import RateRatio, compare_rates, ratio_with_dispersion
from ettr.models.data import Floats
from ettr.words import counted

LEAST_COMMON_SHARE = 0.5
"""Share of both periods' exposure that common nodes must hold for a paired comparison."""


def compare_spread(
    a: FailureRate,
    b: FailureRate,
    spreads_a: Sequence[Spread],
    spreads_b: Sequence[Spread],
    confidence: float = CONFIDENCE,
    names: tuple[str, str] = ("a", "b"),
) -> RateRatio:
    """Ratio of two rates with an interval that admits the clustering seen in either fleet.

    On each axis (time, nodes) the indices of both fleets are pooled by their degrees of freedom;
    the axis with the wider interval decides.

    Raises:
        UsageError: a fleet has no exposure.
    """
    widest = pooled_spread(spreads_a, spreads_b, confidence)
    if widest is not None and widest.is_clustered:
        return ratio_with_dispersion(a, b, widest.index, widest.degrees, confidence, names)
    exact = compare_rates(a, b, confidence, names)
    if widest is not None and widest.is_known:
        return exact
    return replace(
        exact,
        meaning=f"{exact.meaning} Whether failures cluster cannot be known from "
        f"{counted(a.failures + b.failures, 'failure')}: this holds only if they are independent.",
    )


def pooled_spread(
    spreads_a: Sequence[Spread], spreads_b: Sequence[Spread], confidence: float = CONFIDENCE
) -> Spread | None:
    """Both fleets' spread on the axis with the wider interval; None where none was measured."""
    pooled = [
        one
        for axis in ("time", "nodes")
        if (one := _pooled(axis, [s for s in (*spreads_a, *spreads_b) if s.over == axis]))
    ]
    return max(pooled, key=lambda one: (one.inflation(confidence), one.is_known), default=None)


def _pooled(axis: Axis, spreads: Sequence[Spread]) -> Spread | None:
    """Both fleets' spread on one axis as one: indices weighted by degrees, p-values combined."""
    known = [one for one in spreads if one.p_value is not None]
    if not known:
        return spreads[0] if spreads else None
    degrees = sum(one.degrees for one in known)
    index = sum(max(1.0, one.index) * one.degrees for one in known) / degrees
    p_value = min(1.0, len(known) * min(one.p_value for one in known if one.p_value is not None))
    widest = max(known, key=lambda one: one.index)
    return Spread(
        axis,
        sum(one.failures for one in known),
        sum(one.units for one in known),
        widest.window_days,
        index,
        degrees,
        p_value,
    )


@dataclass(frozen=True, slots=True, eq=False)
class PairedCounts:
    """Failures and exposure of the same nodes in two periods.

    Attributes:
        failures_a: Failures of each node in the first period, shape (n,); parts of failures that
            name no single node make them fractions.
        unplaced_a: Failures of the first period that are no node's; they count in the ratio.
    """

    failures_a: Floats
    node_days_a: Floats
    failures_b: Floats
    node_days_b: Floats
    unplaced_a: float = 0.0
    unplaced_b: float = 0.0

    @property
    def common(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Nodes that were in use in both periods."""
        return (self.node_days_a > 0) & (self.node_days_b > 0)

    @property
    def common_share(self) -> float:
        """The smaller share of a period's exposure that the common nodes hold."""
        both = self.common
        shares = [
            float(days[both].sum() / days.sum()) if days.sum() > 0 else 0.0
            for days in (self.node_days_a, self.node_days_b)
        ]
        return min(shares)


def compare_same_nodes(
    pairs: PairedCounts,
    over_time: Sequence[Spread],
    confidence: float = CONFIDENCE,
    names: tuple[str, str] = ("a", "b"),
) -> RateRatio:
    """Ratio of the rates of the same nodes in two periods.

    What a node is prone to is common to both periods and cancels, so the spread between nodes does
    not widen the interval; clustering in time does. The ratio is that of Mantel and Haenszel over
    nodes, which differs from the crude one only where nodes shared the two periods unequally.

    Raises:
        UsageError: no node was in use in both periods.

    Source:
        Greenland and Robins (1985), Biometrics 41, for rates stratified by unit.
    """
    both = pairs.common
    if not both.any():
        raise UsageError(
            "no node was in use in both periods, so nothing can be paired; compare them as two "
            "fleets"
        )
    x, s = pairs.failures_a[both], pairs.node_days_a[both]
    y, t = pairs.failures_b[both], pairs.node_days_b[both]
    upper, lower = float(np.sum(x * t / (s + t))), float(np.sum(y * s / (s + t)))
    a = FailureRate(round(float(x.sum()) + pairs.unplaced_a), float(s.sum()))
    b = FailureRate(round(float(y.sum()) + pairs.unplaced_b), float(t.sum()))
    if upper > 0 and lower > 0:
        # the same counts over exposures that make the crude ratio Mantel and Haenszel's
        crude = float(x.sum() / s.sum()) / float(y.sum() / t.sum())
        adjust = np.sqrt(upper / lower / crude)
        weighted_a = FailureRate(a.failures, float(a.node_days / adjust))
        weighted_b = FailureRate(b.failures, float(b.node_days * adjust))
    else:
        weighted_a, weighted_b = a, b
    done = compare_spread(weighted_a, weighted_b, over_time, (), confidence, names)
    return replace(done, a=a, b=b)
