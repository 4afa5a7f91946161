"""Nodes that look renamed: many end for good just when as many others begin.

A node of two names has two histories, and each half of a lemon's is judged apart. No log says that
nodes were renamed, so that nothing is joined: the reader is warned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ettr.lemons.signals import NodeName
from ettr.units import SECONDS_PER_DAY

WITHIN_S = 3 * SECONDS_PER_DAY
"""Old names end and new ones begin within this time of each other."""
MIN_RENAMED, MIN_SHARE, MOST_UNEQUAL = 5, 0.1, 1.25


@dataclass(frozen=True, slots=True)
class Renames:
    """Nodes of a cluster that end, and others that begin, at about one moment.

    Attributes:
        time_s: When the first of the new ones begins, in seconds since 1970.
    """

    cluster: str
    time_s: float
    ended: int
    began: int


def likely_renames(spans_s: Mapping[NodeName, tuple[float, float]]) -> tuple[Renames, ...]:
    """The likeliest moment at which nodes were renamed, of each cluster that has one."""
    found = []
    for cluster in sorted({cluster for cluster, _ in spans_s}):
        spans = np.array([span for node, span in spans_s.items() if node[0] == cluster])
        known = spans[np.isfinite(spans[:, 1]), 1]
        last_s = known.max() if len(known) else 0.0
        starts, ends = np.sort(spans[:, 0]), np.sort(np.minimum(spans[:, 1], last_s))
        # what was there from the first days on, or to the last, has neither begun nor ended
        starts = starts[starts > starts[0] + WITHIN_S]
        ends = ends[ends < ends[-1] - WITHIN_S]
        if not len(starts) or not len(ends):
            continue
        began = np.searchsorted(starts, starts + WITHIN_S, "right") - np.arange(len(starts))
        ended = np.searchsorted(ends, starts, "right") - np.searchsorted(ends, starts - WITHIN_S)
        both = np.minimum(began, ended)
        at = int(both.argmax())
        is_even = max(began[at], ended[at]) <= MOST_UNEQUAL * both[at]
        if is_even and both[at] >= max(MIN_RENAMED, MIN_SHARE * len(spans)):
            found.append(Renames(cluster, float(starts[at]), int(ended[at]), int(began[at])))
    return tuple(found)
