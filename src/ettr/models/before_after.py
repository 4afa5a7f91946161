"""Tables cut at a moment, so that the time before an upgrade compares with the time after."""

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from ettr.errors import UsageError
from ettr.models.from_tables import require
from ettr.units import MICROSECONDS_PER_SECOND

Period = tuple[pa.Table, pa.Table]
"""Failures and allocations of one period."""


def cut_at(failures: pa.Table, allocations: pa.Table, moment: datetime) -> tuple[Period, Period]:
    """Failures and allocations before a moment, and those from it on; no node-day is lost.

    A job that runs over the moment gives its exposure to both sides, and its failure to the side on
    which it ended. `elapsed_s` counts from `start`, so time suspended before the moment counts as
    time after it.

    Args:
        failures: Columns `end` and those that the models need.
        allocations: Columns `start`, `elapsed_s` and those that the models need.
        moment: With its time zone.

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
