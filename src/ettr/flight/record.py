"""The flight record of one rank, from the bytes of its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ettr.flight.builtin_pickle import load_builtins
from ettr.flight.entries import Entry, Signatures, entry_of
from ettr.flight.limits import (
    LARGEST_INT,
    LARGEST_JSON_BYTES,
    LARGEST_PICKLE_BYTES,
    LONGEST_NAME,
    MOST_ENTRIES,
    MOST_RANKS,
)
from ettr.flight.torch_json import read_layout

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
