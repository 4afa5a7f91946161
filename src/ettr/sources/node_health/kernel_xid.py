"""Kernel logs: XIDs, SXIDs, GPUs fallen off the bus, and the errors that the taxonomy lists.

Reads dmesg (plain, -T, --time-format iso, --json), syslog with old and ISO stamps and RFC 5424, and
journalctl in all its forms, gathered or not. All other lines are counted as skipped, and are passed
over without being parsed; that they were there shows on which days a node's log was arriving.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ettr.sources.base import ReadOptions, Source
from ettr.sources.kernel_errors import NAMED_GPU, Forms, Observation, package_forms, pci_address
from ettr.sources.kernel_lines import KERNEL, PREFIXES, KernelDays, is_journal
from ettr.sources.kernel_wrappings import is_of_kernel, message_of, plain_head, wrapping_of
from ettr.sources.lines import SEARCHED_CHARACTERS, blocks, first_texts
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import MONTHS, has_local_stamps, time_of
from ettr.tables.rows import Batch
from ettr.tables.text import clean, text_of

NAME = "kernel-xid"

# journald writes a message that is not UTF-8 as an array of bytes, where no word shows
_ARRAYS = (b'"MESSAGE":[', b'"MESSAGE": [', b'"MESSAGE" : [')
# of three lines on a GPU that fell off its bus the first names it and the last says so
_LINES_OF_ONE = 4


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


@dataclass(slots=True)
class _Named:
    """A GPU that the first of several lines names."""

    number: int
    time: datetime
    pci: str


class _Kernel:
    """Turns the lines of one log that hold a mark into events."""

    def __init__(self, file: LogRows) -> None:
        self._file, self._clock = file, _Clock(file)
        self.forms = Forms(file.options.kernel) if file.options.kernel else package_forms()
        self._named: dict[str | None, _Named] = {}
        self._seen: set[tuple[str | None, str, str | None]] = set()

    def text_line(self, number: int, line: bytes) -> None:
        text = text_of(line[:SEARCHED_CHARACTERS]).replace("\x00", "\ufffd")
        found = next((found for form in PREFIXES if (found := form.match(text))), None)
        if found is None:
            self._unstamped(number, line, text.strip())
            return
        message = text[found.end() :].strip()
        if not KERNEL.match(message) and not _is_dmesg(found):
            # the words occur in a line of another program, which may well quote the kernel's
            self._file.count_skipped()
            return
        parts = found.groupdict()
        named = clean(parts.get("host")) or clean(parts.get("gathered"))
        bare = _bare(message)
        seen = self.forms.observations(bare)
        gpu = NAMED_GPU.search(bare) if not seen else None
        if not seen and gpu is None:
            self._nothing(number, line, seen)
            return
        time = self._clock.time(found, number, text)
        if time is None:
            reason = "no-boot-time" if parts.get("uptime") else "bad-timestamp"
            detail = (
                "the stamp is seconds since boot; say when the node booted with --start, or take "
                "the log with dmesg -T"
                if reason == "no-boot-time"
                else f"no time: {found.group(0)!r}"
            )
            self._file.reject(number, reason, detail, line)
            return
        for node in named.split(",") if named else [self._file.node_of_file()]:
            if gpu is not None:
                self._named[node] = _Named(number, time, gpu["pci"])
            self._keep(number, time, node, bare, seen or [])
        if not seen:
            self._file.count_skipped()

    def _nothing(self, number: int, line: bytes, seen: list[Observation] | None) -> None:
        if seen is None:
            self._file.reject(
                number, "unknown-form", "a kernel message that holds a mark of an error", line
            )
        else:
            self._file.count_skipped()

    def _unstamped(self, number: int, line: bytes, text: str) -> None:
        """A line without a stamp: of a message over several lines, or of no known wrapping."""
        seen = self.forms.observations(text)
        node = None
        before = max(self._named.values(), key=lambda one: one.number, default=None)
        if before is not None:
            node = next(name for name, one in self._named.items() if one is before)
        if seen and before is not None and number - before.number < _LINES_OF_ONE:
            self._keep(number, before.time, node, text, seen)
        elif seen:
            self._file.reject(number, "bad-timestamp", "the line begins with no stamp known", line)
        else:
            self._file.count_skipped()

    def journal_line(self, number: int, line: bytes) -> None:
        try:
            record = json.loads(text_of(line))
        except (ValueError, RecursionError) as error:
            self._file.reject(number, "bad-json", f"no JSON: {error}", line)
            return
        text = message_of(record.get("MESSAGE")) if isinstance(record, dict) else None
        seen = self.forms.observations(text) if text and is_of_kernel(record) else []
        if not seen or text is None:
            self._nothing(number, line, seen)
            return
        stamp = record.get("_SOURCE_REALTIME_TIMESTAMP") or record.get("__REALTIME_TIMESTAMP")
        micros = str(stamp)
        time = time_of(int(micros) / 1e6) if re.fullmatch(r"[0-9]{10,17}", micros) else None
        if time is None:
            self._file.reject(number, "bad-timestamp", f"__REALTIME_TIMESTAMP is {stamp!r}", line)
            return
        node = clean(record.get("_HOSTNAME")) or self._file.node_of_file()
        self._keep(number, time, node, text, seen)

    def _keep(
        self, number: int, time: datetime, node: str | None, text: str, seen: list[Observation]
    ) -> None:
        for place, one in enumerate(seen):
            named = self._of_three_lines(number, node, one)
            if named["check"] == "xid":
                key = (node, named["code"].partition(".")[0], named.get("entity"))
                # what another XID names as its cause counts where no line of its own came before
                if place and key in self._seen:
                    continue
                self._seen.add(key)
            self._file.events.add(line=number, time=time, node=node, message=text, **named)

    def _of_three_lines(self, number: int, node: str | None, one: Observation) -> Observation:
        """The observation with the GPU that a line just before it named, where it names none."""
        if one["check"] != "xid" or one.get("entity"):
            return one
        before = self._named.pop(node, None)
        if before is None or number - before.number >= _LINES_OF_ONE:
            return one
        return one | {"entity_type": "PCI", "entity": pci_address(before.pci)}


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Events of checks `xid`, `sxid` and `kernel`, one for each line that reports one."""
    file = LogRows(NAME, origin, options)
    kernel = _Kernel(file)
    wrapping = wrapping_of(origin.head)
    as_json = wrapping is None and is_journal(origin.head)
    days = KernelDays(file, as_json=as_json)
    arrays = _ARRAYS if as_json else ()
    number = 0
    for block in wrapping(blocks(origin)) if wrapping else blocks(origin):
        starts = kernel.forms.marks.lines(block)
        starts.update(start for mark in arrays for start in _lines_with(block, mark))
        n_lines = block.count(b"\n")
        n_empty = sum(not line for line in block.split(b"\n")[:-1]) if wrapping else 0
        file.count_read(n_lines - n_empty)
        file.count_skipped(n_lines - n_empty - len(starts))
        for at, line in _numbered(block, sorted(starts), number):
            (kernel.journal_line if as_json else kernel.text_line)(at, line)
            if file.is_full:
                yield file.batch()
        days.see(block, number)
        number += n_lines
        if file.is_full:
            yield file.batch()
    days.keep()
    yield file.batch()


def _numbered(block: bytes, starts: list[int], before: int) -> Iterator[tuple[int, bytes]]:
    """The lines that begin at these places, with their numbers."""
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


def _bare(message: str) -> str:
    """The message without `kernel: [12.3]`, so that one line seen in two logs reads the same."""
    return re.sub(
        r"^(?:kernel(?:\[\d+\])?: ?)?(?:\[\s*\d+\.\d+\] ?(?:\[\s*[TC]\d+\] ?)?)?", "", message
    )


def _is_dmesg(found: re.Match[str]) -> bool:
    """Whether a line begins as dmesg writes it: its stamp names no program."""
    parts = found.groupdict()
    iso = parts.get("iso")
    return bool(parts.get("uptime") or parts.get("year") or (iso and "," in iso))


def _looks_kernel(line: str) -> bool:
    for pattern in PREFIXES:
        if found := pattern.match(line):
            rest = line[found.end() :].lstrip()
            # dmesg brackets its stamp; all others name the program
            return _is_dmesg(found) or rest.startswith(("kernel", "NVRM:", "nvidia-nvswitch"))
    return False


def matches(head: bytes, name: str) -> float:
    """How sure it is that these are lines of a kernel log."""
    if is_journal(head):
        return 0.95 if b'"MESSAGE"' in head else 0.8
    lines = first_texts(plain_head(head))
    if not lines:
        return 0.0
    kernel = [line for line in lines if _looks_kernel(line)]
    forms = package_forms()
    if any(forms.observations(line) for line in kernel):
        return 0.95
    share = len(kernel) / len(lines)
    if share >= 0.5:
        return 0.8
    # a syslog in which the kernel speaks now and then
    return 0.55 if kernel and ("kern" in name or "messages" in name or "syslog" in name) else 0.0


_local_stamps = has_local_stamps(*PREFIXES)


def prints_local(head: bytes) -> bool:
    """Whether the stamps of this file are local time without a zone."""
    plain = plain_head(head)
    return not is_journal(plain) and _local_stamps(plain)


SOURCE = Source(
    name=NAME,
    version=2,
    title="kernel logs: XIDs and other errors of a node (dmesg, syslog, journalctl)",
    tables=("events", "log_days"),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=prints_local,
    options=("--timezone", "--cluster", "--start"),
    how_to_get="journalctl -k -o json --no-pager > NODE.json, or dmesg -T > NODE.dmesg",
)
