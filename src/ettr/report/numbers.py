"""Numbers as a reader wants them: few digits, the interval beside the estimate, a dash for none."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from ettr.estimates import Interval

DASH = "–"


def number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, thousands grouped; a dash for None."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if isinstance(value, int) or (value == int(value) and abs(value) < 10**digits):
        return f"{int(value):,}"
    whole = math.floor(math.log10(abs(value))) + 1 if value else 1
    return f"{value:,.{max(0, digits - whole)}f}"


def counted(count: int, noun: str) -> str:
    """A count with its noun in the singular or the plural: 1 run, 2 runs, 0 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float | None, digits: int = 3) -> str:
    """A share as a percentage."""
    return DASH if share is None else f"{number(share * 100, digits)} %"


def between(interval: Interval, digits: int = 3) -> str:
    """An estimate with its interval; `≥` or `≤` where data bound it on one side only."""
    low, high = finite(interval.low), finite(interval.high)
    if low is None and high is None:
        return number(interval.estimate, digits)
    if interval.estimate is None:
        if high is None:
            return f"≥ {number(low, digits)}" if low else DASH
        return f"≤ {number(high, digits)}"
    upper = "∞" if high is None else number(high, digits)
    return f"{number(interval.estimate, digits)} [{number(low, digits)}, {upper}]"


def share_between(interval: Interval, digits: int = 3) -> str:
    """A share with its interval, as percentages."""
    return f"{between(interval.scaled(100), digits)} %"


def finite(value: float) -> float | None:
    """A number as figures take it: None where it is not finite."""
    return value if math.isfinite(value) else None


def moment(time: datetime | None) -> str:
    """A time in UTC to the second; a dash for None."""
    return DASH if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float | None) -> str:
    """A length of time in the unit that suits it."""
    if seconds is None or math.isnan(seconds):
        return DASH
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if abs(seconds) < limit:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds / 86400)} d"
