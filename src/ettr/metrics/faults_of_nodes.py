"""Faults of nodes, one after another: as logs record them, or put together from errors and outages.

They are columns, not objects: a fleet has hundreds of thousands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ettr.facts import Facts
from ettr.metrics.instants import Floats, Period, to_seconds
from ettr.metrics.outages import Outage
from ettr.units import MICROSECONDS_PER_SECOND

Flags = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
Places = npt.NDArray[np.int64]
NodeKey = tuple[str, str | None]
"""Cluster and node; the node is None where the log names none."""

UNKNOWN_CATEGORY = "unknown"
_WITH_ENDS = frozenset({"infinitehbd", "lanl"})
"""Sources that record ends: there a fault without one is not over. Elsewhere it is a moment."""
_NO_RANK = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """Faults of nodes, a column for each fact; all columns are of one length.

    Attributes:
        node: Place in `nodes` of the node of each fault.
        down_s: How long the node was out of service for it so far; NaN where no log says.
    """

    nodes: tuple[NodeKey, ...]
    node: Places
    category: Texts
    start_s: Floats
    down_s: Floats
    is_over: Flags
    has_error: Flags
    has_outage: Flags

    def __len__(self) -> int:
        return len(self.node)

    @property
    def by_node(self) -> dict[NodeKey, int]:
        """How many faults each node had that had any."""
        counts = np.bincount(self.node, minlength=len(self.nodes)).tolist()
        return {node: n for node, n in zip(self.nodes, counts, strict=True) if n}

    def of_nodes(self, wanted: Sequence[bool]) -> NodeFaults:
        """Those of some of the nodes, one flag for each of `nodes`."""
        return self.only(np.asarray(wanted, dtype=np.bool_)[self.node])

    def only(self, kept: Flags) -> NodeFaults:
        """Those with a flag that is true, one flag for each fault."""
        return NodeFaults(
            self.nodes,
            self.node[kept],
            self.category[kept],
            self.start_s[kept],
            self.down_s[kept],
            self.is_over[kept],
            self.has_error[kept],
            self.has_outage[kept],
        )


def recorded_faults(facts: Facts, period: Period) -> NodeFaults:
    """The faults of logs that record faults, each with its category: its code up to a slash.

    Each event of their checks (`infinitehbd`, `lanl`, and `fault` for tables of a site's own) is
    one fault, with its end where it is over. Raw messages such as XIDs are not among them: one
    fault may write any number of them.
    """
    rows = facts.columns("recorded_faults")
    nodes, node = _distinct(rows["cluster"].tolist(), rows["node"].tolist())
    start_s, end_s = (rows[name] / MICROSECONDS_PER_SECOND for name in ("time_us", "time_end_us"))
    is_over = ~np.isnan(end_s)
    has_ends = np.array([one in _WITH_ENDS for one in rows["source"].tolist()], dtype=np.bool_)
    until_s = np.where(is_over, end_s, np.where(has_ends, to_seconds(period.end), np.nan))
    return NodeFaults(
        nodes=nodes,
        node=node,
        category=np.array([_category(code) for code in rows["code"].tolist()], dtype=object),
        start_s=start_s,
        down_s=np.maximum(until_s - start_s, 0.0),
        is_over=is_over,
        has_error=np.ones(len(node), dtype=np.bool_),
        has_outage=np.zeros(len(node), dtype=np.bool_),
    )


def _category(code: str | None) -> str:
    return (code or UNKNOWN_CATEGORY).split("/", 1)[0] or UNKNOWN_CATEGORY


def _distinct(
    clusters: Sequence[str], names: Sequence[str | None]
) -> tuple[tuple[NodeKey, ...], Places]:
    """The distinct nodes, those without a name last, and the place of each row's among them."""
    keys = list(zip(clusters, names, strict=True))
    ordered = sorted(set(keys), key=lambda key: (key[0], key[1] is None, key[1]))
    place = {key: at for at, key in enumerate(ordered)}
    return tuple(ordered), np.array([place[key] for key in keys], dtype=np.int64)


def observed_faults(facts: Facts, outages: Sequence[Outage], gap_s: float) -> NodeFaults:
    """Faults put together from errors and unplanned outages of nodes, in order of node and time.

    What follows on one node within `gap_s` of what came before belongs to the same fault. Its
    category is the symptom of its strongest error; without any, the class of the outage's reason.
    """
    unplanned = [outage for outage in outages if not outage.is_planned]
    parts = _ErrorsAndOutages.of(facts.columns("fault_episodes"), unplanned)
    begins = parts.begins(gap_s)
    (first,) = np.nonzero(begins)
    fault = np.cumsum(begins) - 1
    # of the parts of one fault the strongest error comes first, and outages after all errors
    strongest = np.lexsort((parts.rank, fault))[first]
    down_s = np.bincount(fault, weights=parts.down_s, minlength=len(first))
    has_outage = np.bincount(fault, weights=parts.is_outage, minlength=len(first)) > 0
    is_open = np.bincount(fault, weights=parts.is_open, minlength=len(first)) > 0
    return NodeFaults(
        nodes=parts.nodes,
        node=parts.node[first],
        category=parts.category[strongest],
        start_s=parts.start_s[first],
        down_s=np.where(has_outage, down_s, np.nan),
        is_over=~is_open,
        has_error=~parts.is_outage[strongest],
        has_outage=has_outage,
    )


@dataclass(frozen=True, slots=True)
class _ErrorsAndOutages:
    """Errors and outages in order of node, start and end; columns of one length."""

    nodes: tuple[NodeKey, ...]
    node: Places
    start_s: Floats
    end_s: Floats
    category: Texts
    rank: Places
    is_outage: Flags
    is_open: Flags
    down_s: Floats

    @staticmethod
    def of(errors: Mapping[str, npt.NDArray[Any]], outages: Sequence[Outage]) -> _ErrorsAndOutages:
        n_errors, n_outages = len(errors["node"]), len(outages)
        nodes, node = _distinct(
            [*errors["cluster"].tolist(), *(outage.cluster for outage in outages)],
            [*errors["node"].tolist(), *(outage.node for outage in outages)],
        )
        down = np.array([(o.start_s, o.end_s, o.is_open) for o in outages]).reshape(-1, 3)
        first_s, last_s = (
            errors[name] / MICROSECONDS_PER_SECOND for name in ("first_us", "last_us")
        )
        start_s = np.concatenate([first_s, down[:, 0]])
        end_s = np.maximum(np.concatenate([last_s, down[:, 1]]), start_s)
        category = [*errors["symptom"].tolist(), *(outage.reason_class for outage in outages)]
        ranks = errors["rank"].astype(np.int64)
        is_outage = np.repeat([False, True], [n_errors, n_outages])
        order = np.lexsort((end_s, start_s, node))
        return _ErrorsAndOutages(
            nodes=nodes,
            node=node[order],
            start_s=start_s[order],
            end_s=end_s[order],
            category=np.array(category, dtype=object)[order],
            rank=np.concatenate([ranks, np.full(n_outages, _NO_RANK)])[order],
            is_outage=is_outage[order],
            is_open=np.concatenate([np.zeros(n_errors), down[:, 2]]).astype(np.bool_)[order],
            down_s=np.concatenate([np.zeros(n_errors), down[:, 1] - down[:, 0]])[order],
        )

    def begins(self, gap_s: float) -> Flags:
        """Whether a fault begins with each part: a new node, or a silence longer than the gap."""
        found = np.ones(len(self.node), dtype=np.bool_)
        if not len(self.node):
            return found
        # the latest end so far on the node, exactly: by the place of each end among all ends
        by_end = np.argsort(self.end_s, kind="stable")
        place = np.empty(len(by_end), dtype=np.int64)
        place[by_end] = np.arange(len(by_end))
        latest = np.maximum.accumulate(self.node * len(by_end) + place) % len(by_end)
        reach_s = self.end_s[by_end][latest]
        same_node = self.node[1:] == self.node[:-1]
        found[1:] = ~same_node | (self.start_s[1:] > reach_s[:-1] + gap_s)
        return found
