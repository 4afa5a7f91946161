"""Which saved state each live object gets, and what is left over on either side."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch.optim import Optimizer

from ettr.checkpoint.slots.durable_io import slot_folder, slot_of
from ettr.checkpoint.slots.record_selection import (
    live_name,
    objects_of,
    open_checkpoint,
)
from ettr.checkpoint.state import State
from ettr.checkpoint.tensors.objects import (
    OBJECT,
    LiveGroup,
    ObjectRecord,
    RandomStates,
    load_groups,
    load_object,
    replaced_options,
    unmatched_groups,
)
from ettr.checkpoint.tensors.typed_values import SavedValues
from ettr.errors import CheckpointError, UsageError

PARAMETER_GROUPS = "parameter groups"  # their name where missing ones are listed


@dataclass(frozen=True, slots=True)
class ObjectChoice:
    """The saved state for each live object, and the options for the parameter groups."""

    record_of: Mapping[str, ObjectRecord] = field(default_factory=dict)
    group_options: Mapping[str, Mapping[str, Any]] | None = None
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    step: int | None = None
    replaced_options: tuple[str, ...] = ()

    def load(self, target: State) -> None:
        """Hand the states over: parameter groups first, then objects in their order."""
        if self.group_options is not None:
            load_groups(target.groups(), self.group_options)
        for name, one in target.objects().items():
            if name in self.record_of:
                load_object(name, one, self.record_of[name])


def choose_objects(
    target: State,
    records: Mapping[str, ObjectRecord],
    objects_slot: str | None,
    *,
    own_slot: str | None = None,
    rename: Mapping[str, str] | None = None,
    whole_run: bool = False,
) -> ObjectChoice:
    """Find the saved state of every live object.

    Args:
        own_slot: of this rank, after a resume by another number of ranks: its random states are
            taken; a rank that has none keeps those it was started with.
        whole_run: a saved object that is not given is a reason not to go on.
    """
    if objects_slot is not None and records:
        if objects_slot not in records:
            raise UsageError(
                f"objects_of: slot {objects_slot} holds no objects; those that do: "
                f"{', '.join(sorted(records)) or 'none'}"
            )
        records = {objects_slot: records[objects_slot]}
    record_of: dict[str, ObjectRecord] = {}
    missing, reasons = [], []
    for name, one in target.objects().items():
        of_random = own_slot if isinstance(one, RandomStates) else None
        record, reason = _holder(name, records, of_random)
        if record is not None:
            record_of[name] = record
        else:
            missing.append(name)
            reasons += [reason] if reason else []
    live_groups = target.groups()
    options = _group_options(records, rename or {}) if live_groups else None
    if options is not None:
        if unmatched := unmatched_groups(live_groups, options):
            missing.append(PARAMETER_GROUPS)
            reasons.append(
                f"the optimizer's options (learning rate, ...) of {len(unmatched)} parameters do "
                f"not fit its parameter groups ({', '.join(unmatched[:5])}): build the groups of "
                f"the saved run"
            )
    elif live_groups:
        missing.append(PARAMETER_GROUPS)
    whole, of_whole = _groups_of_objects(target, record_of)
    saved = {name for record in records.values() for name in record.names}
    unused = sorted(saved - set(target.objects()))
    if unused and whole_run:
        reasons.append(f"{', '.join(unused)}: saved, and not given to the restore")
    return ObjectChoice(
        record_of,
        options,
        tuple(missing),
        tuple(unused),
        tuple(reasons),
        max((record.step for record in records.values()), default=None),
        tuple(replaced_options([*live_groups, *whole], {**(options or {}), **of_whole})),
    )


def _groups_of_objects(
    target: State, record_of: Mapping[str, ObjectRecord]
) -> tuple[list[LiveGroup], dict[str, dict[str, Any]]]:
    """The groups of optimizers that are saved whole: as they are now, and as they were saved."""
    live, saved = [], {}
    for name, one in target.objects().items():
        if name in record_of and isinstance(one, Optimizer):
            before = record_of[name].state(name).get("param_groups", [])
            for number, (group, of_group) in enumerate(zip(one.param_groups, before, strict=False)):
                live.append(LiveGroup((f"{name} {number}",), group))
                saved[f"{name} {number}"] = of_group
    return live, saved


def _holder(
    name: str, records: Mapping[str, ObjectRecord], own_slot: str | None
) -> tuple[ObjectRecord | None, str]:
    """The record with the state of an object; or None, and why that is an error, if it is."""
    holders = {slot: one for slot, one in records.items() if (OBJECT, name) in one.items}
    if not holders:
        return None, f"object {name!r} was not saved"
    if own_slot is not None:
        return holders.get(own_slot), ""
    if len({(one.step, one.items[OBJECT, name]) for one in holders.values()}) > 1:
        return None, (
            f"slots {', '.join(sorted(holders))} hold different states of object {name!r}: give "
            f"slot=, or objects_of= the slot to take it from"
        )
    return next(iter(holders.values())), ""


def saved_objects(
    root: str | os.PathLike[str], *, slot: int | str | tuple[int, ...]
) -> dict[str, SavedValues]:
    """The latest state of each object of a slot by name, without the objects themselves.

    Raises:
        CheckpointError: there is no such slot.
    """
    with ExitStack() as stack:
        name = slot_of(slot_folder(root, slot))
        record = objects_of(open_checkpoint(stack, root, name)).get(name)
    if record is None:
        return {}
    return {name: SavedValues(record.step, record.state(name)) for name in record.names}


def _group_options(
    records: Mapping[str, ObjectRecord], rename: Mapping[str, str]
) -> dict[str, dict[str, Any]] | None:
    """Parameter -> the options of its group in the latest record that has it."""
    merged: dict[str, tuple[int, dict[str, Any]]] = {}
    any_saved = False
    for slot, record in records.items():
        options = record.group_options()
        any_saved |= options is not None
        for saved, of_name in (options or {}).items():
            name = live_name(saved, rename)
            known = merged.get(name)
            if known is not None and known[0] == record.step and known[1] != of_name:
                raise CheckpointError(
                    f"slot {slot} holds other options of the parameter group of {name} of step "
                    f"{record.step} than another slot; give slot=, or objects_of="
                )
            if known is None or record.step > known[0]:
                merged[name] = (record.step, of_name)
    return {name: of_name for name, (_, of_name) in merged.items()} if any_saved else None
