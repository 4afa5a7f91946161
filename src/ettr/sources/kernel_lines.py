"""How the lines of kernel logs begin, and which of a block differ in node, time or program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ettr.sources.lines import json_part

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
_WORD = 8
_HOST_WORDS = 4
_LOW_4, _LOW_6, _ALL = (1 << 32) - 1, (1 << 48) - 1, (1 << 64) - 1
_ONES, _HIGH, _BLANKS = (np.uint64(_ALL // 255 * byte) for byte in (0x01, 0x80, 0x20))
_HIGH_BITS = np.array([0x80 << (8 * n) for n in range(_WORD)], dtype=np.uint64)
_ONE = np.uint64(1)
_KERNEL_WORD = np.uint64(int.from_bytes(b"kernel", "little"))
_MIX = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(32)
_LINES_OF_LAYOUT = 20

Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Group:
    """Lines of one block with the same host, the same UTC day, from the kernel or not."""

    text: bytes
    place: int
    n_lines: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the stamp and the host stand in each line, which a log keeps from line to line."""

    day: tuple[tuple[int, int], ...]
    hour_at: int
    shape: tuple[tuple[int, bytes], ...]
    host_at: int | None


_OF_SYSLOG = _Layout(
    ((0, _LOW_6),), 7, ((3, b" "), (6, b" "), (9, b":"), (12, b":"), (15, b" ")), 16
)
_OF_DMESG = _Layout(
    ((5, _LOW_6), (21, _LOW_4)),
    12,
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


def groups(block: bytes, first_hour: Callable[[str], int]) -> Iterator[Group]:
    """The lines of a block in groups, in the order in which each group begins.

    Lines that do not begin as the first ones do are groups of their own.

    Args:
        first_hour: the hour on the clock of a line's stamp at which a UTC day begins.
    """
    data = np.frombuffer(block + bytes(BEGINNING_BYTES), dtype=np.uint8)
    ends = np.flatnonzero(data[: len(block)] == ord("\n"))
    starts = np.concatenate(([0], ends[:-1] + 1))
    found = _layout(block, starts)
    if found is None:
        places, sizes = np.arange(len(starts)), np.ones(len(starts), dtype=np.int64)
    else:
        layout, text = found
        key, fits = _keys(data, starts, layout, first_hour(text))
        order = np.flatnonzero(fits)
        _, first, counts = np.unique(key[order], return_index=True, return_counts=True)
        odd = np.flatnonzero(~fits)
        places = np.concatenate((order[first], odd))
        sizes = np.concatenate((counts, np.ones(len(odd), dtype=np.int64)))
    by_place = np.argsort(places, kind="stable")
    places, sizes = places[by_place], sizes[by_place]
    begins, until = starts[places], np.minimum(ends[places], starts[places] + BEGINNING_BYTES)
    for place, size, start, end in zip(
        places.tolist(), sizes.tolist(), begins.tolist(), until.tolist(), strict=True
    ):
        yield Group(block[start:end], place, size)


def _layout(block: bytes, starts: Places) -> tuple[_Layout, str] | None:
    """The layout of the first line that has one, among the first few, and that line."""
    for start in starts[:_LINES_OF_LAYOUT].tolist():
        text = block[start : start + BEGINNING_BYTES].split(b"\n", 1)[0].decode("latin-1")
        if _SYSLOG_FORM.match(text) and text[15:16] == " ":
            return _OF_SYSLOG, text
        if PREFIXES[0].match(text) and text[25:26] == "]":
            return _OF_DMESG, text
        begun = beginning(text) if text[:1].isdigit() else None
        if begun is not None:
            return _of_iso(begun[0]), text
    return None


def _of_iso(found: re.Match[str]) -> _Layout:
    """The layout of a line with an ISO stamp."""
    has_host = found.groupdict().get("host") is not None
    end = found.start("host") if has_host else found.end()
    shape = ((4, b"-"), (7, b"-"), (13, b":"), (16, b":"), (end - 1, b" "))
    return _Layout(((0, _ALL), (2, _ALL)), 11, shape, end if has_host else None)


def _keys(
    data: npt.NDArray[np.uint8], starts: Places, layout: _Layout, first_hour: int
) -> tuple[Words, npt.NDArray[np.bool_]]:
    """A hash of UTC day, host and program of each line, and which lines have this layout."""
    words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
    fits = np.ones(len(starts), dtype=np.bool_)
    for byte_at, byte in layout.shape:
        fits &= data[starts + byte_at] == byte[0]
    tens, ones = data[starts + layout.hour_at], data[starts + layout.hour_at + 1]
    hour = (tens & 0x0F) * 10 + (ones & 0x0F)
    key = (hour >= first_hour).astype(np.uint64)
    for day_at, mask in layout.day:
        key = _mixed(key, words[starts + day_at] & np.uint64(mask))
    if layout.host_at is None:
        return key, fits
    at, ended = starts + layout.host_at, np.zeros(len(starts), dtype=np.bool_)
    program = at
    for _ in range(_HOST_WORDS):
        word = words[np.minimum(at, len(words) - 1)]
        # the lowest byte that is a blank: a byte is zero where it borrows and was not high
        differs = word ^ _BLANKS
        blank = (differs - _ONES) & ~differs & _HIGH
        lowest = blank & (~blank + _ONE)
        host = word & (lowest - _ONE)
        key = np.where(ended, key, _mixed(key, host))
        ends_here = ~ended & (blank != 0)
        n_bytes = np.searchsorted(_HIGH_BITS, lowest)
        program = np.where(ends_here, at + n_bytes + 1, program)
        ended |= ends_here
        if ended.all():
            break
        at = at + _WORD
    of_kernel = (words[np.minimum(program, len(words) - 1)] & np.uint64(_LOW_6)) == _KERNEL_WORD
    return _mixed(key, of_kernel.astype(np.uint64)), fits & ended


def _mixed(key: Words, word: Words) -> Words:
    """A key with one more word in it: equal for equal words, and otherwise by chance alone."""
    mixed = (key ^ word) * _MIX
    mixed ^= mixed >> _FOLD
    mixed *= _MIX
    result: Words = mixed ^ (mixed >> _FOLD)
    return result
