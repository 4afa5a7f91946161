"""JSON values of a log: one a line, an array, or documents in a row, whole or cut off; and YAML."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
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
    origin: Origin, shape: RecordShape | None = None, wanted: Any = Any
) -> Iterator[JsonRecord]:
    """The JSON values of a file: one a line, an array's elements, or documents in a row.

    Bytes that are no JSON cost the record that they are in, also in a document of one line; there
    a record without a value has their text and what is wrong with it.

    Args:
        shape: what the records look like; every object is one unless given.
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
                yield from _document(origin, place, (number, line), lines, shape, quick)
                return
        # the same as below, but quick
        if isinstance(value, dict) and (shape is None or shape.is_record(value)):
            place = max(place + 1, number)
            yield JsonRecord(place, value, "", None)
            continue
        values: list[Json] = value if isinstance(value, list) else [value]
        if error is not None:
            mark = shape.mark if shape is not None else None
            holds_many = text[0] == "[" or (mark is not None and len(mark.findall(text)) > 1)
            values = _salvaged(text, shape, error) if holds_many else [Broken(text, error)]
        for element in _with_nested(values, shape):
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


def _with_nested(values: list[Json], shape: RecordShape | None) -> Iterator[Json]:
    """The values, with the records of one that is no record: a key of its list is damaged."""
    for value in values:
        inner: list[Json] = []
        if shape is not None and isinstance(value, dict) and not shape.is_record(value):
            inner = records_within(value, shape)
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
    values = _documents(data, quick)
    if values is None:
        values = _salvaged(text_of(data).removeprefix("\ufeff"), shape, "a document is damaged")
    for at, value in enumerate(_with_nested(values, shape), place + 1):
        yield json_record(at, value)


def _salvaged(text: str, shape: RecordShape | None, error: str) -> list[Json]:
    """The records of a damaged text; at least one of them is `Broken`."""
    found = salvage(text, shape or _ANY_OBJECT)
    return found if any(isinstance(one, Broken) for one in found) else [*found, Broken("", error)]


def _documents(data: bytes, quick: Callable[[bytes], Json]) -> list[Json] | None:
    """The values of documents that end with a brace on a line of its own, if all are JSON."""
    values: list[Json] = []
    begin, end = 0, 0
    while begin < len(data):
        end = data.find(b"\n}\n{", begin) + 2
        end = len(data) if end < 2 else end
        value, error = quick(data[begin:end]), None
        if value is _UNREAD:
            value, error = _load(text_of(data[begin:end]).removeprefix("\ufeff").strip())
        if error is not None:
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
            following = None if shape is None else _next_record(text, at + 1, shape)
            if following is None and line_end < 0:
                break
            at = line_end + 1 if following is None else following[0]
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


def load_json(origin: Origin, name: str, shape: RecordShape) -> JsonObject:
    """The file as one JSON object with a list of records.

    Args:
        name: the key of the list; in it, `Broken` is where bytes are no JSON, and a document that
            is cut off still has the records before.

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
        document, wrong = _load(text.strip())
        if wrong is not None:
            records = _salvaged(text, shape, "the document ends before its list does")
            if not any(isinstance(one, dict) for one in records):
                raise SourceError(f"{origin}: is not a complete JSON document: {wrong}")
            document = {name: records}
            if begin := _META.search(text):
                with contextlib.suppress(*NO_JSON):
                    document["meta"], _ = DECODER.raw_decode(text, begin.end())
    if not isinstance(document, dict):
        raise SourceError(f"{origin}: is not a JSON object")
    return document


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
_BETWEEN = ", \t\r\n[]{}"
# where an element of an array may begin; see `_may_begin`
_MAY_BEGIN = re.compile(r"(?:[,\[]|\}.?|\A)[ \t\r\n]*(?=\{)")
_RAW_CHARACTERS = 1000
# characters before a brace that are looked at
_LOOKED_BACK = 64
# braces that are looked at one by one
_FIRST_BRACES = 16
# places at which the next record is looked for, before the rest of a document is given up
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
        lists: keys of objects around records that hold them in arrays.
    """

    is_record: Callable[[JsonObject], bool]
    mark: re.Pattern[str] | None = None
    lists: tuple[str, ...] = ()


_ANY_OBJECT = RecordShape(bool)


def records_within(value: Json, shape: RecordShape) -> list[Json]:
    """Records in arrays within a value, in their order; not in those where they belong.

    A record holds no others: where it seems to, a damaged bracket let it swallow its neighbours.
    """
    found: list[Json] = []
    # what is to be looked into, and whether it is an element of an array
    waiting = [(value, False)]
    while waiting:
        each, is_element = waiting.pop()
        if isinstance(each, dict) and is_element and shape.is_record(each):
            found.append(each)
        elif isinstance(each, dict):
            inside = [inner for key, inner in each.items() if key not in shape.lists]
            waiting += [(inner, False) for inner in reversed(inside)]
        elif isinstance(each, list):
            waiting += [(inner, True) for inner in reversed(each)]
    return found


def salvage(text: str, shape: RecordShape) -> list[Json]:
    """The records of a text that is no JSON as a whole; `Broken` where some are lost."""
    # what comes first may be whole, and only what follows it be damaged
    first, at = _decoded(text, len(text) - len(text.lstrip())) or ([], 0)
    found: list[Json] = [*first] if isinstance(first, list) else [first]
    while (record := _next_record(text, at, shape)) is not None:
        begin, value, end = record
        found += _lost(text, at, begin, shape, is_between=bool(found))
        if inner := records_within(value, shape):
            error = "holds other records: a bracket is damaged"
            found += [Broken(str(value)[:_RAW_CHARACTERS], error), *inner]
        else:
            found.append(value)
        at = end
    return [*found, *_lost(text, at, len(text), shape, is_between=False)]


def _lost(
    text: str, at: int, end: int, shape: RecordShape, *, is_between: bool
) -> Iterator[Broken]:
    """One for each record in a stretch that could not be read."""
    places = [mark.start() for mark in shape.mark.finditer(text, at, end)] if shape.mark else []
    if not places and is_between and text[at:end].strip(_BETWEEN):
        places = [at]
    for place in places:
        begin = max(text.rfind("{", at, place), at)
        raw = text[begin : min(end, begin + _RAW_CHARACTERS)]
        yield Broken(raw, "in a stretch of a document in which no record could be read")


def _next_record(text: str, at: int, shape: RecordShape) -> tuple[int, JsonObject, int] | None:
    """The next record that can be read, at whatever depth: where it begins, and where it ends."""
    if shape.mark is not None and not shape.mark.search(text, at):
        return None
    place = _may_begin(text, at)
    for _ in range(_MOST_PLACES):
        if place is None:
            return None
        value, end = _decoded(text, place) or (None, place)
        if isinstance(value, dict) and shape.is_record(value):
            return place, value, end
        holds_none = end > place and not records_within(value, shape)
        place = _may_begin(text, end if holds_none else place + 1)
    return None


def _may_begin(text: str, at: int) -> int | None:
    """The next place from `at` on at which an element may begin: a brace behind what ends one."""
    for _ in range(_FIRST_BRACES):
        brace = text.find("{", at)
        if brace < 0:
            return None
        before = (
            text[at:brace].rstrip(_BLANKS)[-2:] or text[max(at - 40, 0) : at].rstrip(_BLANKS)[-2:]
        )
        if not before or before[-1] in ",[}" or before[0] == "}":
            return brace
        at = brace + 1
    found = _MAY_BEGIN.search(text, at)
    return None if found is None else found.end()


# -- yAML documents of a log, an object at a time; no tag is obeyed, and aliases are bounded -----

# of a document, or of an item of a list
PIECE_LIMIT_BYTES = 64 << 20
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
    for piece in _pieces(origin):
        value, error = None, None
        try:
            value = _value(piece, parser)
        except yaml.YAMLError as why:
            mark, what = getattr(why, "problem_mark", None), getattr(why, "problem", None)
            line = f" in line {piece.line + mark.line}" if mark else ""
            error = f"no YAML: {what or 'characters'}{line}"
        except ValueError as why:
            error = f"no YAML: {why}"
        record = JsonRecord(piece.line, value, "", error)
        if piece.of == "item" and isinstance(value, dict) and "kind" not in value:
            nameless.append(record)
            continue
        if piece.of == "list":
            of_list = value if isinstance(value, dict) else {}
            yield from (one._replace(value=of_kind(one.value, of_list)) for one in nameless)
            nameless.clear()
        if error or (value is not None and piece.of != "list"):  # no document that is a comment
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


def _value(piece: _Piece, parser: Any) -> Json:
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
    value = _built(begin, next_event) if hasattr(begin, "anchor") else None
    return value[0] if piece.of == "item" and isinstance(value, list) and value else value


def _built(event: Any, next_event: Callable[[], Any], depth: int = 0) -> Json:
    """The value that begins with an event of a parser; an alias, which may be huge, is refused."""
    kind = type(event).__name__
    if kind == "AliasEvent" or depth > _DEEPEST_YAML:
        raise ValueError(f"an alias, or over {_DEEPEST_YAML} levels in one object")
    if kind == "ScalarEvent":
        return _plain(event.value) if event.implicit[0] else str(event.value)
    if kind == "SequenceStartEvent":
        values: list[Json] = []
        while type(inner := next_event()).__name__ != "SequenceEndEvent":
            values.append(_built(inner, next_event, depth + 1))
        return values
    members: JsonObject = {}
    while type(key := next_event()).__name__ != "MappingEndEvent":
        if type(key).__name__ != "ScalarEvent":
            raise ValueError("a key that is no text")
        members[key.value] = _built(next_event(), next_event, depth + 1)
    return members


@lru_cache(1 << 12)
def _plain(text: str) -> bool | int | float | str | None:
    """What a scalar without quotes is; times stay texts, as in JSON."""
    if text in _WORDS:
        return _WORDS[text]
    if text[-1] <= "9" and _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if text[-1] <= "9" and _FLOAT.fullmatch(text) else text
