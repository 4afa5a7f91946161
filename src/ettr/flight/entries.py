"""One entry of a flight record: a call of a collective on one rank, checked."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple

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
        last = signatures.last[name] = (
            shapes,
            signatures.keep(signature_of(name, *shapes)),
        )
    return last[1]


def signature_of(
    name: str,
    input_dtypes: object,
    input_sizes: object,
    output_dtypes: object,
    output_sizes: object,
) -> Signature:
    """A signature from its parsed form.

    Raises:
        ValueError: no lists of types and sizes.
    """
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
