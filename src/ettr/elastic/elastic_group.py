"""The training script's side: a group whose membership changes under a process that lives on.

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

`train` is called again, in the same process, whenever a rank was lost. What it needs beside the
model must follow from the step (the data's order, the learning rate).
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Self

from ettr.elastic import groups
from ettr.elastic import rendezvous as names
from ettr.elastic.generation import Generation
from ettr.elastic.groups import EvictedError, RankFailedError, Timeouts
from ettr.elastic.heartbeat import Watcher
from ettr.elastic.protection import Protection
from ettr.elastic.rendezvous import Membership
from ettr.errors import UsageError
from ettr.progress.recorder import ProgressRecorder
from ettr.recovery.timings import Measuring

_POLL_S = 0.01


class ElasticGroup:
    """The ranks of a run over all generations, seen from one of them.

    Args:
        store: (host, port) of the supervisor's store.
        worker: this process's name.
        protection: what guards the shards.
        recorder: is told steps, saves, stalls, restarts and restores.
        fingerprints: hash the shard at each recovery, for tests and demonstrations.
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
    ) -> None:
        from ettr.elastic.shard_history import Keeper

        self.worker, self.protection, self.fingerprints = worker, protection, fingerprints
        self.keeper, self.measuring = Keeper(), Measuring()
        self.reports: list[Any] = []
        self._address, self._timeouts, self._recorder = store, timeouts, recorder
        self._control = self._connect()
        self._watcher = Watcher(
            self._connect(),
            worker,
            collective_s=timeouts.collective_s,
            abort=groups.abort_of_backend(),
        )
        self.last_failed_s: float | None = None
        self._failed_s: float | None = None
        self._step = -1

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
            UsageError: this process was not started by a supervisor.
        """
        address = os.environ.get(names.ENV_STORE, "")
        worker = os.environ.get(names.ENV_WORKER, "")
        if not address or not worker:
            raise UsageError(
                f"{names.ENV_STORE} is not set: start the script with "
                f"`ettr elastic -n RANKS -- python SCRIPT`"
            )
        host, port = address.rsplit(":", 1)
        return cls(
            (host, int(port)),
            worker,
            protection or Protection(),
            timeouts=timeouts or Timeouts(),
            recorder=recorder,
            fingerprints=fingerprints,
        )

    def run(self, train: Callable[[Generation], Any]) -> Any:
        """Call `train` in every generation until all ranks came to its end; returns its result.

        Raises:
            EvictedError: this process was replaced.
            RankFailedError: training failed for a reason of its own.
        """
        groups.warm_up()
        try:
            return self._run(train)
        finally:
            self._watcher.close()

    def _run(self, train: Callable[[Generation], Any]) -> Any:
        membership = self._wait_for_slot(0)
        while True:
            slot = membership.slot_of(self.worker)
            if slot is None:
                raise EvictedError(f"{self.worker} was replaced in {membership.generation}")
            told, result = self._attempt(membership, slot, train)
            if told is None:
                return result
            # Out of the except block: its traceback held the model and, through it, the group.
            gc.collect()
            membership = self._wait_for_next(membership, told)

    def _attempt(
        self, membership: Membership, slot: int, train: Callable[[Generation], Any]
    ) -> tuple[str | None, Any]:
        """(None, result), or what failed in words and nothing."""
        self._watcher.attempt(membership.generation)
        generation: Generation | None = None
        told: str | None = None
        result = None
        try:
            store = groups.prefixed(f"gen{membership.generation}", self._connect())
            self._form(membership, slot, store)
            generation = Generation(self, membership, slot, store)
            result = train(generation)
            self._wait_for_all(membership, slot)
        except RuntimeError as error:  # gloo, NCCL and the store raise its subclasses
            self._failed_s = self.last_failed_s = self._failed_s or time.time()
            told = "".join(traceback.format_exception(error))
        if generation is not None:
            generation.end()
        groups.destroy()
        self._watcher.rest()
        return told, result

    def _form(self, membership: Membership, slot: int, store: Any) -> None:
        number, world = membership.generation, len(membership.workers)
        os.environ.update(RANK=str(slot), LOCAL_RANK=str(slot), WORLD_SIZE=str(world))
        groups.form(
            number, store, slot, world, self._timeouts, over=lambda: self._watcher.newest > number
        )

    def _connect(self) -> Any:
        host, port = self._address
        return groups.connect(host, port, self._timeouts.rendezvous_s)

    def _wait_for_slot(self, after: int) -> Membership:
        """The first generation above `after` in which this process has a slot; a spare waits."""
        while True:
            membership = self._newest()
            if membership.generation > after and membership.slot_of(self.worker) is not None:
                return membership
            # Asleep until then: a spare must cost the ranks no time.
            groups.wait_for(self._control, names.membership_key(membership.generation + 1))

    def _wait_for_next(self, membership: Membership, told: str) -> Membership:
        """The generation that follows a failure.

        Raises:
            RankFailedError: there is none: nobody died, so the failure was this rank's own.
        """
        key = names.failed_key(membership.generation, self.worker)
        deadline_s = time.monotonic() + self._timeouts.regroup_s
        said, said_s = False, time.monotonic() + 1.0
        while time.monotonic() < deadline_s:
            newest = self._newest()
            if newest.generation > membership.generation:
                return newest
            if not said and time.monotonic() > said_s:
                # Nobody seems to have died: what failed may be the script, which its user must see.
                said = True
                self._control.set(key, "1")
                print(f"ettr: slot {membership.slot_of(self.worker)}: {told}", file=sys.stderr)
            time.sleep(_POLL_S)
        raise RankFailedError(
            f"training failed and no rank was lost within {self._timeouts.regroup_s:g} s:\n{told}"
        )

    def _newest(self) -> Membership:
        number = int(self._control.get(names.GENERATION))
        return Membership.from_json(self._control.get(names.membership_key(number)))

    def _wait_for_all(self, membership: Membership, slot: int) -> None:
        """Return when every rank has trained to its end.

        The supervisor says so: it alone knows that it has not called for another generation. Of two
        ranks that counted for themselves one might leave while the other is called back.

        Raises:
            RuntimeError: one was lost before; this rank is needed again.
        """
        number = membership.generation
        self._control.set(names.finished_key(number, slot), "1")
        while not self._control.check([names.done_key(number)]):
            if int(self._control.get(names.GENERATION)) > number:
                raise RuntimeError("a rank was lost before it had trained to the end")
            time.sleep(_POLL_S)

    def open_ring(self, number: int, slot: int, world: int) -> Any:
        """A rank's connections to its neighbours in a generation; told by the generation."""
        from ettr.elastic.neighbour_ring import Ring

        host = self._address[0]
        return Ring(
            slot,
            world,
            silent_s=self._timeouts.collective_s,
            over=lambda: self._watcher.newest > number,
            towards=None if host.startswith("127.") else host,
        )

    def updated(self, generation: Generation, step: int, step_s: float, save_s: float) -> None:
        """An update was made and guarded; told by the generation."""
        self._step = step
        self._watcher.reached(step)
        self._tell("save", step, save_s, scheme=_scheme(self.protection))
        self._tell("step", step, step_s, generation=generation.number)

    def recovered(self, generation: Generation, report: Any, begin_s: float) -> None:
        """A generation has its state; told by the generation."""
        self.reports.append(report)
        membership = generation.membership
        now_s = time.time()
        reached = max(report.reached_step, 0)
        if report.source in ("start", "resume"):
            self._record("start", report.step, None, generation=generation.number)
        else:
            began_s = self._failed_s or membership.noticed_s
            if membership.hung_s:
                self._record(
                    "stall", reached, membership.hung_s, time_s=began_s, cause="a hung rank"
                )
            self._tell(
                "restart",
                reached,
                max(0.0, begin_s - began_s),
                time_s=begin_s,
                generation=generation.number,
                lost_slots=list(report.lost_slots),
                cause=membership.cause,
            )
            self._tell(
                "restore",
                report.step,
                now_s - begin_s,
                source=report.source,
                lost_steps=report.lost_steps,
                stale_steps=report.stale_steps,
                reason=report.decision.reason if report.decision else None,
            )
        self._failed_s = None

    def _tell(self, event: str, step: int, duration_s: float, **detail: Any) -> None:
        self.measuring.add(event, duration_s)
        self._record(event, step, duration_s, **detail)

    def _record(self, event: str, step: int, duration_s: float | None, **detail: Any) -> None:
        if self._recorder is not None:
            self._recorder.record(event, step, duration_s, **detail)


def _scheme(protection: Protection) -> str:
    parts = ("buddy", protection.buddy), ("running", protection.running), ("full", protection.full)
    return "+".join(name for name, on in parts if on) or "none"


__all__ = ["ElasticGroup", "EvictedError", "Generation", "RankFailedError", "Timeouts"]
