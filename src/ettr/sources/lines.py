"""Lines of text logs, in bounded memory and in two encodings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ettr.errors import SourceError
from ettr.sources.origin import READ_ERRORS, Origin, refuse_wide
from ettr.tables.text import clean, text_of

CHUNK_BYTES = 1 << 20
# a longer line is corrupt: its first part is kept, so that memory stays bounded
LINE_LIMIT_BYTES = 8 << 20
# no log line of a daemon is longer; what lies beyond is not searched
SEARCHED_CHARACTERS = 1 << 16

_NOT_FILE_STEM = re.compile(r"[^A-Za-z0-9_\-]+.*", re.DOTALL)


def chunks(origin: Origin) -> Iterator[bytes]:
    """The log's bytes, decompressed, in pieces of about one MiB.

    Raises:
        SourceError: the file is corrupt or truncated.
    """
    try:
        with origin.open() as file:
            while chunk := bytes(file.read(CHUNK_BYTES)):
                yield chunk
    except READ_ERRORS as error:
        raise SourceError(f"{origin}: is corrupt or truncated: {error}") from error


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


def first_texts(head: bytes, most: int = 400) -> list[str]:
    """The lines among the first bytes of a log that are not blank; for `matches`."""
    return [text for line in head.splitlines()[:most] if (text := text_of(line)).strip()]


def integer_of(value: object) -> int | None:
    """The whole number from 0 that a text or a number spells; None for all else."""
    text = clean(value) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def file_stem(name: str) -> str | None:
    """The first word of a file name, with which sites often name the node that a log is from."""
    return _NOT_FILE_STEM.sub("", name) or None
