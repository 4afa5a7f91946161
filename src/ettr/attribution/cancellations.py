"""Who cancelled a job, from the controller's log, where the accounting does not say it.

After a restart of the controller Slurm sends jobs to the accounting again, and `CANCELLED by 0`
becomes plain `CANCELLED`. The controller's log keeps the request with the uid of who made it.
"""

from __future__ import annotations

import re

from ettr.facts import Facts, made

_UID = re.compile(r"\buid[ =](\d+)", re.ASCII)


@made(
    "cancellers",
    (("attempt_id", "VARCHAR"), ("uid", "VARCHAR")),
    reads=("cancel_requests",),
)
def _cancellers(facts: Facts) -> list[tuple[object, ...]]:
    """One row is an attempt and who cancelled it, which the controller's log alone says."""
    found = []
    for row in facts.rows("cancel_requests"):
        uid = _UID.search(row["message"] or "")
        if uid:
            found.append((row["time_us"], uid[1], row["attempt_id"]))
    return list({attempt_id: uid for _, uid, attempt_id in sorted(found)}.items())
