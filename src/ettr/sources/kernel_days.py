"""On which days the kernel log of each node was arriving, whatever its lines say.

A log without errors, and the lines between errors, prove that a node's kernel was heard. A syslog
holds other programs too: their lines count for a node from which the file has a line of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from ettr.errors import UsageError
from ettr.sources.kernel_lines import Group, beginning, groups
from ettr.sources.log_rows import OF_FILE, LogDays, LogRows
from ettr.sources.times import MONTHS, time_of, utc_of_local, within_years, year_of_stamp
from ettr.sources.years import LEAP_DAY, HostLines, first_year
from ettr.tables.text import clean, text_of
from ettr.units import HOURS_PER_DAY

_NOON = time(12)
_JOURNAL_TIME = re.compile(rb'"(_SOURCE_REALTIME|__REALTIME)_TIMESTAMP"\s*:\s*"([0-9]{10,17})"')
_JOURNAL_HOST = re.compile(rb'"_HOSTNAME"\s*:\s*"([A-Za-z0-9][\w.-]{0,200})"')


@dataclass(slots=True)
class _StampDays:
    """Stamps of one log -> days; those of one hour are computed once."""

    file: LogRows
    days: dict[tuple[str | None, ...], tuple[date, int | None] | None] = field(default_factory=dict)

    def day(self, parts: Mapping[str, str | None]) -> tuple[date, int | None] | None:
        """UTC day, and the year that was assumed where the stamp has none; None for no time."""
        if parts.get("uptime"):  # each line has its own
            return self._dated(parts)
        key: tuple[str | None, ...]
        if iso := parts.get("iso"):
            key = (iso[:13], parts.get("offset"))
        else:
            hour = (parts["clock"] or "").partition(":")[0]
            key = (parts["month"], parts["day"], parts.get("year"), hour)
        if key not in self.days:
            self.days[key] = self._dated(parts)
        return self.days[key]

    def _dated(self, parts: Mapping[str, str | None]) -> tuple[date, int | None] | None:
        try:
            return self._day(parts)
        except (ValueError, OverflowError):
            return None

    def first_hour(self, text: str) -> int:
        """The hour on the clock of a line's stamp at which a UTC day begins."""
        begun = beginning(text)
        try:
            noon = self._noon(begun[0].groupdict() if begun else {})
        except (ValueError, OverflowError):
            return 0
        return int(HOURS_PER_DAY / 2 - noon.hour - noon.minute / 60) % int(HOURS_PER_DAY)

    def _noon(self, parts: Mapping[str, str | None]) -> datetime:
        """Noon of the stamp's day on its own clock, in UTC."""
        zone, iso = self.file.options.timezone, parts.get("iso")
        if iso and (offset := parts.get("offset")):
            return datetime.fromisoformat(f"{iso[:10]}T12:00:00{offset}").astimezone(UTC)
        if iso:
            day = date.fromisoformat(iso[:10])
        else:
            year = int(parts.get("year") or self.file.origin.changed.year)
            day = date(year, MONTHS[parts.get("month") or "Jan"], int(parts.get("day") or 1))
        return utc_of_local(datetime.combine(day, _NOON), zone or "UTC")

    def _day(self, parts: Mapping[str, str | None]) -> tuple[date, int | None] | None:
        if uptime := parts.get("uptime"):
            start = self.file.options.start
            return None if start is None else _utc_day(start + timedelta(seconds=float(uptime)))
        if iso := parts.get("iso"):
            if offset := parts.get("offset"):
                return _utc_day(time_of(iso + offset))
            return self._of_local(iso.replace(",", "."))
        text = f"{MONTHS[parts['month'] or 'Jan']:02d}-{int(parts['day'] or 0):02d}T"
        text += (parts["clock"] or "").zfill(8)
        if year := parts.get("year"):
            return self._of_local(f"{year}-{text}")
        zone, start = self.file.options.timezone, self.file.options.start
        if zone is None:
            return None
        assumed = year_of_stamp(
            text,
            zone,
            start=start.astimezone(UTC) if start else None,
            changed=self.file.origin.changed,
        )
        if assumed is None:
            return None
        made = self._of_local(f"{assumed}-{text}")
        return None if made is None else (made[0], assumed)

    def _of_local(self, text: str) -> tuple[date, int | None] | None:
        zone = self.file.options.timezone
        return None if zone is None else _utc_day(utc_of_local(datetime.fromisoformat(text), zone))


def _utc_day(moment: datetime | None) -> tuple[date, int | None] | None:
    found = None if moment is None else within_years(moment.astimezone(UTC))
    return None if found is None else (found.date(), None)


class KernelDays:
    """Collects the days of one log, and keeps them as rows of `log_days`."""

    def __init__(self, file: LogRows, *, as_json: bool) -> None:
        self._file, self._as_json = file, as_json
        self._stamps = _StampDays(file)
        self._days = LogDays(file)
        # the same of stamps without a year, with New Years passed and the year assumed
        self._of_some_year: dict[tuple[str, date, int, int], tuple[int, int]] = {}
        self._hosts: dict[str, HostLines] = {}
        self._of_kernel: set[str] = set()

    def see(self, block: bytes, before: int) -> None:
        """Take whole lines, each with its newline; so many lines were `before` them."""
        if self._as_json:
            for place, line in enumerate(block.split(b"\n")[:-1]):
                self._see_record(line, before + place + 1)
            return
        for group in groups(block, self._stamps.first_hour):
            self._see_group(group, before + group.place + 1)

    def _see_record(self, line: bytes, number: int) -> None:
        stamps = dict(_JOURNAL_TIME.findall(line))
        micros = stamps.get(b"_SOURCE_REALTIME") or stamps.get(b"__REALTIME")
        if micros is None:
            return
        found = _utc_day(time_of(int(micros) / 1e6))
        host = _JOURNAL_HOST.search(line)
        if found is None or host is None:
            return
        name = host[1].decode()
        self._of_kernel.add(name)
        self._days.see(name, found[0], number)

    def _see_group(self, group: Group, number: int) -> None:
        text = text_of(group.text)
        begun = beginning(text)
        if begun is None:
            return
        found, is_of_kernel = begun
        parts = found.groupdict()
        named = clean(parts.get("host")) or clean(parts.get("gathered")) or OF_FILE
        dated = self._stamps.day(parts)
        for name in named.split(","):
            if is_of_kernel:
                self._of_kernel.add(name)
            if dated is not None:
                self._see_lines(name, parts, dated, group.n_lines, number)

    def _see_lines(
        self,
        name: str,
        parts: Mapping[str, str | None],
        dated: tuple[date, int | None],
        n_lines: int,
        number: int,
    ) -> None:
        day, assumed_year = dated
        if assumed_year is None:
            self._days.see(name, day, number, n_lines)
            return
        stamped = (MONTHS[parts["month"] or "Jan"], int(parts["day"] or 0))
        host = self._hosts.setdefault(name, HostLines(stamped, stamped))
        if stamped != host.last or stamped == LEAP_DAY:
            host.add(number, stamped)
        key = (name, day, host.new_years, assumed_year)
        line, n_before = self._of_some_year.get(key, (number, 0))
        self._of_some_year[key] = (line, n_before + n_lines)

    def keep(self) -> None:
        """Keep a row for each node and day."""
        self._settle_years()
        self._days.keep(self._of_kernel)

    def _settle_years(self) -> None:
        """Give each day its year: the order of the lines decides where the stamps do not."""
        if not self._of_some_year:
            return
        try:
            bounds = self._file.days_of_stamps()
        except UsageError:  # no zone: no such stamp had a day either
            return
        first = {name: first_year(host, *bounds) for name, host in self._hosts.items()}
        for (name, day, passed, assumed), (line, n_lines) in self._of_some_year.items():
            begun = first[name]
            years = 0 if begun is None else begun + passed - assumed
            try:
                dated = day.replace(year=day.year + years)
            except ValueError:
                continue
            self._days.see(name, dated, line, n_lines)
