"""One generation of a group, as the training function sees it: recover, then guarded updates."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ettr.checkpoint import RunStopped
from ettr.elastic.buddies.parity import ParityExchange, parity_groups
from ettr.elastic.buddies.shard_image import BuddyExchange, Piece
from ettr.elastic.membership.control_store import RankMessages
from ettr.elastic.membership.process_group import device
from ettr.elastic.membership.rendezvous import Membership
from ettr.elastic.restore.full_checkpoint import FullSchedule
from ettr.elastic.restore.rank_inventory import RecoveryReport
from ettr.elastic.restore.recover import Recovery, RecoveryScope
from ettr.elastic.restore.running_source import ModelShard, RunningGuard, keep_earlier_run
from ettr.elastic.supervision.states import GENERATION_TRANSITIONS, GenerationState, transition
from ettr.errors import EttrError, UsageError
from ettr.recovery import RecoverySource
from ettr.recovery.restore_costs import write_timings

if TYPE_CHECKING:
    from torch import nn
    from torch._C._distributed_c10d import Store
    from torch.distributed.device_mesh import DeviceMesh

    from ettr.elastic.elastic_group import ElasticGroup
    from ettr.elastic.torchrun import TorchrunGroup

_NOTE_UPDATES = 64
_TO_THE_SCRIPT = 4  # warn <- update <- contextlib <- the script's `with`


class Generation:
    """One membership of the group, as `train` sees it."""

    def __init__(
        self, group: ElasticGroup | TorchrunGroup, membership: Membership, slot: int, store: Store
    ) -> None:
        self.number, self.slot, self.world = membership.generation, slot, membership.world
        self.membership = membership
        self.state = GenerationState.FORMED
        self._group = group
        self._messages = RankMessages(store, slot, self.world)
        self._buddies: BuddyExchange | ParityExchange | None = None
        self._report: RecoveryReport | None = None
        self._shard: ModelShard | None = None
        self._running: RunningGuard | None = None
        self._full: FullSchedule | None = None
        self._n_updates = 0
        self._updated_s = 0.0

    @property
    def report(self) -> RecoveryReport:
        """What `recover` did. Raises UsageError: it was not called yet."""
        if self._report is None:
            raise UsageError("report: call recover(model, optimizer) first")
        return self._report

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """This rank's shard, piece by piece (`shard_image`)."""
        return self._recovered_shard.pieces

    def mesh(self, names_: tuple[str, ...] = ("fsdp",), kind: str | None = None) -> DeviceMesh:
        """A one-dimensional mesh over all ranks, to shard the model on."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(kind or device(), (self.world,), mesh_dim_names=names_)

    def recover(
        self,
        parts: nn.Module | Mapping[str, object],
        optimizer: torch.optim.Optimizer | None = None,
    ) -> int:
        """Bring the rebuilt state to the one on which all ranks agree; returns its step.

        Call it once, right after building everything. At the start of a run the state stays as it
        was built.

        Args:
            parts: modules, optimizers, tensors and objects with `state_dict`, as for
                `RunningCheckpoint`; or a model alone, with its optimizer: then schedulers and
                parameter groups are for `train` to set from the step.

        Raises:
            UsageError: nothing that the policy allows can recover the lost shards; or it was
                called before in this generation; or a part cannot be saved.
            CheckpointError: the model is not what it was in the generation before.
        """
        self._enter(GenerationState.RECOVERING)
        begin_s = time.time()
        protection = self._group.protection
        self._shard = ModelShard.of(parts, optimizer, objects_bytes=protection.objects_bytes)
        self._buddies = self._open_buddies()
        report = self._report = Recovery(self._scope(self._buddies), self._shard).run()
        self._time_restore(report)
        root, fresh = self._group.protection.running, report.source == "start"
        if root is not None and fresh:
            stop = protection.earlier_run == "stop"
            keep_earlier_run(root, self._messages, self.slot, stop=stop)
        whole_save = report.source in ("start", "resume", "rollback")
        self._running = RunningGuard.open(
            self._group.protection, self.slot, self._shard, rolled_back=whole_save
        )
        if self._running is not None and whole_save:
            self._running.save_all(report.step)
        group = self._group
        self._full = FullSchedule(group.protection, self.slot, group.timings, report.step)
        group.recovered(self.membership, report, begin_s)
        self._enter(GenerationState.TRAINING)
        self._updated_s = time.monotonic()
        return report.step

    @contextmanager
    def update(self, step: int) -> Iterator[None]:
        """Guard one update: a vote of all ranks before it, copies of the shard after it.

        What changes parameters, moments and objects belongs inside (`optimizer.step()`, the
        scheduler's, the scaler's), and no collective: then survivors of a failure differ by at most
        one update.

        Raises:
            RankFailedError: the ranks are not at the same step.
            RunStopped: the run was asked to end, and this step is saved; it is the same on all
                ranks.
            UsageError: `recover` was not called yet.
        """
        shard = self._recovered_shard
        if self._group.protection.replicas:  # an update changes none of it
            self._group.shards.keep_drifting(shard.pieces, step)
        stops = _vote(step, asked=self._group.stop_reason is not None)
        self._enter(GenerationState.UPDATING)
        yield
        self._enter(GenerationState.SAVING)
        self._group.shards.live_step = step
        begin_s = time.monotonic()
        self._guard(step, shard, stops=stops)
        now_s = time.monotonic()
        self._group.updated(self.membership, step, now_s - self._updated_s, now_s - begin_s)
        self._enter(GenerationState.TRAINING)
        self._updated_s = now_s
        if stops:
            self._warn_if_nothing_is_kept()
            raise RunStopped(step, self._group.stop_reason or "another rank was asked to end")

    def disconnect(self) -> None:
        """Close the connections to both neighbours, which ends their waits; twice is harmless."""
        if self._buddies is not None:
            self._buddies.close()

    def end(self) -> None:
        """Release the model and the checkpoint; keep the live shard, unless it is torn."""
        self.disconnect()
        if self._running is not None:
            self._running.close()
        if self.state is GenerationState.UPDATING:
            self._group.shards.live = None
        self._shard = self._running = None
        self._enter(GenerationState.ENDED)

    def copy_live(self) -> None:
        """Make an image of the live shard, unless it has one, or is torn or half recovered."""
        shards = self._group.shards
        complete = self.state in (GenerationState.TRAINING, GenerationState.SAVING)
        if complete and self._shard is not None and shards.live_step not in shards.own.steps:
            shards.copy_own(self._shard.pieces, shards.live_step)

    @property
    def _recovered_shard(self) -> ModelShard:
        if self._shard is None:
            raise UsageError("update: call recover(model, optimizer) first")
        return self._shard

    def _enter(self, state: GenerationState) -> None:
        self.state = transition(
            self.state, state, GENERATION_TRANSITIONS, f"generation {self.number}"
        )

    def _open_buddies(self) -> BuddyExchange | ParityExchange:
        group, stride = self._group, self.membership.buddy_stride
        shards, protection = group.shards, group.protection
        for members in self._parity_groups:
            if self.slot in members:
                following = members[(members.index(self.slot) + 1) % len(members)]
                ring = group.open_ring(self.membership, self.slot, following)
                return ParityExchange(shards, self.slot, members, protection.parity_images, ring)
        buddy = (self.slot + stride) % self.world
        exchanged = protection.copies and self.world > 1
        opened = group.open_ring(self.membership, self.slot, buddy) if exchanged else None
        return BuddyExchange(shards, self.slot, self.world, stride, opened)

    @property
    def _parity_groups(self) -> tuple[tuple[int, ...], ...]:
        size = self._group.protection.parity
        if not size or self.world == 1:
            return ()
        return parity_groups(self.world, size, self.membership.buddy_stride)

    def _scope(self, buddies: BuddyExchange | ParityExchange) -> RecoveryScope:
        group = self._group
        return RecoveryScope(
            number=self.number,
            slot=self.slot,
            protection=group.protection,
            shards=group.shards,
            messages=self._messages,
            buddies=buddies,
            buddy_stride=self.membership.buddy_stride,
            parity_groups=self._parity_groups,
            timed=group.timings.timed(),
            fingerprints=group.fingerprints,
        )

    def _guard(self, step: int, shard: ModelShard, *, stops: bool) -> None:
        """Copy the updated shard to wherever it is guarded."""
        shard.capture_objects(step)
        if self._group.protection.copies and self._buddies is not None:
            self._buddies.copy(shard.pieces, step)
        if self._running is not None:
            self._running.step(step, stops=stops)
        if self._full is not None:
            self._full.save_if_due(step, shard, stops=stops)
        self._note_timings()

    def _warn_if_nothing_is_kept(self) -> None:
        protection = self._group.protection
        if self.slot == 0 and protection.full is None and protection.running is None:
            warnings.warn(
                "the run ends and keeps nothing: Protection has neither full= nor "
                "running=, and copies in memory end with the processes",
                stacklevel=_TO_THE_SCRIPT,
            )

    def _time_restore(self, report: RecoveryReport) -> None:
        source = RecoverySource.ROLLBACK if report.source == "resume" else report.source
        if report.source_bytes > 0:
            self._group.timings.restored(str(source), report.source_bytes, report.source_s)

    def _note_timings(self) -> None:
        """Keep the timings for a job that loses every process: often at first, then rarely."""
        folder = self._group.protection.timings_folder
        self._n_updates += 1
        n = self._n_updates
        if folder is not None and self.slot == 0 and (n & (n - 1) == 0 or n % _NOTE_UPDATES == 0):
            write_timings(folder, self._group.timings.timed())


def _vote(step: int, *, asked: bool) -> bool:
    """Check that all ranks are about to do the same step; whether it is to be the last."""
    # The largest and the smallest step in one reduction.
    ballot = torch.tensor([step, -step, asked], dtype=torch.int64)
    dist.all_reduce(ballot, op=dist.ReduceOp.MAX)
    largest, smallest, stops = int(ballot[0]), -int(ballot[1]), bool(ballot[2])
    if largest != smallest:
        raise RankFailedError(
            f"ranks are about to do steps {smallest} to {largest}; every rank does the same step, "
            f"the one after what recover returned"
        )
    return stops


class RankFailedError(EttrError):
    """Training failed on this rank for a reason other than the loss of a peer."""


class EvictedError(EttrError):
    """This process was replaced: another one holds its slot now."""
