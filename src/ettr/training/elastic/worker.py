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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Self

from ettr.errors import EttrError, UsageError
from ettr.training.elastic import membership as names
from ettr.training.elastic.membership import Membership
from ettr.training.elastic.protection import Protection
from ettr.training.elastic.watcher import Watcher
from ettr.training.faults import CheckpointError
from ettr.training.progress import ProgressRecorder
from ettr.training.recovery import Measured, Measuring

_POLL_S = 0.01


class RankFailedError(EttrError):
    """Training failed on this rank for a reason of its own, not for a peer's death."""


class EvictedError(EttrError):
    """This process was replaced: its slot belongs to another one now."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; each must exceed the one before it, so that a waiting rank never gives up first.

    collective_s: a collective without an answer fails (a hang that no heartbeat shows).
    regroup_s: a rank whose collective failed waits this long for the supervisor to have noticed
    why. rendezvous_s: the ranks of a new generation wait this long for each other; a replacement
    that is not warm imports torch meanwhile.
    """

    collective_s: float = 60.0
    regroup_s: float = 90.0
    rendezvous_s: float = 300.0

    def __post_init__(self) -> None:
        """Check the order.

        Raises:
            UsageError: they do not ascend.
        """
        if not 0 < self.collective_s < self.regroup_s < self.rendezvous_s:
            raise UsageError(
                f"timeouts of {self.collective_s} s for a collective, {self.regroup_s} s to "
                f"regroup, {self.rendezvous_s} s to meet: give them ascending, above 0"
            )


class Generation:
    """One membership of the group, as `train` sees it.

    Attributes:
        number: Of the generation; grows with every change.
        slot: This rank; `world`: the number of ranks.
        report: What `recover` did.
    """

    def __init__(
        self,
        group: Any,
        membership: Membership,
        slot: int,
        store: Any,
    ) -> None:
        self.number, self.slot, self.world = membership.generation, slot, len(membership.workers)
        self.membership = membership
        self.report: Any = None
        self.fingerprints = group.fingerprints
        self._group, self._store = group, store
        self._state: Any = None
        self._recovery: Any = None
        self.sizes: list[int] = []
        self._checkpoint: Any = None
        self._torn = False
        self._last_s = 0.0
        self._gathered = 0

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
        return self._group.protection

    @property
    def measured(self) -> dict[str, float]:
        """This rank's measured times, for the planner."""
        run = self._group.measuring.run()
        regroup_s = run.restart_s or 0.0
        return asdict(Measured(step_s=run.step_s, regroup_s=regroup_s, restart_s=regroup_s))

    def mesh(self, names_: tuple[str, ...] = ("fsdp",), device: str | None = None) -> Any:
        """A one-dimensional mesh over all ranks, to shard the model on."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(device or _device(), (self.world,), mesh_dim_names=names_)

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
        from ettr.training.elastic.recovering import Recovery
        from ettr.training.state import TrainingState

        begin_s = time.time()
        self._model, self._optimizer = model, optimizer
        self._state = TrainingState(model, optimizer)
        self._recovery = Recovery(self, self._state, model, optimizer)
        self.report = self._recovery.run()
        step: int = self.report.step
        self._open_checkpoint(step)
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
            self._checkpoint.step(step)
        self._save_full(step)
        now_s = time.monotonic()
        self._group.updated(self, step, now_s - self._last_s, now_s - saved_s)
        self._last_s = now_s

    def mirror(self, pieces: Any, step: int) -> None:
        """Copy this rank's shard, hand it to the next rank and take the one of the rank before."""
        from ettr.training.elastic import keeping

        image = self.keeper.take_own(pieces, step)
        if self.world > 1:
            keeping.exchange(self.keeper, step, image, self.sizes, self.slot)

    def end(self) -> None:
        """Let go of the model and the checkpoint; keep the live shard, unless it is torn."""
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
        from ettr.training.running import RunningCheckpoint
        from ettr.training.slotfile import fence

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

    def _save_full(self, step: int) -> None:
        root = self.protection.full
        if root is not None and step % self.protection.full_every_steps == 0:
            from ettr.training.elastic.full import save_full

            save_full(root, step, self._model, self._optimizer)


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
        from ettr.training.elastic.keeping import Keeper

        self.worker, self.protection, self.fingerprints = worker, protection, fingerprints
        self.keeper, self.measuring = Keeper(), Measuring()
        self.reports: list[Any] = []
        self._address, self._timeouts, self._recorder = store, timeouts, recorder
        self._control = self._connect()
        self._watcher = Watcher(self._connect(), worker, abort=_abort())
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
        warm_up()
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
        import torch.distributed as dist

        self._watcher.attempt(membership.generation)
        generation: Generation | None = None
        told: str | None = None
        result = None
        try:
            store = dist.PrefixStore(f"gen{membership.generation}", self._connect())
            self._form(membership, slot, store)
            generation = Generation(self, membership, slot, store)
            result = train(generation)
            self._wait_for_all(membership, slot)
        except RuntimeError as error:  # gloo, NCCL and the store raise its subclasses
            self._failed_s = self.last_failed_s = self._failed_s or time.time()
            told = "".join(traceback.format_exception(error))
        if generation is not None:
            generation.end()
        with suppress(Exception):
            dist.destroy_process_group()
        self._watcher.rest()
        return told, result

    def _form(self, membership: Membership, slot: int, store: Any) -> None:
        import torch.distributed as dist

        world = len(membership.workers)
        os.environ.update(RANK=str(slot), LOCAL_RANK=str(slot), WORLD_SIZE=str(world))
        dist.init_process_group(
            backend(),
            store=store,
            rank=slot,
            world_size=world,
            timeout=timedelta(seconds=self._timeouts.rendezvous_s),
        )
        # Shorter from here on: with one timeout for both, the ranks that wait for the last one to
        # come would give up just as it arrives.
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=self._timeouts.collective_s))

    def _connect(self) -> Any:
        from torch.distributed import TCPStore

        wait = timedelta(seconds=self._timeouts.rendezvous_s)
        host, port = self._address
        return TCPStore(host, port, is_master=False, timeout=wait, wait_for_workers=False)

    def _wait_for_slot(self, after: int) -> Membership:
        """The first generation above `after` in which this process has a slot; a spare waits."""
        while True:
            membership = self._newest()
            if membership.generation > after and membership.slot_of(self.worker) is not None:
                return membership
            if self._control.check([names.STOP]):
                sys.exit(0)
            time.sleep(_POLL_S)

    def _wait_for_next(self, membership: Membership, told: str) -> Membership:
        """The generation that follows a failure.

        Raises:
            RankFailedError: there is none: nobody died, so the failure was this rank's own.
        """
        key = names.failed_key(membership.generation, self.worker)
        deadline_s = time.monotonic() + self._timeouts.regroup_s
        said_s = time.monotonic() + 1.0
        while time.monotonic() < deadline_s:
            newest = self._newest()
            if newest.generation > membership.generation:
                return newest
            if time.monotonic() > said_s:
                self._control.set(key, "1")
            time.sleep(_POLL_S)
        raise RankFailedError(
            f"training failed and no rank was lost within {self._timeouts.regroup_s:g} s:\n{told}"
        )

    def _newest(self) -> Membership:
        number = int(self._control.get(names.GENERATION))
        return Membership.from_json(self._control.get(names.membership_key(number)))

    def _wait_for_all(self, membership: Membership, slot: int) -> None:
        """Return when every rank has trained to its end.

        Raises:
            RuntimeError: one was lost before; this rank is needed again.
        """
        number = membership.generation
        self._control.set(names.finished_key(number, slot), "1")
        keys = [names.finished_key(number, other) for other in range(len(membership.workers))]
        while not self._control.check(keys):
            if int(self._control.get(names.GENERATION)) > number:
                raise RuntimeError("a rank was lost before it had trained to the end")
            time.sleep(_POLL_S)

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
                "restart", reached, max(0.0, begin_s - began_s), time_s=begin_s,
                generation=generation.number, lost_slots=list(report.lost_slots),
                cause=membership.cause,
            )  # fmt: skip
            self._tell(
                "restore", report.step, now_s - begin_s, source=report.source,
                lost_steps=report.lost_steps, stale_steps=report.stale_steps,
                reason=report.decision.reason if report.decision else None,
            )  # fmt: skip
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


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def backend() -> str:
    """gloo, and NCCL beside it where there is a GPU."""
    return "cpu:gloo,cuda:nccl" if _device() == "cuda" else "gloo"


def _abort() -> Callable[[], None] | None:
    """What ends NCCL's waits, where there is a GPU; gloo's end with their sockets."""
    if _device() != "cuda":
        return None

    def abort() -> None:
        from torch.distributed import distributed_c10d

        with suppress(Exception):
            distributed_c10d._abort_process_group()

    return abort


def warm_up() -> None:
    """Import and build what the first step would, so that a spare has it behind it."""
    import torch
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    from torch.distributed.device_mesh import init_device_mesh  # noqa: F401

    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.zeros(2)
    torch.optim.AdamW([parameter]).step()


__all__ = [
    "CheckpointError",
    "ElasticGroup",
    "EvictedError",
    "Generation",
    "RankFailedError",
    "Timeouts",
]
