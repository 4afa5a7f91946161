"""Connections to the supervisor's key-value store, and what ranks exchange through it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from torch._C._distributed_c10d import Store

MessageT = TypeVar("MessageT", bound="DataclassInstance")


def connect(host: str, port: int, wait_s: float) -> Store:
    """A new connection to the supervisor's store."""
    from torch.distributed import TCPStore

    wait = timedelta(seconds=wait_s)
    store: Store = TCPStore(host, port, is_master=False, timeout=wait, wait_for_workers=False)
    return store


def wait_for_key(store: Store, key: str) -> None:
    """Sleep until a store has a key."""
    # in one wait, since torch writes a warning whenever one runs out; more days overflow its poll
    store.wait([key], timedelta(days=20))


def prefixed(prefix: str, store: Store) -> Store:
    """The part of a store below a prefix."""
    from torch.distributed import PrefixStore

    below: Store = PrefixStore(prefix, store)
    return below


class RankMessages:
    """Messages that all ranks of one generation exchange, as JSON through their store."""

    def __init__(self, store: Store, slot: int, world: int) -> None:
        self._store, self._slot, self._world = store, slot, world
        self._n_gathered = 0

    def gather(self, topic: str, message: MessageT) -> list[MessageT]:
        """The messages of all ranks, in the order of the slots; every rank calls it."""
        self._n_gathered += 1
        prefix = f"messages/{self._n_gathered}-{topic}"
        self._store.set(f"{prefix}/{self._slot}", json.dumps(asdict(message)))
        received = [json.loads(self._store.get(f"{prefix}/{s}")) for s in range(self._world)]
        return [_decoded(type(message), values) for values in received]


def _decoded(kind: type[MessageT], values: Mapping[str, object]) -> MessageT:
    return kind(**values)
