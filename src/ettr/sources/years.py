"""Years of stamps that have none, from the order of a log's lines.

Such a stamp says one day of each year. Next to a log's start, or to the time at which its file was
last written, that is enough for a log of less than a year. A longer one repeats its days, and only
the order of its lines says how often New Year has passed. A 29th of February dates a log too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from calendar import isleap
from dataclasses import dataclass, field
from datetime import date

from ettr.sources.lines import chunks
from ettr.sources.origin import Origin
from ettr.sources.times import MONTHS

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
