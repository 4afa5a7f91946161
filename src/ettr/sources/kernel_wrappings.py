"""Kernel logs in other wrappings, rewritten as lines that begin with an ISO stamp.

A line stays on its number; of a record over several lines the first one holds all of it and the
others are empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from ettr.sources.lines import json_part, node_of_name
from ettr.sources.node_lists import NodeLists
from ettr.sources.shippers import is_shipped, shipped_lines
from ettr.sources.times import time_of
from ettr.tables.rows import clean, text_of

Blocks = Iterable[bytes]
Wrapping = Callable[[Blocks], Iterator[bytes]]

_HOST = rb"[A-Za-z0-9][A-Za-z0-9._-]*"
_DAY = rb"\d{4}-\d\d-\d\d"
_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_OFFSET = rb"(?:Z|[+-]\d\d:?\d\d)"
_ISO = _DAY + b"T" + _CLOCK + _OFFSET
_RFC_5424 = re.compile(
    rb"^(?:<\d{1,3}>)?1 (?P<iso>%b) (?P<host>%b) (?P<program>[^\s\[\]]{1,48}) "
    rb"(?P<process>\S{1,128}) \S{1,32} (?:-|(?:\[[^\]\n]{0,4000}\])+)(?: \xef\xbb\xbf| |$)"
    % (_ISO, _HOST),
    re.MULTILINE,
)
_SHORT_FULL = re.compile(
    rb"^[^\W\d]\S{1,9} (?P<day>%b) (?P<clock>%b) (?P<zone>[A-Z]{1,5}|[+-]\d{2,4}(?::\d\d)?) (?=%b )"
    % (_DAY, _CLOCK, _HOST),
    re.MULTILINE,
)
_SHORT_UNIX = re.compile(rb"^(?P<seconds>\d{9,10})\.(?P<micros>\d{6}) (?=" + _HOST + rb" )", re.M)
_CRI = re.compile(rb"^(?P<iso>%b) std(?:out|err) [FP] (?P<uptime>\[ *\d+\.\d+\] )?" % _ISO, re.M)
# of what a container wrote, the stamp of the line itself is more than that of its wrapping
_CRI_STAMPED = re.compile(
    rb"^%b std(?:out|err) [FP] (?=\[[A-Z][a-z]{2} [A-Z][a-z]{2} |%bT)" % (_ISO, _DAY), re.M
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
