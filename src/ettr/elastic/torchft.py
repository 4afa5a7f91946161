"""A disk tier and a progress record under torchft's replica groups.

torchft keeps whole replicas: the loss of one costs its share of the batch, and its successor takes
the state of a living one. It leaves three things to the loop, which are here: the first start, the
loss of all replicas at once, and the record of where the time went. The loop and the manager stay
the user's:

    tier = ReplicaTier(model, optimizer, replica=2, running=folder, recorder=recorder)
    manager = Manager(pg=ProcessGroupGloo(timeout), min_replica_size=1,
                      state_dict=tier.state_dict, load_state_dict=tier.load_state_dict, ...)
    tier.resume(manager)                       # from disk, unless a replica lives
    while manager.current_step() < STEPS:
        optimizer.zero_grad()
        manager.start_quorum()
        loss(model, batch(manager.current_step())).backward()
        for parameter in model.parameters():
            manager.allreduce(parameter.grad).wait()
        if manager.should_commit():
            optimizer.step()
            tier.committed()
        else:
            tier.refused()
    tier.close()

torchft itself is not imported here: the manager is any object with the methods of
`ReplicaManager`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.restore_report import RestoreReport
from ettr.checkpoint.restoring import restore
from ettr.checkpoint.running_checkpoint import RunningCheckpoint
from ettr.checkpoint.slots.reader import slot_names
from ettr.checkpoint.slots.record_selection import candidates, common_steps, open_checkpoint
from ettr.checkpoint.state import TrainingState
from ettr.elastic.buddies.shard_image import pieces_of, reset_step_counts
from ettr.errors import UsageError
from ettr.progress.recorder import ProgressRecorder

_MOST_READS = 20  # of a slot, while a replica that lives goes on writing there


class ReplicaManager(Protocol):
    """The part of `torchft.Manager` that is used."""

    def current_step(self) -> int:
        """Training steps committed."""

    def batches_committed(self) -> int:
        """Batches of all replicas in those steps."""

    def num_participants(self) -> int:
        """Replicas that take part in the step."""

    def errored(self) -> object:
        """What broke the step, or None."""

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Set `step` and `batches_committed`."""


class _Batches:
    """The batches of all replicas, as an object with `state_dict`."""

    committed = 0

    def state_dict(self) -> dict[str, int]:
        return {"committed": self.committed}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.committed = state_dict["committed"]


class ReplicaTier:
    """One replica's disk tier and progress record; see the module.

    On disk lies the whole state of one step, not a composite: replicas that came back from
    different ages would silently differ. So rounds save every block, and two of them are kept.

    Args:
        replica: number or name of the replica; (replica, rank) where a replica has several ranks.
        running: folder of the running checkpoint, one that every replica reaches (on separate disks
            two replicas may come back with different states of one step, which torchft does not
            notice); None: nothing on disk.
        every_steps: a round is due at steps that this divides.
        running_options: further options of `RunningCheckpoint`.
        recorder: receives steps, saves, stalls and restores.
        clock: Unix seconds.

    Raises:
        UsageError: a policy other than `full` was given.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        replica: int | str | tuple[int, ...],
        running: str | os.PathLike[str] | None = None,
        every_steps: int = 10,
        running_options: Mapping[str, Any] | None = None,
        recorder: ProgressRecorder | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        options = {"policy": "full", **(running_options or {})}
        if options["policy"] != "full":
            raise UsageError(
                f"policy: {options['policy']!r} was given; under torchft it is 'full': replicas "
                f"that return from blocks of different ages would differ from each other"
            )
        self._model, self._optimizer, self._replica = model, optimizer, replica
        self._root, self._recorder, self._clock = running, recorder, clock
        # What lies in the slot was resumed from, or is of a round that was broken off.
        self._options = {"newer": "overwrite"} | options | {"every_steps": every_steps}
        self._batches = _Batches()
        self._state = TrainingState(model, optimizer, objects={"batches": self._batches})
        self._checkpoint: RunningCheckpoint | None = None
        self._manager: ReplicaManager | None = None
        self._covered = False
        self._n_replicas = self._n_steps = 0
        self._stepping_s = 0.0
        self._began_s = clock()
        self.resumed_step = 0
        self.heals = 0

    def state_dict(self) -> dict[str, Any]:
        """Parameters, buffers and moments, for `Manager(state_dict=...)`."""
        return {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a living replica's state, for `Manager(load_state_dict=...)`."""
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        manager = self._known_manager()
        step = manager.current_step()
        if step == 0:
            return  # replicas that begin together take the first one's initial values
        self.heals += 1
        self._record(
            "restore",
            step,
            self._since_began_s(),
            source="replica",
            lost_steps=0,
            disk_step=self.resumed_step,
        )

    def resume(self, manager: ReplicaManager) -> int:
        """Restore the newest complete step on disk, of any replica; returns it, 0 without one.

        Call it once, before the first quorum. The manager's step is set to it: where a living
        replica is further, torchft replaces this state by that one's.

        Raises:
            CheckpointError: there is a checkpoint, and no step of it is complete.
        """
        self._manager = manager
        self._began_s = self._clock()
        self._record("start", 0, None, replica=self._replica)
        report = self._restore()
        if report is not None and report.newest_step:
            self.resumed_step = report.newest_step
            batches = self._batches.committed
            manager.load_state_dict({"step": self.resumed_step, "batches_committed": batches})
            self._record("restore", self.resumed_step, self._since_began_s(), source="resume")
        if self._root is not None:
            self._make_moments()
            self._checkpoint = RunningCheckpoint(
                self._root, self._state, slot=self._replica, **self._options
            )
        self._began_s = self._clock()
        return self.resumed_step

    def committed(self) -> None:
        """The optimizer has made the step that the manager committed: save and record it.

        Raises:
            FencedError: another process has taken this replica's place on the disk.
        """
        manager = self._known_manager()
        step, replicas = manager.current_step(), manager.num_participants()
        self._record_change(step, replicas)
        saving_s = self._clock()
        if self._checkpoint is not None:
            self._batches.committed = manager.batches_committed()
            # The first round saves everything: no torn round of the process before this one may
            # ever be taken for a part of a later round of the same step.
            save = self._checkpoint.step if self._covered else self._checkpoint.save_all
            save(step)
            self._covered = True
            self._record("save", step, self._clock() - saving_s, scheme="running")
        self._record("step", step, self._since_began_s(), replicas=replicas)
        self._began_s = self._clock()

    def refused(self) -> None:
        """The manager did not commit the step: it is done again, with whoever is left."""
        manager = self._known_manager()
        why = manager.errored()
        cause = str(getattr(why, "original_exception", None) or why or "not enough replicas")
        self._record("stall", manager.current_step(), self._since_began_s(), cause=cause[:200])
        self._began_s = self._clock()

    def close(self) -> None:
        """Finish the latest round; twice is harmless."""
        if self._checkpoint is not None:
            self._checkpoint.close()

    def _restore(self) -> RestoreReport | None:
        """Restore from the disk; None: no round was ever complete.

        One slot is read, never a mixture: two replicas' copies of a step may be of two attempts at
        it, with other replicas taking part. A replica that lives may write two more rounds over
        what is read; then its slot is read again.

        Raises:
            CheckpointError: something was saved, and no step of it is complete.
        """
        if self._root is None:
            return None
        error: CheckpointError | None = None
        reads = 0
        while True:
            complete, reads = _complete_steps(self._root), reads + 1
            for _, slot in sorted(complete, reverse=True):
                try:
                    return restore(self._root, self._state, slot=slot, mode="consistent")
                except CheckpointError as damage:
                    error = damage
            if error is None:
                return None
            if reads == _MOST_READS or _complete_steps(self._root) == complete:
                raise error  # where nobody writes it is damaged

    def _make_moments(self) -> None:
        # Blocks hold a parameter with its moments: made now, they do not change the layout later.
        if self.resumed_step == 0:
            self._state.materialise()
            reset_step_counts(pieces_of(self._state))

    def _record_change(self, step: int, replicas: int) -> None:
        """Record as a stall what a step took beyond the mean because the replicas changed.

        Waiting for a quorum is not an event that torchft reports.
        """
        before, self._n_replicas = self._n_replicas, replicas
        spent_s = self._since_began_s()
        if before in (0, replicas) or not self._n_steps:
            self._n_steps += 1
            self._stepping_s += spent_s
            return
        beyond_s = max(0.0, spent_s - self._stepping_s / self._n_steps)
        self._record(
            "stall", step - 1, beyond_s, cause=f"replicas went from {before} to {replicas}"
        )

    def _known_manager(self) -> ReplicaManager:
        if self._manager is None:
            raise CheckpointError("the tier does not know its manager; call resume(manager) first")
        return self._manager

    def _since_began_s(self) -> float:
        return max(0.0, self._clock() - self._began_s)

    def _record(self, event: str, step: int, duration_s: float | None, **detail: object) -> None:
        if self._recorder is not None:
            self._recorder.record(event, step, duration_s, time_s=None, **detail)


def _complete_steps(root: str | os.PathLike[str]) -> list[tuple[int, str]]:
    """(newest step of which a slot has every block, slot), by the headers.

    A slot whose very first round was broken off is left out.

    Raises:
        CheckpointError: a slot holds blocks of several steps and none of them is complete.
    """
    if not any(Path(root).glob("slot-*")):
        return []
    steps = {name: _newest_complete(root, name) for name in slot_names(root)}
    return [(step, name) for name, step in steps.items() if step is not None]


def _newest_complete(root: str | os.PathLike[str], name: str) -> int | None:
    found: set[int] = set()
    for _ in range(_MOST_READS):
        with ExitStack() as stack:
            records = candidates(open_checkpoint(stack, root, name))
            complete = common_steps(records)
            before, found = found, {r.header.step for of_key in records.values() for r in of_key}
        if complete:
            return complete[0]
        if len(found) <= 1:
            return None
        if found == before:
            break  # or else a replica writes there, and headers were read before and after a round
    raise CheckpointError(
        f"{root}: slot {name} holds blocks of steps {min(found)} to {max(found)} and no step is "
        f"complete; see `ettr verify {root}`, or remove the slot to go on without it"
    )
