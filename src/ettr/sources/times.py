"""Times of log lines -> UTC: stamps with and without an offset, without a zone, without a year."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from ettr.errors import UsageError
from ettr.sources.limits import FIRST_YEAR, LAST_YEAR
from ettr.sources.lines import first_texts

UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "Zulu", "UCT"})
MONTHS = {
    month: number
    for number, month in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_ISO = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_ZONED = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)(?!\d)")
# groups of a stamp's pattern with which it needs no zone
_NEEDS_NO_ZONE = ("offset", "offset_sys", "uptime")


def need_zone(timezone: str | None, what: str) -> str:
    """The zone, which the user must have given and which must exist.

    Raises:
        UsageError: there is none, or no such zone.
    """
    if timezone is None:
        raise UsageError(
            f"{what} holds local times without a zone; say which zone its cluster writes with "
            "--timezone, for example --timezone UTC or --timezone Europe/Paris"
        )
    if timezone not in UTC_NAMES:
        _zone(timezone)
    return timezone


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(
            f"--timezone {name}: no such time zone; give a name such as UTC or America/New_York"
        ) from error


def utc_of_local(stamp: datetime, timezone: str, fold: int = 0) -> datetime:
    """One local time in UTC; in the hour that occurs twice the first, or with fold 1 the second.

    A time in the hour that is left out is read as by a clock that had not gone forward yet.
    """
    zone = UTC if timezone in UTC_NAMES else _zone(timezone)
    return stamp.replace(tzinfo=zone, fold=fold).astimezone(UTC)


TWICE = (
    "{{n}} local [time lies|times lie] in the hour that {zone} has twice when its clocks go back; "
)
BY_ORDER = TWICE + "the order of the lines says which is meant"
BY_JOB = TWICE + "the job's other times and its runtime say which is meant"
BY_STATE = TWICE + "the other end of the node's state and its duration say which is meant"
FIRST_TAKEN = TWICE + "the first of the two was taken"
NEVER = (
    "{{n}} local [time lies|times lie] in the hour that {zone} leaves out when its clocks go "
    "forward; [it is|they are] read as by a clock that had not gone forward yet"
)


class LocalClock:
    """Local times of one log -> UTC; counts those that its zone has twice or never.

    Lines of a log follow each other. In the hour that occurs twice the first is meant, unless a
    line before is later than that: then it is the second. Lines of several writers may be out of
    order by up to ten minutes.
    """

    _DISORDER = timedelta(minutes=10)

    def __init__(self, timezone: str) -> None:
        self._timezone = timezone
        self._latest: datetime | None = None
        self._counts: Counter[str] = Counter()

    def utc(self, stamp: datetime, *, is_ordered: bool = True) -> datetime:
        """The moment of a local time."""
        first = utc_of_local(stamp, self._timezone)
        second = utc_of_local(stamp, self._timezone, fold=1)
        found = first
        if first < second:
            is_past = self._latest is not None and first < self._latest - self._DISORDER
            fits = self._latest is not None and second >= self._latest - self._DISORDER
            is_second = is_ordered and is_past and fits
            found = second if is_second else first
            self._counts[BY_ORDER if is_second else FIRST_TAKEN] += 1
        elif second < first:
            self._counts[NEVER] += 1
        if self._latest is None or found > self._latest:
            self._latest = found
        return found

    def take_counts(self) -> dict[str, int]:
        """Sentences with `{n}` for the counts since the last call, and the counts."""
        counts = {key.format(zone=self._timezone): n for key, n in self._counts.items()}
        self._counts.clear()
        return counts


def time_of(value: object, timezone: str | None = None) -> datetime | None:
    """The moment in UTC, or None where the value is no time or lies outside 1980 to 2200.

    Args:
        value: ISO 8601 text, seconds since 1970 (number or text), or {"seconds": ..} of protobuf.
    """
    if isinstance(value, dict):
        value = value.get("seconds", value.get("$date"))
    if isinstance(value, bool) or value is None:
        return None
    try:
        stamp = _stamp(value, timezone)
    except (ValueError, OverflowError, OSError):
        return None
    return within_years(stamp) if stamp else None


def within_years(stamp: datetime) -> datetime | None:
    """The moment, or None where it lies outside 1980 to 2200."""
    return stamp if FIRST_YEAR <= stamp.year <= LAST_YEAR else None


def _stamp(value: object, timezone: str | None) -> datetime | None:
    if isinstance(value, str):
        text = value.strip()
        if not re.fullmatch(r"\d{9,11}(\.\d+)?", text):
            stamp = datetime.fromisoformat(text.replace(",", ".").replace(" UTC", "+00:00"))
            if stamp.tzinfo is not None:
                return stamp.astimezone(UTC)
            return utc_of_local(stamp, timezone) if timezone else None
        value = float(text)
    if not isinstance(value, int | float):
        return None
    seconds = float(value)
    # Go and JavaScript write milliseconds, journald microseconds, Go's UnixNano nanoseconds
    for factor in (1e9, 1e6, 1e3):
        if seconds / factor > 1e8:
            seconds /= factor
            break
    return datetime.fromtimestamp(seconds, UTC)


def utc_to_local(moment: datetime, timezone: str) -> datetime:
    """A moment by the clocks of a zone."""
    return moment.astimezone(UTC if timezone in UTC_NAMES else _zone(timezone))


def year_of_stamp(
    text: str, timezone: str, *, start: datetime | None, changed: datetime
) -> int | None:
    """The year of a local `MM-DDTHH:MM:SS` in a log of less than a year, or None for no such day.

    With a start it is the first such moment not more than a day before it; else the last such
    moment not more than a day after the file was changed.
    """
    day = timedelta(days=1)
    if start is not None:
        years = range(start.year - 1, start.year + 9)
    else:
        years = range(changed.year + 1, changed.year - 9, -1)
    for year in years:
        time = time_of(f"{year}-{text}", timezone)
        if time is not None and (time >= start - day if start else time <= changed + day):
            return year
    return None


def has_local_times(head: bytes) -> bool:
    """Whether the first bytes hold an ISO time without an offset; for `prints_local`."""
    return len(_ISO.findall(head)) > len(_ZONED.findall(head))


def has_local_stamps(*patterns: re.Pattern[str]) -> Callable[[bytes], bool]:
    """A `prints_local` for logs whose lines begin with a stamp."""

    def prints_local(head: bytes) -> bool:
        for line in first_texts(head):
            found = next((f for pattern in patterns if (f := pattern.match(line))), None)
            if found and not any(found.groupdict().get(name) for name in _NEEDS_NO_ZONE):
                return True
        return False

    return prints_local
