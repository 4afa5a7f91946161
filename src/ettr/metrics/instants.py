"""Moments in time as numbers in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

if TYPE_CHECKING:
    import pyarrow as pa

    from ettr.facts import Facts

Floats = npt.NDArray[np.float64]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(seconds: float) -> datetime:
    """The moment that lies `seconds` after 1970, in UTC."""
    return _EPOCH + timedelta(seconds=float(seconds))


def moment(microseconds: float) -> datetime:
    """The moment so many microseconds after 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=int(microseconds))


def to_seconds(moment: datetime) -> float:
    """Seconds from 1970 to `moment`."""
    return (moment - _EPOCH).total_seconds()


def seconds_of(column: pa.ChunkedArray) -> Floats:
    """A fetched timestamp column as seconds since 1970; null becomes NaN."""
    import pyarrow as pa

    counts = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return np.asarray(counts.to_numpy(), dtype=np.float64) / MICROSECONDS_PER_SECOND


def floats_of(column: pa.ChunkedArray) -> Floats:
    """A fetched numeric column as floats; null becomes NaN."""
    import pyarrow as pa

    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Period:
    """The time that the logs cover: what is still open is cut at `end`."""

    start: datetime
    end: datetime

    @property
    def days(self) -> float:
        """Length in days."""
        return (self.end - self.start).total_seconds() / SECONDS_PER_DAY


def observed_period(facts: Facts) -> Period | None:
    """The time from the first to the last moment that any log names; None where none names any.

    An attempt that has not ended reaches to its start plus the runtime that accounting gave it,
    since that runtime counts. What nodes were held, progress and days of logs count where jobs,
    states of nodes, events and the inventory name no moment at all.
    """
    seen = _moments(facts, "log_moments") or _moments(facts, "other_moments")
    return Period(min(seen), max(seen)) if seen else None


def _moments(facts: Facts, name: str) -> list[datetime]:
    rows = facts.rows(name)
    found = [
        moment(value)
        for row in rows
        for column, value in row.items()
        if column.endswith("_us") and value is not None
    ]
    last_s = [row["runs_until_s"] for row in rows if row.get("runs_until_s") is not None]
    return found + [to_datetime(second) for second in last_s]
