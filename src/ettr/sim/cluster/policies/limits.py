"""Limits on what runs at once: a job that would break one of its limits is held.

A held job stays in the queue and blocks nobody, as in Slurm, whose names of reasons are used here.

Source:
    Slurm's manual, resource_limits (GrpTRES, MaxTRESPerUser).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Limit(NamedTuple):
    """One limit as one job meets it.

    Attributes:
        whose: What counts together, such as `user:user3`.
        most: Of it at once.
        asks: What the job adds to it.
        reason: Why a job that it holds is pending.
    """

    whose: str
    most: int
    asks: int
    reason: str


def held_by(limits: Sequence[Limit], in_use: Mapping[str, int]) -> Limit | None:
    """The first limit that a job would break if it started now; None if it may start.

    Args:
        limits: Of the job.
        in_use: What runs now, by `Limit.whose`; what is absent is 0.
    """
    for limit in limits:
        if in_use.get(limit.whose, 0) + limit.asks > limit.most:
            return limit
    return None
