"""YAML documents of a log, an object at a time; no tag is obeyed, and aliases are bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ettr.errors import SourceError
from ettr.sources.json_records import DECODER, NO_JSON, Json, JsonRecord
from ettr.sources.lines import numbered_lines
from ettr.sources.origin import Origin
from ettr.tables.rows import text_of

# of a document, or of an item of a list
PIECE_LIMIT_BYTES = 64 << 20
# of the same; an alias counts as the values of its anchor
MOST_VALUES = 1 << 20
_DEEPEST = 100
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
        if self.n_values > MOST_VALUES or depth > _DEEPEST:
            raise ValueError(f"over {MOST_VALUES:,} values or {_DEEPEST} levels in one object")
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
