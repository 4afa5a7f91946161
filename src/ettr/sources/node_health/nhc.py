"""Node health checks: NHC's log, syslog and marking lines, and AzNHC's logs with fault codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ettr.sources.base import READERS, ReadOptions, Source
from ettr.sources.lines import SEARCHED_CHARACTERS, BadRecordError, first_texts, numbered_lines
from ettr.sources.log_rows import OF_FILE, LogDays, LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import MONTHS, has_local_stamps, time_of
from ettr.tables.rows import Batch, clean, text_of

NAME = "nhc"

_STAMPS = (
    re.compile(
        r"\[?(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)"
        r"(?P<offset>Z|[+-]\d\d:?\d\d)?\]?"
    ),
    re.compile(r"(?P<ymd>\d{8}) (?P<clock>\d\d:\d\d:\d\d)\b"),
    re.compile(
        r"(?:[A-Z][a-z]{2} )?(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+"
        r"(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)(?: (?:[A-Z]{3,4} )?(?P<year>\d{4}))?"
    ),
)
_FAILED = re.compile(
    r"ERROR:?\s+(?:nhc:\s+)?Health check failed:\s+"
    r"(?:(?P<check>check_\w+|[A-Za-z_]\w*)(?:\([^)]*\))?:\s+)?(?P<message>.*)"
)
_WATCHDOG = re.compile(r"(?P<message>Watchdog timer.*)", re.IGNORECASE)
_MARKED = re.compile(
    r"scontrol update State=(?P<state>\w+) NodeName=(?P<node>[\w.,\[\]-]+) "
    r"Reason=\"?(?P<message>NHC:[^\"]*)"
)
_SGE = re.compile(r"^(?P<node>[\w.-]+):diagnosis:(?P<message>NHC:.*)")
_SGE_HEALTH = re.compile(r"^[\w.-]+:healthy:(?:true|false)\s*$")
_DISTRIBUTED = re.compile(r"^(?P<node>[\w.-]+)\s+\|\s+(?P<message>.*)$")
_HEALTHY = re.compile(r"healthy\b", re.IGNORECASE)
_FAULT_CODE = re.compile(r"FaultCode:\s*(NHC(?:\d{4}|NA))\b")
_CHECK_WORD = re.compile(r"\b(check_\w+)")
_HOST = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)\s+([\w./-]+)(?:\[\d+\])?:")
# what marks a node names it, as Slurm does or with its domain
_MARKING = re.compile(rb"node-mark-(?:off|on)line(?:\s+|:\s+Marking\s+)(?P<node>[\w-]+)(?:[\s.]|$)")
_PROGRAMS = ("nhc", "nhc-wrapper", "nhc-genconf")
_MARKS = (b"Health check failed", b"NHC", b"nhc", b"atchdog", b" | ", b":healthy:")


class _Times:
    """The time of each line: its own, else that of the last line that had one, else the start."""

    def __init__(self, file: LogRows) -> None:
        self._file = file
        start = file.options.start
        self._last = start.astimezone(UTC) if start else None
        self._own = False

    def see(self, text: str, number: int) -> int:
        """Remember the stamp with which a line begins; returns where the rest begins."""
        for pattern in _STAMPS:
            if found := pattern.match(text):
                time = self._time(found.groupdict(), number, text)
                if time is not None:
                    self._last, self._own = time, True
                return found.end()
        if self._last is not None:
            source = "the last line before that has one" if self._own else "the start given"
            self._file.note(f"lines without a time took that of {source}")
        return 0

    @property
    def now(self) -> datetime | None:
        return self._last

    def _time(self, parts: dict[str, str | None], number: int, line: str) -> datetime | None:
        iso, year, clock = parts.get("iso"), parts.get("year"), parts.get("clock")
        if iso:
            offset = parts.get("offset")
            return time_of(iso + offset) if offset else self._file.local_time(iso)
        if ymd := parts.get("ymd"):
            return self._file.local_time(f"{ymd[:4]}-{ymd[4:6]}-{ymd[6:]}T{clock}")
        day = f"{MONTHS[parts['month'] or 'Jan']:02d}-{int(parts['day'] or 0):02d}T{clock}"
        if year:
            return self._file.local_time(f"{year}-{day}")
        return self._file.time_without_year(day, number, line)


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """One event for each check that failed."""
    file = LogRows(NAME, origin, options)
    times, days = _Times(file), LogDays(file)
    marked: list[str | None] = []  # the node that all marking lines name, once it was asked for

    def keep(number: int, line: bytes) -> None:
        text = text_of(line[:SEARCHED_CHARACTERS]).replace("\x00", "\ufffd").strip()
        at = times.see(text, number) if text else 0
        seen = _observation(text[at:]) if any(mark in line for mark in _MARKS) else None
        if times.now is not None and text:
            heard = seen["node"] if seen and seen["node"] else _node_heard(text[at:], at > 0)
            if heard is not None:
                days.see(heard, times.now.date(), number)
        if seen is None:
            file.count_skipped()
            return
        if times.now is None:
            detail = "neither this line nor one before it has a time; say when the checks ran with"
            raise BadRecordError("no-time", f"{detail} --start")
        node = seen["node"] or _host(text[at:])
        if node is None:
            marked[:] = marked or [_marked_node(origin)]
            node = marked[0] or file.node_of_file()
            if marked[0]:
                file.note(f"lines that name no node are of {node}, which NHC marks in them")
        file.events.add(line=number, time=times.now, **{**seen, "node": node})

    yield from file.each(numbered_lines(origin), keep, bytes)
    days.keep()
    yield file.batch()


def _marked_node(origin: Origin) -> str | None:
    """The one node that the lines on marking name; None where they name several or none."""
    found: set[str] = set()
    for _, line in numbered_lines(origin):
        if b"node-mark-" in line and (mark := _MARKING.search(line[:SEARCHED_CHARACTERS])):
            found.add(mark["node"].decode())
    return found.pop() if len(found) == 1 else None


def _node_heard(text: str, has_time: bool) -> str | None:
    """The node whose checks wrote the line; empty where it names none, None for other programs."""
    gathered, found = _DISTRIBUTED.match(text.strip()), _HOST.match(text)
    if gathered:
        return gathered["node"]
    if not has_time:
        return None
    return OF_FILE if found is None else _host(text)


def _host(text: str) -> str | None:
    found = _HOST.match(text)
    # the program's name without its folder
    if not found or "nhc" not in found[2].rpartition("/")[2]:
        return None
    return None if found[1].lower() in _PROGRAMS else found[1]


def _observation(text: str) -> dict[str, Any] | None:
    """Node, check, code and message of a line that reports a failed check; None of any other."""
    rest = text.strip()
    gathered = _DISTRIBUTED.match(rest)
    if found := _FAILED.search(rest):
        return _seen(gathered["node"] if gathered else None, found["message"], found["check"])
    if found := _MARKED.search(rest):
        return _seen(found["node"], found["message"]) | {"action": found["state"].upper()}
    if found := _SGE.match(rest):
        return _seen(found["node"], found["message"])
    if _SGE_HEALTH.match(rest):
        return None
    if gathered and not _HEALTHY.match(gathered["message"]):
        return _seen(gathered["node"], gathered["message"]) if gathered["message"] else None
    if found := _WATCHDOG.search(rest):
        return _seen(None, found["message"], "nhc watchdog")
    if _FAULT_CODE.search(rest):
        return _seen(None, rest)
    return None


def _seen(node: str | None, message: str, check: str | None = None) -> dict[str, Any]:
    code = _FAULT_CODE.search(message)
    named = _FAILED.search(message)
    word = _CHECK_WORD.search(message)
    name = check or (named["check"] if named else None) or (word[1] if word else None)
    is_fault = code is None or code[1] != "NHCNA"
    return {
        "node": node,
        "check": name or NAME,
        "code": code[1] if code else None,
        "severity": "critical" if is_fault else "ok",
        "message": clean(message.removeprefix("NHC:")),
    }


def matches(head: bytes, _name: str) -> float:
    """How sure it is that these are lines of NHC or AzNHC."""
    if head.lstrip()[:1] in {b"{", b"["} and b"\n[" not in head:
        return 0.0
    if re.search(rb"ERROR:?\s+(?:nhc:\s+)?Health check failed:", head):
        return 0.9
    if b"FaultCode: NHC" in head:
        return 0.9
    lines = first_texts(head, most=300)
    if not lines:
        return 0.0
    healthy = sum(1 for line in lines if re.fullmatch(r"[\w.-]+\s+\|\s+Healthy\s*", line))
    if healthy and healthy / len(lines) >= 0.2:
        return 0.8
    sge = sum(1 for line in lines if _SGE_HEALTH.match(line) or _SGE.match(line))
    if sge and sge / len(lines) >= 0.5:
        return 0.8
    if any(_MARKED.search(line) for line in lines):
        return 0.75
    return 0.6 if any(_host(_after_stamp(line)) for line in lines) else 0.0


def _after_stamp(line: str) -> str:
    for pattern in _STAMPS:
        if found := pattern.match(line):
            return line[found.end() :]
    return line


SOURCE = Source(
    name=NAME,
    version=READERS[NAME],
    title="node health checks: NHC logs, AzNHC logs with fault codes",
    tables=("events", "log_days"),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=has_local_stamps(*_STAMPS),
    options=("--timezone", "--cluster", "--start"),
    how_to_get="/var/log/nhc.log, or grep nhc in syslog; AzNHC: health.log of each node",
)
