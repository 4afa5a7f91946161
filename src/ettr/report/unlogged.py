"""Failures of which no log says that they are."""

from __future__ import annotations

from ettr.metrics.black_holes import BlackHole
from ettr.report.numbers import moment, percent
from ettr.words import by_number, counted


def black_hole_says(one: BlackHole) -> str:
    """What happened on a black hole, and what is not counted for it."""
    elsewhere = (
        f"elsewhere {percent(one.elsewhere)} end so and {percent(one.failed_elsewhere)} at any time"
        if one.elsewhere is not None
        else "no other node ran any"
    )
    uncounted = by_number(
        "No log says why: {n} of them [is|are] not counted as [a failure|failures].", one.uncounted
    )
    return (
        f"{one.early:,} of {counted(one.starts, 'attempt')} that began on {one.node} from "
        f"{moment(one.first)} to {moment(one.last)} ended FAILED within {one.within_s} s, of "
        f"{counted(one.users, 'user')} ({elsewhere}). {uncounted}"
    )
