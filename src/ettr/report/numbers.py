"""Numbers as a reader wants them: few digits, the interval after the estimate, a dash for none."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from ettr.estimates.interval import Interval
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ettr.words import by_number, significant, spell

if TYPE_CHECKING:
    from ettr.plan.outlook import Sureness

DASH = "–"
PER_NODE_DAYS = 1000.0
NOT_MEASURED = "not measured"
"""Rates are printed per so many node-days."""
_SMALLEST_DECIMAL = 1e-4
# from here on nobody counts the digits
_MOST_WRITTEN_OUT = 1e15
_SMALLEST_P_VALUE = 1e-6


def number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, thousands grouped; a dash for None."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    written_out = abs(value) < _MOST_WRITTEN_OUT
    if written_out and (isinstance(value, int) or value == int(value) < 10**digits):
        return f"{int(value):,}"
    if abs(value) < _SMALLEST_DECIMAL or not written_out:
        return significant(value, digits)
    integer_digits = math.floor(math.log10(abs(value))) + 1
    return f"{value:,.{max(0, digits - integer_digits)}f}"


def by_confidence(counts: Sureness | None) -> str:
    """How sure failures are: 3 high, 1 low, 2 named by the scheduler only; empty without any."""
    if counts is None or not counts.total:
        return ""
    words = [
        f"{n:,} {name}"
        for n, name in ((counts.high, "high"), (counts.medium, "medium"), (counts.low, "low"))
        if n
    ]
    if counts.scheduler_only:
        words.append(f"{counts.scheduler_only:,} named by the scheduler only")
    return ", ".join(words)


def and_confidence(counts: Sureness | None) -> str:
    """The same to follow a count of failures: `; by confidence: 3 high`; empty without any."""
    words = by_confidence(counts)
    return f"; by confidence: {words}" if words else ""


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
    if low == high:
        return number(interval.estimate, digits)
    upper = "∞" if high is None else number(high, digits)
    return f"{number(interval.estimate, digits)} [{number(low, digits)}, {upper}]"


def bounds(value: Interval, digits: int = 3) -> str:
    """A value with the least and the most that it can be, which are no interval: `3 (2 to 4)`.

    The ends alone where nothing says which value between them is the likeliest.
    """
    low, high = finite(value.low), finite(value.high)
    if low is None or high is None:
        return between(value, digits)
    if low == high:
        return number(low, digits)
    ends = f"{number(low, digits)} to {number(high, digits)}"
    return ends if value.estimate is None else f"{number(value.estimate, digits)} ({ends})"


RANGES = "(a to b) is a range without an estimate: the logs allow any value in it."


def legend(confidence: float) -> str:
    """What brackets and parentheses after a number mean, in a line."""
    return f"[a, b] is an interval of {percent(confidence, 2)} confidence. {RANGES}"


def finite(value: float | None) -> float | None:
    """A number as figures take it: None where it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def share_between(share: Interval, digits: int = 3) -> str:
    """A share with its interval, as percentages."""
    text = between(share.scaled(100.0), digits)
    return text if text == DASH else f"{text} %"


def hours_between(hours: Interval) -> str:
    """A length of time given in hours with its interval, all three in the unit of the estimate."""
    middle = hours.estimate if hours.estimate is not None else finite(hours.low)
    unit_s, unit = _unit(SECONDS_PER_HOUR * (middle or 0.0))
    text = between(hours.scaled(SECONDS_PER_HOUR / unit_s))
    return text if text == DASH else f"{text} {unit}"


def p_value(value: float) -> str:
    """A p-value to two digits; below a millionth only that it is."""
    return "< 0.000001" if value < _SMALLEST_P_VALUE else significant(value, 2)


def moment(time: datetime | None) -> str:
    """A time in UTC to the second; a dash for None."""
    return DASH if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float | None) -> str:
    """A length of time in the unit that suits it."""
    if seconds is None or math.isnan(seconds):
        return DASH
    unit_s, unit = _unit(seconds)
    return f"{number(seconds / unit_s)} {unit}"


def duration_between(seconds: Interval) -> str:
    """A length of time with its interval, each in the unit that suits it."""
    ends = (finite(seconds.low), finite(seconds.high))
    middle = duration(seconds.estimate)
    return middle if None in ends else f"{middle} [{duration(ends[0])}, {duration(ends[1])}]"


def _unit(seconds: float) -> tuple[float, str]:
    """The unit in which a length of time is best read: two of the next one are needed to leave."""
    if abs(seconds) < 2 * SECONDS_PER_MINUTE:
        return 1.0, "s"
    if abs(seconds) < 2 * SECONDS_PER_HOUR:
        return SECONDS_PER_MINUTE, "min"
    if abs(seconds) < 2 * SECONDS_PER_DAY:
        return SECONDS_PER_HOUR, "h"
    return SECONDS_PER_DAY, "d"


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


NO_GPUS = "no GPUs are accounted"
SAY_GPUS = "say with --gpus-per-node how many a node has, 0 for none"
ACCOUNT_GPUS = "In Slurm AccountingStorageTRES=gres/gpu accounts them"


class PartlyKnownLoss(Protocol):
    """A loss, and how much of what failed or was preempted it leaves out."""

    @property
    def failures_without_gpus(self) -> int | None:
        """Failures that do not say their GPUs."""

    @property
    def preemptions_without_gpus(self) -> int | None:
        """Preemptions that do not."""

    @property
    def failures_without_runtime(self) -> int | None:
        """Failures that do not say how long they ran."""

    @property
    def preemptions_without_runtime(self) -> int | None:
        """Preemptions that do not."""


def none_says(loss: PartlyKnownLoss) -> str:
    """Why a loss of which nothing is known is not measured, and what to do about it."""
    no_gpus = loss.failures_without_gpus or loss.preemptions_without_gpus
    no_runtime = loss.failures_without_runtime or loss.preemptions_without_runtime
    says = "no job that failed or was preempted says"
    if not no_runtime:
        return f"{says} its GPUs: {SAY_GPUS}"
    return f"{says} its GPUs and how long it ran" if no_gpus else f"{says} how long it ran"


def left_out(loss: PartlyKnownLoss) -> str:
    """That a loss leaves out what does not say how much it lost; empty where all does."""
    sentences = (
        _adds_nothing(loss.failures_without_gpus, loss.preemptions_without_gpus, "a GPU count"),
        _adds_nothing(loss.failures_without_runtime, loss.preemptions_without_runtime, "a runtime"),
    )
    return " ".join(filter(None, sentences))


def _adds_nothing(failures: int | None, preemptions: int | None, what: str) -> str:
    parts = [
        by_number(words, n)
        for words, n in (
            ("{n} [failure|failures]", failures or 0),
            ("{n} [preemption|preemptions]", preemptions or 0),
        )
        if n
    ]
    if not parts:
        return ""
    add = "adds" if (failures or 0) + (preemptions or 0) == 1 else "add"
    return f"{' and '.join(parts)} without {what} {add} nothing to the loss."
