"""Lines of a text log, in whatever encoding, with their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ettr.errors import SourceError
from ettr.sources.base import DAMAGE, RawFile

_ISO = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_ZONED = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)(?!\d)")
LONGEST_LINE_BYTES = 1 << 20


def lines_of(raw: RawFile) -> Iterator[tuple[int, str]]:
    """Each line's number, from 1, and its text without the line break.

    A line that is not UTF-8 is read as Latin-1, so that one odd line does not spoil the others; one
    longer than `LONGEST_LINE_BYTES` comes in pieces of the same number.

    Raises:
        SourceError: the file cannot be read to its end, or is UTF-16.
    """
    if raw.head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError(
            f"{raw.name}: is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8 {raw.name}"
        )
    try:
        with raw.open() as file:
            number = 1
            while line := file.readline(LONGEST_LINE_BYTES):
                yield number, _decoded(line.rstrip(b"\r\n"))
                number += line.endswith(b"\n")
    except DAMAGE as error:
        raise SourceError(f"{raw.name}: cannot be read to its end: {error}") from error


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")


def has_local_times(head: bytes) -> bool:
    """Whether the first bytes hold a time without an offset."""
    return len(_ISO.findall(head)) > len(_ZONED.findall(head))
