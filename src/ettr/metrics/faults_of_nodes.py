"""Faults of nodes, one after another: as logs record them, or put together from errors and outages.

They are columns, not objects: a fleet has hundreds of thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ibis
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ettr.metrics.instants import Floats, Period, fetch, floats_of, seconds_of, to_seconds
from ettr.metrics.outages import Outage

Flags = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
Places = npt.NDArray[np.int64]
NodeKey = tuple[str, str | None]
"""Cluster and node; the node is None where the log names none."""

FAULT_CHECKS = ("infinitehbd", "lanl", "fault")
"""Checks of which each event is one fault; `fault` is for tables of a site's own."""
UNKNOWN_CATEGORY = "unknown"
_WITH_ENDS = frozenset({"infinitehbd", "lanl"})
"""Sources that record ends: there a fault without one is not over. Elsewhere it is a moment."""
_NO_RANK = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """Faults of nodes, a column for each fact; all columns are of one length.

    Attributes:
        nodes: The distinct nodes.
        node: Place in `nodes` of the node of each fault.
        category: What kind of fault.
        start_s: When it began, in seconds since 1970.
        down_s: How long the node was out of service for it so far; NaN where no log says.
        is_over: Whether that time has ended.
        has_error: Whether an error of the node was seen.
        has_outage: Whether the node went out of service.
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


def recorded_faults(
    events: ibis.Table, period: Period, checks: tuple[str, ...] = FAULT_CHECKS
) -> NodeFaults:
    """The faults of logs that record faults, each with its category: its code up to a slash.

    Args:
        events: observations; each of the named checks is one fault, with its end where it is over.
        period: a fault that is not over has lasted until its end.
        checks: which checks record faults. Raw messages such as XIDs are not among them: one
            fault may write any number of them.
    """
    recorded = events.filter(events["check"].isin(list(checks)))
    rows = fetch(recorded, "cluster", "node", "code", "source", "time", "time_end")
    nodes, node = _distinct(rows["cluster"], rows["node"])
    start_s, end_s = seconds_of(rows["time"]), seconds_of(rows["time_end"])
    is_over = ~np.isnan(end_s)
    has_ends = np.array([one in _WITH_ENDS for one in rows["source"].to_pylist()], dtype=np.bool_)
    until_s = np.where(is_over, end_s, np.where(has_ends, to_seconds(period.end), np.nan))
    return NodeFaults(
        nodes=nodes,
        node=node,
        category=np.array([_category(code) for code in rows["code"].to_pylist()], dtype=object),
        start_s=start_s,
        down_s=np.maximum(until_s - start_s, 0.0),
        is_over=is_over,
        has_error=np.ones(len(node), dtype=np.bool_),
        has_outage=np.zeros(len(node), dtype=np.bool_),
    )


def _category(code: str | None) -> str:
    return (code or UNKNOWN_CATEGORY).split("/", 1)[0] or UNKNOWN_CATEGORY


def _distinct(
    clusters: pa.ChunkedArray, names: pa.ChunkedArray
) -> tuple[tuple[NodeKey, ...], Places]:
    """The distinct nodes, those without a name last, and the place of each row's among them."""
    coded = [column.combine_chunks().dictionary_encode() for column in (clusters, names)]
    known = [column.dictionary.to_pylist() for column in coded]
    cluster = coded[0].indices.to_numpy(zero_copy_only=False).astype(np.int64)
    # a row that names no node has the place after the last name
    name = coded[1].indices.fill_null(len(known[1])).to_numpy(zero_copy_only=False).astype(np.int64)
    width = len(known[1]) + 1
    pairs, place = np.unique(cluster * width + name, return_inverse=True)
    keys = [(known[0][pair // width], (*known[1], None)[pair % width]) for pair in pairs.tolist()]
    order = sorted(range(len(keys)), key=lambda i: (keys[i][0], keys[i][1] is None, keys[i][1]))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys))
    return tuple(keys[i] for i in order), rank[place]


def observed_faults(errors: pa.Table, outages: Sequence[Outage], gap_s: float) -> NodeFaults:
    """Faults put together from errors and unplanned outages of nodes, in order of node and time.

    What follows on one node within `gap_s` of what came before belongs to the same fault. Its
    category is the symptom of its strongest error; without any, the class of the outage's reason.

    Args:
        errors: episodes of critical errors: `cluster`, `node`, `symptom`, `rank`, `first`, `last`.
        outages: outages of nodes; planned ones are no faults.
        gap_s: the longest silence within one fault, in seconds.
    """
    parts = _ErrorsAndOutages.of(errors, [outage for outage in outages if not outage.is_planned])
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
    def of(errors: pa.Table, outages: Sequence[Outage]) -> _ErrorsAndOutages:
        n_errors, n_outages = errors.num_rows, len(outages)
        nodes, node = _distinct(
            *(
                pa.chunked_array([*errors[name].chunks, pa.array(own, pa.string())], pa.string())
                for name, own in (
                    ("cluster", [outage.cluster for outage in outages]),
                    ("node", [outage.node for outage in outages]),
                )
            )
        )
        down = np.array([(o.start_s, o.end_s, o.is_open) for o in outages]).reshape(-1, 3)
        start_s = np.concatenate([seconds_of(errors["first"]), down[:, 0]])
        end_s = np.maximum(np.concatenate([seconds_of(errors["last"]), down[:, 1]]), start_s)
        category = [*errors["symptom"].to_pylist(), *(outage.reason_class for outage in outages)]
        ranks = floats_of(errors["rank"]).astype(np.int64)
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
