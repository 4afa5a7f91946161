"""JSON values of a log: one a line, an array, or documents in a row, whole or cut off; and YAML."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, cast

from ettr.errors import SourceError
from ettr.sources.lines import json_part, numbered_lines
from ettr.sources.origin import READ_ERRORS, Origin
from ettr.tables.rows import text_of

# a JSON document that is not one record a line is read whole; beyond this it is refused
DOCUMENT_LIMIT_BYTES = 1 << 30

_VALUE_STARTS = frozenset('{["-0123456789tfnNI')
# says by which version a document was written
_META = re.compile(r'"meta"\s*:\s*(?=\{)')


class JsonRecord(NamedTuple):
    """One JSON value of a file, its line or place; `error`, and its text, where it is no JSON."""

    line: int
    value: Json
    text: str
    error: str | None

    @property
    def raw(self) -> str:
        """Its text, or the value as JSON, cut."""
        return self.text or ("" if self.error else short(self.value))


def json_records(
    origin: Origin,
    lists: Collection[str] = (),
    shape: RecordShape | None = None,
    wanted: Any = Any,
) -> Iterator[JsonRecord]:
    """The JSON values of a file: one a line, an array's elements, or documents in a row.

    Bytes that are no JSON cost the record that they are in, also in a document of one line; there
    a record without a value has their text and what is wrong with it.

    Args:
        lists: keys of an object whose arrays hold records; in these, `Broken` is in their place.
        wanted: a TypedDict of what is read of a record; other keys may be left out.
    """
    lines, place = numbered_lines(origin), 0
    quick = quick_json(wanted)
    for number, line in lines:
        value, error = quick(line), None
        if value is _UNREAD:
            text = text_of(line).removeprefix("\ufeff").strip()
            if not text:
                continue
            value, error = _load(text)
            if error is not None and (place == 0 or text in {"[", "{"}):
                yield from _document(origin, place, (number, line), lines, lists, shape, quick)
                return
        if shape is None and isinstance(value, dict):  # the same as below, but quick
            place = max(place + 1, number)
            yield JsonRecord(place, value, "", None)
            continue
        values: list[Json] = value if isinstance(value, list) else [value]
        if error is not None:
            holds_many = text[0] == "[" or any(f'"{name}"' in text for name in lists)
            values = salvage(text, lists, shape) if holds_many else [Broken(text, error)]
        for element in _with_nested(values, lists, shape):
            # a line's number, unless an array before it had more elements than lines
            place = max(place + 1, number)
            yield json_record(place, element)


def quick_json(wanted: Any = Any) -> Callable[[bytes], Json]:
    """Read what is strictly JSON by msgspec: `_UNREAD` for all else, and where it is missing."""
    try:
        from msgspec import MsgspecError, ValidationError
        from msgspec.json import Decoder
    except ImportError:
        return lambda _: _UNREAD
    every = Decoder()
    own = every if wanted is Any else Decoder(wanted | list[wanted])

    def read(data: bytes) -> Json:
        try:
            try:
                return cast(Json, own.decode(data))
            except ValidationError:  # JSON of another shape, whose values nobody wants
                return cast(Json, every.decode(data))
        except (MsgspecError, RecursionError):
            return _UNREAD

    return read


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
    return JsonRecord(place, value, "", None)


def _document(
    origin: Origin,
    place: int,
    begin: tuple[int, bytes],
    lines: Iterator[tuple[int, bytes]],
    lists: Collection[str],
    shape: RecordShape | None,
    quick: Callable[[bytes], Json],
) -> Iterator[JsonRecord]:
    """The records of the rest of a file; their places come after `place`, that of the last one."""
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
    data = b"\n".join(parts)
    values = _documents(data, quick) if shape is None else None
    if values is None:
        values = salvage(text_of(data).removeprefix("\ufeff"), lists, shape)
    for at, value in enumerate(_with_nested(values, lists, shape), place + 1):
        yield json_record(at, value)


def _documents(data: bytes, quick: Callable[[bytes], Json]) -> list[Json] | None:
    """The values of documents that end with a brace on a line of its own, if all are JSON."""
    values: list[Json] = []
    begin, end = 0, 0
    while begin < len(data):
        end = data.find(b"\n}\n{", begin) + 2
        end = len(data) if end < 2 else end
        value = quick(data[begin:end])
        if value is _UNREAD:
            return None
        values += value if isinstance(value, list) else [value]
        begin = end
    return values


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
    """The JSON objects that the first bytes of a file show whole; for `matches`."""
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
        lists: keys whose arrays hold records; in these, `Broken` is where bytes are no JSON, and a
            document that is cut off still has the records before.

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
    document: Json = quick_json()(data)
    if document is _UNREAD:
        text = text_of(data).removeprefix("\ufeff")
        try:
            document = DECODER.decode(text)
        except NO_JSON as error:
            document = _with_lists(text, salvage(text, lists, shape), lists, shape)
            if document is None or not any(_holds_records(document.get(name)) for name in lists):
                raise SourceError(f"{origin}: is not a complete JSON document: {error}") from error
    if not isinstance(document, dict):
        raise SourceError(f"{origin}: is not a JSON object")
    return document


def _with_lists(
    text: str, values: list[Json], lists: Collection[str], shape: RecordShape | None
) -> JsonObject | None:
    """The object that has a list of records, with all that was read outside it at its end."""
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
        raise TypeError(f"{short(value)[:80]} is not an object")
    return value


def as_list(value: Json) -> list[Json]:
    """The value, which must be an array; [] for null.

    Raises:
        TypeError: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(f"{short(value)[:80]} is not an array")
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


# what json.loads returns, or what is in its place
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | Broken | None"
JsonObject: TypeAlias = dict[str, Json]

# control characters within texts are no JSON and no harm
DECODER = json.JSONDecoder(strict=False)
NO_JSON = (ValueError, RecursionError)

_BLANKS = " \t\r\n"
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_SPACE = re.compile(r"[ \t\r\n]*")
# where an element of an array may begin; see `_may_begin`
_MAY_BEGIN = re.compile(r"(?:[,\[]|\}.?)[ \t\r\n]*(?=\{)")
# one more record, and what may follow one
_BEGINS = re.compile(r"[ \t\r\n,]*\{")
_ENDS = re.compile(r"[ \t\r\n]*(?:[,\[\]{]|\Z)")
_FIRST_KEY = re.compile(r'\{\s*"([^"\\]{1,200})"')
# an element shares at least so much of its keys with one that was read
_LIKENESS = 0.5
_RAW_CHARACTERS = 1000
_MARK_CHARACTERS = 200
# lists of records lie at most so deep within each other
_DEEPEST = 4
# objects among which the next element is looked for where none was read before
_MOST_LIKE_OWN = 8
# braces that are looked at one by one
_FIRST_BRACES = 16
# places at which the next element is looked for, before the rest of a document is given up
_MOST_PLACES = 2000


@dataclass(frozen=True, slots=True)
class Broken:
    """A stretch of a document that is no JSON, where a record or more should be."""

    raw: str
    error: str


# in place of a value that `quick_json` does not read
_UNREAD = Broken("", "")


@dataclass(frozen=True, slots=True)
class RecordShape:
    """What the records of a source look like.

    Attributes:
        mark: a key, with its quotes, that each has once; None where none is sure.
    """

    is_record: Callable[[JsonObject], bool]
    mark: re.Pattern[str] | None = None


def records_within(value: Json, shape: RecordShape, lists: Collection[str] = ()) -> list[Json]:
    """Records in arrays within a value, in their order; not in those of its keys in `lists`.

    A record holds no others: where it seems to, a damaged bracket let it swallow its neighbours.
    """
    found: list[Json] = []
    if not isinstance(value, dict):
        return found
    # what is to be looked into, and whether it is an element of an array
    waiting = [(inner, False) for key, inner in reversed(value.items()) if key not in lists]
    while waiting:
        each, is_element = waiting.pop()
        if isinstance(each, dict) and is_element and shape.is_record(each):
            found.append(each)
        elif isinstance(each, dict):
            waiting += [(inner, False) for inner in reversed(each.values())]
        elif isinstance(each, list):
            waiting += [(inner, True) for inner in reversed(each)]
    return found


def next_record(text: str, at: int, shape: RecordShape) -> int | None:
    """Where the next record of a text begins that can be read; None if it has none."""
    return _Reader(text, (), shape).next_record(at)


def salvage(text: str, lists: Collection[str] = (), shape: RecordShape | None = None) -> list[Json]:
    """The values of a text of one or more JSON documents; an array's elements are values."""
    values, _ = _Reader(text, lists, shape).array(0, is_open=False)
    return values


class _Reader:
    """Reads arrays of one text; `array` and `object` return what was read and where it ends."""

    def __init__(self, text: str, lists: Collection[str], shape: RecordShape | None) -> None:
        self._text, self._lists, self._shape = text, lists, shape
        self._depth = 0

    def array(self, at: int, *, is_open: bool) -> tuple[list[Json], int]:
        """Elements from `at` on, to the array's end if it is open, else to that of the text."""
        text = self._text
        values: list[Json] = []
        shapes: dict[str, frozenset[str]] = {}
        while (begin := _BETWEEN.match(text, at).end()) < len(text):  # type: ignore[union-attr]
            # a bracket behind a comma, or before one more record, closes nothing
            closes = text[begin] == "]" and "," not in text[at:begin]
            at = begin
            if closes and is_open and not _BEGINS.match(text, at + 1):
                return values, at + 1
            if text[at] == "]" and not is_open:
                at += 1
                continue
            found, after, error = self._element(at)
            if error is not None:
                after = self._next_like(at, shapes)
                found = [*found, *self._lost(at, after, error)]
            else:
                found = [one for value in found for one in self._apart(value)]
            for value in found:
                if isinstance(value, dict) and value:
                    first, keys = next(iter(value)), frozenset(value)
                    shapes[first] = max(shapes.get(first, keys), keys, key=len)
            values += found
            at = after
        if is_open and not (values and isinstance(values[-1], Broken)):
            values.append(Broken("", "the document ends before its list does"))
        return values, at

    def _element(self, at: int) -> tuple[list[Json], int, str | None]:
        """The value, or an array's values; where it ends; and what is wrong with it."""
        text = self._text
        try:
            value, after = DECODER.raw_decode(text, at)
            if not _ENDS.match(text, after):
                raise ValueError(f"{text[after : after + 20]!r} after a value (char {after})")
        except NO_JSON as error:
            found, after = self._within(at)
            return ([], at, f"no JSON: {error}") if found is None else (found, after, None)
        return value if isinstance(value, list) else [value], after, None

    def _lost(self, at: int, end: int, error: str) -> list[Json]:
        """What is in the place of a stretch that could not be read: one for each record in it."""
        lost: list[Json] = [Broken(self._text[at : min(end, at + _RAW_CHARACTERS)], error)]
        if self._shape is not None and self._shape.mark is not None:
            marks = [found.start() for found in self._shape.mark.finditer(self._text, at, end)]
            error = "in a stretch of a document in which no record could be read"
            lost += [
                Broken(self._text[n : min(end, n + _MARK_CHARACTERS)], error) for n in marks[1:]
            ]
        return lost

    def _apart(self, value: Json, depth: int = 0) -> list[Json]:
        """The value; or the records that it swallowed, as where `[]` became `[{`, without it."""
        shape = self._shape
        if shape is None or not isinstance(value, dict) or depth >= _DEEPEST:
            return [value]
        for name in self._lists:
            if isinstance(held := value.get(name), list):
                value[name] = [one for each in held for one in self._apart(each, depth + 1)]
        inner = records_within(value, shape, self._lists)
        if not inner:
            return [value]
        broken = Broken(str(value)[:_RAW_CHARACTERS], "holds other records: a bracket is damaged")
        return [broken, *(one for each in inner for one in self._apart(each, depth + 1))]

    def _within(self, at: int) -> tuple[list[Json] | None, int]:
        """What can be read of an array or object that is broken; None for nothing."""
        if self._depth >= _DEEPEST:
            return None, at
        self._depth += 1
        try:
            if self._text[at] == "[":
                return self.array(at + 1, is_open=True)
            if self._text[at] != "{":
                return None, at
            whole, after = self._object(at)
            return (None, at) if whole is None else ([whole], after)
        finally:
            self._depth -= 1

    def _object(self, at: int) -> tuple[JsonObject | None, int]:
        """An object with an array of records, read apart from it; None if it has no such array."""
        text = self._text
        members: JsonObject = {}
        array: list[Json] | None = None
        after_array = at
        at += 1
        try:
            while text[at := _BETWEEN.match(text, at).end()] != "}":  # type: ignore[union-attr]
                key, at = DECODER.raw_decode(text, at)
                at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
                if text[at] != ":" or not isinstance(key, str):
                    raise ValueError("no key")
                at = _SPACE.match(text, at + 1).end()  # type: ignore[union-attr]
                if key in self._lists and text[at] == "[":
                    array, at = self.array(at + 1, is_open=True)
                    members[key], after_array = array, at
                else:
                    members[key], at = DECODER.raw_decode(text, at)
        except (*NO_JSON, IndexError) as error:
            broken = Broken(text[at : at + _RAW_CHARACTERS], f"no JSON: {error}")
            if array is not None:
                array.append(broken)
                return members, self._end_of_object(after_array)
            return self._list_after(at, members, broken)
        return (members, at + 1) if array is not None else (None, at)

    def _list_after(
        self, at: int, members: JsonObject, broken: Broken
    ) -> tuple[JsonObject | None, int]:
        """The object, if a list of records comes behind what is broken and before a sibling."""
        if not self._lists:
            return None, at
        names = "|".join(map(re.escape, self._lists))
        found = re.compile(rf'"({names})"\s*:\s*\[').search(self._text, at)
        sibling = _may_begin(self._text, at)
        if found is None or (sibling is not None and sibling < found.start()):
            return None, at
        values, at = self.array(found.end(), is_open=True)
        members[found[1]] = [*values, broken]
        return members, self._end_of_object(at)

    def _end_of_object(self, at: int) -> int:
        """Where an object ends whose tail is not read."""
        found = _may_begin(self._text, at)
        return len(self._text) if found is None else found

    def _next_like(self, at: int, shapes: dict[str, frozenset[str]]) -> int:
        """Where the next element begins that is like one before it, or like the one that broke."""
        if self._shape is not None:
            place = self.next_record(at)
            return len(self._text) if place is None else place
        own = _FIRST_KEY.match(self._text, at)
        anything: int | None = None
        like_own: list[tuple[int, int]] = []
        for place, value in self._objects_after(at):
            first = next(iter(value))
            if first in shapes and _are_alike(shapes[first], value):
                return place
            anything = place if anything is None else anything
            if not shapes and own is not None and own[1] == first:
                like_own.append((place, len(value)))
                if len(like_own) == _MOST_LIKE_OWN:
                    break
        if like_own:
            # objects within the one that broke have fewer keys than one that follows it
            most = max(n_keys for _, n_keys in like_own)
            return next(place for place, n_keys in like_own if n_keys >= _LIKENESS * most)
        return len(self._text) if anything is None else anything

    def next_record(self, at: int) -> int | None:
        """Where the next record begins that can be read, at whatever depth."""
        shape = self._shape
        if shape is None or (shape.mark is not None and not shape.mark.search(self._text, at + 1)):
            return None
        places = (place for place, value in self._objects_after(at) if shape.is_record(value))
        return next(places, None)

    def _objects_after(self, at: int) -> Iterator[tuple[int, JsonObject]]:
        """Objects that may be elements of an array, wherever they lie, and where they begin."""
        place = _may_begin(self._text, at + 1)
        for _ in range(_MOST_PLACES):
            if place is None:
                return
            try:
                value, _end = DECODER.raw_decode(self._text, place)
            except NO_JSON:
                value = None
            if isinstance(value, dict) and value:
                yield place, value
            place = _may_begin(self._text, place)


def _may_begin(text: str, at: int) -> int | None:
    """The next place from `at` on at which an element may begin: a brace behind what ends one."""
    for _ in range(_FIRST_BRACES):
        brace = text.find("{", at)
        if brace < 0:
            return None
        before = text[at:brace].rstrip(_BLANKS)[-2:]
        if before and (before[-1] in ",[}" or before[0] == "}"):
            return brace
        at = brace + 1
    found = _MAY_BEGIN.search(text, at)
    return None if found is None else found.end()


def _are_alike(shape: frozenset[str], value: JsonObject) -> bool:
    return len(shape & value.keys()) >= _LIKENESS * max(len(shape), len(value))


# -- yAML documents of a log, an object at a time; no tag is obeyed, and aliases are bounded -----

# of a document, or of an item of a list
PIECE_LIMIT_BYTES = 64 << 20
# of the same; an alias counts as the values of its anchor
MOST_VALUES = 1 << 20
_DEEPEST_YAML = 100
_DOCUMENT = re.compile(rb"(?:---|\.\.\.)(?:[ \t]|\Z)")
_DASH = re.compile(rb" {0,8}-(?= |\Z)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = r"[-+]?(?:0|[1-9][0-9]{0,17})"
_INTEGER = re.compile(_WHOLE)
_FLOAT = re.compile(rf"{_WHOLE}(?:\.[0-9]{{0,20}})?(?:[eE][-+]?[0-9]{{1,3}})?")


class _Piece(NamedTuple):
    """Lines that are read on their own; `of` is document, item, or list: what is around items."""

    line: int
    text: str | None
    of: str


class _YamlLines:
    """The lines of a piece; no more than it may have."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._begin = self._n_bytes = 0

    def add(self, number: int, line: bytes) -> None:
        if not self._lines:
            self._begin, self._n_bytes = number, 0
        self._n_bytes += len(line) + 1
        if self._n_bytes <= PIECE_LIMIT_BYTES:
            self._lines.append(line)

    def pieces(self, of: str) -> Iterator[_Piece]:
        """What was added, if it is more than blanks."""
        text = text_of(b"\n".join(self._lines))
        if text.strip():
            yield _Piece(self._begin, text if self._n_bytes <= PIECE_LIMIT_BYTES else None, of)
        self._lines.clear()


def yaml_records(origin: Origin) -> Iterator[JsonRecord]:
    """The documents of a file, each element of a list `items` on its own; JSON is YAML, too.

    An item without a kind has that of its list: Pod in a PodList.

    Raises:
        SourceError: PyYAML is not installed, or the file is corrupt or truncated.
    """
    try:
        import yaml
    except ImportError:
        raise SourceError(
            f"{origin}: is YAML, for which PyYAML is not installed: pip install 'ettr[kubernetes]'"
            "; or write it as JSON, by kubectl get -o json"
        ) from None
    parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # C where PyYAML was built with it
    nameless: list[JsonRecord] = []
    anchors: dict[str, tuple[Json, int]] = {}
    for piece in _pieces(origin):
        try:
            record = JsonRecord(piece.line, _value(piece, parser, anchors), "", None)
        except yaml.YAMLError as error:
            mark, what = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            line = f" in line {piece.line + mark.line}" if mark else ""
            record = JsonRecord(piece.line, None, "", f"no YAML: {what or 'characters'}{line}")
        except ValueError as error:
            record = JsonRecord(piece.line, None, "", f"no YAML: {error}")
        value = record.value
        if piece.of != "item":
            anchors.clear()
        if piece.of == "item" and isinstance(value, dict) and "kind" not in value:
            nameless.append(record)
            continue
        if piece.of == "list":
            of_list = value if isinstance(value, dict) else {}
            yield from (one._replace(value=of_kind(one.value, of_list)) for one in nameless)
            nameless.clear()
            value = None
        if value is not None or record.error:  # no document that is a comment
            yield record
    yield from nameless


def of_kind(item: Json, of_list: dict[str, Json]) -> Json:
    """An item of a list of the API, which says the kind of all."""
    if not isinstance(item, dict) or "kind" in item:
        return item
    kind = str(of_list.get("kind")).removesuffix("List")
    return {"kind": kind, "apiVersion": of_list.get("apiVersion"), **item}


def _pieces(origin: Origin) -> Iterator[_Piece]:
    """Documents; of those with items in lines of their own first these, then what is around."""
    around, item, of = _YamlLines(), _YamlLines(), "document"
    # what an item of the list under way begins with; nothing before its first
    dash: bytes | None = None
    for number, line in numbered_lines(origin):
        if dash == b"" and line.strip():
            found = _DASH.match(line)
            dash = found[0] if found else None
            if not found:
                around.add(number, b"items:")
            of = "list" if found else of
        if dash:
            begins = line.startswith(dash) and line[len(dash) : len(dash) + 1] in {b" ", b""}
            if begins:
                yield from item.pieces("item")
            is_of_it = line.startswith(b" " * len(dash)) or line.lstrip()[:1] in {b"", b"#"}
            if begins or is_of_it:
                item.add(number, line)
                continue
            yield from item.pieces("item")
            dash = None
        if _DOCUMENT.match(line):
            yield from around.pieces(of)
            of = "document"
            around.add(number, line[3:])
        elif line.rstrip() == b"items:":
            dash = b""
        else:
            around.add(number, line)
    yield from item.pieces("item")
    yield from around.pieces(of)


def _value(piece: _Piece, parser: Any, anchors: dict[str, tuple[Json, int]]) -> Json:
    """The value of a piece.

    Raises:
        ValueError: it is larger, deeper or otherwise than any object of an API.
    """
    if piece.text is None:
        raise ValueError(f"an object of over {PIECE_LIMIT_BYTES >> 20} MiB")
    if piece.text.lstrip()[:1] == "{":
        try:
            found: Json = DECODER.decode(piece.text)
            return found
        except NO_JSON:
            pass
    next_event = parser(piece.text).get_event
    begin = [next_event() for _ in range(3)][2]  # behind those of the stream and the document
    value = _Building(next_event, anchors).value(begin) if hasattr(begin, "anchor") else None
    return value[0] if piece.of == "item" and isinstance(value, list) and value else value


@dataclass(slots=True)
class _Building:
    """Values from the events of a parser; `anchors` are those of the document, with their sizes."""

    next_event: Any
    anchors: dict[str, tuple[Json, int]]
    n_values: int = 0

    def value(self, event: Any, depth: int = 0) -> Json:
        """The value that begins with an event."""
        kind, before = type(event).__name__, self.n_values
        if kind == "AliasEvent" and event.anchor not in self.anchors:
            raise ValueError("an alias without an anchor before it")
        found, size = self.anchors[event.anchor] if kind == "AliasEvent" else (None, 1)
        self.n_values += size
        if self.n_values > MOST_VALUES or depth > _DEEPEST_YAML:
            raise ValueError(f"over {MOST_VALUES:,} values or {_DEEPEST_YAML} levels in one object")
        if kind == "AliasEvent":
            return found
        value: Json
        if kind == "ScalarEvent":
            value = _plain(event.value) if event.implicit[0] else event.value
        elif kind == "SequenceStartEvent":
            value = []
            while type(inner := self.next_event()).__name__ != "SequenceEndEvent":
                value.append(self.value(inner, depth + 1))
        else:
            value = {}
            while type(key := self.next_event()).__name__ != "MappingEndEvent":
                if type(key).__name__ != "ScalarEvent":
                    raise ValueError("a key that is no text")
                value[key.value] = self.value(self.next_event(), depth + 1)
        if event.anchor:
            self.anchors[event.anchor] = value, self.n_values - before
        return value


@lru_cache(1 << 12)
def _plain(text: str) -> bool | int | float | str | None:
    """What a scalar without quotes is; times stay texts, as in JSON."""
    if text in _WORDS:
        return _WORDS[text]
    if text[-1] <= "9" and _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if text[-1] <= "9" and _FLOAT.fullmatch(text) else text
