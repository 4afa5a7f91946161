"""Tensors that a checkpoint holds and the live state does not, such as adapters added later."""

from __future__ import annotations

from collections.abc import Iterable

from ettr.checkpoint.slots.layout import RESERVED
from ettr.checkpoint.slots.reader import Record, SlotFile
from ettr.checkpoint.state import State, TrainingState
from ettr.checkpoint.tensors.shards import FACTOR


def unused_tensors(state: State, records: Iterable[Record]) -> tuple[str, ...]:
    """Names of the saved tensors for which a run to be trained on has no place.

    None where the state has no optimizer: a part of a model may be looked at alone. What a slot
    held is in the newest of its files that gives a record. Of several slots only what all of them
    hold counts: a stage of a pipeline has no place for the other stages.

    Args:
        records: those that are to be restored.
    """
    if not isinstance(state, TrainingState) or not state.whole_run:
        return ()
    newest: dict[str, SlotFile] = {}
    for file in (record.file for record in records):
        slot = file.path.parent.name
        generation = file.superblock.generation
        if slot not in newest or generation > newest[slot].superblock.generation:
            newest[slot] = file
    held = [
        {spec.fqn.partition(FACTOR)[0] for spec in file.superblock.layout.tensors}
        for file in newest.values()
    ]
    if not held:
        return ()
    return tuple(sorted(set.intersection(*held) - RESERVED - state.tensor_names()))
