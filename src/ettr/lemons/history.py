"""A group of nodes by period: what the model would have been fitted to at any earlier moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ettr.lemons.fleet import Stratum
from ettr.lemons.model import Floats, Ints, NodeCounts
from ettr.units import SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class FitWindow:
    """A period to fit on, and the one right after it to score on, in seconds since 1970."""

    fit_from_s: float
    fit_to_s: float
    score_to_s: float


def sliding_windows(
    start_s: float, end_s: float, fit_days: float, score_days: float
) -> tuple[FitWindow, ...]:
    """Windows that slide by the length of the scored period, so that no failure is scored twice.

    The last one ends with the logs; what does not fill a window at their beginning is left out.
    """
    fit_s, score_s = fit_days * SECONDS_PER_DAY, score_days * SECONDS_PER_DAY
    made = []
    to_s = end_s
    # a second is forgiven: logs end with their last record
    while to_s - score_s - fit_s >= start_s - 1.0:
        made.append(FitWindow(max(start_s, to_s - score_s - fit_s), to_s - score_s, to_s))
        to_s -= score_s
    return tuple(reversed(made))


def edges_of(windows: Sequence[FitWindow]) -> tuple[float, ...]:
    """The moments at which some window begins or ends, in order."""
    moments = {one.fit_from_s for one in windows} | {one.fit_to_s for one in windows}
    return tuple(sorted(moments | {one.score_to_s for one in windows}))


class GroupHistory:
    """A group of comparable nodes, cut at the edges of the windows."""

    def __init__(self, group: Stratum, edges_s: Sequence[float]) -> None:
        """group: with node-days in the cells between the edges. edges_s: in order, in seconds
        since 1970.
        """
        self.group = group
        self._edges_s = np.array(edges_s)
        named = [(at, one) for at, some in enumerate(group.named) for one in some]
        self._named_at: Ints = np.array([at for at, _ in named], dtype=np.int64)
        self._named_s: Floats = np.array([one.end_s for _, one in named], dtype=np.float64)
        self._weights: Floats = np.array([one.weight for _, one in named], dtype=np.float64)
        self._shared_s: Floats = np.array([end_s for _, end_s in group.shared], dtype=np.float64)

    def node_days(self, from_s: float, to_s: float) -> Floats:
        """Exposure of each node in a period between two edges."""
        first, last = np.searchsorted(self._edges_s, (from_s, to_s))
        return np.asarray(self.group.cells_node_days[:, first:last].sum(axis=1))

    def counts(
        self, from_s: float, to_s: float, without: frozenset[str] = frozenset()
    ) -> tuple[Ints, NodeCounts]:
        """Places of the nodes that ran in a period, and what the model is fitted to there."""
        days = self.node_days(from_s, to_s)
        left_out = np.array([name in without for name in self.group.nodes], dtype=np.bool_)
        (kept,) = np.nonzero((days > 0) & ~left_out)
        place = np.full(len(days), -1)
        place[kept] = np.arange(len(kept))
        shared = []
        for at in np.flatnonzero((self._shared_s > from_s) & (self._shared_s <= to_s)).tolist():
            nodes = place[self.group.counts.shared[at].nodes]
            if (nodes >= 0).any():
                shared.append(replace(self.group.counts.shared[at], nodes=nodes[nodes >= 0]))
        signals = {
            name: np.array(
                [sum(from_s < one <= to_s for one in by_node[at]) for at in kept], dtype=np.float64
            )
            for name, by_node in self.group.signals_s.items()
        }
        service = self.group.service_node_days(from_s, to_s)
        return kept, NodeCounts(
            days[kept],
            self._named(from_s, to_s)[kept],
            shared,
            signals,
            None if service is None else service[kept],
        )

    def failures(self, from_s: float, to_s: float) -> Floats:
        """Failures of each node in a period; those without a culprit in equal parts.

        Equal parts, not the model's: a score must not rest on what is scored.
        """
        made = self._named(from_s, to_s)
        for at in np.flatnonzero((self._shared_s > from_s) & (self._shared_s <= to_s)).tolist():
            nodes = self.group.counts.shared[at].nodes
            made[nodes] += 1 / len(nodes)
        return made

    def _named(self, from_s: float, to_s: float) -> Floats:
        inside = (self._named_s > from_s) & (self._named_s <= to_s)
        counts = np.bincount(self._named_at[inside], self._weights[inside], len(self.group.nodes))
        return np.asarray(counts, dtype=np.float64)
