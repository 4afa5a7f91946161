"""Who cancelled a job, from the controller's log, where the accounting does not say it.

After a restart of the controller Slurm sends jobs to the accounting again, and `CANCELLED by 0`
becomes plain `CANCELLED`. The controller's log keeps the request with the uid of who made it.
"""

from __future__ import annotations

import ibis
from ibis.expr.types import Table

from ettr.attribution.rules import LogMatching
from ettr.attribution.verdicts import SLURMCTLD
from ettr.tables.ibis_time import epoch_us
from ettr.units import MICROSECONDS_PER_SECOND

_UID = r"\buid[ =](\d+)"


def with_cancellers(attempts: Table, events: Table, matching: LogMatching | None = None) -> Table:
    """The same attempts, `cancelled_by` filled from the request in the controller's log.

    A request belongs to a job that ended CANCELLED near it; the last request counts. What the
    accounting says is never changed.

    Args:
        attempts: the table `attempts`.
        events: the table `events`.
        matching: how far from the end of the job a request may lie.
    """
    asked = events.filter(
        (events.check == SLURMCTLD) & (events.code == "CANCELLED") & events.job_id.notnull()
    )
    asked = asked.mutate(uid=asked.message.re_extract(_UID, 1).nullif(""))
    lines = asked.filter(asked.uid.notnull()).select(
        "cluster", "uid", "time", asked=asked.job_id.re_replace(r"_\*$", "")
    )
    unknown = attempts.filter(
        (attempts.state == "CANCELLED") & attempts.cancelled_by.isnull() & attempts.end.notnull()
    )
    by_id = unknown.select("cluster", "attempt_id", "end", asked="job_id")
    # a request for an array is one for each of its tasks
    tasks = unknown.filter(unknown.array_job_id.notnull())
    by_array = tasks.select("cluster", "attempt_id", "end", asked="array_job_id")
    # a job always has an id, not every job an array: a union wants both to be such as may be null
    ids = ibis.union(*(some.cast({"asked": "string"}) for some in (by_id, by_array)))
    met = ids.inner_join(lines, ["cluster", "asked"])
    tolerance_us = round((matching or LogMatching()).tolerance_s * MICROSECONDS_PER_SECOND)
    near = met.filter((epoch_us(met.time) - epoch_us(met.end)).abs() <= tolerance_us)
    rows = near.order_by("time", "uid").select("attempt_id", "uid").to_pyarrow().to_pylist()
    known = {row["attempt_id"]: row["uid"] for row in rows}
    if not known:
        return attempts
    found = ibis.memtable(
        {"attempt_id": list(known), "uid": list(known.values())},
        schema={"attempt_id": "string", "uid": "string"},
    )
    joined = attempts.left_join(found, "attempt_id")
    return joined.mutate(cancelled_by=ibis.coalesce(joined.cancelled_by, joined.uid)).select(
        *attempts.columns
    )
