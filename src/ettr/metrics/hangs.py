"""Runs that probably hung: cancelled or timed out after a fault on a node that was then drained.

The end of such a run leaves no word of a failure: its owner or the time limit ended it. Where steps
of its training are recorded up to the end it did not hang, and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ettr.facts import Facts
from ettr.metrics.instants import moment
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class HungRun:
    """A run that was ended hours after it probably failed.

    Attributes:
        n_gpus: That it held; None where the log has none.
        gpu_hours: That it held from the fault on; None likewise.
    """

    cluster: str
    job_id: str
    attempt_id: str
    state: str
    node: str
    symptom: str
    fault: datetime
    end: datetime
    n_gpus: int | None
    gpu_hours: float | None
    is_sure: bool


def hung_runs(facts: Facts) -> tuple[HungRun, ...]:
    """The selected runs that probably hung, in order of their ends."""
    rows = sorted(facts.rows("hung_runs"), key=lambda row: (row["end_us"], row["attempt_id"]))
    return tuple(
        HungRun(
            cluster=row["cluster"],
            job_id=row["job_id"],
            attempt_id=row["attempt_id"],
            state=row["state"],
            node=row["node"],
            symptom=row["symptom"],
            fault=moment(row["fault_us"]),
            end=moment(row["end_us"]),
            n_gpus=row["n_gpus"],
            gpu_hours=None
            if row["n_gpus"] is None
            else row["n_gpus"]
            * (row["end_us"] - row["fault_us"])
            / MICROSECONDS_PER_SECOND
            / SECONDS_PER_HOUR,
            is_sure=row["last_step_us"] is not None,
        )
        for row in rows
    )
