"""One analysis of a store in a test process, however many commands ask it.

A report, its JSON and the commands beside it answer from the same stages, and the suite asks the
same small stores hundreds of times. What a stage of `Analysis` came to is held by the bytes of the
store's folder, the assumptions, the selection and the price; another `Analysis` of the same takes
it from there. Only folders of small tables are held, which the engine has read into its memory; a
store that lies elsewhere or changes, a stage that a test put there itself, and every test that
patches something (`monkeypatch`) compute for themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest

from held_engines import locks_its_engine, share_engines

if TYPE_CHECKING:
    from collections.abc import Callable

    from ettr.analysis import Analysis
    from ettr.store.folder import FolderStore

ROOMS = frozenset(
    ("analysis", "api", "cli", "lemons", "metrics", "plan", "projection", "report", "sim")
)
"""Below `tests`, where stores are analysed again and again; `store` tries the store itself."""
ROOMS_OF_STORES = frozenset(("attribution", "checks", "sources"))
"""Which make stores and ask each once: they share what a store is asked with, and no answers."""
MOST_STORES = 8
MOST_ANALYSES = 16
"""Of one store: under other assumptions, selections and prices."""
MOST_BYTES = 1 << 22
"""Of a store's folder."""
MANIFEST = "store.json"
_ANSWERS, _PARTS_OF_EVENTS = "_held_answers", "event_"
_RANDOM = re.compile(rb"-[0-9a-f]{16}(?=\.parquet)")
_SEAL = re.compile(rb'"manifest_crc32": "[0-9a-f]{8}"')


@dataclass(eq=False)
class Held:
    """What is held of a store: its engine, its open stores, and the answers by what was asked."""

    connection: Any
    users: set[int] = field(default_factory=set)
    answers: OrderedDict[Any, dict[str, Any]] = field(default_factory=OrderedDict)
    is_over: bool = False


@dataclass(eq=False)
class Answers:
    """The answers that are held of one analysis, and those that this object took from there."""

    shared: dict[str, Any]
    taken: dict[str, Any] = field(default_factory=dict)


class Memory:
    """The stores that this process holds, the one asked last at the end."""

    def __init__(self) -> None:
        self.is_on = self.shares_engines = False
        self.stores: OrderedDict[str, Held] = OrderedDict()
        self.bound: WeakKeyDictionary[FolderStore, tuple[str, Held]] = WeakKeyDictionary()
        self._is_installed = False

    def allow(self, item: pytest.Item) -> None:
        """Hold answers during a test that may share them, and during none else."""
        room = item.path.relative_to(Path(__file__).parent).parts[0]
        patches = "monkeypatch" in getattr(item, "fixturenames", ())
        self.is_on = room in ROOMS and not patches
        self.shares_engines = room in ROOMS | ROOMS_OF_STORES and not patches
        if self.shares_engines and not self._is_installed:
            self._is_installed = True
            _install(self)

    def answers_of(self, analysis: Analysis) -> Answers | None:
        """The answers to share with this analysis; None where it computes for itself."""
        if not self.is_on:
            return None
        of = analysis.__dict__
        if _ANSWERS not in of:
            of[_ANSWERS] = self._bind(analysis)
        answers: Answers | None = of[_ANSWERS]
        if answers is not None and not _is_whole(of, answers.taken):
            answers = of[_ANSWERS] = None
        return answers

    def _bind(self, analysis: Analysis) -> Answers | None:
        held = self._held_of(analysis.store)
        if held is None:
            return None
        given, file = analysis.assumptions, analysis.assumptions.taxonomy_file
        rows = file.read_bytes() if file is not None and file.is_file() else file
        key = (type(analysis), given, rows, analysis.selection, analysis.price)
        return Answers(_newest(held.answers, key, dict, MOST_ANALYSES))

    def _held_of(self, store: Any) -> Held | None:
        from ettr.store.folder import FolderStore
        from ettr.tables import TABLES

        if type(store) is not FolderStore or locks_its_engine():
            return None
        digest = digest_of(store._folder)
        if digest is None:
            return None
        if store in self.bound:
            bound, held = self.bound[store]
            return held if bound == digest and not held.is_over else None
        if digest not in self.stores:
            self.stores[digest] = Held(store.connection)
            for name in TABLES:  # what is asked when its files are gone is in memory
                store.source(name)
        elif store._opened is not None:
            return None  # it has read tables with an engine of its own
        held = self.stores[digest]
        store._opened = held.connection
        self.bound[store] = digest, held
        held.users.add(id(store))
        self.stores.move_to_end(digest)
        while len(self.stores) > MOST_STORES:
            self._drop_oldest()
        return held

    def forget(self) -> None:
        """Let go of every store, as before the process ends."""
        self.is_on = self.shares_engines = False
        while self.stores:
            self._drop_oldest()

    def close(self, store: FolderStore) -> bool:
        """Close a store whose engine is held; False where the store has to close its own.

        It keeps the engine: answers that were taken from it ask it again, for whoever comes next.
        """
        _, held = self.bound.get(store, ("", None))
        if held is None or store._opened is not held.connection:
            return False
        held.users.discard(id(store))
        self._let_go(held)
        return True

    def _drop_oldest(self) -> None:
        _, held = self.stores.popitem(last=False)
        held.is_over = True
        self._let_go(held)

    def _let_go(self, held: Held) -> None:
        """Close the engine of a store that is held no longer once nobody has it open."""
        if held.is_over and not held.users:
            for store in [store for store, (_, of) in self.bound.items() if of is held]:
                store._opened = None
                del self.bound[store]
            held.answers.clear()
            held.connection.close()


MEMORY = Memory()


def digest_of(folder: Path) -> str | None:
    """SHA-256 over names and bytes of a store's files; None where it is large or no plain folder.

    What is random in the names of parts, and so in the manifest, is left out: the same logs read
    again make the same store. Summaries of events lie only beside parts that each query reads.
    """
    digest, size = hashlib.sha256(), 0
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            return None
        if path.is_dir():
            continue
        size += path.stat().st_size
        if not path.is_file() or size > MOST_BYTES or path.parent.name.startswith(_PARTS_OF_EVENTS):
            return None
        data = path.read_bytes()
        if path.name == MANIFEST:
            data = _RANDOM.sub(b"", _SEAL.sub(b"", data))
        name = _RANDOM.sub(b"", str(path.relative_to(folder)).encode())
        digest.update(b"%s\0%d\0%s" % (name, len(data), data))
    return digest.hexdigest()


def _is_whole(of: dict[str, Any], taken: dict[str, Any]) -> bool:
    """Whether every stage that an analysis has came to it from the memory."""
    return all(name not in _STAGES or taken.get(name) is value for name, value in of.items())


def _newest(
    kept: OrderedDict[Any, dict[str, Any]], key: Any, make: Callable[[], dict[str, Any]], most: int
) -> dict[str, Any]:
    found = kept.setdefault(key, make())
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return found


_STAGES: set[str] = set()


def _install(memory: Memory) -> None:
    """Let the stages of every analysis, and the stores that close, go through the memory."""
    from ettr.analysis import Analysis
    from ettr.store.folder import FolderStore

    for kind in Analysis.__mro__:
        for name, stage in vars(kind).items():
            if isinstance(stage, cached_property) and name not in _STAGES:
                _STAGES.add(name)
                stage.func = _held(memory, name, stage.func)
    _hold_taken_stages(memory, Analysis)
    _hold_engines(memory, FolderStore)
    share_engines(lambda: memory.shares_engines)


def _held(memory: Memory, name: str, compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def stage(analysis: Analysis) -> Any:
        answers = memory.answers_of(analysis)
        if answers is None:
            return compute(analysis)
        if name not in answers.shared:
            answers.shared[name] = compute(analysis)
        found = answers.taken[name] = answers.shared[name]
        return found

    return stage


def _hold_taken_stages(memory: Memory, kind: Any) -> None:
    """What `take_stages_of` copies from a whole analysis is as good as held."""
    take = kind.take_stages_of

    def take_stages_of(analysis: Analysis, other: Analysis) -> None:
        before = set(analysis.__dict__)
        answers, of_other = memory.answers_of(analysis), memory.answers_of(other)
        take(analysis, other)
        if answers is not None and of_other is not None:
            made = analysis.__dict__.keys() - before - {_ANSWERS}
            answers.taken.update({name: analysis.__dict__[name] for name in made & _STAGES})

    kind.take_stages_of = take_stages_of


def _hold_engines(memory: Memory, kind: Any) -> None:
    """An engine that others share stays open with its store."""
    from ettr.errors import StoreError

    close = kind.close

    def close_unless_held(store: FolderStore) -> None:
        if not memory.close(store):
            close(store)

    kind.close = close_unless_held
    source = kind.source

    def source_or_held(store: FolderStore, name: str) -> str:
        """Of a folder that is gone, or was written again with the same rows, what memory has."""
        try:
            place: str = source(store, name)
        except StoreError:
            digest, _ = memory.bound.get(store, ("", None))
            folder = store._folder
            if name not in store._sources or (folder.exists() and digest_of(folder) != digest):
                raise
            place = store._sources[name][1]
        return place

    kind.source = source_or_held
