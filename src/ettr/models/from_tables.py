"""From the tables of failures, allocations and nodes to what a failure model is fitted to.

Take the rows that belong together before (one cluster, one partition, jobs above a size): every
function here uses all rows that it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ettr.errors import UsageError
from ettr.models.data import Counts, Floats, Labels, Lifetimes
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class ModelData:
    """Failures and exposure in one set of tables, cut the ways that models ask for.

    Attributes:
        by_node: Failures blamed on each node over its node-days; those that blame no node count as
            `unplaced`.
        since_failure: Time in use from one failure of a node to its next; the clock starts again
            at each failure and at the first allocation seen. None where no node was ever in use.
        by_age: Calendar age of nodes whose service date is known, left-truncated where observation
            began later; None where no date is known.
    """

    by_node: Counts
    since_failure: Lifetimes | None
    by_age: Lifetimes | None
    by_symptom: dict[str, int]
    notes: tuple[str, ...]


def from_tables(
    failures: pa.Table, allocations: pa.Table, nodes: pa.Table | None = None
) -> ModelData:
    """Counts and lifetimes of the nodes in tables of the store.

    Raises:
        UsageError: columns are missing, or nothing was ever allocated.
    """
    require("failures", failures, ("end", "node", "symptom"))
    require("allocations", allocations, ("node", "start", "elapsed_s"))
    if not allocations.num_rows:
        raise UsageError(
            "no allocations, so no exposure; ingest the jobs of the period, or widen the filter"
        )
    use = _Use(allocations)
    time_s, symptom, index = _blamed(failures, use.names)
    placed = index >= 0
    notes = []
    if not placed.all():
        notes.append(
            f"{np.count_nonzero(~placed)} of {index.size} failures blame no node that was in use; "
            "they count in the rate of the fleet, not of any node."
        )
    counts = np.bincount(index[placed], minlength=use.names.size)
    idle = (use.total_s == 0) & (counts > 0)
    unplaced = int(np.count_nonzero(~placed) + counts[idle].sum())
    counts[idle] = 0
    names, sums = np.unique(symptom, return_counts=True)
    return ModelData(
        by_node=Counts(counts, use.total_s / SECONDS_PER_DAY, use.names, "node", unplaced),
        since_failure=_since_failure(use, time_s[placed], symptom[placed], index[placed]),
        by_age=_by_age(use, time_s[placed], symptom[placed], index[placed], nodes, notes),
        by_symptom={str(n): int(s) for n, s in zip(names, sums, strict=True)},
        notes=tuple(notes),
    )


def require(name: str, table: pa.Table, columns: tuple[str, ...]) -> None:
    """Accept a table that has the columns. Raises UsageError: it lacks some."""
    missing = [column for column in columns if column not in table.column_names]
    if missing:
        raise UsageError(f"{name} lacks {', '.join(missing)}; give the table `{name}` of the store")


def _seconds(column: pa.ChunkedArray) -> Floats:
    micros = pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False)
    result: Floats = micros.astype(np.float64) / MICROSECONDS_PER_SECOND
    return result


def _numbers(column: pa.ChunkedArray) -> Floats:
    result: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return result


def _blamed(failures: pa.Table, names: Labels) -> tuple[Floats, Labels, NDArray[np.int64]]:
    """Time, symptom and index of the node of each failure; -1 where no node in use is blamed."""
    node = np.asarray(pc.fill_null(failures["node"], "").to_pylist(), dtype=np.str_)
    place = np.searchsorted(names, node) if names.size else np.zeros(node.size, np.int64)
    place = np.minimum(place, names.size - 1)
    known = (names[place] == node) & (node != "") if node.size else np.zeros(0, np.bool_)
    symptom = np.asarray(pc.fill_null(failures["symptom"], "").to_pylist(), dtype=np.str_)
    return _seconds(failures["end"]), symptom, np.where(known, place, -1).astype(np.int64)


class _Use:
    """When each node was in use, as a clock that runs only then."""

    def __init__(self, allocations: pa.Table) -> None:
        encoded = pc.dictionary_encode(allocations["node"]).combine_chunks()
        given = np.asarray(encoded.dictionary.to_pylist(), dtype=np.str_)
        self.names, rank = np.unique(given, return_inverse=True)
        node = rank[encoded.indices.to_numpy(zero_copy_only=False)]
        start, elapsed = _seconds(allocations["start"]), _numbers(allocations["elapsed_s"])
        order = np.lexsort((start, node))
        self.node, self.start_s, self.elapsed_s = node[order], start[order], elapsed[order]
        self.first = np.searchsorted(self.node, np.arange(self.names.size))
        done = np.concatenate(([0.0], np.cumsum(self.elapsed_s)))
        self.used_before_s = done[:-1] - done[self.first][self.node]
        self.total_s: Floats = np.zeros(self.names.size)
        np.add.at(self.total_s, self.node, self.elapsed_s)

    def clock_s(self, node: NDArray[np.int64], time_s: Floats) -> Floats:
        """Seconds in use of each node up to a time."""
        origin = self.start_s.min()
        span = max(float((self.start_s + self.elapsed_s).max()), float(time_s.max())) - origin + 1.0
        key = self.node * span + (self.start_s - origin)
        at = np.searchsorted(key, node * span + np.maximum(time_s - origin, 0.0), "right") - 1
        found = (at >= 0) & (self.node[at] == node)
        inside = np.clip(time_s - self.start_s[at], 0.0, self.elapsed_s[at])
        result: Floats = np.where(found, self.used_before_s[at] + inside, 0.0)
        return result


def _gaps(
    node: NDArray[np.int64], clock_s: Floats, symptom: Labels, first_s: Floats, last_s: Floats
) -> tuple[Floats, Floats, Any, NDArray[np.int64], Labels]:
    """Spans of each node between failures, then from its last failure to the end, censored."""
    everyone = np.arange(first_s.size)
    ends = np.concatenate([clock_s, last_s])
    who = np.concatenate([node, everyone])
    seen = np.concatenate([np.ones(clock_s.size, np.bool_), np.zeros(last_s.size, np.bool_)])
    what = np.concatenate([symptom, np.full(last_s.size, "", dtype=symptom.dtype)])
    order = np.lexsort((~seen, ends, who))
    ends, who, seen, what = ends[order], who[order], seen[order], what[order]
    begins = np.concatenate(([0.0], ends[:-1]))
    new = np.concatenate(([True], who[1:] != who[:-1]))
    begins[new] = first_s[who[new]]
    return begins, ends, seen, who, what


def _since_failure(
    use: _Use, time_s: Floats, symptom: Labels, node: NDArray[np.int64]
) -> Lifetimes | None:
    clock = use.clock_s(node, time_s) if node.size else np.zeros(0)
    begins, ends, seen, who, what = _gaps(
        node, clock, symptom, np.zeros(use.names.size), use.total_s
    )
    keep = ends > begins
    if not keep.any():
        return None
    return Lifetimes((ends - begins)[keep], seen[keep], None, use.names[who[keep]], what[keep])


def _by_age(
    use: _Use,
    time_s: Floats,
    symptom: Labels,
    node: NDArray[np.int64],
    nodes: pa.Table | None,
    notes: list[str],
) -> Lifetimes | None:
    if nodes is None:
        return None
    require("nodes", nodes, ("node", "in_service_from"))
    dated = nodes.filter(pc.is_valid(nodes["in_service_from"]))
    name = np.asarray(dated["node"].to_pylist(), dtype=np.str_)
    born = np.full(use.names.size, np.nan)
    if name.size:
        place = np.minimum(np.searchsorted(use.names, name), use.names.size - 1)
        match = use.names[place] == name
        born[place[match]] = _seconds(dated["in_service_from"])[match]
    known = ~np.isnan(born)
    if not known.all():
        notes.append(
            f"{np.count_nonzero(~known)} of {known.size} nodes have no service date; "
            "they are left out of lifetimes by age."
        )
    if not known.any():
        return None
    first = np.minimum.reduceat(use.start_s, use.first)
    last = np.maximum.reduceat(use.start_s + use.elapsed_s, use.first)
    born = np.where(known, born, first)
    begins, ends, seen, who, what = _gaps(
        node, time_s - born[node], symptom, np.maximum(first - born, 0.0), last - born
    )
    keep = (ends > begins) & known[who]
    if not keep.any():
        return None
    return Lifetimes(ends[keep], seen[keep], begins[keep], use.names[who[keep]], what[keep])


Period = tuple[pa.Table, pa.Table]
"""Failures and allocations of one period."""


def cut_at(failures: pa.Table, allocations: pa.Table, moment: datetime) -> tuple[Period, Period]:
    """Failures and allocations before a moment, and those from it on; no node-day is lost.

    A job that runs over the moment gives its exposure to both sides, and its failure to the side
    on which it ended. `elapsed_s` counts from `start`, so time suspended before the moment counts
    as time after it.

    Args:
        failures: Columns `end` and those that the models need.
        allocations: Columns `start`, `elapsed_s` and those that the models need.

    Raises:
        UsageError: a moment without a zone, or columns that are missing.
    """
    if moment.tzinfo is None:
        raise UsageError(
            f"{moment.isoformat()} has no time zone; write it with one, such as "
            f"{moment.isoformat()}+00:00"
        )
    require("failures", failures, ("end",))
    require("allocations", allocations, ("start", "elapsed_s"))
    cut = pa.scalar(moment, pa.timestamp("us", tz="UTC"))
    micros = pc.subtract(cut.cast(pa.int64()), pc.cast(allocations["start"], pa.int64()))
    until_s = pc.divide(pc.cast(micros, pa.float64()), float(MICROSECONDS_PER_SECOND))
    elapsed_s = allocations["elapsed_s"]
    first_s = pc.max_element_wise(pc.min_element_wise(elapsed_s, until_s), 0.0)
    second_s = pc.subtract(elapsed_s, first_s)
    late = pc.if_else(pc.less(allocations["start"], cut), cut, allocations["start"])
    before = _with(allocations, {"elapsed_s": first_s}).filter(pc.greater(first_s, 0.0))
    after = _with(allocations, {"elapsed_s": second_s, "start": late}).filter(
        pc.or_(pc.greater(second_s, 0.0), pc.greater_equal(allocations["start"], cut))
    )
    early = pc.less(failures["end"], cut)
    return (failures.filter(early), before), (failures.filter(pc.invert(early)), after)


def _with(table: pa.Table, columns: dict[str, pa.ChunkedArray]) -> pa.Table:
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    return table
