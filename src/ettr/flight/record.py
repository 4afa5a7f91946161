"""The flight record of one rank and its entries, from the bytes of its file."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, NoReturn

# key of what `ettr.elastic.flight` adds to PyTorch's JSON
ADDED = "ettr"


@dataclass(frozen=True, slots=True)
class Added:
    """What the watcher of `ettr.elastic` adds to a record; None where PyTorch wrote it alone."""

    rank: int | None = None
    world_size: int | None = None
    node: str | None = None
    written_ns: int | None = None
    # the watcher writes when nothing has moved for so long
    after_s: float | None = None
    # stall, moved, failure or end
    reason: str | None = None
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """The calls that one rank recorded, oldest first."""

    entries: list[Entry]
    groups: Mapping[str, tuple[int, ...]]
    added: Added
    unreadable_entries: int
    # entries older than the first were overwritten
    wrapped: bool
    unread_entries: int = 0


def read_record(data: bytes, signatures: Signatures) -> FlightRecord:
    """A record from JSON or a pickle of builtins, whichever the bytes are.

    Raises:
        ValueError: neither, or not a flight record; says why.
    """
    if data[:1] == b"\x80":
        _check_size(data, LARGEST_PICKLE_BYTES)
        return _record(load_builtins(data), signatures)
    if data.lstrip()[:1] != b"{":
        raise ValueError("empty" if not data else "neither JSON nor a pickle")
    _check_size(data, LARGEST_JSON_BYTES)
    try:
        text = data.decode("utf-8")
        head, entries = read_layout(text, signatures) or (json.loads(text), None)
        return _record(head, signatures, entries)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"no whole JSON: {error.msg} at character {error.pos}") from None
    except UnicodeDecodeError:
        raise ValueError("no UTF-8") from None


def _check_size(data: bytes, largest: int) -> None:
    if len(data) > largest:
        raise ValueError(f"larger than {largest >> 20} MB")


def _record(
    document: object, signatures: Signatures, entries: list[Entry] | None = None
) -> FlightRecord:
    if not isinstance(document, dict) or not isinstance(document.get("version"), str):
        raise ValueError("no flight record: it has no version")
    if not document["version"].startswith("2."):
        raise ValueError(f"format {document['version'][:20]!r}; only 2 is known")
    # PyTorch leaves the key out of JSON where nothing was called
    raw = document.get("entries", [])
    if type(raw) is not list:
        raise ValueError("no flight record: its entries are no list")
    n_raw = len(entries if entries is not None else raw)
    unreadable = 0
    if entries is None:
        entries = []
        for one in raw[-MOST_ENTRIES:]:
            try:
                entries.append(entry_of(one, signatures))
            except ValueError:
                unreadable += 1
    kept = entries[-MOST_ENTRIES:]
    added = _added(document.get(ADDED))
    return FlightRecord(
        entries=kept,
        groups={**_configured(document.get("pg_config")), **added.groups},
        added=added,
        unreadable_entries=unreadable,
        wrapped=bool(unreadable or (kept and kept[0].record_id > 0)),
        unread_entries=n_raw - min(n_raw, MOST_ENTRIES),
    )


def _configured(config: object) -> dict[str, tuple[int, ...]]:
    """Members of each group as NCCL states them; gloo states none."""
    groups = {}
    for name, facts in config.items() if isinstance(config, dict) else ():
        stated = facts.get("ranks") if isinstance(facts, dict) else None
        if type(name) is str and type(stated) is str and (ranks := _ranks(stated)):
            groups[name] = ranks
    return groups


@lru_cache(maxsize=4096)
def _ranks(text: str) -> tuple[int, ...]:
    """Ranks from a text such as `[0, 1, 2]`; none where it is no such list."""
    if len(text) > 8 * MOST_RANKS:
        return ()
    try:
        return _rank_list(json.loads(text))
    except (ValueError, RecursionError):
        return ()


def _rank_list(value: object) -> tuple[int, ...]:
    if type(value) is not list or len(value) > MOST_RANKS:
        return ()
    good = all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in value)
    return tuple(sorted(set(value))) if good else ()


def _added(value: object) -> Added:
    if type(value) is not dict:
        return Added()
    groups = value.get("groups")
    return Added(
        rank=_count(value.get("rank"), MOST_RANKS),
        world_size=_count(value.get("world_size"), MOST_RANKS),
        node=_text(value.get("node")),
        written_ns=_count(value.get("written_ns"), LARGEST_INT),
        after_s=_seconds(value.get("after_s")),
        reason=_text(value.get("reason")),
        groups={
            name: ranks
            for name, raw in (groups.items() if type(groups) is dict else ())
            if type(name) is str and (ranks := _rank_list(raw))
        },
    )


def _count(value: object, most: int) -> int | None:
    return value if type(value) is int and 0 <= value < most else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e9 else None


def _text(value: object) -> str | None:
    return value if type(value) is str and 0 < len(value) <= LONGEST_NAME else None


# The operations that make builtins, with their arguments, but for strings. A tuple may not be put
# into the memo: tuples that hold each other many times hash in exponential time. Indices of the
# memo end at 2^20, as the unpickler makes room for all below; integers have nine bytes.
_RUN = re.compile(
    rb"(?:h.|[(N\x88\x89\]})aesu]+|[\x85-\x87t](?![qr\x94\x95])|[qK].|M..|J....|\x8a[\x00]"
    rb"|\x8a\x08.{8}|\x8a\x05.{5}|\x8a\x06.{6}|\x8a\x07.{7}|\x8a\x09.{9}|\x8a\x04.{4}"
    rb"|\x8a\x03.{3}|\x8a\x02..|\x8a\x01.|r..[\x00-\x0f]\x00|j....|G.{8})*+",
    re.DOTALL,
)
# what a broken pickle makes the unpickler raise
_BROKEN = (
    *(pickle.UnpicklingError, EOFError, KeyError, IndexError, AttributeError, TypeError),
    *(ValueError, OverflowError, RecursionError, MemoryError),
)


class _NoClasses(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}")


def load_builtins(data: bytes) -> object:
    """The object in a pickle of builtins, as PyTorch writes it.

    Raises:
        ValueError: the bytes are no such pickle; says what is wrong with them.
    """
    if not _is_plain(data):
        raise ValueError("no pickle of builtins as PyTorch writes it; give the file that it wrote")
    try:
        # buffered: the unpickler in C asks for single bytes otherwise
        return _NoClasses(io.BufferedReader(io.BytesIO(data))).load()
    except _BROKEN as error:
        reason = str(error)[:100] or type(error).__name__
        raise ValueError(f"no whole pickle of builtins ({reason})") from None


def _is_plain(data: bytes) -> bool:
    """Whether every byte is one of the operations of PyTorch's own pickler."""
    if data[:2] != b"\x80\x02" or data[-1:] != b".":
        return False
    place, end = 2, len(data) - 1
    while place < end:
        matched = _RUN.match(data, place, end)
        place = matched.end() if matched else place
        if place == end:
            return True
        if data[place] != pickle.BINUNICODE[0]:
            return False
        place += 5 + int.from_bytes(data[place + 1 : place + 5], "little")
    return False


_TEXT = r'"[^"\\\x00-\x1f]{0,200}+"'
_INT = r"(\d{1,19}+)"
# what entries share stands in groups of several fields: most entries differ in numbers alone
_ENTRY = re.compile(
    rf'\{{"collective_seq_id":{_INT},(?:"duration_ms":[\d.e+-]+,)?'
    r'("input_dtypes":\[[^][]*\],"input_sizes":[][\d,]*,"is_p2p":(?:true|false)),"op_id":\d+,'
    rf'("output_dtypes":\[[^][]*\],"output_sizes":[][\d,]*),"p2p_seq_id":{_INT},"pg_id":\d+,'
    rf'("process_group":\[{_TEXT},{_TEXT}\],"profiling_name":{_TEXT}),"record_id":{_INT},'
    rf'("retired":(?:true|false),"state":{_TEXT}),"thread_id":"[^"\\]*","thread_name":"[^"\\]*",'
    rf'"time_created_ns":{_INT},"time_discovered_completed_ns":\d+,'
    rf'"time_discovered_started_ns":\d+,("timeout_ms":\d{{1,19}}+)\}}(,?)'
)
_SHAPES = ("input_dtypes", "input_sizes", "output_dtypes", "output_sizes")
_BEGIN = '"entries":['


def read_layout(
    text: str, signatures: Signatures
) -> tuple[Mapping[str, object], list[Entry]] | None:
    """The record without its entries, and the entries; None where the layout is another.

    A field with a value that PyTorch does not write is another layout, too.
    """
    try:
        return _read_layout(text, signatures)
    except ValueError:
        return None


def _read_layout(
    text: str, signatures: Signatures
) -> tuple[Mapping[str, object], list[Entry]] | None:
    begin = text.find(_BEGIN)
    entries: list[Entry] = []
    place = begin + len(_BEGIN)
    more = begin >= 0
    new, known = tuple.__new__, signatures.of_text
    match = _ENTRY.match
    while more and (matched := match(text, place)):
        seq, inputs, outputs, p2p_seq, names, record_id, state, created, timeout, comma = (
            matched.groups()
        )
        texts = (inputs, outputs, names, state, timeout)
        call = known(texts) or signatures.keep_call(texts, _call_of(texts, signatures))
        group, description, is_p2p, signature, retired, state, timeout_ms = call
        number = int(p2p_seq if is_p2p else seq)
        fields = (
            *(group, description, number, is_p2p, signature, retired, state),
            *(int(created), timeout_ms, int(record_id)),
        )
        # a named tuple's own constructor takes three times as long
        entries.append(new(Entry, fields))
        place, more = matched.end(), comma == ","
    if not entries or more or text[place : place + 1] != "]":
        return None
    head = json.loads(f"{text[:begin]}{_BEGIN}]{text[place + 1 :]}")
    return (head, entries) if isinstance(head, dict) and head.get("entries") == [] else None


def _call_of(texts: tuple[str, ...], signatures: Signatures) -> CallFields:
    """What the fields say that many entries share."""
    shared = json.loads(f"{{{','.join(texts)}}}")
    shapes = (shared[name] for name in _SHAPES)
    signature = signatures.keep(signature_of(shared["profiling_name"], *shapes))
    return (
        *(*shared["process_group"], shared["is_p2p"], signature, shared["retired"]),
        *(shared["state"], shared["timeout_ms"]),
    )


# -- One entry of a flight record: a call of a collective on one rank, checked --------------------

# texts of entries that are remembered; a folder may hold ever new ones
_MOST_TEXTS = 100_000

Sizes = tuple[tuple[int, ...], ...]


class Signature(NamedTuple):
    """What a rank called: the collective, and the shapes and types of its tensors."""

    name: str
    input_dtypes: tuple[str, ...]
    input_sizes: Sizes
    output_dtypes: tuple[str, ...]
    output_sizes: Sizes


class Entry(NamedTuple):
    """A call on one rank. `seq` counts the collectives, or the sends and receives, of its group."""

    group: str
    description: str
    seq: int
    is_p2p: bool
    signature: Signature
    retired: bool
    state: str
    created_ns: int
    timeout_ms: int
    record_id: int


_FIELDS = itemgetter(
    *("process_group", "collective_seq_id", "p2p_seq_id", "profiling_name", "input_dtypes"),
    *("input_sizes", "output_dtypes", "output_sizes", "retired", "state", "time_created_ns"),
    *("record_id",),
)


# what many entries share: group, description, is_p2p, signature, retired, state, timeout_ms
CallFields = tuple[str, str, bool, Signature, bool, str, int]


class Signatures:
    """Signatures by their contents, each kept once."""

    def __init__(self) -> None:
        self._by_text: dict[tuple[str, ...], CallFields] = {}
        self._kept: dict[Signature, Signature] = {}
        # the last one of each name, with the lists that it was made of
        self.last: dict[str, tuple[list[object], Signature]] = {}

    def of_text(self, texts: tuple[str, ...]) -> CallFields | None:
        """What some texts of PyTorch's JSON say, if they were met before."""
        return self._by_text.get(texts)

    def keep_call(self, texts: tuple[str, ...], fields: CallFields) -> CallFields:
        """Remember what some texts say."""
        if len(self._by_text) >= _MOST_TEXTS:
            self._by_text.clear()
        self._by_text[texts] = fields
        return fields

    def keep(self, signature: Signature) -> Signature:
        """The one object for this signature."""
        return self._kept.setdefault(signature, signature)


def entry_of(raw: Mapping[str, object], signatures: Signatures) -> Entry:
    """An entry from its parsed form.

    Raises:
        ValueError: a field is missing or of another type than PyTorch's.
    """
    try:
        group, seq, p2p_seq, name, *shapes, retired, state, created, record_id = _FIELDS(raw)
    except (KeyError, TypeError, AttributeError, IndexError):
        raise ValueError("an entry without the fields of format 2") from None
    if (
        type(group) not in (list, tuple)
        or len(group) != 2
        or not _texts(group[0], group[1], name, state)
        or not _counts(seq, p2p_seq, created, record_id)
        or type(retired) is not bool
    ):
        raise ValueError("an entry with fields of other types")
    is_p2p = raw.get("is_p2p")
    if type(is_p2p) is not bool:
        # before format 2.5
        is_p2p = ":send " in name or ":recv " in name
    timeout = raw.get("timeout_ms")
    return Entry(
        group[0],
        group[1],
        p2p_seq if is_p2p else seq,
        is_p2p,
        _kept(name, shapes, signatures),
        retired,
        state,
        created,
        timeout if type(timeout) is int and 0 < timeout < LARGEST_INT else 0,
        record_id,
    )


def _kept(name: str, shapes: list[object], signatures: Signatures) -> Signature:
    """The signature of these types and sizes, read again only where they are new."""
    last = signatures.last.get(name)
    # a list that equals the checked one is as flat as that one
    if last is None or last[0] != shapes:
        last = signatures.last[name] = (shapes, signatures.keep(signature_of(name, *shapes)))
    return last[1]


def signature_of(
    name: str,
    input_dtypes: object,
    input_sizes: object,
    output_dtypes: object,
    output_sizes: object,
) -> Signature:
    """A signature from its parsed form. Raises ValueError: no lists of types and sizes."""
    return Signature(
        name,
        _dtypes(input_dtypes),
        _sizes(input_sizes),
        _dtypes(output_dtypes),
        _sizes(output_sizes),
    )


def _texts(*values: object) -> bool:
    return all(type(value) is str and len(value) <= LONGEST_NAME for value in values)


def _counts(*values: object) -> bool:
    return all(type(value) is int and 0 <= value < LARGEST_INT for value in values)


def _dtypes(value: object) -> tuple[str, ...]:
    if type(value) is not list or len(value) > MOST_SIZES or not _texts(*value):
        raise ValueError("an entry with fields of other types")
    return tuple(value)


def _sizes(value: object) -> Sizes:
    if (
        type(value) is not list
        or len(value) > MOST_SIZES
        or any(type(one) is not list for one in value)
        or sum(map(len, value)) > MOST_SIZES
        or not all(_counts(*one) for one in value)
    ):
        raise ValueError("an entry with fields of other types")
    return tuple(map(tuple, value))


# a record of 20,000 entries is 9 MB of JSON and 2 MB of pickle; a byte of a hostile pickle can
# become a list of 80 bytes
LARGEST_JSON_BYTES = 32 << 20
LARGEST_PICKLE_BYTES = 16 << 20
MOST_RECORDS = 100_000
MOST_ENTRIES = 200_000
MOST_RANKS = 200_000
# over all records
MOST_CALLS = 3_000_000
LONGEST_NAME = 200
MOST_SIZES = 4096
LARGEST_INT = 1 << 63
