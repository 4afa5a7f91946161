"""Whether the allocations say no more than the attempts do: then few questions need a join of both.

A scheduler's accounting lists the nodes of an attempt, and an ingestion makes a row of
`allocations` for each of them, with the times of the attempt. Where that holds throughout, the
node-time of an attempt is its time times its nodes. To join millions of attempts with what they
held by their ids, which are long texts, costs ten times as much as to test it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import ibis
import ibis.expr.operations as ops
from ibis.expr.types import IntegerValue, StringValue, Table, TimestampValue

from ettr.metrics.instants import fetch, first_row, has_rows

_HALF_BITS = 32
_LOW_HALF = (1 << _HALF_BITS) - 1
_MOMENT = "timestamp('UTC', 6)"


def _named(
    attempt_id: StringValue, start: TimestampValue, end: TimestampValue, elapsed_s: float
) -> IntegerValue:
    """DuckDB's own function; Ibis takes only its name and signature."""


_duckdb_hash = ibis.udf.scalar.builtin(
    _named, name="hash", signature=(("string", _MOMENT, _MOMENT, "float64"), "uint64")
)


def every_node_is_listed(
    attempts: Table, allocations: Table, held_nodes: AbstractSet[tuple[str, str]]
) -> bool:
    """Whether each attempt with a list of nodes holds as many rows as it has, with its own times.

    Also that no other rows are held, and that the list of an attempt on one node is the name of a
    node. Both are tables of one DuckDB; on other engines, and of tables in memory, the answer is
    False, which costs time and changes no figure.

    Two sums of hashes are compared, of the rows that are there and of those that should be. One row
    too many or too few, or of other times, changes both. Which nodes the rows name is not compared:
    an ingestion makes them of the lists, and of tables that contradict each other the lists count.

    Args:
        attempts: the table `attempts`.
        allocations: the table `allocations`.
        held_nodes: cluster and name of each node in `allocations`.
    """
    bound = [one for table in (attempts, allocations) for one in table.op().find(ops.DatabaseTable)]
    if not bound or any(one.source.name != "duckdb" for one in bound):
        return False
    listed = attempts.filter(attempts["node_list"].notnull())
    is_number = (listed["n_nodes"] >= 0).fill_null(False)
    if has_rows(listed.filter(~is_number)):
        return False
    single = fetch(listed.filter(listed["n_nodes"] == 1).select("cluster", "node_list").distinct())
    if not set(zip(*(column.to_pylist() for column in single.columns), strict=True)) <= held_nodes:
        return False
    return _sums(listed, listed["n_nodes"]) == _sums(allocations)


def _sums(rows: Table, times: IntegerValue | None = None) -> tuple[int, ...]:
    """How many rows there are, each so many `times`, and sums of both halves of their hashes."""
    hashed = _duckdb_hash(rows["attempt_id"], rows["start"], rows["end"], rows["elapsed_s"])
    columns = {"low": hashed & _LOW_HALF, "high": hashed >> _HALF_BITS}
    if times is None:
        some = rows.select(**columns)
        sums = some.aggregate(rows=some.count(), low=some["low"].sum(), high=some["high"].sum())
    else:
        some = rows.select(times=times.cast("uint64"), **columns)
        sums = some.aggregate(
            rows=some["times"].sum(),
            low=(some["low"] * some["times"]).sum(),
            high=(some["high"] * some["times"]).sum(),
        )
    return tuple(int(value or 0) for value in first_row(sums).values())
