"""Bring a newly formed group to one state on which all ranks agree.

Every rank sends what it holds; from the same messages each computes the same choice, so that no
rank has to lead. Order: some memory (exact), the running checkpoint for the lost shards alone
(partial), a full checkpoint for all (rollback), the state as the script built it. Where no process
lives, a full checkpoint, or the running checkpoint for all shards (composite) if that was allowed.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ettr.checkpoint import (
    CheckedReader,
    CheckedWriter,
    CheckpointError,
    TrainingState,
    read_values,
    rng_state,
    set_rng_state,
    write_values,
)
from ettr.checkpoint.dcp import METADATA
from ettr.checkpoint.object_selection import PARAMETER_GROUPS, choose_objects
from ettr.checkpoint.retention import kept_root
from ettr.checkpoint.slots.reader import PayloadReader
from ettr.checkpoint.slots.record_selection import object_records, open_checkpoint
from ettr.checkpoint.tensors.objects import (
    GROUPS,
    ObjectRecord,
    encode_objects,
    pack_objects,
    unpack_objects,
)
from ettr.checkpoint.tensors.shards import local_tensor
from ettr.elastic.protection import Protection
from ettr.elastic.rank_inventory import Holdings, RankInventory, RecoveryReport
from ettr.elastic.rendezvous import Membership, RankMessages
from ettr.elastic.running_source import CopyAge, ModelShard, RunningSource
from ettr.elastic.shard_image import (
    OBJECTS,
    BuddyExchange,
    ObjectBuffer,
    ParityExchange,
    checksum_of,
    copied_parts,
    drifting_parts,
    fingerprint,
    image_bytes,
    put_image,
    put_parts,
    take_image,
)
from ettr.recovery import RecoverySource, Situation, decide, predicted_perturbation
from ettr.recovery.restore_costs import Measuring, interval_steps, read_timings

if TYPE_CHECKING:
    from ettr.elastic.elastic_group import ElasticGroup
    from ettr.elastic.torchrun import TorchrunGroup

# -- full checkpoints of one step, for rollback: DCP with a checksum for each tensor, no pickle ----
# Each rank's random state is saved with the tensors, so that a rollback draws what it drew before,
# and so are its objects and parameter groups. Each checkpoint has its folder, `step-<number>`; one
# whose saving was broken off has no metadata and is skipped. A step that is done again after a
# rollback is saved into its folder, where the earlier checkpoint remains until the new one is
# durable.


_N_KEPT = 2


def tensors_of(state: TrainingState) -> dict[str, Tensor]:
    """Parameters, buffers and moments by name: the live (sharded) tensors, for DCP in place.

    What is not sharded, a step count, is left out where the rank has no element of its parameter:
    such a count is never updated, and DCP saves one rank's for all.
    """
    tensors = dict(state.tensors)
    for prefix, model in state.models:
        before = f"{prefix}." if prefix else ""
        for name, value in get_model_state_dict(model).items():
            if isinstance(value, Tensor):
                tensors[f"{before}{name}"] = value
        for fqn, parameter in model.named_parameters():
            held = local_tensor(parameter).numel() > 0
            for name, value in _moments(state, parameter):
                if held or value.shape == parameter.shape:
                    tensors[f"{before}{fqn}#{name}"] = value
    return tensors


def _moments(state: TrainingState, parameter: Tensor) -> Iterator[tuple[str, Tensor]]:
    for moments in _held(state, parameter):
        for name, value in moments.items():
            if isinstance(value, Tensor):
                yield name, value


def _held(state: TrainingState, parameter: Tensor) -> list[dict[str, Any]]:
    return [part.state.get(parameter, {}) for parts in state.parts for part in parts]


def _numbers(state: TrainingState) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Moments that are Python numbers, such as step counts: name, what holds it, its key there."""
    for prefix, model in state.models:
        for fqn, parameter in model.named_parameters():
            for moments in _held(state, parameter):
                for key, value in moments.items():
                    if isinstance(value, int | float):
                        yield f"{prefix}.{fqn}#{key}", moments, key


def full_steps(root: Path) -> list[int]:
    """Steps of the complete checkpoints below a folder, the newest first."""
    if not root.is_dir():
        return []
    return sorted(
        (int(p.parent.name.removeprefix("step-")) for p in root.glob(f"step-*/{METADATA}")),
        reverse=True,
    )


def save_full(root: Path, step: int, state: TrainingState) -> None:
    """Save all ranks' state of one step; every rank calls it. The two newest are kept."""
    folder = kept_root(root, step)
    try:
        with _dcp_failures(f"no full checkpoint of step {step}"):
            dcp.state_dict_saver.save(
                tensors_of(state), storage_writer=_Writer(folder, step, state)
            )
    except CheckpointError:
        if dist.get_rank() == 0 and not (folder / METADATA).exists():
            shutil.rmtree(folder, ignore_errors=True)  # a full disk needs the room
        raise
    if dist.get_rank() == 0:
        _tidy(root, folder)


def load_full(root: Path, step: int, state: TrainingState) -> None:
    """Copy a full checkpoint into the live state and set the random states; every rank calls it.

    A rank that the saved job did not have keeps its random state, and takes objects that all ranks
    of that job had in the same state.
    """
    folder = kept_root(root, step)
    tensors = tensors_of(state)
    with _dcp_failures(f"full checkpoint of step {step}"):
        dcp.state_dict_loader.load(tensors, storage_reader=CheckedReader(folder))
    random_state = _random_state_of(folder, dist.get_rank())
    if random_state.exists():
        set_rng_state(read_values(random_state).values["rng"])
    for path in (random_state, *folder.glob("random-*")):
        if path.exists():
            numbers = read_values(path).values.get("numbers", {})
            for name, held, key in _numbers(state):
                held[key] = numbers.get(name, held[key])
            break
    if state.objects() or state.groups():
        _load_objects(state, folder)


def _load_objects(state: TrainingState, folder: Path) -> None:
    """Hand over the objects of this rank or, if the saved job had no such rank, those of all."""
    own = _random_state_of(folder, dist.get_rank())
    files = [own] if own.exists() else sorted(folder.glob("random-*"))
    records = {
        path.name: unpack_objects(values["objects"])
        for path in files
        if "objects" in (values := read_values(path).values)
    }
    choice = choose_objects(state, records, None)
    if choice.reasons or PARAMETER_GROUPS in choice.missing:
        reasons = "; ".join(choice.reasons) or "no parameter groups were saved"
        raise CheckpointError(f"{folder}: {reasons}")
    choice.load(state)


def _tidy(root: Path, newest: Path) -> None:
    """Remove what the newest checkpoint supersedes."""
    own = {_random_state_of(newest, rank) for rank in range(dist.get_world_size())}
    for of_others in set(newest.glob("random-*")) - own:
        of_others.unlink()  # of a larger world that had come as far
    kept = {kept_root(root, step) for step in full_steps(root)[:_N_KEPT]}
    for folder in root.glob("step-*"):
        # Older ones, and whatever a killed process has left of them; those of later steps, from
        # before a rollback, are overwritten when the run comes to them.
        if folder not in kept and folder.name < newest.name:
            shutil.rmtree(folder, ignore_errors=True)


class _Writer(CheckedWriter):
    """Also writes each rank's random state, so that DCP reports its failure to every rank."""

    def __init__(self, folder: Path, step: int, state: TrainingState) -> None:
        super().__init__(folder)
        self._step, self._state = step, state

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        objects = encode_objects(self._state.objects(), self._state.groups(), self._step)
        values = {"rng": rng_state(), **({"objects": objects} if objects else {})}
        values["numbers"] = {name: held[key] for name, held, key in _numbers(self._state)}
        write_values(_random_state_of(self.path, dist.get_rank()), values, self._step)
        return super().write_data(plan, planner)


@contextmanager
def _dcp_failures(what: str) -> Iterator[None]:
    # DCP's own is not an Exception: a handler of errors would let it end the process.
    try:
        yield
    except CheckpointException as error:
        causes = {rank: failure[0] for rank, failure in error.failures.items()}
        rank, cause = min(causes.items())
        message = f"{what}: rank {rank}: {cause}"
        if all(isinstance(one, CheckpointError | OSError) for one in causes.values()):
            raise CheckpointError(message) from error
        raise RuntimeError(message) from error


def _random_state_of(folder: Path, rank: int) -> Path:
    return folder / f"random-{rank:06d}"


# save_if_due <- Generation._guard <- Generation.update <- contextlib <- the script's `with`
_TO_THE_SCRIPT = 5


class FullSchedule:
    """Saves full checkpoints of one generation as they become due; every rank calls it alike."""

    def __init__(self, protection: Protection, slot: int, timings: Measuring, step: int) -> None:
        self._protection, self._slot, self._timings = protection, slot, timings
        # The next multiple, so that a replacement counts from where the others do.
        every = protection.full_every_steps
        self.due_step = (step // every + 1) * every
        self.stalls_s: list[float] = []

    def save_if_due(self, step: int, shard: ModelShard, *, stops: bool = False) -> None:
        """Save all ranks' state if a checkpoint is due; warn where it could not be written."""
        root = self._protection.full
        if root is None or (step < self.due_step and not stops):
            return
        begin_s = time.monotonic()
        try:
            save_full(root, step, shard.state)
            self.stalls_s.append(time.monotonic() - begin_s)
        except CheckpointError as error:
            # A full disk is no reason to end a run that has what it needs to go on.
            if self._slot == 0:
                warnings.warn(
                    f"{error}; earlier ones remain, training goes on", stacklevel=_TO_THE_SCRIPT
                )
        self.due_step = step + self._interval_steps()

    def _interval_steps(self) -> int:
        """Steps to the next full checkpoint; the first rank's measurements decide for all."""
        steps, mttf_s = self._protection.full_every_steps, self._protection.mttf_s
        if mttf_s is None or not self.stalls_s:
            return steps
        run = self._timings.run()
        stall_s = sum(self.stalls_s) / len(self.stalls_s)
        if run.step_s > 0:
            steps = interval_steps(replace(run, save_stall_s=stall_s), mttf_s=mttf_s)
        chosen = torch.tensor([steps], dtype=torch.int64)
        dist.broadcast(chosen, 0)
        return int(chosen)


# -- bring a newly formed group to one state on which all ranks agree ------------------------------


class Recovery:
    """One recovery of one rank; `run` returns the report."""

    def __init__(
        self,
        group: ElasticGroup | TorchrunGroup,
        membership: Membership,
        slot: int,
        messages: RankMessages,
        buddies: BuddyExchange | ParityExchange,
        parity_groups: tuple[tuple[int, ...], ...],
        shard: ModelShard,
    ) -> None:
        self._group, self._membership, self._slot = group, membership, slot
        self._messages, self._buddies, self._parity_groups = messages, buddies, parity_groups
        self._shard, self._pieces = shard, shard.pieces
        self._shards, self._protection = group.shards, group.protection
        # A rollback may need the state as it was built, and attempts before it overwrite it.
        self._built = shard.image()
        self._chosen_s = time.monotonic()
        root = self._protection.running
        self._running = (
            None if root is None else RunningSource(root, slot, group.shards, messages, shard)
        )

    def run(self) -> RecoveryReport:
        """Agree on a state, restore it and copy it; every rank of the generation calls it."""
        begin_s = time.monotonic()
        before = self._fingerprint_before()
        inventory = self._gather()
        report = self._resume(inventory) if inventory.whole_job else self._recover(inventory)
        self._copy_again(inventory, report)
        return replace(
            report,
            restore_s=time.monotonic() - begin_s,
            source_s=time.monotonic() - self._chosen_s,
            fingerprint_before=before,
            fingerprint_after=fingerprint(self._pieces) if self._group.fingerprints else None,
        )

    def _fingerprint_before(self) -> str | None:
        # Hashed before the rebuilt model takes it over: this is the shard as the failure left it.
        if self._shards.live is None or not self._group.fingerprints:
            return None
        put_parts(self._pieces, self._shards.live)
        return fingerprint(self._pieces)

    def _gather(self) -> RankInventory:
        shards, full = self._shards, self._protection.full
        ranks = self._messages.gather(
            "inventory",
            Holdings(
                live=self._live_step(),
                own=shards.own.steps,
                neighbour=shards.neighbour.steps,
                n_bytes=image_bytes(self._pieces),
                full=full_steps(full) if full else [],
                timed=self._group.timings.timed().to_dict(),
                noted=self._noted(),
                address=self._buddies.address,
                region=self._shard.region if self._protection.replicas else None,
                checksum=self._live_checksum(),
            ),
        )
        self._buddies.join(ranks)
        return RankInventory.of(ranks, self._membership.buddy_stride, self._parity_groups)

    def _live_checksum(self) -> int | None:
        """Of the live parameters and moments, which replicas hold alike."""
        live = self._shards.live
        if not self._protection.replicas or live is None:
            return None
        own = {OBJECTS, *(name for name, _ in drifting_parts(self._pieces))}
        return checksum_of(value for (name, _), value in live.items() if name not in own)

    def _noted(self) -> dict[str, Any] | None:
        """What a job of which no process lives has timed."""
        folder = self._protection.timings_folder
        noted = None if folder is None or not self._shards.empty else read_timings(folder)
        return None if noted is None else noted.to_dict()

    def _live_step(self) -> int | None:
        shards = self._shards
        if shards.live is None and shards.own.steps:
            # Saved by this slot's process before it ended: the shard without the process.
            step = shards.own.steps[0]
            put_image(self._pieces, shards.own.image_of(step))
            shards.live, shards.live_step = copied_parts(self._pieces), step
            put_image(self._pieces, self._built)
        return None if shards.live is None else shards.live_step

    def _recover(self, inventory: RankInventory) -> RecoveryReport:
        """Survivors live: from memory, the lost shards alone, or all from a full checkpoint."""
        common = inventory.common_step()
        ages: list[CopyAge] | None = None
        if common is None and inventory.apart <= 1:  # else no survivor's shard may stay as it is
            if not inventory.lost:
                return self._accept(inventory)
            if self._running is not None:
                ages = self._running.gather_ages(inventory)
        situation = _situation(inventory, common, ages)
        policy = self._protection.recovery
        decision = decide(situation, inventory.measured(policy), policy)
        self._chosen_s = time.monotonic()
        report = RecoveryReport(
            generation=self._membership.generation,
            source=str(decision.choice),
            step=inventory.reached,
            reached_step=inventory.reached,
            lost_slots=inventory.lost,
            decision=decision,
        )
        if (
            decision.choice is RecoverySource.REPLICA
            and common is not None
            and self._from_memory(inventory, common)
        ):
            return replace(report, step=common, source_bytes=inventory.lost_bytes)
        if decision.choice is RecoverySource.PARTIAL and self._running is not None:
            oldest = self._running.restore_lost(inventory)
            if oldest is not None:
                self._settle_objects(inventory.reached)
                return replace(
                    report,
                    stale_steps=situation.stale_steps,
                    oldest_step=oldest,
                    relative_perturbation=situation.relative_perturbation,
                    source_bytes=inventory.lost_bytes,
                )
        step = self._from_full(inventory)
        n_bytes = inventory.total_bytes if step else 0
        return replace(report, source=str(RecoverySource.ROLLBACK), step=step, source_bytes=n_bytes)

    def _accept(self, inventory: RankInventory) -> RecoveryReport:
        """Nothing was lost, no image is kept: shards that differ by one update go on together."""
        put_parts(self._pieces, self._shards.live or {})
        self._settle_objects(inventory.reached)
        return RecoveryReport(
            generation=self._membership.generation,
            source=str(RecoverySource.PARTIAL),
            step=inventory.reached,
            reached_step=inventory.reached,
        )

    def _settle_objects(self, reached_step: int) -> None:
        """Objects that lag behind take the state of a rank that does not, where they are alike."""
        if self._shard.objects is not None:
            settle_objects(
                self._shard.objects,
                self._messages,
                root=self._protection.running,
                slot=self._slot,
                reached_step=reached_step,
            )

    def _from_memory(self, inventory: RankInventory, step: int) -> bool:
        """Every rank to one step: its own memory, or its buddy's; whether all are whole."""
        shards, slot = self._shards, self._slot
        if self._protection.replicas:
            self._from_replicas(inventory, step)
            return True
        if held := inventory.has(slot, step):
            shards.put_back(self._pieces, step)
        whole = self._buddies.hand_back(self._pieces, inventory, step)
        if self._protection.parity:  # a tensor that something else than an update has changed
            ranks = self._messages.gather("rebuilt", whole)
            if not all(ranks):
                warnings.warn(
                    "a shard that was rebuilt from the parity is not the one that was lost: a "
                    "parameter or moment was changed outside of update(); another source is taken",
                    stacklevel=2,
                )
                return False
        if not held:
            shards.put_back(self._pieces, step)
        return True

    def _from_replicas(self, inventory: RankInventory, step: int) -> None:
        """Every rank that lacks a step from one that holds the same; survivors keep what drifts."""
        pieces = self._shard.tensor_pieces
        image = torch.empty(image_bytes(pieces), dtype=torch.uint8)
        self._shards.put_back(self._pieces, step)
        for receiver in range(inventory.world):
            if inventory.has(receiver, step):
                continue
            sender = next(o for o in inventory.replicas_of(receiver) if inventory.has(o, step))
            if self._slot == sender:
                take_image(pieces, image)
                dist.send(image, receiver)
            elif self._slot == receiver:
                dist.recv(image, sender)
                put_image(pieces, image)
                if self._shards.live is not None:  # it was a step behind
                    self._shards.put_drifting(self._pieces, step)
        self._settle_objects(step)

    def _from_full(self, inventory: RankInventory) -> int:
        """All ranks from the newest intact full checkpoint; 0: the state as it was built."""
        self._shards.drop_images()
        put_image(self._pieces, self._built)
        root = self._protection.full
        if root is None:
            return 0
        for step in inventory.full:
            failed = False
            try:
                load_full(root, step, self._shard.state)
                self._shard.capture_objects(step)
            except (CheckpointError, OSError) as error:
                failed = True
                warnings.warn(
                    f"full checkpoint of step {step}, slot {self._slot}: {error}; an earlier "
                    f"state is taken",
                    stacklevel=2,
                )
            if not any(self._messages.gather(f"full-{step}", failed)):
                return step
        put_image(self._pieces, self._built)
        return 0

    def _resume(self, inventory: RankInventory) -> RecoveryReport:
        """No process has lived: the composite, a full checkpoint, or the state as it was built."""
        report = RecoveryReport(
            generation=self._membership.generation,
            source="start",
            step=0,
            lost_slots=inventory.lost,
        )
        policy = self._protection.recovery
        composite = None
        if self._running is not None and RecoverySource.COMPOSITE in policy.allowed:
            composite = self._running.restore_all(inventory)
        if composite is not None:
            situation = composite.situation
            decision = decide(situation, inventory.measured(policy), policy)
            report = replace(report, reached_step=situation.reached_step, decision=decision)
            if decision.choice is RecoverySource.COMPOSITE:
                self._chosen_s = composite.began_s
                self._shards.drop_images()
                self._settle_objects(situation.reached_step)
                return replace(
                    report,
                    source=str(RecoverySource.COMPOSITE),
                    step=situation.reached_step,
                    stale_steps=situation.stale_steps,
                    oldest_step=composite.oldest_step,
                    relative_perturbation=situation.relative_perturbation,
                    source_bytes=inventory.total_bytes,
                )
        self._chosen_s = time.monotonic()
        step = self._from_full(inventory)
        source, n_bytes = ("resume", inventory.total_bytes) if step else ("start", 0)
        return replace(report, source=source, step=step, source_bytes=n_bytes)

    def _copy_again(self, inventory: RankInventory, report: RecoveryReport) -> None:
        """Make every image that should be held of the agreed step, where it is missing."""
        shards, step = self._shards, report.step
        if not self._protection.copies:
            shards.drop_images()
            if self._protection.replicas:
                shards.keep_drifting(self._pieces, step)
        elif report.source != str(RecoverySource.REPLICA):
            self._buddies.copy(self._pieces, step)
        else:
            self._buddies.copy_missing(self._pieces, inventory, step)
        shards.hold_live(self._pieces, step)


def _situation(
    inventory: RankInventory, common_step: int | None, ages: Sequence[CopyAge] | None
) -> Situation:
    """What the planner chooses from, where survivors live."""
    lost_fraction = len(inventory.lost) / inventory.world
    stale = [ages[slot].stale_steps for slot in inventory.lost] if ages else []
    known = [steps for steps in stale if steps is not None]
    moved = [age.relative_perturbation for age in ages or ()]
    return Situation(
        reached_step=inventory.reached,
        replica_step=common_step,
        stale_steps=sum(known) / len(known) if known and len(known) == len(stale) else None,
        relative_perturbation=predicted_perturbation(
            [relative for relative in moved if relative is not None], lost_fraction
        ),
        full_step=inventory.full[0] if inventory.full else 0,
        lost_fraction=lost_fraction,
    )


_Item = tuple[str, str]  # kind and name
_FEWEST_THAT_AGREE = 2


@dataclass(frozen=True, slots=True)
class _ObjectStep:
    """Message of each rank: the step that its objects are of, and (kind, name, hash) of each."""

    step: int
    hashes: list[list[str]]


def settle_objects(
    buffer: ObjectBuffer, messages: RankMessages, *, root: Path | None, slot: int, reached_step: int
) -> None:
    """Bring common objects of ranks that lag behind to the step reached; every rank calls it."""
    own = buffer.record
    hashes = [
        [kind, name, hashlib.blake2b(raw, digest_size=16).hexdigest()]
        for (kind, name), raw in own.items.items()
    ]
    ranks = messages.gather("object-step", _ObjectStep(own.step, hashes))
    steps = [rank.step for rank in ranks]
    if min(steps) >= reached_step:
        return
    giver = steps.index(max(steps))
    given: list[list[str]] = []
    if slot == giver:
        given = [[*item, base64.b64encode(raw).decode()] for item, raw in own.items.items()]
    received = messages.gather("object-items", given)[giver]
    if own.step >= max(steps):
        return
    in_time = [rank for rank in ranks if rank.step == max(steps)]
    common = _agreed_by(in_time) | _alike_on_disk(root, slot, own) | {(GROUPS, GROUPS)}
    newer = {
        (kind, name): base64.b64decode(raw)
        for kind, name, raw in received
        if (kind, name) in common
    }
    raw = pack_objects(ObjectRecord(own.step, {**own.items, **newer}))
    value = torch.zeros_like(buffer.tensor)
    value[: len(raw)] = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    buffer.put(value)
    if behind := sorted(name for kind, name in own.items if (kind, name) not in newer):
        warnings.warn(
            f"slot {slot}: {', '.join(behind)} keep the state of step {own.step}, training goes on "
            f"after step {reached_step}",
            stacklevel=2,
        )


def _agreed_by(ranks: Sequence[_ObjectStep]) -> set[_Item]:
    """Items that several ranks hold in one state; a single rank agrees with nobody."""
    if len(ranks) < _FEWEST_THAT_AGREE:
        return set()
    held = [{(kind, name, digest) for kind, name, digest in rank.hashes} for rank in ranks]
    return {(kind, name) for kind, name, _ in set.intersection(*held)}


def _alike_on_disk(root: Path | None, slot: int, own: ObjectRecord) -> set[_Item]:
    """Items that this slot and another hold in one state, both of the step of `own`."""
    alike: set[_Item] = set()
    if root is None:
        return alike
    try:
        with ExitStack() as stack:
            checkpoint = open_checkpoint(stack, root, None)
            reader = PayloadReader()
            for record in (r for of_slot in object_records(checkpoint).values() for r in of_slot):
                if record.header.step != own.step or record.file.superblock.slot == str(slot):
                    continue
                payload = reader.read(record)
                other = {} if payload is None else unpack_objects(payload).items
                alike |= {item for item, raw in other.items() if own.items.get(item) == raw}
    except CheckpointError:
        return set()  # nothing to compare with: every object counts as this rank's own
    return alike
