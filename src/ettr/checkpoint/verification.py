"""Check every byte of a running checkpoint without a model, and tell how old its blocks are.

Standard library only (and `xxhash` where the checkpoint was written with it).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ettr.checkpoint.layout import RESERVED, Key
from ettr.checkpoint.resharding import superseded
from ettr.checkpoint.slot_reader import (
    BadBlock,
    PayloadReader,
    Slot,
    bad_record,
    open_slot,
    slot_names,
)

__all__ = [
    "BadBlock",
    "BlockAge",
    "Survey",
    "block_ages",
    "prometheus_text",
    "survey",
    "verify",
    "write_metrics",
]


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
    """How old a running checkpoint is, and what of it counts no more.

    ages: of every block that is read. left_slots: slots that a job of another number of ranks has
    left; they may be removed, and have no ages, which would grow for ever.
    """

    ages: list[BlockAge]
    left_slots: tuple[str, ...]


def verify(root: str | os.PathLike[str]) -> list[BadBlock]:
    """Every place of every slot that cannot be trusted; an empty list: all is well.

    Reads every record of every generation, the older copies included.

    Raises:
        CheckpointError: there is no running checkpoint below `root`.
    """
    bad: list[BadBlock] = []
    for name in slot_names(root):
        with open_slot(root, name) as slot:
            bad += _verify_slot(slot)
    return bad


def _verify_slot(slot: Slot) -> list[BadBlock]:
    reader = PayloadReader()
    good: set[Key] = set()
    found = list(slot.torn)
    for key, records in slot.records.items():
        for record in records:
            if reader.read(record) is None:
                found.append(bad_record(slot.name, record))
            else:
                good.add(key)
    return [
        bad if not bad.fqn else replace(bad, lost=(bad.fqn, bad.offsets, bad.sizes) not in good)
        for bad in found
    ]


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
    """What can be read off the headers of a running checkpoint (payloads are not read).

    Raises:
        CheckpointError: there is no running checkpoint below `root`.
    """
    with ExitStack() as stack:
        slots = [stack.enter_context(open_slot(root, name)) for name in slot_names(root)]
        gone = superseded(slots)
        block_ages: list[BlockAge] = []
        left: list[str] = []
        for slot in slots:
            if slot.files and all(file.path in gone for file in slot.files):
                left.append(slot.name)
            else:
                block_ages += _ages_of(slot)
    return Survey(block_ages, tuple(left))


def _keys(slot: Slot) -> Iterable[Key]:
    # Blocks of the latest generation's layout; earlier ones may be of another world size.
    latest = slot.files[:1]
    for file in latest:
        layout = file.superblock.layout
        yield from (
            key for key in map(layout.key, range(len(layout.blocks))) if key[0] not in RESERVED
        )


def _ages_of(slot: Slot) -> list[BlockAge]:
    newest = {key: records[0].header.step for key, records in slot.records.items() if records}
    return [BlockAge(slot.name, *key, newest.get(key)) for key in _keys(slot)]


def prometheus_text(
    ages: Iterable[BlockAge],
    *,
    step: int,
    bad: Iterable[BadBlock] = (),
    each_block: bool = False,
) -> str:
    """Ages in the text format of Prometheus, for the textfile collector.

    Args:
        step: the step that the training has reached; ages are counted back from it.
        bad: findings of `verify`.
        each_block: a line for every block beside those for every slot; a large model has thousands.
    """
    ages = list(ages)
    by_slot: dict[str, list[int]] = {}
    unsaved: dict[str, int] = {}
    for age in ages:
        by_slot.setdefault(age.slot, [])
        unsaved.setdefault(age.slot, 0)
        if age.step is None:
            unsaved[age.slot] += 1
        else:
            by_slot[age.slot].append(step - age.step)
    lost: dict[str, int] = dict.fromkeys(by_slot, 0)
    damaged: dict[str, int] = dict.fromkeys(by_slot, 0)
    for finding in bad:
        damaged[finding.slot] = damaged.get(finding.slot, 0) + 1
        lost[finding.slot] = lost.get(finding.slot, 0) + finding.lost
    families = (
        (
            "block_age_max_steps",
            "age of the oldest block, in training steps",
            {slot: max(steps) for slot, steps in by_slot.items() if steps},
        ),
        (
            "block_age_mean_steps",
            "mean age of the blocks, in training steps",
            {slot: sum(steps) / len(steps) for slot, steps in by_slot.items() if steps},
        ),
        ("blocks_unsaved", "blocks without any record", unsaved),
        ("records_damaged", "records that fail their checksum", damaged),
        ("records_lost", "damaged records whose block has no good one", lost),
    )
    lines = []
    for family, text, values in families:
        name = f"ettr_checkpoint_{family}"
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        lines += [f'{name}{{slot="{slot}"}} {value:g}' for slot, value in sorted(values.items())]
    if each_block:
        lines += _lines_of_blocks(ages, step)
    return "\n".join(lines) + "\n"


def _lines_of_blocks(ages: Iterable[BlockAge], step: int) -> list[str]:
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


def write_metrics(path: str | os.PathLike[str], text: str) -> None:
    """Put the text of `prometheus_text` into a file at once: a collector never reads half of it."""
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
