"""JSON values of a log: one a line, an array, or documents in a row, whole or cut off."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator
from itertools import chain
from typing import NamedTuple

from ettr.errors import SourceError
from ettr.sources.json_salvage import (
    DECODER,
    NO_JSON,
    Broken,
    Json,
    JsonObject,
    RecordShape,
    next_record,
    records_within,
    salvage,
)
from ettr.sources.lines import json_part, numbered_lines
from ettr.sources.origin import READ_ERRORS, Origin
from ettr.tables.text import text_of

# a JSON document that is not one record a line is read whole; beyond this it is refused
DOCUMENT_LIMIT_BYTES = 1 << 30

_VALUE_STARTS = frozenset('{["-0123456789tfnNI')
# says by which version a document was written
_META = re.compile(r'"meta"\s*:\s*(?=\{)')


class JsonRecord(NamedTuple):
    """One JSON value of a file, its line or place, and its text; `error` where it is no JSON."""

    line: int
    value: Json
    raw: str
    error: str | None


def json_records(
    origin: Origin, lists: Collection[str] = (), shape: RecordShape | None = None
) -> Iterator[JsonRecord]:
    """The JSON values of a file: one a line, an array's elements, or documents in a row.

    Bytes that are no JSON cost the record that they are in, also in a document of one line; there
    a record without a value has their text and what is wrong with it.

    Args:
        origin: the file.
        lists: keys of an object whose arrays hold records; in these, `Broken` is in their place.
        shape: what a record looks like, by which the next one behind bad bytes is found.
    """
    lines, place = numbered_lines(origin), 0
    for number, line in lines:
        text = text_of(line).removeprefix("\ufeff").strip()
        if not text:
            continue
        value, error = _load(text)
        if error is not None and (place == 0 or text in {"[", "{"}):
            yield from _document(origin, place, (number, line), lines, lists, shape)
            return
        values: list[Json] = value if isinstance(value, list) else [value]
        if error is not None:
            holds_many = text[0] == "[" or any(f'"{name}"' in text for name in lists)
            values = salvage(text, lists, shape) if holds_many else [Broken(text, error)]
        for element in _with_nested(values, lists, shape):
            # a line's number, unless an array before it had more elements than lines
            place = max(place + 1, number)
            yield json_record(place, element)


def _with_nested(
    values: list[Json], lists: Collection[str], shape: RecordShape | None
) -> Iterator[Json]:
    """The values, with the records of one that is no record: a key of its list is damaged."""
    for value in values:
        inner: list[Json] = []
        if shape is not None and isinstance(value, dict) and not shape.is_record(value):
            inner = records_within(value, shape, lists)
        error = "no record, but holds some: a key is damaged"
        yield Broken(short(value), error) if inner else value
        yield from inner


def json_record(place: int, value: Json) -> JsonRecord:
    """A value, or what is in its place, as a record."""
    if isinstance(value, Broken):
        return JsonRecord(place, None, value.raw, value.error)
    return JsonRecord(place, value, short(value), None)


def _document(
    origin: Origin,
    place: int,
    begin: tuple[int, bytes],
    lines: Iterator[tuple[int, bytes]],
    lists: Collection[str],
    shape: RecordShape | None,
) -> Iterator[JsonRecord]:
    """The records of the rest of a file; their places come after `place`, that of the last one.

    Two records of one place would count as one.
    """
    number, first = begin
    parts, size = [first], len(first)
    # a first line that is no JSON and a second that is: a dirty line, not a document over lines
    for following, line in lines:
        if len(parts) == 1 and line.lstrip()[:1] == b"{" and _load(text_of(line))[1] is None:
            place = max(place + 1, number)
            yield JsonRecord(place, None, text_of(first), "no JSON")
            for later, some in chain([(following, line)], lines):
                if text := text_of(some).strip():
                    place = max(place + 1, later)
                    value, error = _load(text)
                    yield JsonRecord(place, value, text, error)
            return
        parts.append(line)
        size += len(line) + 1
        if size > DOCUMENT_LIMIT_BYTES:
            raise SourceError(
                f"{origin}: one JSON document of over {DOCUMENT_LIMIT_BYTES >> 30} GiB; write it "
                "with one record a line (jq -c '.[]')"
            )
    text = text_of(b"\n".join(parts)).removeprefix("\ufeff")
    values = salvage(text, lists, shape)
    for at, value in enumerate(_with_nested(values, lists, shape), place + 1):
        yield json_record(at, value)


def _load(text: str) -> tuple[Json, str | None]:
    try:
        return DECODER.decode(text), None
    except NO_JSON as error:
        return None, f"no JSON: {error}"


def short(value: Json) -> str:
    """The value as JSON, cut."""
    try:
        return json.dumps(value, default=_shown)[:2000]
    except (ValueError, RecursionError):
        return "..."


def _shown(value: object) -> str:
    """What stands in a record's text for what is no JSON."""
    return value.raw if isinstance(value, Broken) else str(value)


def head_objects(head: bytes, most: int = 20, shape: RecordShape | None = None) -> list[JsonObject]:
    """The JSON objects that the first bytes of a file show whole; for `matches`.

    Args:
        head: the first bytes.
        most: how many at most.
        shape: what a record looks like: those within a document, and behind bad bytes, are found.
    """
    text = text_of(json_part(head))
    found: list[JsonObject] = []
    at = 0
    while at < len(text) and len(found) < most:
        at = next((i for i in range(at, len(text)) if text[i] not in " \t\r\n,[]"), len(text))
        decoded = _decoded(text, at)
        if decoded is None:
            line_end = text.find("\n", at)
            place = None if shape is None else next_record(text, at, shape)
            if place is None and line_end < 0:
                break
            at = line_end + 1 if place is None else place
            continue
        value, at = decoded
        if isinstance(value, dict):
            found.append(value)
            if shape is not None and not shape.is_record(value):
                found += [one for one in records_within(value, shape) if isinstance(one, dict)]
    return found[:most]


def _decoded(text: str, at: int) -> tuple[Json, int] | None:
    """The JSON value that begins at a place, and where it ends; None where there is none."""
    if text[at : at + 1] not in _VALUE_STARTS:
        return None  # an error of the decoder counts all lines of the text before it
    try:
        return DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def load_json(
    origin: Origin, lists: Collection[str] = (), shape: RecordShape | None = None
) -> JsonObject:
    """The file as one JSON object.

    Args:
        origin: the file.
        lists: keys whose arrays hold records; in these, `Broken` is where bytes are no JSON, and a
            document that is cut off still has the records before.
        shape: what a record looks like.

    Raises:
        SourceError: the file holds something else, or is corrupt or truncated.
    """
    try:
        with origin.open() as file:
            data = file.read(DOCUMENT_LIMIT_BYTES + 1)
    except READ_ERRORS as error:
        raise SourceError(f"{origin}: is corrupt or truncated: {error}") from error
    if len(data) > DOCUMENT_LIMIT_BYTES:
        raise SourceError(
            f"{origin}: one JSON document of over {DOCUMENT_LIMIT_BYTES >> 30} GiB; take the "
            "log in parts"
        )
    text = text_of(data).removeprefix("\ufeff")
    try:
        document = DECODER.decode(text)
    except NO_JSON as error:
        document = _with_lists(text, salvage(text, lists, shape), lists, shape)
        if document is None or not any(_holds_records(document.get(name)) for name in lists):
            raise SourceError(f"{origin}: is not a complete JSON document: {error}") from error
    if not isinstance(document, dict):
        raise SourceError(f"{origin}: is no JSON object")
    return document


def _with_lists(
    text: str, values: list[Json], lists: Collection[str], shape: RecordShape | None
) -> JsonObject | None:
    """The object that has a list of records, with all that was read outside it at its end.

    Where the list's own beginning is damaged, an object with all that was read, and the `meta`.
    """
    for value in values:
        if isinstance(value, dict):
            for name in lists:
                if isinstance(records := value.get(name), list):
                    records += [other for other in values if other is not value]
                    return value
    if shape is None or not any(isinstance(one, dict) and shape.is_record(one) for one in values):
        return None
    document: JsonObject = {next(iter(lists)): values}
    if begin := _META.search(text):
        with contextlib.suppress(*NO_JSON):
            document["meta"], _ = DECODER.raw_decode(text, begin.end())
    return document


def _holds_records(value: Json) -> bool:
    return isinstance(value, list) and any(not isinstance(each, Broken) for each in value)


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
