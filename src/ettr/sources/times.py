"""Times of log lines -> UTC: stamps with and without an offset, without a zone, without a year."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from ettr.errors import UsageError
from ettr.sources.lines import first_texts

UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "Zulu", "UCT"})
MONTHS = {
    month: number
    for number, month in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
# a time outside this span is corrupt, and would stretch every denominator
_FIRST_YEAR, _LAST_YEAR = 1980, 2200
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


def utc_of_local(stamp: datetime, timezone: str) -> datetime:
    """One local time in UTC; in the hour that occurs twice, the first."""
    zone = UTC if timezone in UTC_NAMES else _zone(timezone)
    return stamp.replace(tzinfo=zone).astimezone(UTC)


def time_of(value: object, timezone: str | None = None) -> datetime | None:
    """The moment in UTC, or None where the value is no time or lies outside 1980 to 2200.

    Args:
        value: ISO 8601 text, seconds since 1970 (number or text), or {"seconds": ..} of protobuf.
        timezone: zone of texts without an offset; without it such texts are no time.
    """
    if isinstance(value, dict):
        value = value.get("seconds", value.get("$date"))
    if isinstance(value, bool) or value is None:
        return None
    try:
        stamp = _stamp(value, timezone)
    except (ValueError, OverflowError, OSError):
        return None
    return stamp if stamp and _FIRST_YEAR <= stamp.year <= _LAST_YEAR else None


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


def time_without_year(
    text: str, timezone: str, *, start: datetime | None, changed: datetime
) -> datetime | None:
    """The moment of `MM-DDTHH:MM:SS` without a year, or None.

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
            return time
    return None


def has_local_times(head: bytes) -> bool:
    """Whether the first bytes hold an ISO time without an offset; for `prints_local`."""
    return len(_ISO.findall(head)) > len(_ZONED.findall(head))


def has_local_stamps(*patterns: re.Pattern[str]) -> Callable[[bytes], bool]:
    """A `prints_local` for logs whose lines begin with a stamp.

    Args:
        patterns: the forms of stamp; one whose group `offset` or `uptime` (seconds since boot)
            matched needs no zone.
    """

    def prints_local(head: bytes) -> bool:
        for line in first_texts(head):
            found = next((f for pattern in patterns if (f := pattern.match(line))), None)
            if found and not any(found.groupdict().get(name) for name in _NEEDS_NO_ZONE):
                return True
        return False

    return prints_local
