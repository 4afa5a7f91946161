"""Bursts of one symptom: faults on several nodes at a time, and what of them is not seen as one.

A burst hits each node with the same chance. Its rate and its hit share are those of all bursts,
seen or not: of the seen ones alone they would be too few and too large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ettr.analysis.calibration.estimates import Z90
from ettr.analysis.calibration.record import Places, Texts
from ettr.estimates import Interval
from ettr.metrics.instants import Floats
from ettr.metrics.rates import estimated_rate
from ettr.units import DAYS_PER_YEAR, SECONDS_PER_DAY

LEAST_BURST_NODES = 3
BURST_GAP_S = 1800.0
LEAST_SEEN = 0.25
"""Bursts of which fewer are seen cannot be distinguished from those of which so many are."""


@dataclass(frozen=True, slots=True)
class FittedBursts:
    """Bursts of one symptom."""

    groups: list[Places]
    per_year: Interval
    hit_share: Interval
    spread_s: float
    seen_share: float
    unseen_faults: float
    what: str


def fitted_bursts(start_s: Floats, node: Texts, days: float, n_nodes: int) -> FittedBursts | None:
    """Bursts among the faults of one symptom; None where they cluster no more than by chance."""
    groups = _groups(start_s, node)
    expected = _by_chance(start_s.size, days)
    if not groups or len(groups) <= expected + 2.0 * math.sqrt(expected):
        return None
    n = len(groups)
    n_nodes = max(n_nodes, LEAST_BURST_NODES)
    nodes = float(np.mean([len(set(node[one].tolist())) for one in groups]))
    single = start_s.size - sum(one.size for one in groups)
    least = _least_share(nodes, n, n_nodes, single)
    share = _hit_share(nodes, least, n_nodes)
    half = Z90 * math.sqrt(_seen_variance(share, n_nodes) / n)
    low, high = (_hit_share(nodes + side * half, least, n_nodes) for side in (-1.0, 1.0))
    seen_share = _seen_share(share, n_nodes)
    what = f"{n} bursts of {nodes:.1f} nodes on average"
    if seen_share < 0.995:
        what += (
            f", and those on fewer than {LEAST_BURST_NODES}, which look like single faults: "
            f"{seen_share:.0%} are seen"
            + (", the fewest that are considered" if share == least else "")
        )
    return FittedBursts(
        groups,
        _per_year(n, days, [_seen_share(one, n_nodes) for one in (low, share, high)]),
        Interval(share, low, high),
        max(1.0, spread_of([start_s[one] for one in groups])),
        seen_share,
        n / seen_share * _unseen_hits(share, n_nodes),
        what,
    )


def _per_year(n: int, days: float, seen_shares: Sequence[float]) -> Interval:
    """Bursts a year, seen or not: of their number, and of the share that is seen, by chance."""
    fewest, share, most = seen_shares
    seen = estimated_rate(n, days / DAYS_PER_YEAR * 1000.0, 0.9).per_1000_node_days
    at = (seen.estimate or 0.0) / share
    below = math.hypot(math.log(at * share / seen.low), math.log(most / share))
    above = math.hypot(math.log(seen.high / share / at), math.log(share / fewest))
    return Interval(at, at * math.exp(-below), at * math.exp(above))


def _least_share(nodes: float, n: int, n_nodes: int, single: int) -> float:
    """The least chance of a node to be hit that is considered."""

    def is_too_small(share: float) -> bool:
        seen_share = _seen_share(share, n_nodes)
        return seen_share < LEAST_SEEN or n / seen_share * _unseen_hits(share, n_nodes) > single

    # where all bursts are seen it is the mean's
    least, most = 0.0, min(1.0, nodes / n_nodes)
    for _ in range(60):
        middle = (least + most) / 2.0
        least, most = (middle, most) if is_too_small(middle) else (least, middle)
    return most


def _hit_share(nodes: float, least: float, n_nodes: int) -> float:
    """Chance of a node to be hit."""
    from scipy.optimize import brentq

    def above(share: float) -> float:
        return _seen_hits(share, n_nodes) - nodes

    if above(least) >= 0.0:
        return least
    return 1.0 if nodes >= n_nodes else float(brentq(above, least, nodes / n_nodes))


def _seen_share(share: float, n_nodes: int) -> float:
    """Chance of a burst to hit enough nodes to be seen."""
    from scipy.special import bdtrc

    return float(bdtrc(LEAST_BURST_NODES - 1, n_nodes, share))


def _seen_hits(share: float, n_nodes: int) -> float:
    """Nodes hit by a burst that is seen, in the mean."""
    from scipy.special import bdtrc

    # k of a binomial number of n is n p times one of n - 1
    hits = n_nodes * share * float(bdtrc(LEAST_BURST_NODES - 2, n_nodes - 1, share))
    return hits / _seen_share(share, n_nodes)


def _seen_variance(share: float, n_nodes: int) -> float:
    """Of the number of nodes hit by a burst that is seen."""
    from scipy.special import bdtrc

    pairs = n_nodes * (n_nodes - 1) * share**2
    pairs *= float(bdtrc(LEAST_BURST_NODES - 3, n_nodes - 2, share)) / _seen_share(share, n_nodes)
    mean = _seen_hits(share, n_nodes)
    return max(0.0, pairs + mean - mean**2)


def _unseen_hits(share: float, n_nodes: int) -> float:
    """Nodes hit by a burst where it is not seen, over all bursts."""
    from scipy.special import bdtr

    return n_nodes * share * float(bdtr(LEAST_BURST_NODES - 2, n_nodes - 1, share))


def spread_of(groups: Sequence[Floats]) -> float:
    """Within how long faults of a burst come, from their times in each of some bursts.

    Of k times that are uniform over it the first and the last are (k - 1)/(k + 1) of it apart in
    the mean: a half for three.

    Source:
        David and Nagaraja (2003), Order Statistics, 3rd edition, section 2.5.
    """
    sizes = np.array([times_s.size for times_s in groups], dtype=np.float64)
    ranges_s = sum(float(np.ptp(times_s)) for times_s in groups)
    return ranges_s / float(((sizes - 1.0) / (sizes + 1.0)).sum())


def _groups(start_s: Floats, node: Texts) -> list[Places]:
    """Faults that follow each other within the gap, where they hit enough nodes."""
    if not start_s.size:
        return []
    place = np.argsort(start_s, kind="stable")
    cuts = np.nonzero(np.diff(start_s[place]) > BURST_GAP_S)[0] + 1
    return [
        group
        for group in np.split(place, cuts)
        if len(set(node[group].tolist())) >= LEAST_BURST_NODES
    ]


def _by_chance(n: int, days: float) -> float:
    """Expected groups of three among independent faults: runs of two short gaps."""
    rate_per_s = n / max(days * SECONDS_PER_DAY, 1.0)
    short = -math.expm1(-rate_per_s * BURST_GAP_S)
    return n * short * short * (1.0 - short)
