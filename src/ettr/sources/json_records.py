"""JSON values of a log: one a line, an array, or documents in a row, whole or cut off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from ettr.errors import SourceError
from ettr.sources.lines import numbered_lines
from ettr.sources.origin import READ_ERRORS, Origin
from ettr.tables.text import text_of

# a JSON document that is not one record a line is read whole; beyond this it is refused
DOCUMENT_LIMIT_BYTES = 1 << 30

_OBJECT_START = re.compile(r"\n[ \t]*\{")


# what json.loads returns
Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject = dict[str, Json]


class JsonRecord(NamedTuple):
    """One JSON value of a file, its line or place, and its text; `error` where it is no JSON."""

    line: int
    value: Json
    raw: str
    error: str | None


def json_records(origin: Origin) -> Iterator[JsonRecord]:
    """The JSON values of a file: one a line, an array's elements, or documents in a row."""
    lines, place = numbered_lines(origin), 0
    for number, line in lines:
        text = text_of(line).removeprefix("\ufeff").strip()
        if not text:
            continue
        value, error = _load(text)
        if error is None:
            for element in value if isinstance(value, list) else (value,):
                # a line's number, unless an array before it had more elements than lines
                place = max(place + 1, number)
                yield JsonRecord(place, element, short(element), None)
        elif place == 0 or text in {"[", "{"}:
            yield from _document(origin, number, line, lines)
            return
        else:
            place = max(place + 1, number)
            yield JsonRecord(place, None, text, error)


def _document(
    origin: Origin, number: int, first: bytes, lines: Iterator[tuple[int, bytes]]
) -> Iterator[JsonRecord]:
    parts, size = [first], len(first)
    # a first line that is no JSON and a second that is: a dirty line, not a document over lines
    for following, line in lines:
        if len(parts) == 1 and line.lstrip()[:1] == b"{" and _load(text_of(line))[1] is None:
            text = text_of(first)
            yield JsonRecord(number, None, text, "no JSON")
            yield JsonRecord(following, _load(text_of(line))[0], text_of(line), None)
            for place, later in lines:
                if stripped := text_of(later).strip():
                    value, error = _load(stripped)
                    yield JsonRecord(place, value, stripped, error)
            return
        parts.append(line)
        size += len(line) + 1
        if size > DOCUMENT_LIMIT_BYTES:
            raise SourceError(
                f"{origin}: one JSON document of over {DOCUMENT_LIMIT_BYTES >> 30} GiB; write it "
                "with one record a line (jq -c '.[]')"
            )
    yield from _values(text_of(b"\n".join(parts)).removeprefix("\ufeff"))


def _values(text: str) -> Iterator[JsonRecord]:
    decoder, at, place, opened = json.JSONDecoder(), 0, 0, False
    while True:
        while at < len(text) and text[at] in (" \t\r\n,]" if opened else " \t\r\n,"):
            at += 1
        if at >= len(text):
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if text[at] == "[" and not opened:
                # an array that is corrupt or truncated: its whole elements are still good
                at, opened = at + 1, True
                continue
            place += 1
            yield JsonRecord(place, None, text[at : at + 1000], f"no JSON: {error}")
            again = _OBJECT_START.search(text, at + 1)
            if again is None:
                return
            at, opened = again.end() - 1, True
            continue
        for element in value if isinstance(value, list) else (value,):
            place += 1
            yield JsonRecord(place, element, short(element), None)


def _load(text: str) -> tuple[Json, str | None]:
    try:
        return json.loads(text), None
    except (ValueError, RecursionError) as error:
        return None, f"no JSON: {error}"


def short(value: Json) -> str:
    """The value as JSON, cut."""
    try:
        return json.dumps(value)[:2000]
    except (ValueError, RecursionError):
        return "..."


def head_objects(head: bytes, most: int = 20) -> list[JsonObject]:
    """The JSON objects that the first bytes of a file show whole; for `matches`."""
    text = text_of(head).removeprefix("\ufeff").lstrip()
    if text[:1] not in {"{", "["}:
        return []
    found: list[JsonObject] = []
    decoder, at = json.JSONDecoder(), 0
    while at < len(text) and len(found) < most:
        at = next((i for i in range(at, len(text)) if text[i] not in " \t\r\n,[]"), len(text))
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            line_end = text.find("\n", at)
            if line_end < 0:
                break
            at = line_end + 1
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def load_json(origin: Origin) -> JsonObject:
    """The file as one JSON object.

    Raises:
        SourceError: the file holds something else, or is corrupt or truncated.
    """
    try:
        with origin.open() as file:
            text = file.read(DOCUMENT_LIMIT_BYTES + 1).decode("utf-8-sig", "replace")
        if len(text) > DOCUMENT_LIMIT_BYTES:
            raise SourceError(
                f"{origin}: one JSON document of over {DOCUMENT_LIMIT_BYTES >> 30} GiB; take the "
                "log in parts"
            )
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{origin}: is not a complete JSON document: {error}") from error
    except READ_ERRORS as error:
        raise SourceError(f"{origin}: is corrupt or truncated: {error}") from error
    if not isinstance(document, dict):
        raise SourceError(f"{origin}: is no JSON object")
    return document


def as_object(value: Json) -> JsonObject:
    """The value, which must be an object; {} for null.

    Raises:
        TypeError: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{short(value)[:80]} is no object")
    return value


def as_list(value: Json) -> list[Json]:
    """The value, which must be an array; [] for null.

    Raises:
        TypeError: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(f"{short(value)[:80]} is no array")
    return value


def number(value: Json) -> int | float | None:
    """A plain number, or one that Slurm wraps as {set, infinite, number}; None if not set."""
    if isinstance(value, dict):
        if value.get("infinite") or value.get("set") is False:
            return None
        value = value.get("number", value.get("id"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 2**63 else None
