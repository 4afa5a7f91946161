"""Numbers of a planned run: ratios to three decimals, times in the unit that suits each."""

from __future__ import annotations

import math

from ettr.estimates.interval import Interval
from ettr.plan.run import spell
from ettr.report.numbers import DASH
from ettr.units import SECONDS_PER_HOUR


def ratio(value: float | None) -> str:
    """A ratio such as ETTR to three decimals; a dash for None."""
    return DASH if value is None else f"{value:.3f}"


def ratio_between(value: Interval | None) -> str:
    """A ratio with its interval, if it has one; the ends alone where there is no estimate."""
    if value is None:
        return DASH
    if value.estimate is None:
        return f"{value.low:.3f} to {value.high:.3f}"
    if value.low == value.high:
        return ratio(value.estimate)
    return f"{value.estimate:.3f} [{value.low:.3f}, {value.high:.3f}]"


def time_between(hours: Interval) -> str:
    """A time given in hours with its interval, if it has one; at least its low end if no more."""
    if hours.estimate is None:
        return f"at least {_time(hours.low)}"
    if hours.low == hours.high:
        return _time(hours.estimate)
    return f"{_time(hours.estimate)} [{_time(hours.low)}, {_time(hours.high)}]"


def _time(hours: float) -> str:
    return "∞" if math.isinf(hours) else spell(SECONDS_PER_HOUR * hours)
