"""The training script's side: a group whose membership changes while the process lives on.

    group = ElasticGroup.from_env(Protection(...))

    def train(generation):
        model, optimizer = build(generation.mesh())       # fully_shard on this generation's mesh
        step = generation.recover(model, optimizer)       # 0 at the start
        while step < STEPS:
            loss(model, batch(step)).backward()
            with generation.update(step + 1):             # vote; then nothing but the update
                optimizer.step()
            optimizer.zero_grad()
            step += 1

    group.run(train)

`train` is called again, in the same process, whenever a rank was lost. Everything else it needs
must follow from the step (the data's order, the learning rate).
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import torch
import torch.distributed as dist

from ettr.checkpoint.notice import RunStopped, StopNotice
from ettr.elastic import process_group, rendezvous
from ettr.elastic.nodes import (
    GENERATION_TRANSITIONS,
    GenerationState,
    transition,
)
from ettr.elastic.process_group import Timeouts, device
from ettr.elastic.protection import Protection
from ettr.elastic.rank_inventory import RecoveryReport
from ettr.elastic.recover import FullSchedule, Recovery
from ettr.elastic.rendezvous import HeartbeatThread, Membership, RankMessages
from ettr.elastic.ring import Ring
from ettr.elastic.running_source import ModelShard, RunningGuard, keep_earlier_run
from ettr.elastic.shard_image import (
    BuddyExchange,
    ParityExchange,
    Piece,
    ShardStore,
    parity_groups,
)
from ettr.elastic.supervisor import OwnError, own_error
from ettr.errors import EttrError, UsageError
from ettr.progress.recorder import ProgressRecorder
from ettr.recovery import RecoverySource
from ettr.recovery.restore_costs import Measuring, write_timings

if TYPE_CHECKING:
    from torch import nn
    from torch._C._distributed_c10d import Store
    from torch.distributed.device_mesh import DeviceMesh

    from ettr.elastic.torchrun import TorchrunGroup


# -- one generation of a group, as the training function sees it: recover, then guarded updates ----


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
        report = self._report = Recovery(
            self._group,
            self.membership,
            self.slot,
            self._messages,
            self._buddies,
            self._parity_groups,
            self._shard,
        ).run()
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


# -- what a run did, for its progress recorder and for the timings from which the planner chooses


class RunRecord:
    """Records the events of one process."""

    def __init__(self, recorder: ProgressRecorder | None, timings: Measuring) -> None:
        self._recorder, self._timings = recorder, timings

    def updated(
        self, step: int, step_s: float, save_s: float, *, scheme: str, **where: int
    ) -> None:
        """An update was made and copied."""
        self._add("save", step, save_s, scheme=scheme)
        self._add("step", step, step_s, **where)

    def recovered(
        self,
        membership: Membership,
        report: RecoveryReport,
        *,
        begin_s: float,
        failed_s: float | None,
        **where: int,
    ) -> None:
        """A generation has its state."""
        if report.source in ("start", "resume"):
            self._add("start", report.step, None, **where)
            return
        reached = max(report.reached_step, 0)
        if membership.hung_s:
            self._add("stall", reached, membership.hung_s, time_s=failed_s, cause="rank")
        self._add(
            "restart",
            reached,
            None if failed_s is None else max(0.0, begin_s - failed_s),
            time_s=begin_s,
            **where,
            lost_slots=list(report.lost_slots),
            cause=membership.cause,
        )
        self._add(
            "restore",
            report.step,
            time.time() - begin_s,
            source=report.source,
            lost_steps=report.lost_steps,
            stale_steps=report.stale_steps,
            reason=report.decision.reason if report.decision else None,
        )

    def _add(
        self,
        event: str,
        step: int,
        duration_s: float | None,
        *,
        time_s: float | None = None,
        **detail: object,
    ) -> None:
        self._timings.add(event, duration_s)
        if self._recorder is not None:
            self._recorder.record(event, step, duration_s, time_s=time_s, **detail)


# -- the training script's side: a group whose membership changes while the process lives on -------


_POLL_S = 0.01
# Until then the failure may still be explained by a process that dies.
_REPORT_AFTER_S = 1.0

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Trained(Generic[ResultT]):
    """`train` came to its end on all ranks, and returned this; or it was asked to end."""

    result: ResultT | RunStopped


@dataclass(frozen=True, slots=True)
class _BrokenOff:
    """A generation was broken off; the traceback holds no frame, and so no model."""

    traceback: traceback.TracebackException
    own_error: OwnError | None


class ElasticGroup:
    """The ranks of a run over all generations, seen from one of them.

    Attributes:
        last_failed_s: When the last failure was met (Unix seconds); None: there was none.
    """

    def __init__(
        self,
        store: tuple[str, int],
        worker: str,
        protection: Protection,
        *,
        timeouts: Timeouts,
        recorder: ProgressRecorder | None = None,
        fingerprints: bool = False,
        notice: StopNotice | None = None,
    ) -> None:
        self.worker, self.protection, self.fingerprints = worker, protection, fingerprints
        self.shards, self.timings = ShardStore(), Measuring()
        self.reports: list[RecoveryReport] = []
        self.last_failed_s: float | None = None
        self._address, self._timeouts = store, timeouts
        self._record = RunRecord(recorder, self.timings)
        self._control = self._connect()
        self._heartbeat = HeartbeatThread(
            self._connect(),
            worker,
            collective_s=timeouts.collective_s,
            abort=process_group.make_nccl_abort(),
        )
        self._notice = notice or StopNotice()
        self._failed_s: float | None = None
        self._reported_own_error = False

    @classmethod
    def from_env(
        cls,
        protection: Protection | None = None,
        *,
        timeouts: Timeouts | None = None,
        recorder: ProgressRecorder | None = None,
        fingerprints: bool = False,
    ) -> Self:
        """The group that `ettr elastic` started this process for.

        Raises:
            UsageError: this process was not started by a supervisor, or by one of another version.
        """
        address = os.environ.get(rendezvous.ENV_STORE, "")
        worker = os.environ.get(rendezvous.ENV_WORKER, "")
        if not address or not worker:
            raise UsageError(
                f"{rendezvous.ENV_STORE} is not set: start the script with "
                f"`ettr elastic -n RANKS -- python SCRIPT`"
            )
        rendezvous.check_protocol(os.environ.get(rendezvous.ENV_PROTOCOL))
        host, port = address.rsplit(":", 1)
        return cls(
            (host, int(port)),
            worker,
            protection or Protection(),
            timeouts=timeouts or Timeouts(),
            recorder=recorder,
            fingerprints=fingerprints,
        )

    def run(self, train: Callable[[Generation], ResultT]) -> ResultT:
        """Call `train` in every generation until all ranks came to its end; returns its result.

        Raises:
            EvictedError: this process was replaced.
            RankFailedError: training failed, and not because a rank was lost.
            RunStopped: the run was asked to end; all ranks have saved the same step.
        """
        process_group.warm_up()
        process_group.rehearse()
        try:
            with self._notice:
                return self._run(train)
        finally:
            self._heartbeat.close()

    @property
    def stop_reason(self) -> str | None:
        """Why this rank is to end after the next step; None: it goes on."""
        return self._notice.asked() or self._heartbeat.stop_reason

    def open_ring(self, membership: Membership, slot: int, following: int) -> Ring:
        """Open a rank's connections to its neighbours in a generation."""
        host = self._address[0]
        return Ring(
            slot,
            following,
            idle_s=self._timeouts.collective_s,
            over=lambda: self._heartbeat.newest > membership.generation,
            reachable_host=None if host.startswith("127.") else host,
        )

    def updated(self, membership: Membership, step: int, step_s: float, save_s: float) -> None:
        """Record that an update was made and copied."""
        self._heartbeat.step = step
        self._record.updated(
            step, step_s, save_s, scheme=self.protection.scheme, generation=membership.generation
        )

    def recovered(self, membership: Membership, report: RecoveryReport, begin_s: float) -> None:
        """Record that a generation has its state."""
        self.reports.append(report)
        self._record.recovered(
            membership,
            report,
            begin_s=begin_s,
            failed_s=self._failed_s or membership.noticed_s,
            generation=membership.generation,
        )
        self._failed_s = None

    def _run(self, train: Callable[[Generation], ResultT]) -> ResultT:
        membership = self._wait_for_slot()
        while True:
            slot = membership.slot_of(self.worker)
            if slot is None:
                raise EvictedError(f"{self.worker} was replaced in {membership.generation}")
            outcome = self._attempt(membership, slot, train)
            if isinstance(outcome, _Trained):
                if isinstance(outcome.result, RunStopped):
                    raise outcome.result
                return outcome.result
            # Outside of the except block: its traceback held the model and, through it, the group.
            gc.collect()
            membership = self._wait_for_next(membership, outcome)

    def _attempt(
        self, membership: Membership, slot: int, train: Callable[[Generation], ResultT]
    ) -> _Trained[ResultT] | _BrokenOff:
        number = membership.generation
        self._withdraw_own_error()
        self._heartbeat.enter(number)
        generation: Generation | None = None
        outcome: _Trained[ResultT] | _BrokenOff
        try:
            store = rendezvous.prefixed(f"gen{number}", self._connect())
            self._form(membership, slot, store)
            generation = Generation(self, membership, slot, store)
            outcome = _Trained(_result_of(train, generation))
            self._wait_for_all(membership, slot, _how_it_ended(outcome.result))
        except RuntimeError as error:  # gloo, NCCL and the store raise its subclasses
            self._failed_s = self.last_failed_s = self._failed_s or time.time()
            outcome = self._broken_off(error, membership, slot)
        except (Exception, SystemExit) as error:
            self._report_own_error(self._broken_off(error, membership, slot))
            raise
        if generation is not None:
            generation.end()
        process_group.destroy()
        self._heartbeat.leave()
        return outcome

    def _form(self, membership: Membership, slot: int, store: Store) -> None:
        number, world = membership.generation, membership.world
        local_rank = membership.local_ranks[slot] if membership.local_ranks else slot
        on_node = membership.nodes.count(membership.node_of(slot)) or world
        os.environ.update(
            RANK=str(slot),
            LOCAL_RANK=str(local_rank),
            LOCAL_WORLD_SIZE=str(on_node),
            WORLD_SIZE=str(world),
        )
        process_group.form(
            number, store, slot, world, self._timeouts, over=lambda: self._heartbeat.newest > number
        )

    def _connect(self) -> Store:
        host, port = self._address
        return rendezvous.connect(host, port, self._timeouts.rendezvous_s)

    def _wait_for_slot(self) -> Membership:
        """The first generation in which this process has a slot; a spare waits."""
        while True:
            membership = self._newest()
            if membership.slot_of(self.worker) is not None:
                return membership
            # Asleep until then: a spare must cost the ranks no time.
            following = rendezvous.MEMBERSHIP.format(generation=membership.generation + 1)
            rendezvous.wait_for_key(self._control, following)

    def _wait_for_next(self, membership: Membership, failure: _BrokenOff) -> Membership:
        """The generation that follows a failure."""
        failed_s, reported = time.monotonic(), False
        waiting = rendezvous.WAITING.format(generation=membership.generation)
        while time.monotonic() < failed_s + self._timeouts.regroup_s or self._control.check(
            [waiting]
        ):
            newest = self._newest()
            if newest.generation > membership.generation:
                return newest
            if not reported and time.monotonic() > failed_s + _REPORT_AFTER_S:
                # No process seems to have died: the cause may be the script, and its user must
                # see it.
                reported = True
                self._report_own_error(failure)
                self._control.set(
                    rendezvous.FAILED.format(generation=membership.generation, worker=self.worker),
                    "1",
                )
                slot, lines = membership.slot_of(self.worker), failure.traceback.format()
                print(f"ettr: slot {slot}: {''.join(lines)}", file=sys.stderr)
            time.sleep(_POLL_S)
        raise RankFailedError(
            f"training failed and no rank was lost within {self._timeouts.regroup_s:g} s:\n"
            f"{''.join(failure.traceback.format())}"
        )

    def _broken_off(self, error: BaseException, membership: Membership, slot: int) -> _BrokenOff:
        # Its lines of source are read when somebody is to see them; survivors are in a hurry.
        failure = traceback.TracebackException.from_exception(error, lookup_lines=False)
        own = own_error(
            type(error),
            failure,
            generation=membership.generation,
            slot=slot,
            step=self._heartbeat.step,
        )
        return _BrokenOff(failure, own)

    def _report_own_error(self, failure: _BrokenOff) -> None:
        if failure.own_error is None:
            return
        self._reported_own_error = True
        with suppress(RuntimeError):  # without a supervisor the error itself is what matters
            self._control.set(
                rendezvous.OWN_ERROR.format(worker=self.worker), failure.own_error.to_json()
            )

    def _withdraw_own_error(self) -> None:
        # Or it would explain a death in a later generation.
        if self._reported_own_error:
            self._control.set(rendezvous.OWN_ERROR.format(worker=self.worker), "")
            self._reported_own_error = False

    def _newest(self) -> Membership:
        number = int(self._control.get(rendezvous.GENERATION))
        return Membership.from_json(
            self._control.get(rendezvous.MEMBERSHIP.format(generation=number))
        )

    def _wait_for_all(self, membership: Membership, slot: int, how: str = "1") -> None:
        """Return when every rank has trained to its end."""
        number = membership.generation
        self._control.set(rendezvous.TRAINED.format(generation=number, slot=slot), how)
        while not self._control.check([rendezvous.DONE.format(generation=number)]):
            if int(self._control.get(rendezvous.GENERATION)) > number:
                raise RuntimeError("a rank was lost before it had trained to the end")
            time.sleep(_POLL_S)


def _result_of(
    train: Callable[[Generation], ResultT], generation: Generation
) -> ResultT | RunStopped:
    """What `train` returns; or that it was stopped, without the frames that hold the model."""
    try:
        return train(generation)
    except RunStopped as stopped:
        return stopped.with_traceback(None)


def _how_it_ended(result: object) -> str:
    return f"{rendezvous.STOPPED}{result.step}" if isinstance(result, RunStopped) else "1"
