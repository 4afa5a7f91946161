"""Which episodes fell into the window around the end of which attempts."""

from __future__ import annotations

import ibis
from ibis.expr.types import Table

from ettr.attribution.rules import Window, seconds
from ettr.tables.ibis_time import epoch_us

_BUCKET_S = 3600.0
_CARRIED = (
    "cluster",
    "node",
    "episode_id",
    "check",
    "code_key",
    "symptom",
    "domain",
    "rank",
    "fault",
    "down",
    "first",
    "last",
)


def observed(telling: Table, allocations: Table, window: Window | None = None) -> Table:
    """One row for each ended attempt, node and episode that was seen there within the window.

    Every end state counts: the completed attempts measure how often the window errs. The join is
    on node and hour of the end, so that an observation meets only the attempts that ended near it.

    Args:
        telling: rows of `ettr.attribution.episodes.blaming`.
        allocations: the table `allocations`.
        window: the part of an attempt that counts.
    """
    window = window or Window()
    bucket_us = round(max(_BUCKET_S, window.length_s) * 1_000_000)
    before, after = seconds(window.before_s), seconds(window.after_s)
    ends = allocations.filter(allocations.end.notnull())
    ends = ends.select(
        "cluster", "node", "attempt_id", "end", "start", bucket=epoch_us(ends.end) // bucket_us
    )
    reach = telling.mutate(
        from_bucket=epoch_us(telling["first"] - after) // bucket_us,
        to_bucket=epoch_us(telling["last"] + before) // bucket_us,
    )
    reach = reach.mutate(
        bucket=ibis.range(reach.from_bucket, reach.to_bucket + 1, 1).unnest()
    ).select(*_CARRIED, "bucket")
    met = ends.join(reach, ["cluster", "node", "bucket"])
    begins = ibis.greatest(met.start, met.end - before)
    inside = met.filter((met["first"] <= met.end + after) & (met["last"] >= begins))
    return inside.group_by(
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
    ).agg(first=inside["first"].min(), end=inside.end.max())
