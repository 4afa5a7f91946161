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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from ettr.checkpoint.notice import RunStopped, StopNotice
from ettr.elastic.buddies.ring import Ring
from ettr.elastic.buddies.shard_image import ShardStore
from ettr.elastic.generation import EvictedError, Generation, RankFailedError
from ettr.elastic.membership import control_store, process_group, rendezvous
from ettr.elastic.membership.heartbeat import HeartbeatThread
from ettr.elastic.membership.process_group import Timeouts
from ettr.elastic.membership.rendezvous import Membership
from ettr.elastic.protection import Protection
from ettr.elastic.restore.rank_inventory import RecoveryReport
from ettr.elastic.run_record import RunRecord
from ettr.elastic.supervision.states import RANK_TRANSITIONS, RankState, transition
from ettr.elastic.supervision.supervisor import OwnError, own_error
from ettr.errors import UsageError
from ettr.progress.recorder import ProgressRecorder
from ettr.recovery.restore_costs import Measuring

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

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
        self.state = RankState.WAITING
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
                self._enter(RankState.EVICTED)
                raise EvictedError(f"{self.worker} was replaced in {membership.generation}")
            outcome = self._attempt(membership, slot, train)
            if isinstance(outcome, _Trained):
                self._enter(RankState.DONE)
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
        self._enter(RankState.FORMING)
        self._withdraw_own_error()
        self._heartbeat.enter(number)
        generation: Generation | None = None
        outcome: _Trained[ResultT] | _BrokenOff
        try:
            store = control_store.prefixed(f"gen{number}", self._connect())
            self._form(membership, slot, store)
            self._enter(RankState.TRAINING)
            generation = Generation(self, membership, slot, store)
            outcome = _Trained(_result_of(train, generation))
            self._enter(RankState.TRAINED)
            self._wait_for_all(membership, slot, _how_it_ended(outcome.result))
        except RuntimeError as error:  # gloo, NCCL and the store raise its subclasses
            self._failed_s = self.last_failed_s = self._failed_s or time.time()
            outcome = self._broken_off(error, membership, slot)
            self._enter(RankState.FAILED)
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
        return control_store.connect(host, port, self._timeouts.rendezvous_s)

    def _wait_for_slot(self) -> Membership:
        """The first generation in which this process has a slot; a spare waits."""
        while True:
            membership = self._newest()
            if membership.slot_of(self.worker) is not None:
                return membership
            # Asleep until then: a spare must cost the ranks no time.
            following = rendezvous.membership_key(membership.generation + 1)
            control_store.wait_for_key(self._control, following)

    def _wait_for_next(self, membership: Membership, failure: _BrokenOff) -> Membership:
        """The generation that follows a failure."""
        failed_s = time.monotonic()
        waiting = rendezvous.waiting_key(membership.generation)
        while time.monotonic() < failed_s + self._timeouts.regroup_s or self._control.check(
            [waiting]
        ):
            newest = self._newest()
            if newest.generation > membership.generation:
                self._enter(RankState.WAITING)
                return newest
            unexplained = time.monotonic() > failed_s + _REPORT_AFTER_S
            if unexplained and self.state is RankState.FAILED:
                # No process seems to have died: the cause may be the script, and its user must
                # see it.
                self._enter(RankState.REPORTED)
                self._report_own_error(failure)
                self._control.set(rendezvous.failed_key(membership.generation, self.worker), "1")
                slot, lines = membership.slot_of(self.worker), failure.traceback.format()
                print(f"ettr: slot {slot}: {''.join(lines)}", file=sys.stderr)
            time.sleep(_POLL_S)
        self._enter(RankState.GAVE_UP)
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
            self._control.set(rendezvous.own_error_key(self.worker), failure.own_error.to_json())

    def _withdraw_own_error(self) -> None:
        # Or it would explain a death in a later generation.
        if self._reported_own_error:
            self._control.set(rendezvous.own_error_key(self.worker), "")
            self._reported_own_error = False

    def _newest(self) -> Membership:
        number = int(self._control.get(rendezvous.GENERATION))
        return Membership.from_json(self._control.get(rendezvous.membership_key(number)))

    def _wait_for_all(self, membership: Membership, slot: int, how: str = "1") -> None:
        """Return when every rank has trained to its end."""
        number = membership.generation
        self._control.set(rendezvous.trained_key(number, slot), how)
        while not self._control.check([rendezvous.done_key(number)]):
            if int(self._control.get(rendezvous.GENERATION)) > number:
                raise RuntimeError("a rank was lost before it had trained to the end")
            time.sleep(_POLL_S)

    def _enter(self, state: RankState) -> None:
        self.state = transition(self.state, state, RANK_TRANSITIONS, f"rank {self.worker}")


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
