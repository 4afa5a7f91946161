"""Interruptions of many nodes at once: what the nodes share, by how unlikely chance is.

Users are counted, not jobs: a hundred jobs of one user that end together are one program. Places
are racks, switches, pods and the whole cluster; an interruption lies in each place that one of its
nodes is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ettr.estimates.counts import poisson_above
from ettr.units import SECONDS_PER_HOUR

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BURST_S = 600.0
BURST_USERS = 3
BURST_CHANCE = 1e-3
"""Expected bursts of a place by chance, over the whole period, below which one is believed."""
MAX_ODDS = 1e4
AROUND_S = 6 * SECONDS_PER_HOUR
"""How far around a burst the usual rate is taken: bad days are no bursts."""


def burst_odds(
    times_s: Floats, users: Ints, places: Mapping[str, Sequence[int]], period_s: float
) -> Floats:
    """How much likelier than by chance others were hit at the same moment and place, less 1.

    Args:
        times_s: end of each interruption, in seconds since 1970.
        users: place of its user.
        places: the interruptions in each place.
        period_s: of the logs.
    """
    odds = np.zeros(len(times_s))
    for members in places.values():
        at = np.array(sorted(set(members), key=lambda one: times_s[one]), dtype=np.int64)
        if len(at) >= BURST_USERS:
            odds[at] = np.maximum(odds[at], _odds(times_s[at], users[at], period_s))
    return odds


def _odds(times_s: Floats, users: Ints, period_s: float) -> Floats:
    """The same of one place, interruptions in order of time."""
    first = _first_of_user(times_s, users)
    kept_s = times_s[first]
    ends = np.searchsorted(kept_s, kept_s + BURST_S, side="right")
    many = ends - np.arange(len(kept_s))
    expected = _expected(kept_s, many, period_s)
    chance = len(kept_s) * poisson_above(many - 2, expected)
    odds = np.zeros(len(times_s))
    believed = np.flatnonzero((many >= BURST_USERS) & (chance < BURST_CHANCE))
    from_s = np.searchsorted(times_s, kept_s[believed])
    to_s = np.searchsorted(times_s, kept_s[believed] + BURST_S, side="right")
    for low, high, start in zip(from_s, to_s, believed, strict=True):
        likelier = many[start] / expected[start] - 1
        odds[low:high] = np.maximum(odds[low:high], likelier)
    return np.minimum(odds, MAX_ODDS)


def _expected(kept_s: Floats, many: Ints, period_s: float) -> Floats:
    """Users hit within a burst's span by chance: by the whole period, or the hours around it.

    Of the hours before and after the worse ones count: bad spells begin and end.
    """
    whole = len(kept_s) * BURST_S / max(period_s, BURST_S)
    before = np.searchsorted(kept_s, kept_s - AROUND_S)
    after = np.searchsorted(kept_s, kept_s + AROUND_S, side="right")
    at = np.arange(len(kept_s))
    around = np.maximum(at - before, after - at - many) * BURST_S / AROUND_S
    return np.asarray(np.maximum(np.maximum(whole, around), 1e-9), dtype=np.float64)


def _first_of_user(times_s: Floats, users: Ints) -> NDArray[np.bool_]:
    """Whether no interruption of the same user came within the same span before."""
    order = np.lexsort((times_s, users))
    again = np.zeros(len(times_s), dtype=np.bool_)
    same = users[order][1:] == users[order][:-1]
    again[order[1:]] = same & (np.diff(times_s[order]) <= BURST_S)
    return ~again
