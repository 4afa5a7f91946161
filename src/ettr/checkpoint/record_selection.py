"""Which record stands for each block: the newest of each, or all of one step.

Blocks of several slots, generations and world sizes meet here; they are keyed by global
coordinates, so that any layout can be restored into any other.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.extra_state import Extra, decode
from ettr.checkpoint.layout import EXTRA, RESERVED, Key
from ettr.checkpoint.prefetch import read_ahead
from ettr.checkpoint.resharding import superseded
from ettr.checkpoint.slot_reader import (
    BadBlock,
    PayloadReader,
    Record,
    Slot,
    bad_record,
    open_slot,
    slot_names,
)

MODES = ("newest", "consistent")


@dataclass(slots=True)
class OpenCheckpoint:
    """Open slots; close it by leaving its ExitStack.

    superseded: files of an earlier world that count no more (`succession`).
    """

    slots: list[Slot]
    bad: list[BadBlock] = field(default_factory=list)
    superseded: frozenset[Path] = frozenset()


def open_source(stack: ExitStack, root: str | os.PathLike[str], slot: str | None) -> OpenCheckpoint:
    """Open one slot, or all of a root.

    Raises:
        CheckpointError: there is no such slot.
    """
    names = slot_names(root)
    if slot is not None:
        if slot not in names:
            raise CheckpointError(f"{root}: no slot {slot!r}; there are: {', '.join(names)}")
        names = [slot]
    slots = [stack.enter_context(open_slot(root, name)) for name in names]
    source = OpenCheckpoint(slots, superseded=superseded(slots) if len(slots) > 1 else frozenset())
    for opened in slots:
        source.bad += opened.torn
    return source


def candidates(source: OpenCheckpoint) -> dict[Key, list[Record]]:
    """The records of each block of a tensor, the best first.

    Within a slot the latest round wins, also where it is of an earlier step: the run went back.
    Between slots that hold the same block (replicas, or an earlier world size) the later step does;
    records of a world that was superseded are left out.
    """
    merged: dict[Key, list[list[Record]]] = {}
    for slot in source.slots:
        for key, every in slot.records.items():
            records = [r for r in every if r.file.path not in source.superseded]
            if records and key[0] not in RESERVED:
                merged.setdefault(key, []).append(records)
    return {
        key: [
            record
            for records in sorted(lists, key=lambda r: r[0].header.step, reverse=True)
            for record in records
        ]
        for key, lists in merged.items()
    }


def reserved(
    source: OpenCheckpoint, slot: Slot, name: str, reader: PayloadReader
) -> Iterator[tuple[Record, memoryview]]:
    """The whole records of a slot's reserved block, the latest first; bad ones are noted."""
    records = [
        r
        for key, of_key in slot.records.items()
        if key[0] == name
        for r in of_key
        if r.file.path not in source.superseded
    ]
    for record in sorted(records, key=lambda r: r.order, reverse=True):
        payload = reader.read(record)
        if payload is None:
            source.bad.append(bad_record(slot.name, record))
        else:
            yield record, payload


def extras_of(source: OpenCheckpoint, *, at_most: int | None = None) -> dict[str, Extra]:
    """Slot -> what it was last given as `extra`; left out: given nothing, or superseded.

    Args:
        at_most: only what belongs to this step or an earlier one.
    """
    found: dict[str, Extra] = {}
    reader = PayloadReader()
    for slot in source.slots:
        for record, payload in reserved(source, slot, EXTRA, reader):
            version = record.file.superblock.version
            extra = decode(payload, version=version, step=record.header.step)
            if at_most is None or extra.step <= at_most:
                found[slot.name] = extra
                break
    return found


def common_steps(found: dict[Key, list[Record]]) -> list[int]:
    """Steps of which every block has a record (by its header), the latest first."""
    steps: set[int] | None = None
    for records in found.values():
        own = {record.header.step for record in records}
        steps = own if steps is None else steps & own
    return sorted(steps or (), reverse=True)


def of_step(found: dict[Key, list[Record]], step: int) -> dict[Key, list[Record]]:
    """Only the records of one step, those of a slot all written by one process.

    A process that took the slot over may have done that step again, with another outcome: of each
    slot the latest generation counts that wrote all of its blocks then.
    """
    own = {
        key: [record for record in records if record.header.step == step]
        for key, records in found.items()
    }
    wrote: dict[Path, set[int]] = {}
    for records in own.values():
        by_slot: dict[Path, set[int]] = {}
        for record in records:
            by_slot.setdefault(record.file.path.parent, set()).add(record.header.generation)
        for folder, generations in by_slot.items():
            wrote[folder] = wrote.get(folder, generations) & generations
    chosen = {folder: max(generations, default=-1) for folder, generations in wrote.items()}
    return {
        key: [r for r in records if r.header.generation == chosen[r.file.path.parent]]
        for key, records in own.items()
    }


def left_behind(lists: Iterable[list[Record]]) -> Callable[[Record], bool]:
    """Whether a record is of a step that the run went back behind, in a later round of its slot.

    Args:
        lists: the records that are known, in any order.
    """
    rounds: dict[Path, dict[tuple[int, int], int]] = {}
    for records in lists:
        for record in records:
            rounds.setdefault(record.file.path.parent, {})[record.order] = record.header.step
    earliest_after: dict[tuple[Path, tuple[int, int]], float] = {}
    for folder, steps in rounds.items():
        earliest = math.inf
        for order in sorted(steps, reverse=True):
            earliest_after[folder, order] = earliest
            earliest = min(earliest, steps[order])
    return lambda r: r.header.step > earliest_after[r.file.path.parent, r.order]


def newest_common(
    found: dict[Key, list[Record]], reader: PayloadReader
) -> tuple[int, dict[Key, list[Record]]]:
    """The latest step of which every block is whole, with its records; payloads are checked.

    Steps that a run went back behind are not taken: they would be mixed with the same steps done
    anew.

    Raises:
        CheckpointError: there is none.
    """
    behind = left_behind(found.values())
    every = found
    found = {key: [r for r in records if not behind(r)] for key, records in every.items()}
    for step in common_steps(found):
        records = of_step(found, step)
        whole = (
            any(reader.read(record) is not None for record in of_key) for of_key in records.values()
        )
        if all(whole):
            return step, records
    steps = sorted({r.header.step for rs in every.values() for r in rs})
    span = f"{steps[0]} to {steps[-1]}" if steps else "none"
    raise CheckpointError(
        f"no step of which every block is whole (blocks are of steps: {span}); restore the newest "
        f"of each block (mode 'newest', a composite), or an earlier full checkpoint"
    )


def good_payloads(
    found: dict[Key, list[Record]], reader: PayloadReader, source: OpenCheckpoint
) -> Iterator[tuple[Key, Record | None, memoryview | None]]:
    """Each block with its best record that is whole, in the order of the files.

    A bad record is noted in `source.bad` and the next is tried; (key, None, None): none is whole.
    """
    behind = left_behind(records for slot in source.slots for records in slot.records.values())
    ordered = sorted(found.items(), key=lambda item: _file_order(item[1], behind))
    firsts = read_ahead((records[0] for _, records in ordered if records), check=reader.check)
    for key, records in ordered:
        good: Record | None = None
        payload: memoryview | None = None
        for tried, record in enumerate(records):
            payload = reader.read(record) if tried else next(firsts)[1]
            if payload is not None:
                good = record
                break
            source.bad.append(bad_record(_slot_of(source, record), record))
        yield key, good, payload


def _file_order(
    records: list[Record], behind: Callable[[Record], bool]
) -> tuple[int, int, str, int]:
    # Boxes that overlap (other world sizes, other blocks) are applied oldest step first, so that
    # the newest stays; steps that the run went back behind are older than any other.
    if not records:
        return (-1, 0, "", 0)
    best = records[0]
    offset = best.file.places.offset(best.block, best.place)
    return (not behind(best), best.header.step, str(best.file.path), offset)


def _slot_of(source: OpenCheckpoint, record: Record) -> str:
    return next((slot.name for slot in source.slots if record.file in slot.files), "")
