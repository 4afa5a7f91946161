"""Which observations fell into the window around the end of which attempts.

The window is tested here and nowhere else, for each observation. Segments (see `episodes`) only
make it cheap: where both ends of a segment decide, its observations need not be looked at.
"""

from __future__ import annotations

import ibis
from ibis.expr.types import BooleanValue, Table, TimestampValue

from ettr.attribution.episodes import THING
from ettr.attribution.rules import Window, seconds
from ettr.tables.ibis_time import epoch_us
from ettr.tables.materialize import materialize
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR

_SEGMENT = (*THING, "stretch", "fault", "down", "rank")
"""What a segment and its observations share; none of it is null."""
_EPISODE = (
    "attempt_id",
    "node",
    "episode_id",
    "check",
    "code_key",
    "symptom",
    "domain",
    "rank",
    "fault",
    "down",
)


def window_begins(start: TimestampValue, end: TimestampValue, window: Window) -> TimestampValue:
    """When the window of an attempt begins: never before the attempt did."""
    return ibis.greatest(start, end - seconds(window.before_s))


def in_window(
    time: TimestampValue,
    until: TimestampValue,
    start: TimestampValue,
    end: TimestampValue,
    window: Window,
) -> BooleanValue:
    """Whether an observation from `time` to `until` was made in the window of an attempt."""
    return (time <= end + seconds(window.after_s)) & (until >= window_begins(start, end, window))


def observed(parts: Table, seen: Table, allocations: Table, window: Window | None = None) -> Table:
    """One row for each ended attempt, node and episode that was observed there in the window.

    Every end state counts: the completed attempts measure how often the window errs. `first` is
    when the episode was first observed in the window; for a segment that began before it, when the
    window began.

    Args:
        parts: rows of `ettr.attribution.episodes.explanatory_segments`.
        seen: rows of `ettr.attribution.episodes.observations`, from which `parts` was made.
        allocations: the table `allocations`.
        window: the part of an attempt that counts.
    """
    window = window or Window()
    pairs = materialize(_segments_in_window(parts, allocations, window))
    # A segment of one observation is that observation. Where a longer one begins in the window, or
    # ends in it and before the attempt does, an observation at that end is in the window too.
    # What is left may have been observed before and after the window alone, or only after the end.
    decided = (
        (pairs.n_events == 1) | (pairs["first"] >= pairs.begins) | (pairs["last"] <= pairs.end)
    )
    found = pairs.filter(decided).mutate(first=ibis.greatest(pairs["first"], pairs.begins))
    found = found.select(*_EPISODE, "first", "end")
    open_pairs = pairs.filter(~decided)
    if open_pairs.count().to_pyarrow().as_py():
        looked_at = _observations_of(open_pairs, seen, window).select(*found.columns)
        found = ibis.union(found, looked_at, distinct=False)
    return found.group_by(*_EPISODE).agg(first=found["first"].min(), end=found.end.max())


def observations_in_window(
    parts: Table, seen: Table, allocations: Table, window: Window | None = None
) -> Table:
    """The observations behind `observed`: `attempt_id`, `event_id`, `episode_id`, `fault`, `down`.

    Arguments as for `observed`. Every observation is joined: for few attempts, not for a fleet.
    """
    window = window or Window()
    found = _observations_of(_segments_in_window(parts, allocations, window), seen, window)
    return found.select("attempt_id", "event_id", "episode_id", "fault", "down").distinct()


def _segments_in_window(parts: Table, allocations: Table, window: Window) -> Table:
    """Pairs of an allocation and a segment that overlaps its window.

    The join is on node and hour of the end, so that a segment meets only the attempts that ended
    near it.
    """
    bucket_us = round(max(SECONDS_PER_HOUR, window.length_s) * MICROSECONDS_PER_SECOND)
    before, after = seconds(window.before_s), seconds(window.after_s)
    ends = allocations.filter(allocations.end.notnull())
    ends = ends.select(
        "cluster", "node", "attempt_id", "end", "start", bucket=epoch_us(ends.end) // bucket_us
    )
    reach = parts.mutate(
        from_bucket=epoch_us(parts["first"] - after) // bucket_us,
        to_bucket=epoch_us(parts["last"] + before) // bucket_us,
    )
    reach = reach.mutate(
        bucket=ibis.range(reach.from_bucket, reach.to_bucket + 1, 1).unnest()
    ).drop("from_bucket", "to_bucket", "sticky", "sympathetic")
    met = ends.join(reach, ["cluster", "node", "bucket"]).drop("bucket")
    met = met.filter(in_window(met["first"], met["last"], met.start, met.end, window))
    return met.mutate(begins=window_begins(met.start, met.end, window))


def _observations_of(pairs: Table, seen: Table, window: Window) -> Table:
    """The observations of those segments that were made in the window, each with its attempt."""
    made = seen.select(*_SEGMENT, "event_id", "time", "until")
    met = pairs.drop("first", "last").join(made, list(_SEGMENT))
    met = met.filter(in_window(met.time, met.until, met.start, met.end, window))
    return met.mutate(first=ibis.greatest(met.time, met.begins))
