"""One generation of a group, as the training function sees it: recover, then guarded updates."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from ettr.checkpoint.errors import CheckpointError
from ettr.elastic.groups import RankFailedError, device
from ettr.elastic.protection import Protection
from ettr.elastic.rendezvous import Membership
from ettr.errors import EttrError
from ettr.recovery.planner import RecoverySource
from ettr.recovery.restore_costs import RunTimings, write_timings
from ettr.recovery.timings import interval_steps

_NOTE_UPDATES = 64


class Generation:
    """One membership of the group, as `train` sees it.

    Attributes:
        number: Of the generation; grows with every change.
        slot: This rank; `world`: the number of ranks.
        report: What `recover` did.
    """

    def __init__(self, group: Any, membership: Membership, slot: int, store: Any) -> None:
        self.number, self.slot, self.world = membership.generation, slot, len(membership.workers)
        self.membership = membership
        self.report: Any = None
        self.fingerprints = group.fingerprints
        self._group, self._store = group, store
        self._state: Any = None
        self._recovery: Any = None
        self.sizes: list[int] = []
        self.ring: Any = None
        self._checkpoint: Any = None
        self._running_error: str | None = None
        self._torn = False
        self._last_s = 0.0
        self._full_due = 0
        self._full_stalls_s: list[float] = []
        self._gathered = self._updates = 0

    @property
    def pieces(self) -> Any:
        """This rank's shard, piece by piece (`images`)."""
        return self._recovery.pieces

    @property
    def keeper(self) -> Any:
        """This rank's memory over the generations."""
        return self._group.keeper

    @property
    def protection(self) -> Protection:
        """What guards the shards."""
        guards: Protection = self._group.protection
        return guards

    @property
    def timed(self) -> RunTimings:
        """What this rank timed of the run, for the planner."""
        timed: RunTimings = self._group.measuring.timed()
        return timed

    def mesh(self, names_: tuple[str, ...] = ("fsdp",), kind: str | None = None) -> Any:
        """A one-dimensional mesh over all ranks, to shard the model on."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(kind or device(), (self.world,), mesh_dim_names=names_)

    def gather(self, what: str, value: dict[str, Any]) -> list[dict[str, Any]]:
        """What each rank says, in the order of the slots; through the store, as JSON."""
        import json

        self._gathered += 1
        prefix = f"say/{self._gathered}-{what}"
        self._store.set(f"{prefix}/{self.slot}", json.dumps(value))
        return [json.loads(self._store.get(f"{prefix}/{slot}")) for slot in range(self.world)]

    def recover(self, model: Any, optimizer: Any) -> int:
        """Bring the rebuilt model to the state on which all ranks agree; returns its step.

        Call it once, right after building model and optimizer. At the start of a run the state
        stays as it was built.

        Raises:
            UsageError: nothing that the policy allows can recover the lost shards.
            CheckpointError: the model is not what it was in the generation before.
        """
        from ettr.checkpoint.state import TrainingState
        from ettr.elastic.recover import Recovery

        begin_s = time.time()
        self._model, self._optimizer = model, optimizer
        self._state = TrainingState(model, optimizer)
        self._recovery = Recovery(self, self._state, model, optimizer)
        self.report = self._recovery.run()
        self._time_restore()
        step: int = self.report.step
        self._open_checkpoint(step)
        # The next multiple, so that a replacement counts from where the others do.
        every = self.protection.full_every_steps
        self._full_due = (step // every + 1) * every
        self._group.recovered(self, self.report, begin_s)
        self._last_s = time.monotonic()
        return step

    @contextmanager
    def update(self, step: int) -> Iterator[None]:
        """Guard one update: a vote of all ranks before it, copies of the shard after it.

        Inside may stand only what changes parameters and moments (`optimizer.step()`), no
        collective: then survivors of a failure differ by at most one update.

        Raises:
            RankFailedError: the ranks are not at the same step.
        """
        self._vote(step)
        self._torn = True
        yield
        self._torn = False
        self.keeper.live_step = step
        saved_s = time.monotonic()
        if self.protection.buddy:
            self.mirror(self._recovery.pieces, step)
        if self._checkpoint is not None:
            self._tell_failure(self._checkpoint.step(step).error)
        self._save_full(step)
        self._leave_note()
        now_s = time.monotonic()
        self._group.updated(self, step, now_s - self._last_s, now_s - saved_s)
        self._last_s = now_s

    def open_ring(self) -> dict[str, Any] | None:
        """Where the slot before finds this rank, to hand its shard on; None: nothing is handed."""
        if not self.protection.buddy or self.world == 1:
            return None
        self.ring = self._group.open_ring(self.number, self.slot, self.world)
        place: dict[str, Any] = self.ring.place
        return place

    def mirror(self, pieces: Any, step: int) -> None:
        """Copy this rank's shard, hand it to the next rank and take the one of the rank before."""
        from ettr.elastic import shard_history as keeping

        image = self.keeper.take_own(pieces, step)
        if self.ring is not None:
            before = self.sizes[(self.slot - 1) % self.world]
            keeping.exchange(self.keeper, self.ring, step, image, before)

    def close_ring(self) -> None:
        """Hang up on both neighbours; twice is harmless."""
        if self.ring is not None:
            self.ring.close()

    def end(self) -> None:
        """Let go of the model and the checkpoint; keep the live shard, unless it is torn."""
        self.close_ring()
        if self._checkpoint is not None:
            with suppress(EttrError):
                self._checkpoint.close()
        if self._torn:
            self.keeper.live = None
        self._state = self._recovery = self._model = self._optimizer = self._checkpoint = None

    def park_live(self) -> None:
        """Make an image of the live shard where it has moved on from the newest, unless torn."""
        if self._torn or self._recovery is None or self.keeper.live is None:
            return
        step = self.keeper.live_step
        if step not in self.keeper.own.steps:
            self.keeper.take_own(self._recovery.pieces, step)

    def _time_restore(self) -> None:
        report = self.report
        source = RecoverySource.ROLLBACK if report.source == "resume" else report.source
        if report.source_bytes > 0:
            self._group.measuring.restored(str(source), report.source_bytes, report.source_s)

    def _leave_note(self) -> None:
        """What was timed, for a job that loses every process: often at first, then now and then."""
        folder = self.protection.note_folder
        self._updates += 1
        n = self._updates
        if folder is not None and self.slot == 0 and (n & (n - 1) == 0 or n % _NOTE_UPDATES == 0):
            write_timings(folder, self.timed)

    def _vote(self, step: int) -> None:
        import torch
        import torch.distributed as dist

        # The largest and the smallest step in one reduction.
        ballot = torch.tensor([step, -step], dtype=torch.int64)
        dist.all_reduce(ballot, op=dist.ReduceOp.MAX)
        most, least = int(ballot[0]), -int(ballot[1])
        if most != least:
            raise RankFailedError(
                f"ranks are about to do steps {least} to {most}; every rank does the same step, "
                f"the one after what recover returned"
            )

    def _open_checkpoint(self, step: int) -> None:
        from ettr.checkpoint.running_checkpoint import RunningCheckpoint
        from ettr.checkpoint.slot_ownership import fence

        root = self.protection.running
        if root is None:
            return
        options = dict(self.protection.running_options)
        # Whoever had the slot before, wherever it may hang, cannot write into it any more.
        generation = fence(root, self.slot)
        self._checkpoint = RunningCheckpoint(
            root, self._state, slot=self.slot, generation=generation, **options
        )
        if self.report.source in ("start", "resume", "rollback"):
            self._checkpoint.save_all(step)

    def _tell_failure(self, error: str | None) -> None:
        """Warn when rounds of the running checkpoint begin to fail; the run has other guards."""
        if error is not None and error != self._running_error:
            warnings.warn(f"running checkpoint, slot {self.slot}: {error}", stacklevel=4)
        self._running_error = error

    def _save_full(self, step: int) -> None:
        root = self.protection.full
        if root is None or step < self._full_due:
            return
        from ettr.elastic.full_checkpoint import save_full

        begin_s = time.monotonic()
        try:
            save_full(root, step, self._model, self._optimizer)
            self._full_stalls_s.append(time.monotonic() - begin_s)
        except CheckpointError as error:
            # A full disk is no reason to end a run that has what it needs to go on.
            if self.slot == 0:  # warned of where the script leaves its `with`
                warnings.warn(f"{error}; earlier ones remain, training goes on", stacklevel=4)
        self._full_due = step + self._full_interval()

    def _full_interval(self) -> int:
        """Steps to the next full checkpoint; the first rank's measurements decide for all."""
        guards = self.protection
        if guards.mttf_s is None or not self._full_stalls_s:
            return guards.full_every_steps
        import torch
        import torch.distributed as dist

        run = self._group.measuring.run()
        stall_s = sum(self._full_stalls_s) / len(self._full_stalls_s)
        steps = guards.full_every_steps
        if run.step_s > 0:
            steps = interval_steps(replace(run, save_stall_s=stall_s), mttf_s=guards.mttf_s)
        chosen = torch.tensor([steps], dtype=torch.int64)
        dist.broadcast(chosen, 0)
        return int(chosen)
