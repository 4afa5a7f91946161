"""Moments in time as numbers in NumPy.

Expressions work in whole seconds (`ettr.tables.ibis_time.epoch_s`), which is what schedulers write.
Small tables come out of the engine with their microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import ibis
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ettr.tables.ibis_time import epoch_s
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

Floats = npt.NDArray[np.float64]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(seconds: float) -> datetime:
    """The moment that lies `seconds` after 1970, in UTC."""
    return _EPOCH + timedelta(seconds=float(seconds))


def in_utc(moment: datetime) -> datetime:
    """The moment with its zone; some backends hand out UTC without saying so."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def to_seconds(moment: datetime) -> float:
    """Seconds from 1970 to `moment`."""
    return (moment - _EPOCH).total_seconds()


def seconds_of(column: pa.ChunkedArray) -> Floats:
    """A fetched timestamp column as seconds since 1970; null becomes NaN."""
    counts = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return np.asarray(counts.to_numpy(), dtype=np.float64) / MICROSECONDS_PER_SECOND


def floats_of(column: pa.ChunkedArray) -> Floats:
    """A fetched numeric column as floats; null becomes NaN."""
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def fetch(table: ibis.Table, *names: str) -> pa.Table:
    """Rows of a small table in memory, with only the named columns where any are named."""
    return (table.select(*names) if names else table).to_pyarrow()


def has_rows(table: ibis.Table) -> bool:
    """Whether a table has any row."""
    return bool(table.limit(1).count().to_pyarrow().as_py())


def first_row(table: ibis.Table) -> dict[str, Any]:
    """The only row of an aggregate."""
    rows: list[dict[str, Any]] = table.to_pyarrow().to_pylist()
    return rows[0]


@dataclass(frozen=True, slots=True)
class Period:
    """The time that the logs cover: what is still open is cut at `end`."""

    start: datetime
    end: datetime

    @property
    def days(self) -> float:
        """Length in days."""
        return (self.end - self.start).total_seconds() / SECONDS_PER_DAY


def observed_period(
    attempts: ibis.Table,
    node_states: ibis.Table | None = None,
    events: ibis.Table | None = None,
    nodes: ibis.Table | None = None,
    *otherwise: ibis.Table,
) -> Period | None:
    """The time from the first to the last moment that any table names; None for empty tables.

    An attempt that has not ended reaches to its start plus the runtime that accounting gave it,
    since that runtime counts. Where the inventory says from when to when its nodes were in service,
    those moments count too.

    Args:
        attempts: the table `attempts`; likewise the next three.
        node_states: scheduler states of nodes.
        events: observations, or what is known of them by day (`event_census`).
        nodes: the inventory.
        otherwise: tables with `time`, or with `start` and `end`, that count where those above name
            no moment at all.
    """
    moments: list[tuple[ibis.Table, tuple[str, ...]]] = [(attempts, ("start", "end", "submit"))]
    if node_states is not None:
        moments.append((node_states, ("start", "end")))
    if events is not None:
        of_events = ("time", "time_end", "first", "last", "first_end", "last_end")
        moments.append((events, tuple(name for name in of_events if name in events.columns)))
    if nodes is not None:
        moments.append((nodes, ("in_service_from", "in_service_to")))
    seen = [moment for table, names in moments for moment in _moments(table, names)]
    seen += _runtime_so_far(attempts)
    if not seen:
        known = ("start", "end", "time")
        seen = [
            moment
            for table in otherwise
            for moment in _moments(table, tuple(set(known) & set(table.columns)))
        ]
    if not seen:
        return None
    whole = [in_utc(moment) for moment in seen]
    return Period(min(whole), max(whole))


def _runtime_so_far(attempts: ibis.Table) -> list[datetime]:
    """The last moment up to which the runtime of attempts without an end counts."""
    going_on = attempts.filter(attempts["end"].isnull() & attempts["start"].notnull())
    until_s = epoch_s(going_on["start"]).cast("float64") + going_on["elapsed_s"].cast("float64")
    last_s = first_row(going_on.aggregate(last_s=until_s.max()))["last_s"]
    return [] if last_s is None else [to_datetime(last_s)]


def _moments(table: ibis.Table, names: tuple[str, ...]) -> list[datetime]:
    """The first and the last moment in each of those columns, where there is any."""
    ends = {
        f"{way}_{name}": getattr(table[name], way)() for name in names for way in ("min", "max")
    }
    return [value for value in first_row(table.aggregate(**ends)).values() if value]
