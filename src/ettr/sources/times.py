"""Times of log lines -> UTC: stamps with and without an offset, without a zone, without a year."""

from __future__ import annotations

import re
from bisect import bisect_right
from calendar import isleap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from ettr.errors import UsageError
from ettr.sources.limits import FIRST_YEAR, LAST_YEAR
from ettr.sources.lines import BadRecordError, chunks, first_texts
from ettr.sources.origin import Origin

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


def time_in(value: object, name: str, timezone: str | None = None) -> datetime:
    """The moment that a record must have, as `time_of` reads it.

    Raises:
        BadRecordError: it is no time.
    """
    time = time_of(value, timezone)
    if time is None:
        raise BadRecordError("bad-timestamp", f"{name} is {value!r:.100}")
    return time


def within_years(stamp: datetime) -> datetime | None:
    """The moment, or None where it lies outside 1980 to 2200."""
    return stamp if FIRST_YEAR <= stamp.year <= LAST_YEAR else None


def _stamp(value: object, timezone: str | None) -> datetime | None:
    if isinstance(value, str):
        text = value.strip()
        if "-" in text or not re.fullmatch(r"\d{9,11}(\.\d+)?", text):
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


# -- Years of stamps that have none, from the order of a log's lines ------------------------------
#
# Such a stamp says one day of each year. Next to a log's start, or to the time at which its file
# was last written, that is enough for a log of less than a year. A longer one repeats its days,
# and only the order of its lines says how often New Year has passed. A 29th of February dates a
# log too.

_STAMP = re.compile(
    rb"(?m)^(?:<\d{1,4}>)?(?:(?P<gathered>[A-Za-z0-9][\w.-]{0,200}): )?\[?(?:[A-Z][a-z]{2} )?"
    rb"(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day>\d{1,2}) "
    rb"\d{1,2}:\d\d:\d\d(?:\.\d{1,9})?(?! (?:[A-Z]{3,4} )?\d{4})"
    rb"(?: (?P<host>[A-Za-z0-9][\w.-]{0,200}) )?"
)
_HALF_YEAR, _YEAR = 183, 366
LEAP_DAY = (2, 29)
_MOST_YEARS = 200


@dataclass(slots=True)
class HostLines:
    """The stamps of one host: where New Year passes, and what its days say."""

    first: tuple[int, int]
    last: tuple[int, int]
    new_years: int = 0
    # lines at which the number of New Years before changes, and the number from there on
    lines: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    leap_days: set[int] = field(default_factory=set)

    def add(self, line: int, day: tuple[int, int]) -> None:
        """Take the month and day of the next line."""
        change = _day_number(day) - _day_number(self.last)
        # lines may be out of order by some days around New Year; a gap forward is just a gap
        turn = 1 if change < -_HALF_YEAR else -1 if change > _YEAR - 30 else 0
        if turn and (turn > 0 or self.new_years):
            self.new_years += turn
            self.lines.append(line)
            self.passed.append(self.new_years)
        if day == LEAP_DAY:
            self.leap_days.add(self.new_years)
        self.last = day

    @property
    def is_long(self) -> bool:
        """Whether the lines cover a year or more."""
        days = _YEAR * self.new_years + _day_number(self.last) - _day_number(self.first)
        return days >= _YEAR - 1

    def passed_before(self, line: int) -> int:
        """New Years between the first line and this one."""
        at = bisect_right(self.lines, line)
        return self.passed[at - 1] if at else 0


def _day_number(day: tuple[int, int]) -> int:
    return date(2000, day[0], day[1]).toordinal() - date(2000, 1, 1).toordinal()


class LogYears:
    """The years of a log's lines, where their stamps alone do not say them."""

    def __init__(self, origin: Origin, start: date | None, end: date) -> None:
        self._hosts = _hosts(origin)
        self._first_years = {
            name: first_year(host, start, end) for name, host in self._hosts.items()
        }

    def year(self, number: int, line: str) -> int | None:
        """The year of a line, or None where its stamp and the log's start or age say it."""
        stamp = _STAMP.match(line.encode("utf-8", "replace"))
        host = _host(stamp) if stamp else ""
        first = self._first_years.get(host)
        return None if first is None else first + self._hosts[host].passed_before(number)


def first_year(host: HostLines, start: date | None, end: date) -> int | None:
    """Year of a host's first line; None where the log is short and holds no leap day."""
    if not host.is_long and not host.leap_days:
        return None
    if start is not None:
        first = start.year if _on(start.year, host.first) >= start else start.year + 1
        years = range(first, first + 1)
    else:
        last = end.year if _on(end.year, host.last) <= end else end.year - 1
        years = range(last - host.new_years, last - host.new_years - _MOST_YEARS, -1)
    for year in years:
        if all(isleap(year + passed) for passed in host.leap_days):
            return year
    return years[0]


def _on(year: int, day: tuple[int, int]) -> date:
    """That day of a year; the 28th of February for the 29th."""
    is_missing = day == LEAP_DAY and not isleap(year)
    return date(year, day[0], 28 if is_missing else day[1])


def _hosts(origin: Origin) -> dict[str, HostLines]:
    hosts: dict[str, HostLines] = {}
    before, rest = 1, b""
    for chunk in chunks(origin):
        block = rest + chunk
        end = block.rfind(b"\n") + 1
        rest = block[end:][-1000:] if end else block[-1000:]
        before = _see(block[:end], before, hosts)
    _see(rest, before, hosts)
    return hosts


def _host(stamp: re.Match[bytes]) -> str:
    return (stamp["gathered"] or stamp["host"] or b"").decode()


def _see(block: bytes, line: int, hosts: dict[str, HostLines]) -> int:
    """Take the stamps of some whole lines; returns the number of the line after them."""
    at = 0
    for found in _STAMP.finditer(block):
        line += block.count(b"\n", at, found.start())
        at = found.start()
        try:
            day = (MONTHS[found["month"].decode()], int(found["day"]))
            _day_number(day)
        except ValueError:
            continue
        host = hosts.setdefault(_host(found), HostLines(day, day))
        host.add(line, day)
    return line + block.count(b"\n", at)
