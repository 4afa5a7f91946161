"""The lines of kernel logs by node, time and program, and the days on which they arrived.

Logs in other wrappings are rewritten as lines that begin with an ISO stamp. A line stays on its
number; of a record over several lines the first one holds all of it and the others are empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ettr.errors import UsageError
from ettr.sources.lines import json_part, lines_with, node_of_name
from ettr.sources.log_rows import OF_FILE, LogDays, LogRows
from ettr.sources.node_lists import NodeLists
from ettr.sources.shippers import is_shipped, shipped_lines
from ettr.sources.times import (
    LEAP_DAY,
    MONTHS,
    HostLines,
    first_year,
    time_of,
    utc_of_local,
    within_years,
    year_of_stamp,
)
from ettr.tables.rows import clean, text_of

Blocks = Iterable[bytes]
Wrapping = Callable[[Blocks], Iterator[bytes]]

_RAW_HOST = rb"[A-Za-z0-9][A-Za-z0-9._-]*"
_DAY = rb"\d{4}-\d\d-\d\d"
_RAW_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_OFFSET = rb"(?:Z|[+-]\d\d:?\d\d)"
_RAW_ISO = _DAY + b"T" + _RAW_CLOCK + _OFFSET
_RFC_5424 = re.compile(
    rb"^(?:<\d{1,3}>)?1 (?P<iso>%b) (?P<host>%b) (?P<program>[^\s\[\]]{1,48}) "
    rb"(?P<process>\S{1,128}) \S{1,32} (?:-|(?:\[[^\]\n]{0,4000}\])+)(?: \xef\xbb\xbf| |$)"
    % (_RAW_ISO, _RAW_HOST),
    re.MULTILINE,
)
_SHORT_FULL = re.compile(
    rb"^[^\W\d]\S{1,9} (?P<day>%b) (?P<clock>%b) (?P<zone>[A-Z]{1,5}|[+-]\d{2,4}(?::\d\d)?) (?=%b )"
    % (_DAY, _RAW_CLOCK, _RAW_HOST),
    re.MULTILINE,
)
_SHORT_UNIX = re.compile(
    rb"^(?P<seconds>\d{9,10})\.(?P<micros>\d{6}) (?=" + _RAW_HOST + rb" )", re.M
)
_CRI = re.compile(
    rb"^(?P<iso>%b) std(?:out|err) [FP] (?P<uptime>\[ *\d+\.\d+\] )?" % _RAW_ISO, re.M
)
# of what a container wrote, the stamp of the line itself is more than that of its wrapping
_CRI_STAMPED = re.compile(
    rb"^%b std(?:out|err) [FP] (?=\[[A-Z][a-z]{2} [A-Z][a-z]{2} |%bT)" % (_RAW_ISO, _DAY), re.M
)
# dmesg writes its fractions with a comma
_IN_BRACKETS = re.compile(rb"^\[(?P<iso>%b[T ]\d\d:\d\d:\d\d,\d{6}%b)\] " % (_DAY, _OFFSET), re.M)
_FOUND_BY_GREP = re.compile(rb"^(?P<file>[\w./-]{1,250}):(?=\[[ \dA-Z])", re.M)
_OF_RING_BUFFER = re.compile(rb"^\d{1,3},\d{1,20},(?P<micros>\d{1,20}),[^;\n]{1,60};", re.M)
_RULER = re.compile(rb"^-{8,}\r?$")
_BLOCK = re.compile(rb"\A-{8,}\r?\n[^\n]{1,4000}\r?\n-{8,}\r?\n")
_EXPORTED = re.compile(rb"^__REALTIME_TIMESTAMP=\d{10,17}\r?$", re.M)
_PRETTY = re.compile(rb"\A\s*\{\s*\n")
_LONGEST_RECORD_LINES = 2000
_BINARY_SIZE_BYTES = 8
# journalctl names the zone as the machine does; what is not UTC is local time
_NO_OFFSET = {b"UTC": b"Z", b"GMT": b"Z", b"Z": b"Z"}


def wrapping_of(head: bytes) -> Wrapping | None:
    """What turns a log with these first bytes into plain lines; None where it has such already."""
    if _BLOCK.match(head):
        return _blocks_of_nodes
    if _EXPORTED.search(head[:4096]):
        return _exported
    if is_shipped(head):
        return shipped_lines
    if json_part(head)[:1] == b"{":
        if re.match(rb'\s*\{\s*"dmesg"\s*:', head):
            return _ring_buffer_json
        is_pretty = b'"__REALTIME_TIMESTAMP"' in head and _PRETTY.match(json_part(head))
        return _pretty if is_pretty else None
    first = b"".join(head.splitlines(keepends=True)[:20])
    for pattern, change in _OF_LINES:
        if pattern.search(first):
            return _by_line(pattern, change)
    return None


def plain_head(head: bytes) -> bytes:
    """The first bytes of a log as plain lines."""
    wrapping = wrapping_of(head)
    if wrapping is None:
        return head
    whole = head[: head.rfind(b"\n") + 1] if not json_part(head) else head + b"\n"
    return b"".join(wrapping([whole or head + b"\n"]))


def _by_line(pattern: re.Pattern[bytes], change: Callable[[re.Match[bytes]], bytes]) -> Wrapping:
    def wrapping(blocks: Blocks) -> Iterator[bytes]:
        for block in blocks:
            yield pattern.sub(change, block)

    return wrapping


def _of_rfc_5424(found: re.Match[bytes]) -> bytes:
    process = b"" if found["process"] == b"-" else b"[" + found["process"] + b"]"
    return found["iso"] + b" " + found["host"] + b" " + found["program"] + process + b": "


def _of_short_full(found: re.Match[bytes]) -> bytes:
    zone = found["zone"]
    offset = zone if zone[:1] in b"+-" else _NO_OFFSET.get(zone, b"")
    if re.fullmatch(rb"[+-]\d\d", offset):
        offset += b"00"
    return found["day"] + b"T" + found["clock"] + offset + b" "


def _of_short_unix(found: re.Match[bytes]) -> bytes:
    moment = datetime.fromtimestamp(int(found["seconds"]), UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{found['micros'].decode()}+00:00 ".encode()


def _of_cri(found: re.Match[bytes]) -> bytes:
    return found["iso"] + (b" kernel: " if found["uptime"] else b" ") + (found["uptime"] or b"")


def _of_grep(found: re.Match[bytes]) -> bytes:
    path = text_of(found["file"])
    name = path.rpartition("/")[2]
    return ((node_of_name(name) or name) + ": ").encode()


def _of_ring_buffer(found: re.Match[bytes]) -> bytes:
    return f"[{int(found['micros']) / 1e6:.6f}] ".encode()


_OF_LINES: tuple[tuple[re.Pattern[bytes], Callable[[re.Match[bytes]], bytes]], ...] = (
    (_RFC_5424, _of_rfc_5424),
    (_SHORT_FULL, _of_short_full),
    (_SHORT_UNIX, _of_short_unix),
    (_CRI_STAMPED, lambda _: b""),
    (_CRI, _of_cri),
    (_IN_BRACKETS, lambda found: found["iso"].replace(b",", b".") + b" kernel: "),
    (_FOUND_BY_GREP, _of_grep),
    (_OF_RING_BUFFER, _of_ring_buffer),
)


def _lines(blocks: Blocks) -> Iterator[bytes]:
    for block in blocks:
        yield from block.split(b"\n")[:-1]


def _in_blocks(lines: Iterator[bytes], size: int = 4096) -> Iterator[bytes]:
    """Lines in blocks of some thousand, each line with its newline."""
    held: list[bytes] = []
    for line in lines:
        held.append(line)
        if len(held) >= size:
            yield b"\n".join(held) + b"\n"
            held = []
    if held:
        yield b"\n".join(held) + b"\n"


def _blocks_of_nodes(blocks: Blocks) -> Iterator[bytes]:
    """What `clush -b` and `dshbak -c` print: a ruler, nodes, a ruler, and their lines."""
    return _in_blocks(_named_lines(_lines(blocks)))


def _named_lines(lines: Iterator[bytes]) -> Iterator[bytes]:
    nodes = b""
    ruled: list[bytes] = []  # a ruler, and what follows it until a second one says what it is
    for line in lines:
        if not ruled:
            if _RULER.match(line):
                ruled = [line]
            else:
                yield _named(nodes, line)
        elif len(ruled) == 1:
            ruled.append(line)
        elif _RULER.match(line):
            nodes = _nodes(ruled[1])
            yield from (b"", b"", b"")
            ruled = []
        else:
            yield from (_named(nodes, held) for held in (*ruled, line))
            ruled = []
    yield from (_named(nodes, held) for held in ruled)


def _named(nodes: bytes, line: bytes) -> bytes:
    return nodes + line if line.strip() else line


def _nodes(text: bytes) -> bytes:
    # clush adds how many there are: `node[18-19] (2)`
    listed = re.sub(r"\s*\(\d+\)\s*\Z", "", text_of(text).strip())
    names = NodeLists()(listed) if listed else None
    return (",".join(names) if names else listed).encode() + b": "


def _exported(blocks: Blocks) -> Iterator[bytes]:
    """What `journalctl -o export` prints: a field a line, an empty line behind each record."""
    return _in_blocks(_from_fields(_lines(blocks)))


def _from_fields(lines: Iterator[bytes]) -> Iterator[bytes]:
    record: dict[str, Any] = {}
    n_lines = 0
    for line in lines:
        n_lines += 1
        name, equals, value = line.partition(b"=")
        if not line.strip():
            yield from _record_line(record, n_lines)
            record, n_lines = {}, 0
        elif equals:
            record[text_of(name)] = text_of(value)
        else:  # a binary field: its length in eight bytes, then so many bytes, lines among them
            data = next(lines, b"") + b"\n"
            n_lines += 1
            size = int.from_bytes(data[:_BINARY_SIZE_BYTES], "little")
            while len(data) < _BINARY_SIZE_BYTES + size + 1 and n_lines < _LONGEST_RECORD_LINES:
                more = next(lines, None)
                if more is None:
                    break
                data += more + b"\n"
                n_lines += 1
                size = int.from_bytes(data[:_BINARY_SIZE_BYTES], "little")
            record[text_of(name)] = text_of(data[_BINARY_SIZE_BYTES:-1])
    if n_lines:
        yield from _record_line(record, n_lines)


def _from_several(
    blocks: Blocks, end: re.Pattern[bytes], read: Callable[[list[bytes]], Iterator[bytes]]
) -> Iterator[bytes]:
    """What is read of records over several lines, each up to one that matches `end`."""
    held: list[bytes] = []
    for line in _lines(blocks):
        held.append(line)
        if end.match(line) or len(held) >= _LONGEST_RECORD_LINES:
            yield from read(held)
            held = []
    if held:
        yield from read(held)


def _pretty(blocks: Blocks) -> Iterator[bytes]:
    """What `journalctl -o json-pretty` prints: each record over several lines."""
    end = re.compile(rb"\}\s*\Z")
    return _in_blocks(
        _from_several(blocks, end, lambda held: _record_line(_object(held), len(held)))
    )


def _object(lines: list[bytes]) -> dict[str, Any]:
    try:
        found = json.loads(text_of(b"\n".join(lines)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _record_line(record: dict[str, Any], n_lines: int) -> Iterator[bytes]:
    """A record of the journal as a line of the kernel, then as many empty ones as it had more."""
    stamp = record.get("_SOURCE_REALTIME_TIMESTAMP") or record.get("__REALTIME_TIMESTAMP")
    is_micros = re.fullmatch(r"[0-9]{10,17}", str(stamp))
    time = time_of(int(str(stamp)) / 1e6) if is_micros else None
    message = message_of(record.get("MESSAGE"))
    if time is None or message is None or not is_of_kernel(record):
        yield b""
    else:
        host = clean(record.get("_HOSTNAME"))
        who = f"{host} kernel: " if host else "kernel: "
        text = message.replace("\n", "#012")
        yield f"{time:%Y-%m-%dT%H:%M:%S.%f}+00:00 {who}{text}".encode()
    for _ in range(n_lines - 1):
        yield b""


def is_of_kernel(record: dict[str, Any]) -> bool:
    """Whether the kernel wrote a record of the journal; one that does not say who may be."""
    return record.get("_TRANSPORT") in {None, "kernel"} or (
        record.get("SYSLOG_IDENTIFIER") == "kernel"
    )


def message_of(value: object) -> str | None:
    """The text of a MESSAGE, which may be a list of bytes, or of texts if the field is twice."""
    if isinstance(value, list):
        texts = [part for part in value if isinstance(part, str)]
        as_bytes = bytes(b for b in value if isinstance(b, int) and 0 <= b < 256)
        value = " ".join(texts) if texts else text_of(as_bytes)
    return clean(value)


def _ring_buffer_json(blocks: Blocks) -> Iterator[bytes]:
    """What `dmesg --json` prints: an object of a few lines for each message."""
    # `},{` ends one object and begins the next
    return _in_blocks(_from_several(blocks, re.compile(rb"\s*\}"), _message_line))


_TIME_FIELD = re.compile(rb'^\s*"time"\s*:\s*"?\s*([^"\n]*?)"?,?\s*$')
_TEXT_FIELD = re.compile(rb'^\s*"msg"\s*:\s*(".*")\s*,?\s*$')


def _message_line(lines: list[bytes]) -> Iterator[bytes]:
    time = next((m[1] for line in lines if (m := _TIME_FIELD.match(line))), b"")
    quoted = next((m[1] for line in lines if (m := _TEXT_FIELD.match(line))), None)
    message = _object([b'{"msg":', quoted, b"}"]).get("msg") if quoted else None
    if isinstance(message, str) and time:
        is_iso = re.match(_DAY, time)
        stamp = time + b" kernel:" if is_iso else b"[" + time.strip(b"[]") + b"]"
        yield stamp + b" " + message.replace("\n", "#012").encode("utf-8", "replace")
    else:
        yield b""
    yield from (b"" for _ in lines[1:])


# -- the lines -----------------------------------------------------------------------------------

_MONTH = "(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = r"(?P<clock>\d{1,2}:\d\d:\d\d(?:\.\d+)?)"
_ISO = r"(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<offset>Z|[+-]\d\d:?\d\d)?"
_HOST = r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*)"
# clush and pdsh put the host before each line of what they gather, or several with the same lines
_GATHERED = r"(?:<\d+>)?(?:kern\s*:\w+\s*: )?(?:(?P<gathered>[A-Za-z0-9][A-Za-z0-9._,+-]*): )?"
_SYSLOG = rf"{_MONTH}\s+(?P<day>\d{{1,2}}) {_CLOCK} {_HOST} "
PREFIXES = tuple(
    re.compile(_GATHERED + pattern)
    for pattern in (
        rf"\[\s*[A-Z][a-z]{{2}} {_MONTH}\s+(?P<day>\d{{1,2}}) {_CLOCK} (?P<year>\d{{4}})\]",
        # a kernel may add which thread or processor wrote a line; short-monotonic adds the host
        rf"\[\s*(?P<uptime>\d+\.\d+)\](?:\[\s*[TC]\d+\]| {_HOST} (?=kernel: ))?",
        _SYSLOG,
        rf"{_ISO} {_HOST} (?=kernel|\[|nvidia)",
        rf"{_ISO} ",
    )
)
KERNEL = re.compile(r"kernel\b|\[\s*\d+\.\d+\]|NVRM: |nvidia-nvswitch|SXid \(")

# other programs of a syslog; dmesg, which names no host, writes its fractions with a comma
_ISO_PROGRAM = re.compile(rf"{_ISO} {_HOST} (?=[^\s:\[]{{1,64}}(?:\[\d+\])?:)")
_SYSLOG_FORM = re.compile(_SYSLOG)
# the longest beginning of a line that is looked at: stamp, host and program
BEGINNING_BYTES = 160
# a host and the first letters of the program behind it; a line with more is looked at alone
_HOST_BYTES = 80
_LINES_OF_LAYOUT = 20

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the stamp and the host stand in each line, which a log keeps from line to line."""

    hour: tuple[slice, ...]
    shape: tuple[tuple[int, bytes], ...]
    host_at: int | None


_OF_SYSLOG = _Layout((slice(0, 9),), ((3, b" "), (6, b" "), (9, b":"), (12, b":"), (15, b" ")), 16)
_OF_DMESG = _Layout(
    (slice(5, 14), slice(21, 25)),
    ((0, b"["), (4, b" "), (8, b" "), (11, b" "), (14, b":"), (20, b" "), (25, b"]")),
    None,
)


def is_journal(head: bytes) -> bool:
    """Whether these are lines of `journalctl -o json`."""
    return json_part(head)[:1] == b"{" and b'"__REALTIME_TIMESTAMP"' in head


def beginning(text: str) -> tuple[re.Match[str], bool] | None:
    """The stamp and host with which a line begins, and whether the kernel wrote it.

    None for a line that begins otherwise.
    """
    first = text[:1]
    found = (_ISO_PROGRAM if first.isdigit() else _SYSLOG_FORM).match(text)
    if found is None or (first.isdigit() and "," in found["iso"]):
        found = next((f for pattern in PREFIXES if (f := pattern.match(text))), None)
    if found is None:
        return None
    parts = found.groupdict()
    if parts.get("host"):
        return found, KERNEL.match(text, found.end()) is not None
    is_plain_iso = parts.get("iso") and "," not in parts["iso"]
    if is_plain_iso and not KERNEL.match(text, found.end()):
        return None
    return found, True


def groups(block: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Lines of the same hour and host, from the kernel or not: how the first begins, and which
    and how many they are; in the order in which each group begins.

    Lines that do not begin as the first ones do are groups of their own.
    """
    data = np.frombuffer(block + bytes(BEGINNING_BYTES), dtype=np.uint8)
    ends = np.flatnonzero(data[: len(block)] == ord("\n"))
    starts = np.concatenate(([0], ends[:-1] + 1))
    layout = _layout(block, starts)
    fits = np.full(len(starts), layout is not None)
    places = sizes = np.empty(0, dtype=np.int64)
    if layout is not None:
        for byte_at, byte in layout.shape:
            fits &= data[starts + byte_at] == byte[0]
        bounds = np.append(starts, len(block)).astype(np.int32)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(block)]
        lines = pa.Array.from_buffers(pa.binary(), len(starts), buffers)
        keys = [pc.binary_slice(lines, part.start, part.stop) for part in layout.hour]
        if layout.host_at is not None:
            begun = pc.binary_slice(lines, layout.host_at, layout.host_at + _HOST_BYTES)
            words = pc.split_pattern(begun, b" ", max_splits=2)
            fits &= pc.greater(pc.list_value_length(words), 1).to_numpy(zero_copy_only=False)
            words = words if fits.all() else words.filter(pa.array(fits))
            keys += [pc.list_element(words, 0), pc.starts_with(pc.list_element(words, 1), "kernel")]
        keys = [key if len(key) == fits.sum() else key.filter(pa.array(fits)) for key in keys]
        names = [str(number) for number in range(len(keys))]
        alike = pa.table([*keys, np.flatnonzero(fits)], names=[*names, "place"]).group_by(
            names, use_threads=False
        )
        found = alike.aggregate([("place", "min"), ("place", "count")])
        places, sizes = (found.column(f"place_{what}").to_numpy() for what in ("min", "count"))
    odd = np.flatnonzero(~fits)
    places = np.concatenate((places, odd))
    sizes = np.concatenate((sizes, np.ones(len(odd), dtype=np.int64)))
    by_place = np.argsort(places, kind="stable")
    places, sizes = places[by_place], sizes[by_place]
    begins, until = starts[places], np.minimum(ends[places], starts[places] + BEGINNING_BYTES)
    for place, size, start, end in zip(
        places.tolist(), sizes.tolist(), begins.tolist(), until.tolist(), strict=True
    ):
        yield block[start:end], place, size


def _layout(block: bytes, starts: Places) -> _Layout | None:
    """The layout of the first line that has one, among the first few."""
    for start in starts[:_LINES_OF_LAYOUT].tolist():
        text = block[start : start + BEGINNING_BYTES].split(b"\n", 1)[0].decode("latin-1")
        if _SYSLOG_FORM.match(text) and text[15:16] == " ":
            return _OF_SYSLOG
        if PREFIXES[0].match(text) and text[25:26] == "]":
            return _OF_DMESG
        begun = beginning(text) if text[:1].isdigit() else None
        if begun is not None:
            return _of_iso(begun[0])
    return None


def _of_iso(found: re.Match[str]) -> _Layout:
    """The layout of a line with an ISO stamp."""
    has_host = found.groupdict().get("host") is not None
    end = found.start("host") if has_host else found.end()
    shape = ((4, b"-"), (7, b"-"), (13, b":"), (16, b":"), (end - 1, b" "))
    return _Layout((slice(0, 13),), shape, end if has_host else None)


# -- On which days the kernel log of each node was arriving, whatever its lines say ---------------
#
# A log without errors, and the lines between errors, prove that a node's kernel was heard. A
# syslog holds other programs too: their lines count for a node from which the file has a line of
# the kernel.

_KINDS = {
    "aer": (b"AER: ",),
    "amd": (b"amdgpu",),
    "filesystem": (b"Lustre: ", b"LustreError: ", b"nfs: ", b"EXT4-fs ", b"XFS ("),
    "mce": (b"mce: ", b"[Hardware Error]", b"EDAC "),
    "network": (b"mlx5_core ", b"mlx4_core ", b"bnxt_en ", b"hfi1 "),
    "nvidia": (b"NVRM: ", b"nvidia-nvswitch"),
}
"""Whose lines show that a node's log has them, errors or not."""
_LINES_OF_KIND = 50
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
        self._kinds: dict[str, set[str]] = {}

    def see(self, block: bytes, before: int) -> None:
        """Take whole lines, each with its newline; so many lines were `before` them."""
        if self._as_json:
            for place, line in enumerate(block.split(b"\n")[:-1]):
                self._see_record(line, before + place + 1)
            return
        for begins, place, n_lines in groups(block):
            self._see_group(text_of(begins), before + place + 1, n_lines)
        for kind, marks in _KINDS.items():
            if any(kind not in self._kinds.get(name, ()) for name in self._of_kernel):
                for mark in marks:
                    self._see_kind(block, kind, mark)

    def _see_kind(self, block: bytes, kind: str, mark: bytes) -> None:
        """Take whose drivers speak: of a flood, so many lines of each block."""
        for start in islice(lines_with(block, mark), _LINES_OF_KIND):
            begun = beginning(text_of(block[start : start + BEGINNING_BYTES].split(b"\n", 1)[0]))
            if begun is None or not begun[1]:
                continue
            parts = begun[0].groupdict()
            named = clean(parts.get("host")) or clean(parts.get("gathered")) or OF_FILE
            for name in named.split(","):
                self._kinds.setdefault(name, set()).add(kind)

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
        known = self._kinds.setdefault(name, set())
        for kind, marks in _KINDS.items():
            if kind not in known and any(mark in line for mark in marks):
                known.add(kind)
        self._days.see(name, found[0], number)

    def _see_group(self, text: str, number: int, n_lines: int) -> None:
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
                self._see_lines(name, parts, dated, n_lines, number)

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
        self._days.keep(self._of_kernel, self._kinds)

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
