"""Small tables in the middle, computed once and kept on the backend of the input."""

from __future__ import annotations

import ibis.expr.operations as ops
from ibis.expr.types import Table


def materialize(some: Table) -> Table:
    """The same rows, computed once and kept as long as the result is referred to.

    An expression on nothing but tables in memory (a log that was never ingested) stays as it is: it
    belongs to no backend, and keeping it would bind it to one that is not the others'.
    """
    physical = some.op().find(ops.PhysicalTable)
    if all(isinstance(table, ops.InMemoryTable) for table in physical):
        return some
    if any(getattr(table, "source", None) and table.source.name != "duckdb" for table in physical):
        some.limit(0).to_pyarrow()  # on Spark only an execution makes tables in memory known
    return some.cache()
