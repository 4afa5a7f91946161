"""Kernel logs: XID and SXID lines, NVLink5 forms, GPUs fallen off the bus.

Reads dmesg (plain, -T, --time-format iso), syslog with old and ISO stamps, and journalctl (short,
short-iso, json). All other lines are counted as skipped, and are passed over without being parsed;
that they were there shows on which days a node's log was arriving.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ettr.sources.base import ReadOptions, Source
from ettr.sources.kernel_days import KernelDays
from ettr.sources.kernel_lines import KERNEL, PREFIXES, is_journal
from ettr.sources.lines import LINE_LIMIT_BYTES, SEARCHED_CHARACTERS, chunks, first_texts
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import MONTHS, has_local_stamps, time_of
from ettr.tables.rows import Batch
from ettr.tables.text import clean, text_of

NAME = "kernel-xid"

_MARKS = (b"Xid", b"fallen off the bus")
# journald writes a message that is not UTF-8 as an array of bytes, where no word shows
_JOURNAL_MARKS = (*_MARKS, b'"MESSAGE":[', b'"MESSAGE": [', b'"MESSAGE" : [')
# what lies between is bounded, so that a line's time does not grow as its square
# of a GPU that is divided (MIG) the driver names the instances too: ` GPU-I:05 GPU-CI:00`
_XID = re.compile(
    r"Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{1,40})(?: [^()]{1,60})?\)[^:\d]{0,80}: "
    r"(?P<code>\d{1,6})\b(?P<rest>.*)"
)
_SXID = re.compile(
    r"SXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{1,40})\)[^:\d]{0,80}: (?P<code>\d{1,6})\b(?P<rest>.*)"
)
_FALLEN = re.compile(
    r"NVRM: (?:GPU at |GPU )?(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F:.]{1,40}?):? "
    r"?(?:GPU )?has fallen off the bus"
)
_NVLINK5 = re.compile(
    r"\b(?P<unit>[A-Z][A-Z0-9_]*(?:/[A-Z0-9_]+)?)\s+(?P<severity>Non-?fatal|Link[ -]Fatal|Fatal)"
    r"\s+XC(?P<xc>\d)\s+i(?P<injected>\d)(?:\s+Link\s+(?P<link>-?\d+))?",
    re.IGNORECASE,
)
_NVLINK5_CODES = range(144, 151)
_FATAL = {"nonfatal": "nonfatal", "non-fatal": "nonfatal", "fatal": "fatal"}


@dataclass(slots=True)
class _Clock:
    """Turns the stamps of one file into UTC, and says what it assumed."""

    file: LogRows

    def time(self, found: re.Match[str], number: int, line: str) -> datetime | None:
        parts = found.groupdict()
        if parts.get("uptime"):
            return self._since_boot(float(parts["uptime"]))
        if parts.get("iso"):
            if parts["offset"]:
                return time_of(parts["iso"] + parts["offset"])
            return self.file.local_time(parts["iso"])
        return self._of_parts(parts, number, line)

    def _since_boot(self, seconds: float) -> datetime | None:
        start = self.file.options.start
        if start is None:
            return None
        self.file.note("stamps are seconds since boot; the boot was taken from the start given")
        try:
            return start.astimezone(UTC) + timedelta(seconds=seconds)
        except OverflowError:
            return None

    def _of_parts(self, parts: dict[str, str | None], number: int, line: str) -> datetime | None:
        text = f"{MONTHS[parts['month'] or 'Jan']:02d}-{int(parts['day'] or 0):02d}T"
        text += (parts["clock"] or "").zfill(8)
        if parts.get("year"):
            return self.file.local_time(f"{parts['year']}-{text}")
        return self.file.time_without_year(text, number, line)


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Events of check `xid` and `sxid`, one for each line that reports one."""
    file = LogRows(NAME, origin, options)
    clock = _Clock(file)
    as_json = is_journal(origin.head)
    days = KernelDays(file, as_json=as_json)
    for number, line in _marked_lines(origin, file, days):
        if line is not None:
            (_journal_line if as_json else _text_line)(file, clock, number, line)
        if file.is_full:
            yield file.batch()
    days.keep()
    yield file.batch()


def _marked_lines(
    origin: Origin, file: LogRows, days: KernelDays
) -> Iterator[tuple[int, bytes | None]]:
    """Lines that hold a mark, by number; None now and then, so that the reader may hand out."""
    number, rest = 0, b""
    for chunk in chunks(origin):
        block = rest + chunk
        last = block.rfind(b"\n")
        if last < 0 and len(block) < LINE_LIMIT_BYTES:
            rest = block
            continue
        rest = block[last + 1 :] if last >= 0 else b""
        block = block[: last + 1] if last >= 0 else block + b"\n"
        yield from _marked_in(block, number, file)
        days.see(block, number)
        number += block.count(b"\n")
        yield number, None
    if rest:
        yield from _marked_in(rest + b"\n", number, file)
        days.see(rest + b"\n", number)


def _marked_in(block: bytes, before: int, file: LogRows) -> Iterator[tuple[int, bytes]]:
    marks = _JOURNAL_MARKS if is_journal(file.origin.head) else _MARKS
    starts = sorted({start for mark in marks for start in _lines_with(block, mark)})
    n_lines = block.count(b"\n")
    file.count_read(n_lines)
    file.count_skipped(n_lines - len(starts))
    at, number = 0, before + 1
    for start in starts:
        number += block.count(b"\n", at, start)
        at = start
        yield number, block[start : block.find(b"\n", start)].rstrip(b"\r")


def _lines_with(block: bytes, mark: bytes) -> Iterator[int]:
    """Where each line begins that holds the mark; `find` is many times as fast as a regex."""
    found = block.find(mark)
    while found >= 0:
        yield block.rfind(b"\n", 0, found) + 1
        end = block.find(b"\n", found)
        found = block.find(mark, end) if end >= 0 else -1


def _text_line(file: LogRows, clock: _Clock, number: int, line: bytes) -> None:
    text = text_of(line[:SEARCHED_CHARACTERS]).replace("\x00", "\ufffd")
    for pattern in PREFIXES:
        if found := pattern.match(text):
            break
    else:
        if _observation(text) is None:
            file.count_skipped()
        else:
            file.reject(number, "bad-timestamp", "the line begins with no stamp known", line)
        return
    message = text[found.end() :].strip()
    seen = _observation(message) if KERNEL.match(message) else None
    if seen is None:
        # the words occur in a line of another program, which may well quote the kernel's
        file.count_skipped()
        return
    time = clock.time(found, number, text)
    if time is None:
        reason = "no-boot-time" if found.groupdict().get("uptime") else "bad-timestamp"
        detail = (
            "the stamp is seconds since boot; say when the node booted with --start, or take the "
            "log with dmesg -T"
            if reason == "no-boot-time"
            else f"no time: {found.group(0)!r}"
        )
        file.reject(number, reason, detail, line)
        return
    parts = found.groupdict()
    node = clean(parts.get("host")) or clean(parts.get("gathered")) or file.node_of_file()
    file.events.add(line=number, time=time, node=node, message=_bare(message), **seen)


def _journal_line(file: LogRows, clock: _Clock, number: int, line: bytes) -> None:
    try:
        record = json.loads(text_of(line))
    except (ValueError, RecursionError) as error:
        file.reject(number, "bad-json", f"no JSON: {error}", line)
        return
    message = record.get("MESSAGE") if isinstance(record, dict) else None
    if isinstance(message, list):  # of bytes, or of the texts of a field that occurs twice
        texts = [part for part in message if isinstance(part, str)]
        as_bytes = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256)
        message = " ".join(texts) if texts else text_of(as_bytes)
    text = clean(message)
    seen = _observation(text) if text else None
    if seen is None or text is None:
        file.count_skipped()
        return
    stamp = record.get("_SOURCE_REALTIME_TIMESTAMP") or record.get("__REALTIME_TIMESTAMP")
    micros = str(stamp)
    time = time_of(int(micros) / 1e6) if re.fullmatch(r"[0-9]{10,17}", micros) else None
    if time is None:
        file.reject(number, "bad-timestamp", f"__REALTIME_TIMESTAMP is {stamp!r}", line)
        return
    node = clean(record.get("_HOSTNAME")) or file.node_of_file()
    file.events.add(line=number, time=time, node=node, message=text, **seen)


def _bare(message: str) -> str:
    """The message without `kernel: [12.3]`, so that one line seen in two logs reads the same."""
    return re.sub(r"^(?:kernel(?:\[\d+\])?: ?)?(?:\[\s*\d+\.\d+\] ?)?", "", message)


def _observation(text: str) -> dict[str, Any] | None:
    """Check, code, severity and entity that a kernel message reports; None if nothing."""
    if found := _SXID.search(text):
        first = found["rest"].strip(" ,").split(",")[0].strip().lower()
        severity = {"fatal": "critical", "non-fatal": "warning", "nonfatal": "warning"}
        return {
            "check": "sxid",
            "code": str(int(found["code"])),
            "severity": severity.get(first, "unknown"),
            "entity_type": "NVSWITCH",
            "entity": _pci(found["pci"]),
        }
    if found := _XID.search(text):
        return {
            "check": "xid",
            "code": _xid_code(int(found["code"]), found["rest"]),
            "entity_type": "PCI",
            "entity": _pci(found["pci"]),
        }
    if found := _FALLEN.search(text):
        return {"check": "xid", "code": "79", "entity_type": "PCI", "entity": _pci(found["pci"])}
    return None


def _xid_code(code: int, rest: str) -> str:
    """`79`, or for NVLink5 `149.NETIR_LINK_EVT.fatal`."""
    detail = _NVLINK5.search(rest) if code in _NVLINK5_CODES else None
    if detail is None:
        return str(code)
    severity = _FATAL.get(detail["severity"].lower(), "link-fatal")
    return f"{code}.{detail['unit'].upper()}.{severity}"


def _pci(address: str) -> str:
    """The address in lower case without its function, as XID lines and others agree on it."""
    return re.sub(r"\.\d+$", "", address.lower().rstrip(":."))


def _looks_kernel(line: str) -> bool:
    for pattern in PREFIXES:
        if found := pattern.match(line):
            rest = line[found.end() :].lstrip()
            parts = found.groupdict()
            # dmesg brackets its stamp; all others name the program
            in_brackets = parts.get("uptime") or parts.get("year")
            return bool(in_brackets) or rest.startswith(("kernel", "NVRM:", "nvidia-nvswitch"))
    return False


def matches(head: bytes, name: str) -> float:
    """How sure it is that these are lines of a kernel log."""
    if is_journal(head):
        return 0.95 if b'"MESSAGE"' in head else 0.8
    lines = first_texts(head)
    if not lines:
        return 0.0
    kernel = [line for line in lines if _looks_kernel(line)]
    if any(_observation(line) for line in kernel):
        return 0.95
    share = len(kernel) / len(lines)
    if share >= 0.5:
        return 0.8
    # a syslog in which the kernel speaks now and then
    return 0.55 if kernel and ("kern" in name or "messages" in name or "syslog" in name) else 0.0


_local_stamps = has_local_stamps(*PREFIXES)


def prints_local(head: bytes) -> bool:
    """Whether the stamps of this file are local time without a zone."""
    return not is_journal(head) and _local_stamps(head)


SOURCE = Source(
    name=NAME,
    title="kernel logs with NVIDIA XID and SXID lines (dmesg, syslog, journalctl)",
    tables=("events", "log_days"),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=prints_local,
    options=("--timezone", "--cluster", "--start"),
    how_to_get="journalctl -k -o json --no-pager > NODE.json, or dmesg -T > NODE.dmesg",
)
