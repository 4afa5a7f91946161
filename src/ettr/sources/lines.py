"""Lines of text logs, in bounded memory and in two encodings."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator

from ettr.errors import SourceError
from ettr.sources.origin import BYTE_ORDER_MARK, READ_ERRORS, Origin, refuse_wide
from ettr.tables.rows import clean, text_of

CHUNK_BYTES = 1 << 20
# a longer line is corrupt: its first part is kept, so that memory stays bounded
LINE_LIMIT_BYTES = 8 << 20
# no log line of a daemon is longer; what lies beyond is not searched
SEARCHED_CHARACTERS = 1 << 16
# what colours the text of a terminal
COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")

_BEFORE_JSON = b"\xef\xbb\xbf \t\r\n"
_FILE_WORD = re.compile(r"[A-Za-z0-9_\-]+")
# what logs are called, and how files of them end: no such word names a node
_LOGS = "dmesg|kern|kernel|messages|syslog|journal|journalctl|nhc|gpud|xid"
_NO_NODE = re.compile(
    rf"(?:{_LOGS}|events|health|log|logs|txt|out|old|json|jsonl|ndjson|gz|bz2|xz|zst)",
    re.IGNORECASE,
)
_BEFORE_NODE = re.compile(rf"\A(?:{_LOGS})[-_]+", re.IGNORECASE)
_AFTER_NODE = re.compile(rf"[-_]+(?:{_LOGS})\Z", re.IGNORECASE)


class BadRecordError(ValueError):
    """A record that cannot be read: the slug by which it is counted, and why in words."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def chunks(origin: Origin) -> Iterator[bytes]:
    """The log's bytes, decompressed, in pieces of about one MiB, without a byte order mark.

    Raises:
        SourceError: the file is corrupt or truncated.
    """
    try:
        with origin.open() as file:
            chunk = bytes(file.read(CHUNK_BYTES)).removeprefix(BYTE_ORDER_MARK)
            while chunk:
                yield chunk
                chunk = bytes(file.read(CHUNK_BYTES))
    except READ_ERRORS as error:
        raise SourceError(f"{origin}: is corrupt or truncated: {error}") from error


def blocks(origin: Origin) -> Iterator[bytes]:
    """The log in blocks of whole lines, each with its newline.

    Raises:
        SourceError: the file is corrupt or truncated.
    """
    rest = b""
    for chunk in chunks(origin):
        block = rest + chunk
        last = block.rfind(b"\n")
        if last < 0 and len(block) < LINE_LIMIT_BYTES:
            rest = block
            continue
        rest = block[last + 1 :] if last >= 0 else b""
        yield block[: last + 1] if last >= 0 else block + b"\n"
    if rest:
        yield rest + b"\n"


def numbered_lines(origin: Origin) -> Iterator[tuple[int, bytes]]:
    """Each line with its number from 1, without its line ending.

    Raises:
        SourceError: the file is corrupt or truncated.
    """
    rest, cut, number = b"", False, 0
    for chunk in chunks(origin):
        lines = (rest + chunk).split(b"\n") if not cut else _after_cut(rest, chunk)
        rest = lines.pop()
        for line in lines:
            number += 1
            yield number, line.rstrip(b"\r")
        cut = (cut and not lines) or len(rest) >= LINE_LIMIT_BYTES
        rest = rest[:LINE_LIMIT_BYTES]
    if rest:
        yield number + 1, rest.rstrip(b"\r")


def _after_cut(rest: bytes, chunk: bytes) -> list[bytes]:
    _, newline, after = chunk.partition(b"\n")
    return [rest, *after.split(b"\n")] if newline else [rest]


def numbered_texts(origin: Origin) -> Iterator[tuple[int, str]]:
    """Each line with its number from 1, as text; each is UTF-8 or Latin-1 on its own.

    Raises:
        SourceError: the file is corrupt or truncated, or is UTF-16 or UTF-32.
    """
    refuse_wide(origin.head, str(origin))
    for number, line in numbered_lines(origin):
        yield number, text_of(line)


def lines_with(block: bytes, mark: bytes) -> Iterator[int]:
    """Where each line begins that holds the mark; `find` is many times as fast as a regex."""
    found = block.find(mark)
    while found >= 0:
        yield block.rfind(b"\n", 0, found) + 1
        end = block.find(b"\n", found)
        found = block.find(mark, end) if end >= 0 else -1


def paragraphs(origin: Origin, begins: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Lines up to an empty one or one that begins so, with the number of the first."""
    block: list[str] = []
    first = 0
    for number, line in numbered_texts(origin):
        if block and (line.startswith(begins) or not line.strip()):
            yield first, "\n".join(block)
            block = []
        if line.strip():
            first = first if block else number
            block.append(line)
    if block:
        yield first, "\n".join(block)


def not_blank(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The numbered lines that hold more than blanks."""
    return ((number, text) for number, text in lines if text.strip())


def first_texts(head: bytes, most: int = 400) -> list[str]:
    """The lines among the first bytes of a log that are not blank; for `matches`."""
    return [text for line in head.splitlines()[:most] if (text := text_of(line)).strip()]


def json_part(head: bytes) -> bytes:
    """The first bytes of a file of JSON from its first value on; nothing of any other file.

    One odd line before the first object is passed over: the end of one that rotation has cut.
    """
    text = head.lstrip(_BEFORE_JSON)
    if text[:1] in (b"{", b"["):
        return text
    behind = text.partition(b"\n")[2].lstrip(_BEFORE_JSON)
    return behind if re.match(rb"(?:\[\s*)?\{", behind) else b""


def text_in(value: object, name: str) -> str:
    """The text of a field that a record must have. Raises BadRecordError: it is empty."""
    text = clean(value)
    if text is None:
        raise BadRecordError("missing-field", f"{name} is missing")
    return text


def integer_of(value: object) -> int | None:
    """The whole number from 0 that a text or a number spells; None for all else."""
    text = clean(value) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def node_of_name(name: str) -> str | None:
    """The node that the name of a log says: `gpu01` in gpu01.dmesg, dmesg.gpu01, dmesg-gpu01.log.

    None where its words are those of any log, numbers of rotated files or dates.
    """
    for place, word in enumerate(_FILE_WORD.findall(name)):
        node = _AFTER_NODE.sub("", _BEFORE_NODE.sub("", word, count=1))
        is_first = not place and word.startswith(node)
        is_number = not is_first and node.replace("-", "").replace("_", "").isdigit()
        if node and not is_number and not _NO_NODE.fullmatch(node):
            return node
    return None


def cells_of(text: str, *, strict: bool = True) -> list[str] | None:
    """Cells of a line of CSV, stripped; None where, if that is `strict`, a quote is not closed."""
    line = text.removeprefix("\ufeff").replace("\x00", "")
    try:
        found = next(csv.reader([line], strict=strict), [])
    except csv.Error:
        return None
    return [cell.strip() for cell in found]


def csv_lines(origin: Origin) -> tuple[list[str], Iterator[tuple[int, str]]]:
    """The names of a CSV file's columns, and its other lines with their numbers.

    Raises:
        SourceError: the file is corrupt or truncated.
    """
    lines = numbered_texts(origin)
    _, header = next(not_blank(lines), (1, ""))
    return cells_of(header) or [], lines
