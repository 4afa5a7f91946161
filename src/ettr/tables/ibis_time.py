"""Timestamps as numbers, each engine in the way that costs it least.

Ibis has no name for microseconds since 1970. What it can say instead costs DuckDB four hundred
nanoseconds a row, because it asks its calendar about zones; its own function costs one.
"""

from __future__ import annotations

import ibis
import ibis.expr.operations as ops
from ibis.expr.types import IntegerValue, TimestampValue

from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

_MICROSECONDS_PER_DAY = int(MICROSECONDS_PER_SECOND * SECONDS_PER_DAY)


def _named(time: TimestampValue) -> IntegerValue:
    """DuckDB's own function; Ibis takes only its name and signature."""


_duckdb_epoch_us = ibis.udf.scalar.builtin(
    _named, name="epoch_us", signature=(("timestamp('UTC', 6)",), "int64")
)


def epoch_us(time: TimestampValue) -> IntegerValue:
    """Microseconds since 1970 of a UTC timestamp."""
    if _on_duckdb(time):
        return _duckdb_epoch_us(time)
    return time.delta(ibis.timestamp("1970-01-01 00:00:00+00:00"), unit="microsecond").cast("int64")


def epoch_s(time: TimestampValue) -> IntegerValue:
    """Whole seconds since 1970 of a UTC timestamp, rounded down on every engine."""
    if _on_duckdb(time):
        return (_duckdb_epoch_us(time) // int(MICROSECONDS_PER_SECOND)).cast("int64")
    # not from microseconds: Ibis cannot take those out of a timestamp on Spark
    return time.epoch_seconds().cast("float64").floor().cast("int64")


def epoch_day(time: TimestampValue) -> IntegerValue:
    """Whole UTC days since 1970 of a UTC timestamp, rounded down on every engine."""
    if _on_duckdb(time):
        # no step over seconds: each division costs as much as to read the column
        return (_duckdb_epoch_us(time) // _MICROSECONDS_PER_DAY).cast("int64")
    return (epoch_s(time) // int(SECONDS_PER_DAY)).cast("int64")


def _on_duckdb(time: TimestampValue) -> bool:
    """Whether an expression is bound to DuckDB; tables in memory alone are bound to no engine."""
    bound = time.op().find(ops.DatabaseTable)
    return bool(bound) and all(table.source.name == "duckdb" for table in bound)
