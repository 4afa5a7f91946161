"""Check every byte of a running checkpoint without a model, and read the ages of its blocks.

Standard library only (and `xxhash` where the checkpoint was written with it).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ettr.checkpoint.remote import at_hand
from ettr.checkpoint.slots.layout import RESERVED, Key
from ettr.checkpoint.slots.reader import (
    BadBlock,
    PayloadReader,
    Slot,
    bad_record,
    open_slot,
    record_at,
    slot_names,
    superseded,
)
from ettr.files import write_text

_SECOND_LOOKS = 3


@dataclass(frozen=True, slots=True)
class BlockAge:
    """The step of a block's newest record; None: the block has none."""

    slot: str
    fqn: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    step: int | None


@dataclass(frozen=True, slots=True)
class Survey:
    """The ages of the blocks of a running checkpoint, and the slots that are not read any more.

    Attributes:
        superseded_slots: Slots of a job of another number of ranks. They may be removed, and have
            no ages here, which would grow without end.
    """

    ages: list[BlockAge]
    superseded_slots: tuple[str, ...]


def verify(root: str | os.PathLike[str]) -> list[BadBlock]:
    """Every place of every slot that cannot be trusted; an empty list: all are good.

    Reads every record of every generation, the older copies included; `root` may be the URL of a
    copy in object storage.

    Raises:
        CheckpointError: there is no running checkpoint below `root`.
    """
    bad: list[BadBlock] = []
    with at_hand(root) as folder:
        for name in slot_names(folder):
            with open_slot(folder, name) as slot:
                bad += _verify_slot(slot)
    return bad


def _verify_slot(slot: Slot) -> list[BadBlock]:
    reader = PayloadReader()
    good: set[Key] = set()
    damaged = list(slot.damaged)
    for key, records in slot.records.items():
        for record in records:
            if reader.read(record) is None:
                damaged.append(bad_record(slot.name, record))
            else:
                good.add(key)
    bad_keys = {(bad.fqn, bad.offsets, bad.sizes) for bad in damaged if bad.fqn}
    good |= _good_by_now(slot, bad_keys - good, reader)
    return [
        bad if not bad.fqn else replace(bad, lost=(bad.fqn, bad.offsets, bad.sizes) not in good)
        for bad in damaged
    ]


def _good_by_now(slot: Slot, keys: set[Key], reader: PayloadReader) -> set[Key]:
    """Which blocks have a good record on a second look."""
    good: set[Key] = set()
    for file in slot.files[:1]:
        layout = file.superblock.layout
        for block in range(len(layout.blocks)):
            if layout.key(block) in keys:
                # in vain where that place is written just now: then the other one is whole
                tried = (record_at(file, block, place) for place in (0, 1) * _SECOND_LOOKS)
                if any(record and reader.read(record) is not None for record in tried):
                    good.add(layout.key(block))
    return good


def block_ages(root: str | os.PathLike[str], *, slot: str | None = None) -> list[BlockAge]:
    """The step of each block's newest record by its header; see `survey`.

    Args:
        slot: only this slot, whatever the others have superseded; no other is opened.
    """
    if slot is None:
        return survey(root).ages
    if slot not in slot_names(root):
        return []
    with open_slot(root, slot) as opened:
        return _ages_of(opened)


def survey(root: str | os.PathLike[str]) -> Survey:
    """The ages of all blocks, by the headers of their records (payloads are not read).

    Raises:
        CheckpointError: there is no running checkpoint below `root`.
    """
    with ExitStack() as stack:
        slots = [stack.enter_context(open_slot(root, name)) for name in slot_names(root)]
        superseded_files = superseded(slots)
        ages: list[BlockAge] = []
        superseded_slots: list[str] = []
        for slot in slots:
            if slot.files and all(file.path in superseded_files for file in slot.files):
                superseded_slots.append(slot.name)
            else:
                ages += _ages_of(slot)
    return Survey(ages, tuple(superseded_slots))


def _keys(slot: Slot) -> Iterable[Key]:
    # Blocks of the latest generation's layout; earlier ones may be of another world size.
    for file in slot.files[:1]:
        layout = file.superblock.layout
        yield from (
            key for key in map(layout.key, range(len(layout.blocks))) if key[0] not in RESERVED
        )


def _ages_of(slot: Slot) -> list[BlockAge]:
    newest = {key: records[0].header.step for key, records in slot.records.items() if records}
    return [BlockAge(slot.name, *key, newest.get(key)) for key in _keys(slot)]


# -- Ages and damage of a checkpoint as metrics for Prometheus' textfile collector ----------------
#
# Standard library only.


def prometheus_text(
    ages: Iterable[BlockAge], *, step: int, bad: Iterable[BadBlock] = (), each_block: bool = False
) -> str:
    """Ages in the text format of Prometheus.

    Args:
        step: the step that the training has reached; ages are counted back from it.
        bad: findings of `verify`.
        each_block: a line for every block, in addition to those for every slot; a large model has
            thousands.
    """
    ages, bad = list(ages), list(bad)
    steps_of: dict[str, list[int]] = {age.slot: [] for age in ages}
    for age in ages:
        if age.step is not None:
            steps_of[age.slot].append(step - age.step)
    unsaved = Counter(age.slot for age in ages if age.step is None)
    damaged = Counter(finding.slot for finding in bad)
    lost = Counter(finding.slot for finding in bad if finding.lost)
    saved = {slot: steps for slot, steps in steps_of.items() if steps}
    slots = [*steps_of, *(slot for slot in damaged if slot not in steps_of)]
    oldest = {slot: max(steps) for slot, steps in saved.items()}
    mean = {slot: sum(steps) / len(steps) for slot, steps in saved.items()}
    families: tuple[tuple[str, str, Mapping[str, float]], ...] = (
        ("block_age_max_steps", "age of the oldest block, in training steps", oldest),
        ("block_age_mean_steps", "mean age of the blocks, in training steps", mean),
        ("blocks_unsaved", "blocks without any record", {s: unsaved[s] for s in steps_of}),
        ("records_damaged", "records that fail their checksum", {s: damaged[s] for s in slots}),
        (
            "records_lost",
            "damaged records whose block has no good one",
            {s: lost[s] for s in slots},
        ),
    )
    lines = [line for family in families for line in _family(*family)]
    if each_block:
        lines += _block_lines(ages, step)
    return "\n".join(lines) + "\n"


def write_metrics(path: str | os.PathLike[str], text: str) -> None:
    """Put the text of `prometheus_text` into a file at once: a collector never reads half of it."""
    write_text(Path(path), text)


def _family(name: str, text: str, values: Mapping[str, float]) -> list[str]:
    name = f"ettr_checkpoint_{name}"
    head = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    return head + [f'{name}{{slot="{slot}"}} {value:g}' for slot, value in sorted(values.items())]


def _block_lines(ages: Iterable[BlockAge], step: int) -> list[str]:
    name = "ettr_checkpoint_block_age_steps"
    lines = [
        f"# HELP {name} age of a block, in training steps; absent: no record",
        f"# TYPE {name} gauge",
    ]
    for age in ages:
        if age.step is not None:
            at = ",".join(map(str, age.offsets))
            labels = f'slot="{age.slot}",tensor="{_escaped(age.fqn)}",offsets="{at}"'
            lines.append(f"{name}{{{labels}}} {step - age.step}")
    return lines


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
