"""Restore a state from a running checkpoint, on any layout, trusting no unchecked byte.

The live shards are described, the record of each block is chosen, payloads are copied as they are
checked, step counts are settled, and objects are handed their states last.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ettr.checkpoint import restore_report as perturbations
from ettr.checkpoint.object_selection import ObjectChoice, choose_objects
from ettr.checkpoint.remote import at_hand
from ettr.checkpoint.restore_report import Perturbation, RestoredBlock, RestoreReport, first_names
from ettr.checkpoint.slots.durable_io import slot_folder, slot_of
from ettr.checkpoint.slots.layout import (
    RESERVED,
    Component,
    Key,
    Region,
    TensorSpec,
    difference,
    intersection,
    n_elements,
    region_of,
)
from ettr.checkpoint.slots.reader import BadBlock, PayloadReader, Record, superblock_of
from ettr.checkpoint.slots.record_selection import (
    MODES,
    OpenCheckpoint,
    candidates,
    consistent_steps,
    good_payloads,
    newest_consistent,
    object_records,
    objects_of,
    open_checkpoint,
    rename_for,
)
from ettr.checkpoint.state import State, TrainingState, as_state
from ettr.checkpoint.tensors.shards import (
    FACTOR,
    PARAM,
    Shard,
    as_tensor,
    copy_in_this_thread,
    former_factors,
    local_view,
    region_view,
    unpack_number,
)
from ettr.errors import CheckpointError, UsageError


class RestoreCoverage:
    """The regions restored of each component of each shard, and the numbers restored with them.

    Args:
        whole_run: the state is to be trained: saved moments of parameters that no optimizer has
            count as unused, and not only those that an optimizer has no place for.
    """

    def __init__(self, shards: Iterable[Shard], *, whole_run: bool = False) -> None:
        self._shards, self._whole_run = list(shards), whole_run
        self._regions: dict[tuple[int, str], list[Region]] = {}
        self._numbers: dict[tuple[int, str], float] = {}
        self._absent: dict[int, set[str]] = {}
        self._unused: set[str] = set()

    def add(self, shard: Shard, name: str, region: Region) -> None:
        """Note that a region of one component was restored."""
        self._regions.setdefault((id(shard), name), []).append(region)

    def is_largest(self, shard: Shard, name: str, value: float) -> bool:
        """Note a number of one component; returns whether it is the largest so far.

        Blocks of one tensor may be of several steps: the step count of the newest stays.
        """
        place = (id(shard), name)
        if place in self._numbers and value <= self._numbers[place]:
            return False
        self._numbers[place] = value
        return True

    def step_count(self) -> float | None:
        """The largest step count restored; None: there was none."""
        counts = [value for (_, name), value in self._numbers.items() if name == "step"]
        return max(counts, default=None)

    def missing(self) -> list[str]:
        """Names of the parameters of which some element was not restored."""
        return [
            shard.spec.fqn
            for shard in self._shards
            if self._n_covered(shard) < n_elements(shard.region)
        ]

    def restored_fraction(self) -> float:
        """Share of the elements of all parameters, of all ranks, that was restored."""
        parameters = [shard for shard in self._shards if shard.is_parameter]
        total = sum({s.spec.fqn: math.prod(s.spec.shape) for s in parameters}.values())
        return sum(self._n_covered(shard) for shard in parameters) / max(total, 1)

    def _n_covered(self, shard: Shard) -> int:
        return _n_covered(self._regions.get((id(shard), PARAM), []), shard)

    def note_unused(self, shard: Shard, name: str) -> None:
        """Note a saved moment for which there is no place in an optimizer."""
        if shard.optimizers or self._whole_run:
            self._unused.add(f"{name} of {shard.spec.fqn}")

    @property
    def unused_moments(self) -> list[str]:
        """Saved moments for which an optimizer has no place."""
        return sorted(self._unused)

    def note_absent(self, shard: Shard, name: str) -> None:
        """Note that a record of the shard did not hold this moment."""
        self._absent.setdefault(id(shard), set()).add(name)

    def note_uncovered(self) -> None:
        """Note the moments of parameters of which nothing was restored."""
        for shard in self._shards:
            if shard.optimizers and (id(shard), PARAM) not in self._regions:
                for component in shard.spec.components[1:]:
                    self.note_absent(shard, component.name)

    def reset_absent_moments(self, create: Callable[[], object]) -> list[str]:
        """Begin moments from zero that no record held; returns the parameters' names.

        Zero moments with a large step count would make the next update several times too long,
        for want of bias correction.

        Args:
            create: makes the optimizer create the moments that it has none of, from the parameters
                as they were restored.
        """
        in_factors = {shard.spec.fqn for shard in self._shards if FACTOR in shard.spec.fqn}
        for shard in self._shards:
            names = self._absent.get(id(shard), set())
            names -= {name for name in names if f"{shard.spec.fqn}{FACTOR}{name}" in in_factors}
        absent = [shard for shard in self._shards if self._absent.get(id(shard))]
        fresh = [
            shard
            for shard in absent
            if not any(
                (id(shard), component.name) in self._regions
                for component in shard.spec.components
                if component.name != PARAM
            )
        ]
        for shard in fresh:
            for optimizer in shard.optimizers:
                optimizer.state.pop(shard.tensor, None)
        if fresh:
            create()
        for shard in absent:
            if not any(optimizer.state.get(shard.tensor) for optimizer in shard.optimizers):
                continue  # the optimizer makes them at its next step, as it did at its first
            for component in shard.spec.components:
                name = component.name
                if name not in self._absent[id(shard)] or (id(shard), name) in self._regions:
                    continue
                if shard in fresh and name != "step":
                    continue
                if component.kind == "number":
                    shard.set_number(name, 0)
                else:
                    shard.tensor_value(name).zero_()
        return [shard.spec.fqn for shard in absent]


def _n_covered(regions: list[Region], shard: Shard) -> int:
    """Number of elements of a shard that lie in one of these regions, each within the shard."""
    left = [shard.region]
    for region in sorted(regions):
        left = [rest for part in left for rest in difference(part, region)]
    return n_elements(shard.region) - sum(map(n_elements, left))


# -- How a live state differs from what was saved, where nothing is damaged: tensor by tensor -----


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The tensors in which a state and a checkpoint differ."""

    added: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    gone: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    types: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    nothing_fits: bool = False

    def reasons(self, *, allow_missing: bool, cast: bool) -> list[str]:
        """Why a restore must not go on without being asked to, each with what it would take."""
        reasons = []
        if not allow_missing or self.nothing_fits:
            reasons += self._missing()
        if self.types and not cast:
            named = [
                f"{name}: {component} was saved as {before} and is {now} now"
                for name, (component, before, now) in self.types.items()
            ]
            reasons.append(
                f"{first_names(named, 3)}. Build them in the saved type, or give cast=True"
            )
        return reasons

    def _missing(self) -> list[str]:
        reasons = []
        if self.added:
            reasons.append(
                f"{len(self.added)} tensors were not saved and are in the model now "
                f"({first_names(list(self.added))})"
            )
        if self.gone:
            names = [f"{n}, tied to {self.tied[n]} now" if n in self.tied else n for n in self.gone]
            reasons.append(
                f"{len(names)} saved tensors have no place in the model ({first_names(names)})"
            )
        if self.shapes:
            named = [
                f"{name}: it was saved with shape {list(a)} and has {list(b)} now"
                for name, (a, b) in self.shapes.items()
            ]
            reasons.append(first_names(named))
        if not reasons:
            return []
        offers = []
        if rename := rename_for(self.gone, self.added):
            offers.append(f"rename={rename} if they are the same under other names")
        if not self.nothing_fits:
            offers.append("allow_missing=True to leave what differs as it is built")
        give = f". Build the model that was saved, or give {', or '.join(offers)}" if offers else ""
        return ["; ".join(reasons) + give]


def mismatch(
    checkpoint: OpenCheckpoint, state: State, live: Sequence[Shard], *, whole_run: bool
) -> Mismatch:
    """Compare a state with the latest layouts of the slots that are read.

    Where the layout of a damaged slot cannot be read, what it lacks says nothing of the model.
    """
    saved, everywhere = _saved_tensors(checkpoint)
    unread = any(slot.damaged and superblock_of(slot) is None for slot in checkpoint.slots)
    now = {shard.spec.fqn: shard.spec for shard in live if FACTOR not in shard.spec.fqn}
    both = [(saved[name], spec) for name, spec in now.items() if name in saved]
    gone: dict[str, tuple[int, ...]] = {}
    tied: dict[str, str] = {}
    if isinstance(state, TrainingState) and whole_run:
        aliases = state.tied_names()
        gone = {n: saved[n].shape for n in sorted(everywhere - state.tensor_names())}
        tied = {name: aliases[name] for name in gone if name in aliases}
    return Mismatch(
        {} if unread else {n: spec.shape for n, spec in now.items() if n not in saved},
        gone,
        {b.fqn: (a.shape, b.shape) for a, b in both if a.shape != b.shape},
        {b.fqn: kinds for a, b in both if (kinds := _types(a, b)) is not None},
        tied,
        nothing_fits=bool(now) and not unread and not any(a.shape == b.shape for a, b in both),
    )


def _saved_tensors(checkpoint: OpenCheckpoint) -> tuple[dict[str, TensorSpec], set[str]]:
    """The saved tensors by their names now, and those that each slot holds."""
    saved: dict[str, TensorSpec] = {}
    held: list[set[str]] = []
    for slot in checkpoint.slots:
        superblock = superblock_of(slot)
        if superblock is None or all(file.path in checkpoint.superseded for file in slot.files):
            continue
        specs = {checkpoint.live_name(spec.fqn): spec for spec in superblock.layout.tensors}
        specs = {name: spec for name, spec in specs.items() if FACTOR not in name}
        saved |= specs
        held.append(specs.keys() - RESERVED)
    return saved, set.intersection(*held) if held else set()


def _types(saved: TensorSpec, now: TensorSpec) -> tuple[str, str, str] | None:
    of_saved = {component.name: component for component in saved.components}
    for component in now.components:
        before = of_saved.get(component.name, component)
        if before.dtype != component.dtype and "number" not in (before.kind, component.kind):
            return component.name, before.dtype, component.dtype
    return None


# -- the restore itself --------------------------------------------------------------------------


def restore(
    root: str | os.PathLike[str],
    state: State | nn.Module | Mapping[str, object],
    *,
    slot: int | str | tuple[int, ...] | None = None,
    mode: str = "newest",
    step: int | None = None,
    objects_of: int | str | tuple[int, ...] | None = None,
    check: bool = True,
    allow_missing: bool = False,
    cast: bool = False,
    rename: Mapping[str, str] | None = None,
    reached_step: int | None = None,
    drill: bool = False,
) -> RestoreReport:
    """Copy a checkpoint into the live tensors of `state`; returns what was restored.

    The state may be sharded otherwise than it was saved: blocks are global regions. Moments are
    created where the optimizer has none; gradients stay. Objects get their state by
    `load_state_dict`, parameter groups their options. If this raises, the state may be half
    restored and must not be trained on.

    Args:
        root: the folder of a checkpoint, or the URL of a copy that `upload` has made of it.
        state: as for `RunningCheckpoint`.
        slot: read this slot only (a replaced rank reads its own), and of tensors that several
            ranks hold alike what the others have saved; None: all slots.
        mode: `newest`, each block's newest good copy (ages may differ); or `consistent`, the
            newest step of which every block has a good copy.
        step: with `consistent`: this step, or an error.
        objects_of: the slot that counts where all slots are read and differ, in objects or in
            tensors that no rank has a shard of (BatchNorm's under FSDP2); None: that is an error.
        check: False skips the checksums of payloads (to measure what they cost; never to train).
        allow_missing: go on where an element of a parameter or buffer is not covered, a shape
            differs, an object or a parameter group has no saved state, a saved moment has no place
            in the optimizer, or a saved tensor or object was not given to a state with an
            optimizer; the report names them.
        rename: saved names, or beginnings of names up to a dot (`""`: of all), with what they are
            now: `{"body": "trunk", "": "model"}`; the longest that fits counts.
        reached_step: step that the survivors have reached; with it the report says how stale the
            restored blocks are, and estimates ‖δ‖ (see `perturbation.estimated`).
        drill: the live values are those that count as lost: ‖δ‖ is measured against them instead.

    Raises:
        UsageError: no such mode, or `rename` does not fit.
        CheckpointError: no checkpoint, no consistent step, a value of another shape or type, or
            one that is not restored; an object that does not take its state.
    """
    given = RestoreOptions(
        slot, mode, step, objects_of, check, allow_missing, cast, rename, reached_step, drill
    )
    with at_hand(root) as folder:
        return restore_with(folder, state, given)[0]


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The options of `restore`; `own_slot` is that of `choose_objects`; a run `resumes` by them."""

    slot: int | str | tuple[int, ...] | None = None
    mode: str = "newest"
    step: int | None = None
    objects_of: int | str | tuple[int, ...] | None = None
    check: bool = True
    allow_missing: bool = False
    cast: bool = False
    rename: Mapping[str, str] | None = None
    reached_step: int | None = None
    drill: bool = False
    own_slot: str | None = None
    resumes: bool = False

    def is_whole_run(self, target: State) -> bool:
        """Whether nothing saved may be left out: a run that goes on saves over what it lacks."""
        return self.resumes or target.whole_run


def restore_with(
    root: str | os.PathLike[str],
    state: State | nn.Module | Mapping[str, object],
    options: RestoreOptions,
) -> tuple[RestoreReport, ObjectChoice]:
    """As `restore`, with what was chosen for each object."""
    begin = time.perf_counter()
    _check_mode(options.mode, options.step)
    target = as_state(state)
    not_made = _make_moments(target)
    before = [shard.parameter.clone() for shard in target.shards()] if options.drill else None
    with ExitStack() as stack:
        checkpoint, live, differs = _open(stack, root, target, options)
        plan = _plan(
            checkpoint, live, options, differs, objects=options.resumes or _has_objects(target)
        )
        objects = choose_objects(
            target,
            objects_of(checkpoint, plan.chosen),
            checkpoint.preferred,
            own_slot=options.own_slot,
            rename=options.rename,
            whole_run=options.is_whole_run(target),
        )
        if objects.reasons and not options.allow_missing:
            raise CheckpointError(
                f"{root}: {'; '.join(objects.reasons)}. Give what was saved, or "
                f"allow_missing=True to go on without"
            )
        coverage = RestoreCoverage(live, whole_run=options.is_whole_run(target))
        copied = _copy_all(plan, checkpoint, coverage, cast=options.cast)
        perturbation = _perturbation(checkpoint, copied, live, before, options.reached_step)
    if not options.allow_missing:
        if not_made is not None and coverage.unused_moments:
            raise not_made
        _raise_if_missing(root, coverage, checkpoint.damaged, target)
    fresh_moments = _settle_step_counts(target, coverage)
    objects.load(target)
    report = _report(
        plan,
        copied,
        coverage,
        objects,
        tuple(differs.gone),
        fell_back=tuple(replace(bad, lost=False) for bad in checkpoint.damaged),
        fresh_moments=fresh_moments,
        reached_step=options.reached_step,
        perturbation=perturbation,
        restore_s=time.perf_counter() - begin,
    )
    return report, objects


def restorable_steps(
    root: str | os.PathLike[str],
    state: State | nn.Module | Mapping[str, object],
    options: RestoreOptions,
) -> list[int]:
    """Steps that `restore` could take in mode `consistent`, the latest first, each checked."""
    target = as_state(state)
    _make_moments(target)
    with ExitStack() as stack:
        checkpoint, live, _ = _open(stack, root, target, options)
        names = {shard.spec.fqn for shard in live}
        records_of = _exact_records(
            checkpoint, names, objects=options.resumes or _has_objects(target)
        )
        complete = consistent_steps(records_of, PayloadReader(), checkpoint.preferred)
        allowed = options.allow_missing
        return [step for step, chosen in complete if allowed or _covers(chosen, live)]


def _open(
    stack: ExitStack, root: str | os.PathLike[str], target: State, options: RestoreOptions
) -> tuple[OpenCheckpoint, list[Shard], Mismatch]:
    """The checkpoint, and the live shards if it fits them; nothing is overwritten before."""
    slot, preferred = (_slot_name(root, one) for one in (options.slot, options.objects_of))
    live = target.shards()
    checkpoint = open_checkpoint(
        stack, root, slot, shared=_shared(live), preferred=preferred, rename=options.rename
    )
    if _create_saved_moments(checkpoint, live):
        live = target.shards()
    live += former_factors(live, {key[0] for one in checkpoint.slots for key in one.records})
    differs = mismatch(checkpoint, target, live, whole_run=options.is_whole_run(target))
    if reasons := differs.reasons(allow_missing=options.allow_missing, cast=options.cast):
        raise CheckpointError(f"{root}: {'. '.join(reasons)}")
    return checkpoint, live, differs


def _make_moments(target: State) -> CheckpointError | None:
    """Make the optimizer create its moments; the reason where it cannot: what was saved is made."""
    try:
        target.materialise()
    except CheckpointError as error:
        return error
    return None


def _create_saved_moments(checkpoint: OpenCheckpoint, live: Sequence[Shard]) -> bool:
    """Make saved moments that an optimizer of the same class lacks; whether there were any."""
    of_name = {shard.spec.fqn: shard for shard in live if shard.optimizers}
    made = False
    for slot in checkpoint.slots:
        superblock = superblock_of(slot)
        holders = superblock.layout.holders if superblock is not None else {}
        for spec in superblock.layout.tensors if superblock is not None and holders else ():
            fqn, _, factor = checkpoint.live_name(spec.fqn).partition(FACTOR)
            shard = of_name.get(fqn)
            if shard is None or (factor and f"{fqn}{FACTOR}{factor}" in of_name):
                continue
            held = {component.name for component in shard.spec.components}
            for component in spec.components:
                if factor:
                    whole = replace(component, name=factor, kind="whole", shape=spec.shape)
                    made |= shard.create(whole, holders.get(factor, ()))
                elif component.name not in held and component.name in holders:
                    made |= shard.create(component, holders[component.name])
    return made


def _shared(live: Sequence[Shard]) -> Callable[[Key], bool] | None:
    """Whether a block lies in a shard of which other ranks hold copies; None: there is none."""
    shards_of: dict[str, list[Shard]] = {}
    for shard in live:
        if shard.replica[1] > 1:
            shards_of.setdefault(shard.spec.fqn, []).append(shard)
    if not shards_of:
        return None
    return lambda key: any(
        intersection(region_of(*key[1:]), shard.region) for shard in shards_of.get(key[0], ())
    )


def _covers(keys: Iterable[Key], live: Sequence[Shard]) -> bool:
    """Whether blocks cover every element of the live shards."""
    coverage = RestoreCoverage(live)
    of_name: dict[str, list[Shard]] = {}
    for shard in live:
        of_name.setdefault(shard.spec.fqn, []).append(shard)
    for name, offsets, sizes in keys:
        for shard in of_name.get(name, ()):
            region = intersection(region_of(offsets, sizes), shard.region)
            if region is not None:
                coverage.add(shard, PARAM, region)
    return not coverage.missing()


def _check_mode(mode: str, step: int | None) -> None:
    if mode not in MODES:
        raise UsageError(f"mode: {mode!r} was given; give one of {', '.join(MODES)}")
    if step is not None and mode != "consistent":
        raise UsageError(
            f"step: {step} was given; that needs mode='consistent', and it is {mode!r}"
        )


def _slot_name(
    root: str | os.PathLike[str], slot: int | str | tuple[int, ...] | None
) -> str | None:
    return None if slot is None else slot_of(slot_folder(root, slot))


def _has_objects(target: State) -> bool:
    return bool(target.objects() or target.groups())


@dataclass(frozen=True, slots=True)
class _RestorePlan:
    """The records to try for each block, and the regions of live shards that the block lies in.

    chosen: in mode `consistent`, the records of its step, those of objects too; None in `newest`.
    """

    reader: PayloadReader
    chosen: Mapping[Key, list[Record]] | None
    records_of: Mapping[Key, list[Record]]
    targets_of: Mapping[Key, list[tuple[Shard, Region]]]


def _exact_records(
    checkpoint: OpenCheckpoint, names: Container[str], *, objects: bool
) -> dict[Key, list[Record]]:
    """The records that must all be of one step for an exact restore."""
    records_of = candidates(checkpoint)
    of_model = {key: records for key, records in records_of.items() if key[0] in names}
    return {**of_model, **(object_records(checkpoint) if objects else {})}


def _plan(
    checkpoint: OpenCheckpoint,
    live: Sequence[Shard],
    options: RestoreOptions,
    differs: Mismatch,
    *,
    objects: bool,
) -> _RestorePlan:
    reader = PayloadReader(check=options.check)
    shards_of: dict[str, list[Shard]] = {}
    for shard in live:
        if shard.spec.fqn.partition(FACTOR)[0] not in differs.shapes:  # those stay as they are
            shards_of.setdefault(shard.spec.fqn, []).append(shard)
    chosen = None
    if options.mode == "consistent":
        exact = _exact_records(checkpoint, shards_of, objects=objects)
        _, chosen = newest_consistent(
            exact, reader, step=options.step, preferred=checkpoint.preferred
        )
    records_of = candidates(checkpoint) if chosen is None else chosen
    targets_of: dict[Key, list[tuple[Shard, Region]]] = {}
    for key in records_of:
        stored = region_of(*key[1:])
        for shard in shards_of.get(key[0], ()):
            region = intersection(stored, shard.region)
            if region is not None:
                targets_of.setdefault(key, []).append((shard, region))
    in_state = {key: records for key, records in records_of.items() if key in targets_of}
    return _RestorePlan(reader, chosen, in_state, targets_of)


def _copy_all(
    plan: _RestorePlan, checkpoint: OpenCheckpoint, coverage: RestoreCoverage, *, cast: bool
) -> dict[Key, RestoredBlock]:
    """Copy every block that has a good record; what was copied of each, and the record."""
    copied: dict[Key, RestoredBlock] = {}
    with torch.no_grad():
        for key, record, payload in good_payloads(plan.records_of, plan.reader, checkpoint):
            if record is None or payload is None:
                continue
            targets = plan.targets_of[key]
            for shard, region in targets:
                _copy_block(record, payload, shard, region, coverage, cast=cast)
            others = [other for other in plan.records_of[key] if other is not record]
            share = sum(n_elements(region) for _, region in targets) / max(math.prod(key[2]), 1)
            copied[key] = RestoredBlock(record, others, targets, share)
    return copied


def _copy_block(
    record: Record,
    payload: memoryview,
    shard: Shard,
    region: Region,
    coverage: RestoreCoverage,
    *,
    cast: bool,
) -> None:
    layout = record.file.superblock.layout
    _, offsets, sizes = layout.key(record.block)
    live = _live_components(record, shard, cast=cast)
    absent = set(live)
    for component, at, n_bytes in layout.components(record.block):
        if component.name not in live:
            coverage.note_unused(shard, component.name)
            continue
        absent.discard(component.name)
        data = payload[at : at + n_bytes]
        if component.kind == "number":
            _copy_number(shard, component, data, coverage)
        elif component.kind == "whole":
            _copy_whole(shard, component, data, coverage)
        else:
            stored = as_tensor(data, component.dtype, sizes)
            target = local_view(shard.tensor_value(component.name), shard, region)
            copy_in_this_thread(target, region_view(stored, offsets, region))
        coverage.add(shard, component.name, region)
    for name in absent:
        # Saved before the optimizer had moments: those of this region start from zero.
        coverage.note_absent(shard, name)
        if live[name].kind == "sliced":
            local_view(shard.tensor_value(name), shard, region).zero_()


def _live_components(record: Record, shard: Shard, *, cast: bool) -> dict[str, Component]:
    """The components of a shard by name, if those of the record fit them."""
    layout = record.file.superblock.layout
    saved = layout.tensors[layout.blocks[record.block].tensor]
    if saved.shape != shard.spec.shape:
        raise CheckpointError(
            f"{saved.fqn}: it was saved with shape {list(saved.shape)} and has "
            f"{list(shard.spec.shape)} now; build the model that was saved, or give a new run a "
            f"folder of its own"
        )
    live = {component.name: component for component in shard.spec.components}
    for component in saved.components:
        now = live.get(component.name, component)
        if now.kind != component.kind:
            raise CheckpointError(
                f"{saved.fqn}: {component.name} was saved as {component.kind} and is {now.kind} "
                f"now; build the same optimizer as the saved run's"
            )
        if now.dtype != component.dtype and component.kind != "number" and not cast:
            raise CheckpointError(
                f"{saved.fqn}: {component.name} was saved as {component.dtype} and is {now.dtype} "
                f"now; build it in the saved type, or give cast=True to convert"
            )
    return live


def _copy_number(
    shard: Shard, component: Component, data: memoryview, coverage: RestoreCoverage
) -> None:
    value = unpack_number(component, data)
    # Blocks of one tensor may be of several steps, and come oldest first: the newest stays.
    if component.name != "step" or coverage.is_largest(shard, component.name, value):
        shard.set_number(component.name, value)


def _copy_whole(
    shard: Shard, component: Component, data: memoryview, coverage: RestoreCoverage
) -> None:
    target = shard.tensor_value(component.name)
    if target.shape != component.shape:
        raise CheckpointError(
            f"{shard.spec.fqn}: {component.name} was saved with shape {list(component.shape)} and "
            f"has {list(target.shape)} now; restore it on the number of ranks that saved it"
        )
    stored = as_tensor(data, component.dtype, component.shape).to(target.dtype)
    if component.name != "step" or coverage.is_largest(shard, component.name, float(stored)):
        target.copy_(stored)


def _perturbation(
    checkpoint: OpenCheckpoint,
    copied: Mapping[Key, RestoredBlock],
    live: Sequence[Shard],
    before: Sequence[Tensor] | None,
    reached_step: int | None,
) -> Perturbation | None:
    if before is not None:
        return perturbations.measured(live, before)
    if reached_step is not None:
        return perturbations.estimated(checkpoint, copied, live, reached_step)
    return None


def _raise_if_missing(
    root: str | os.PathLike[str],
    coverage: RestoreCoverage,
    damaged: Sequence[BadBlock],
    target: State,
) -> None:
    if missing := coverage.missing():
        reason = ""
        if damaged:
            reason = f"; {len(damaged)} damaged places were found (the first: {damaged[0].reason})"
        raise CheckpointError(
            f"{root}: {len(missing)} tensors are not covered by intact blocks "
            f"({first_names(missing)}){reason}; restore an earlier full checkpoint, or give "
            f"allow_missing=True to go on without them"
        )
    if unused := coverage.unused_moments:
        given = bool(target.groups())
        build = "build the same optimizer as the saved run's" if given else "add it to the state"
        raise CheckpointError(
            f"{root}: {len(unused)} saved moments have no place in "
            f"{'the optimizer' if given else 'the state, for it holds no optimizer'} "
            f"({first_names(unused)}); {build}, or give allow_missing=True to go on without them"
        )


def _settle_step_counts(target: State, coverage: RestoreCoverage) -> list[str]:
    """Set the step counts that no record held; names of parameters with reset moments."""
    step_count = coverage.step_count()
    if step_count is not None:
        target.set_step_of_empty_shards(step_count)
    coverage.note_uncovered()
    return coverage.reset_absent_moments(lambda: _make_moments(target))


def _report(
    plan: _RestorePlan,
    copied: Mapping[Key, RestoredBlock],
    coverage: RestoreCoverage,
    objects: ObjectChoice,
    unused: tuple[str, ...],
    *,
    fell_back: tuple[BadBlock, ...],
    fresh_moments: Sequence[str],
    reached_step: int | None,
    perturbation: Perturbation | None,
    restore_s: float,
) -> RestoreReport:
    headers = [block.record.header for block in copied.values()]
    steps = [header.step for header in headers]
    return RestoreReport(
        blocks=len(steps),
        known_blocks=len(plan.records_of),
        restored_bytes=sum(header.payload_bytes for header in headers),
        oldest_step=min(steps, default=None),
        newest_step=max(steps, default=None),
        fell_back=fell_back,
        missing=tuple(coverage.missing()),
        fresh_moments=tuple(fresh_moments),
        restore_s=restore_s,
        objects=tuple(objects.record_of),
        objects_step=objects.step,
        missing_objects=objects.missing,
        unused_objects=objects.unused,
        restored_fraction=coverage.restored_fraction(),
        mean_step=sum(steps) / len(steps) if steps else None,
        reached_step=reached_step,
        perturbation=perturbation,
        unused_moments=tuple(coverage.unused_moments),
        unused_tensors=unused,
        replaced_options=objects.replaced_options,
    )
