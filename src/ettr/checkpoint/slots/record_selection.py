"""Choosing the record of each block: the newest of each, or all of one step.

Blocks of several slots, generations and world sizes meet here; they are keyed by global
coordinates, so that any layout can be restored into any other.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ettr.checkpoint.slots.durable_io import slot_of
from ettr.checkpoint.slots.format import digest_function
from ettr.checkpoint.slots.layout import MOVEMENT, OBJECTS, RESERVED, Key
from ettr.checkpoint.slots.reader import (
    BadBlock,
    PayloadReader,
    Record,
    Slot,
    bad_record,
    open_slot,
    slot_names,
    superblock_of,
    superseded,
)
from ettr.checkpoint.tensors.objects import ObjectRecord, unpack_objects
from ettr.errors import CheckpointError, UsageError

MODES = ("newest", "consistent")


@dataclass(slots=True)
class OpenCheckpoint:
    """The open slots of a checkpoint; close it by leaving its ExitStack.

    damaged: places that cannot be trusted, so far as they were read. superseded: files of an
    earlier world size that are not read any more (`superseded`). preferred: the slot that counts
    where several hold other values of a block at one step; None: that is an error. rename: see
    `live_name`; records are by the names of now.
    """

    slots: list[Slot]
    damaged: list[BadBlock] = field(default_factory=list)
    superseded: frozenset[Path] = frozenset()
    preferred: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)

    def live_name(self, saved: str) -> str:
        """The name that a saved tensor has now."""
        return saved if saved in RESERVED else live_name(saved, self.rename)


def open_checkpoint(
    stack: ExitStack,
    root: str | os.PathLike[str],
    slot: str | None,
    *,
    shared: Callable[[Key], bool] | None = None,
    preferred: str | None = None,
    rename: Mapping[str, str] | None = None,
) -> OpenCheckpoint:
    """Open one slot, or all of a root.

    Args:
        shared: whether a block is of a tensor that several ranks hold alike. Each of them saves a
            part of its blocks, so those of other slots are read too, where this one has none.
    """
    names = slot_names(root)
    if slot is not None:
        if slot not in names:
            raise CheckpointError(f"{root}: no slot {slot!r}; there are: {', '.join(names)}")
        if shared is None:
            names = [slot]
    if preferred is not None and preferred not in names:
        raise UsageError(
            f"objects_of: slot {preferred} is not read; those that are: {', '.join(names)}"
        )
    slots = [stack.enter_context(open_slot(root, name)) for name in names]
    damaged = [bad for opened in slots for bad in opened.damaged]
    checkpoint = OpenCheckpoint(
        slots,
        damaged,
        superseded(slots) if len(slots) > 1 else frozenset(),
        preferred,
        rename or {},
    )
    _check_runs(checkpoint)
    if rename:
        held = {key[0] for one in slots for key in one.records if key[0] not in RESERVED}
        check_rename(held, rename)
        for one in slots:
            one.records = {
                (checkpoint.live_name(key[0]), *key[1:]): records
                for key, records in one.records.items()
            }
    if slot is not None and shared is not None:
        _keep_shared(checkpoint, slot, shared)
    return checkpoint


def _keep_shared(checkpoint: OpenCheckpoint, slot: str, shared: Callable[[Key], bool]) -> None:
    """Leave of other slots only what is shared and not in this one, and how far it has moved."""
    own = next(one for one in checkpoint.slots if one.name == slot)
    for other in checkpoint.slots:
        if other is own:
            continue
        other.records = {
            key: records
            for key, records in other.records.items()
            if key[0] == MOVEMENT or (key not in own.records and shared(key))
        }
    checkpoint.damaged[:] = [
        bad
        for bad in checkpoint.damaged
        if bad.slot == slot or shared((bad.fqn, bad.offsets, bad.sizes))
    ]


def _check_runs(checkpoint: OpenCheckpoint) -> None:
    """Pass if the files that are read are of one run, as far as they name it."""
    slot_of_run: dict[str, str] = {}
    for slot in checkpoint.slots:
        latest = superblock_of(slot)
        superseded_by_others = all(file.path in checkpoint.superseded for file in slot.files)
        if latest is not None and latest.run is not None and not superseded_by_others:
            slot_of_run.setdefault(latest.run, slot.name)
    if len(slot_of_run) > 1:
        (run, name), (other_run, other_name) = list(slot_of_run.items())[:2]
        raise CheckpointError(
            f"slot {name} is of run {run!r} and slot {other_name} of run {other_run!r}: they are "
            f"no parts of one state. To restore one of them give slot="
        )


def candidates(checkpoint: OpenCheckpoint) -> dict[Key, list[Record]]:
    """The records of each block of a tensor, the best first.

    Within a slot the latest round wins, also where it is of an earlier step: the run went back.
    Between slots that hold the same block (replicas, or an earlier world size) the later step does;
    records in superseded files are left out. At one step the preferred slot does.
    """
    by_slot: dict[Key, list[list[Record]]] = {}
    preferred = checkpoint.preferred
    for slot in sorted(checkpoint.slots, key=lambda one: one.name != preferred):
        for key, of_block in slot.records.items():
            records = [r for r in of_block if r.file.path not in checkpoint.superseded]
            if records and key[0] not in RESERVED:
                by_slot.setdefault(key, []).append(records)
    for key, of_slots in by_slot.items():
        if len(of_slots) > 1:
            _check_agreement(key, [records[0] for records in of_slots], preferred)
    return {
        key: [
            record
            for records in sorted(of_slots, key=lambda r: r[0].header.step, reverse=True)
            for record in records
        ]
        for key, of_slots in by_slot.items()
    }


def _check_agreement(key: Key, newest: list[Record], preferred: str | None) -> None:
    """Pass if slots with the same block are replicas: equal values where the step is equal."""
    settled = newest[0].header.step if _slot_name(newest[0]) == preferred else None
    first_of: dict[tuple[int, str], Record] = {}
    for record in newest:
        if record.header.step == settled:
            continue
        checksum = record.file.superblock.checksum
        first = first_of.setdefault((record.header.step, checksum), record)
        if first.header.payload_sum != record.header.payload_sum and _comparable(first, record):
            slots = sorted(_slot_name(one) for one in (first, record))
            raise CheckpointError(
                f"slots {slots[0]} and {slots[1]} hold different values of {key[0]} of step "
                f"{record.header.step}: they are no replicas of each other. To restore "
                f"one of them give slot=, and to take from one what they differ in objects_of=; "
                f"tensors of several ranks need names of their own"
            )


def _slot_name(record: Record) -> str:
    return slot_of(record.file.path.parent)


def _comparable(one: Record, other: Record) -> bool:
    """Whether two slots should hold the same bytes of a block: ranks of one job, or all alike."""
    a, b = one.file.superblock, other.file.superblock
    if a.layout == b.layout:
        return True
    specs = [
        at.layout.tensors[at.layout.blocks[r.block].tensor] for at, r in ((a, one), (b, other))
    ]
    return a.world is not None and a.world == b.world and specs[0] == specs[1]


def reserved_records(
    checkpoint: OpenCheckpoint, slot: Slot, name: str, reader: PayloadReader
) -> Iterator[tuple[Record, memoryview]]:
    """The good records of a slot's reserved block, the latest first; bad ones are noted."""
    for record in _reserved(checkpoint, slot, name):
        payload = reader.read(record)
        if payload is None:
            checkpoint.damaged.append(bad_record(slot.name, record))
        else:
            yield record, payload


def _reserved(checkpoint: OpenCheckpoint, slot: Slot, name: str) -> list[Record]:
    """The records of a slot's reserved block, the latest first."""
    records = [
        record
        for key, of_block in slot.records.items()
        if key[0] == name
        for record in of_block
        if record.file.path not in checkpoint.superseded
    ]
    return sorted(records, key=lambda r: r.order, reverse=True)


def object_records(checkpoint: OpenCheckpoint) -> dict[Key, list[Record]]:
    """The records of objects, the latest first, with a key of its own for each slot."""
    return {
        (f"{OBJECTS} of slot {slot.name}", (), ()): records
        for slot in checkpoint.slots
        if (records := _reserved(checkpoint, slot, OBJECTS))
    }


def objects_of(
    checkpoint: OpenCheckpoint, chosen: Mapping[Key, list[Record]] | None = None
) -> dict[str, ObjectRecord]:
    """Slot -> its latest intact objects; slots without any, or superseded, are left out.

    Args:
        chosen: with records of one step (`newest_consistent`): only these.
    """
    objects: dict[str, ObjectRecord] = {}
    reader = PayloadReader()
    allowed = None if chosen is None else {id(r) for records in chosen.values() for r in records}
    for slot in checkpoint.slots:
        for record, payload in reserved_records(checkpoint, slot, OBJECTS, reader):
            if allowed is None or id(record) in allowed:
                objects[slot.name] = unpack_objects(payload)
                break
    return objects


def records_of_step(records_of: Mapping[Key, list[Record]], step: int) -> dict[Key, list[Record]]:
    """Only the records of one step, those of a slot all written by one process.

    A process that took the slot over may have done that step again, with another outcome: of each
    slot the latest generation counts that wrote all of its blocks then.
    """
    of_step = {
        key: [record for record in records if record.header.step == step]
        for key, records in records_of.items()
    }
    complete_generations: dict[Path, set[int]] = {}
    for records in of_step.values():
        by_folder: dict[Path, set[int]] = {}
        for record in records:
            by_folder.setdefault(record.file.path.parent, set()).add(record.header.generation)
        for folder, generations in by_folder.items():
            known = complete_generations.get(folder, generations)
            complete_generations[folder] = known & generations
    chosen = {folder: max(gens, default=-1) for folder, gens in complete_generations.items()}
    return {
        key: [r for r in records if r.header.generation == chosen[r.file.path.parent]]
        for key, records in of_step.items()
    }


def rolled_back(record_lists: Iterable[list[Record]]) -> Callable[[Record], bool]:
    """A test whether the run went back behind a record's step in a later round of its slot."""
    rounds: dict[Path, dict[tuple[int, int], int]] = {}
    for records in record_lists:
        for record in records:
            rounds.setdefault(record.file.path.parent, {})[record.order] = record.header.step
    earliest_after: dict[tuple[Path, tuple[int, int]], float] = {}
    for folder, step_of_round in rounds.items():
        earliest = math.inf
        for order in sorted(step_of_round, reverse=True):
            earliest_after[folder, order] = earliest
            earliest = min(earliest, step_of_round[order])
    return lambda r: r.header.step > earliest_after[r.file.path.parent, r.order]


def consistent_steps(
    records_of: Mapping[Key, list[Record]], reader: PayloadReader, preferred: str | None
) -> Iterator[tuple[int, dict[Key, list[Record]]]]:
    """Steps of which every block is intact with their records, the latest first.

    Payloads are checked. Steps that a run went back behind are not taken: they would be mixed with
    the same steps done again.
    """
    is_rolled_back = rolled_back(records_of.values())
    current = {
        key: [record for record in records if not is_rolled_back(record)]
        for key, records in records_of.items()
    }
    steps = [{record.header.step for record in records} for records in current.values()]
    for step in sorted(set.intersection(*steps) if steps else (), reverse=True):
        of_step = records_of_step(current, step)
        intact = (
            any(reader.read(record) is not None for record in records)
            for records in of_step.values()
        )
        if all(intact):
            yield step, {key: _agreed(key, of_key, preferred) for key, of_key in of_step.items()}


def _agreed(key: Key, records: list[Record], preferred: str | None) -> list[Record]:
    """The records of one block and step, the preferred slot's first, if slots agree on it."""
    ordered = sorted(records, key=lambda record: _slot_name(record) != preferred)
    latest: dict[str, Record] = {}
    for record in ordered:
        latest.setdefault(_slot_name(record), record)
    _check_agreement(key, list(latest.values()), preferred)
    return ordered


def newest_consistent(
    records_of: Mapping[Key, list[Record]],
    reader: PayloadReader,
    *,
    step: int | None = None,
    preferred: str | None = None,
) -> tuple[int, dict[Key, list[Record]]]:
    """The latest step of which every block is intact, with its records."""
    for complete, of_step in consistent_steps(records_of, reader, preferred):
        if step is None or step == complete:
            return complete, of_step
    steps = sorted({r.header.step for records in records_of.values() for r in records})
    span = f"{steps[0]} to {steps[-1]}" if steps else "none"
    what = "no step has" if step is None else f"step {step} has not"
    raise CheckpointError(
        f"{what} an intact copy of every block (blocks are of steps: {span}); restore the "
        f"newest of each block (mode 'newest', a composite), or an earlier full checkpoint"
    )


def good_payloads(
    records_of: Mapping[Key, list[Record]], reader: PayloadReader, checkpoint: OpenCheckpoint
) -> Iterator[tuple[Key, Record | None, memoryview | None]]:
    """Each block with its best good record, in the order of the files.

    A bad record is noted in `checkpoint.damaged` and the next is tried; (key, None, None): none is
    good.
    """
    every = (records for slot in checkpoint.slots for records in slot.records.values())
    is_rolled_back = rolled_back(every)
    ordered = sorted(records_of.items(), key=lambda item: _file_order(item[1], is_rolled_back))
    firsts = read_ahead([records[0] for _, records in ordered if records], check=reader.check)
    for key, records in ordered:
        good: Record | None = None
        payload: memoryview | None = None
        for tried, record in enumerate(records):
            payload = reader.read(record) if tried else next(firsts)[1]
            if payload is not None:
                good = record
                break
            checkpoint.damaged.append(bad_record(_slot_name(record), record))
        yield key, good, payload


def _file_order(
    records: list[Record], is_rolled_back: Callable[[Record], bool]
) -> tuple[int, int, str, int]:
    # Regions that overlap (other world sizes, other blocks) are applied oldest step first, so that
    # the newest stays; steps that the run went back behind are older than any other.
    if not records:
        return (-1, 0, "", 0)
    best = records[0]
    offset = best.file.places.offset(best.block, best.place)
    return (not is_rolled_back(best), best.header.step, str(best.file.path), offset)


_DEPTH = 4  # payloads in flight: enough to hide a slow one, few enough for the shared cache
_THREADED_FROM_BYTES = 1 << 18


def read_ahead(
    records: Iterable[Record], *, check: bool = True
) -> Iterator[tuple[Record, memoryview | None]]:
    """Each record with its payload, or None where that is short or fails its checksum.

    The memory is overwritten once the next ones have been asked for: copy it before.
    """
    inline = PayloadReader(check=check)
    if not check or _cores() == 1:
        yield from ((record, inline.read(record)) for record in records)
        return
    readers = [PayloadReader(check=False) for _ in range(_DEPTH)]
    in_flight: deque[tuple[Record, memoryview | None, Future[bool]]] = deque()
    with ThreadPoolExecutor(1, "ettr-check") as checker:
        for number, record in enumerate(records):
            small = record.header.payload_bytes < _THREADED_FROM_BYTES
            # In order: what was read before a small one is returned before it.
            while in_flight and (small or len(in_flight) == _DEPTH - 1):
                yield _checked(*in_flight.popleft())
            if small:
                yield record, inline.read(record)
            else:
                payload = readers[number % _DEPTH].read(record)
                in_flight.append((record, payload, checker.submit(_is_good, record, payload)))
        while in_flight:
            yield _checked(*in_flight.popleft())


def _is_good(record: Record, payload: memoryview | None) -> bool:
    digest = digest_function(record.file.superblock.checksum)
    return payload is not None and digest(payload) == record.header.payload_sum


def _checked(
    record: Record, payload: memoryview | None, check: Future[bool]
) -> tuple[Record, memoryview | None]:
    """The record with its payload; a checksum that the thread has not begun is computed here."""
    good = _is_good(record, payload) if check.cancel() else check.result()
    return record, payload if good else None


def _cores() -> int:
    return len(os.sched_getaffinity(0))


# -- Saved tensors under other names: a module that was renamed, wrapped or unwrapped -------------

_FACTOR = "#"  # before the name of a moment with blocks of its own


def live_name(saved: str, rename: Mapping[str, str]) -> str:
    """The name that a saved tensor has now.

    Args:
        rename: names, or beginnings of names up to a dot (`""`: of all), each with what it is now.
    """
    name, mark, factor = saved.partition(_FACTOR)
    fitting = [old for old in rename if old in ("", name) or name.startswith(f"{old}.")]
    if not fitting:
        return saved
    old = max(fitting, key=len)
    rest = name[len(old) :].removeprefix(".")
    return ".".join(filter(None, (rename[old], rest))) + mark + factor


def check_rename(saved: Iterable[str], rename: Mapping[str, str]) -> None:
    """Pass if each entry names a saved tensor, and no two tensors get one name."""
    names = set(saved)
    now: dict[str, str] = {}
    for name in sorted(names):
        new = live_name(name, rename)
        if now.setdefault(new, name) != name:
            raise UsageError(f"rename: {now[new]} and {name} would both be {new}")
    for old in rename:
        if old and not any(
            name == old or name.startswith((f"{old}.", f"{old}#")) for name in names
        ):
            raise UsageError(f"rename: no saved tensor is called {old!r}, or begins so")


def rename_for(saved: Mapping[str, object], live: Mapping[str, object]) -> dict[str, str]:
    """The `rename` with which saved tensors that have no place may fit live ones; empty: none."""
    rename: dict[str, str] = {}
    left, free = dict(saved), dict(live)
    while left:
        votes: dict[tuple[str, str], int] = {}
        for one, shape in left.items():
            for other in (name for name, of_name in free.items() if of_name == shape):
                for pair in _beginnings(one, other):
                    votes[pair] = votes.get(pair, 0) + 1
        if not votes:
            break
        # the most tensors at once, by the shortest names
        old, new = max(votes, key=lambda pair: (votes[pair], -len(pair[1]), -len(pair[0])))
        rename[old] = new
        taken = {name: live_name(name, {old: new}) for name in left}
        taken = {name: now for name, now in taken.items() if now in free and now != name}
        left = {name: shape for name, shape in left.items() if name not in taken}
        free = {name: shape for name, shape in free.items() if name not in taken.values()}
    return rename


def _beginnings(saved: str, live: str) -> list[tuple[str, str]]:
    """What may have been renamed to make a live name of a saved one."""
    old, new = saved.split("."), live.split(".")
    if old[:-1] == new[:-1]:
        return [(saved, live)]
    same = 0
    while same < min(len(old), len(new)) and old[-1 - same] == new[-1 - same]:
        same += 1
    if not same:
        return []
    return [(".".join(old[: len(old) - same]), ".".join(new[: len(new) - same]))]
