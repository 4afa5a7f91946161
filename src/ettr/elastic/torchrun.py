"""Under stock torchrun: every rank's last gasp is its shard, and the next attempt takes it up.

torchrun ends all ranks when one dies. Survivors notice (their collective fails, or SIGTERM comes),
park their images in /dev/shm and exit; the restarted ranks find them there, and only the killed
one's shard must come from elsewhere: its buddy's parked mirror, the running checkpoint, or a full
one. The same script and the same `train` as under `ettr elastic`.

    torchrun --nproc-per-node 4 --max-restarts 10 train.py

One node: shared memory does not outlive the machine, nor reach another. Two traps are seen to: the
store of the rendezvous is used again with the keys of the attempt before (all keys go below the
attempt's number), and torchrun's SIGTERM would end a rank in its gasp. What was parked lies there
until its slot has made a step, so that ranks killed while they start take nothing along.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from ettr.elastic.generation import Generation
from ettr.elastic.groups import (
    RankFailedError,
    Timeouts,
    destroy,
    form,
    prefixed,
    warm_up,
)
from ettr.elastic.protection import Protection
from ettr.elastic.rendezvous import Membership
from ettr.elastic.shm_handoff import Parked, agree, clear, clear_torn, park, parked
from ettr.elastic.sockets import open_sockets, sever
from ettr.errors import UsageError
from ettr.progress.recorder import ProgressRecorder
from ettr.recovery.timings import Measuring

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - memory that outlives the process is the point
_CUT_AGAIN_S = 0.05


def started_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


class TorchrunGroup:
    """The ranks of one attempt of torchrun; used as `ElasticGroup`.

    Args:
        folder: where shards are parked; None: below /dev/shm, by user and run.

    Raises:
        UsageError: torchrun did not start this process.
    """

    def __init__(
        self,
        protection: Protection | None = None,
        *,
        timeouts: Timeouts | None = None,
        recorder: ProgressRecorder | None = None,
        fingerprints: bool = False,
        folder: Path | None = None,
    ) -> None:
        from ettr.elastic.shard_history import Keeper

        if not started_by_torchrun():
            raise UsageError("TORCHELASTIC_RUN_ID is not set: start the script with torchrun")
        self.protection, self.fingerprints = protection or Protection(), fingerprints
        self.keeper, self.measuring = Keeper(), Measuring()
        self.reports: list[Any] = []
        self.attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.slot, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.last_failed_s: float | None = None
        self._timeouts, self._recorder = timeouts or Timeouts(), recorder
        self._folder = folder or _folder_of_run()
        self._kept: frozenset[str] = frozenset()
        self._over, self._left = threading.Event(), threading.Event()
        self._moved_on = False

    def run(self, train: Callable[[Generation], Any]) -> Any:
        """Call `train` once; park the shard and raise if it is broken off.

        Raises:
            RankFailedError: this attempt is over; torchrun starts the next.
        """
        import torch.distributed as dist

        warm_up()
        self._take_up()
        self._kept = frozenset(open_sockets())
        _listen_for_sigterm(self._cut)
        told: str | None = None
        result = None
        generation: Generation | None = None
        try:
            generation = self._form()
            result = train(generation)
            dist.barrier()
        except RuntimeError as error:
            self.last_failed_s = time.time()
            told = "".join(traceback.format_exception(error))
        self._left.set()
        if generation is not None:
            generation.close_ring()  # its neighbours need not wait until this process has parked
        if told is not None:
            try:
                self._gasp(generation)
            except OSError as error:
                told += f"nothing could be parked: {error}\n"
        if generation is not None:
            generation.end()
        if told is not None:
            raise RankFailedError(f"attempt {self.attempt} was broken off:\n{told}")
        if self.slot == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
        destroy()
        return result

    def _form(self) -> Generation:
        from torch.distributed import rendezvous  # type: ignore[attr-defined]

        wait = timedelta(seconds=self._timeouts.rendezvous_s)
        store, slot, world = next(iter(rendezvous("env://", timeout=wait)))
        # torchrun's own store lives on over restarts, with the keys of the attempts before.
        store = prefixed(f"attempt{self.attempt}", store)
        form(self.attempt + 1, store, slot, world, self._timeouts, over=self._over.is_set)
        names = tuple(f"rank{other}" for other in range(world))
        membership = Membership(self.attempt + 1, names, cause="died" if self.attempt else "start")
        return Generation(self, membership, slot, prefixed("ettr", store))

    def _take_up(self) -> None:
        """What this slot's rank of an attempt before parked becomes this rank's memory."""
        if self.attempt == 0:
            clear(self._folder, self.slot)  # left by a job that was given up
        clear_torn(self._folder, self.slot)
        left = parked(self._folder, self.slot, before=self.attempt, world=self.world)
        for (kind, step), image in sorted(left.images.items() if left else (), key=_by_step):
            versions = self.keeper.own if kind == "own" else self.keeper.mirror
            room = versions.room(image.numel())
            room.copy_(image)
            versions.filled(room, step)

    def _gasp(self, generation: Generation | None) -> None:
        """Park what this rank holds; SIGTERM has nothing to interrupt any more."""
        keeper = self.keeper
        if generation is not None:
            generation.park_live()
        images = {
            (kind, step): versions.image_of(step)
            for kind, versions in (("own", keeper.own), ("mirror", keeper.mirror))
            for step in versions.steps
        }
        if images:
            park(self._folder, Parked(self.attempt, self.slot, self.world, images))

    def _cut(self) -> None:
        """End every wait of the loop, until it has left: it may be forming its group just now."""
        self._over.set()
        while not self._left.is_set():
            sever(self._kept)
            self._left.wait(_CUT_AGAIN_S)

    def open_ring(self, number: int, slot: int, world: int) -> Any:
        """A rank's connections to its neighbours in this attempt; told by the generation."""
        from ettr.elastic.neighbour_ring import Ring

        one_node = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
        return Ring(
            slot,
            world,
            silent_s=self._timeouts.collective_s,
            over=self._over.is_set,
            towards=None if one_node else os.environ.get("MASTER_ADDR"),
        )

    def updated(self, generation: Generation, step: int, step_s: float, save_s: float) -> None:
        """An update was made and guarded; told by the generation."""
        if not self._moved_on:
            self._moved_on = True
            clear(self._folder, self.slot)
        self.measuring.add("step", step_s)
        self.measuring.add("save", save_s)
        if self._recorder is not None:
            self._recorder.save(step, save_s)
            self._recorder.step(step, step_s, attempt=self.attempt)

    def recovered(self, generation: Generation, report: Any, begin_s: float) -> None:
        """The attempt has its state; told by the generation."""
        agree(self._folder, self.slot, attempt=self.attempt, step=report.step)
        self.reports.append(report)
        if self._recorder is None:
            return
        if report.source in ("start", "resume"):
            self._recorder.start(report.step, attempt=self.attempt)
            return
        self._recorder.restart(
            max(report.reached_step, 0), None, time_s=begin_s, attempt=self.attempt
        )
        self._recorder.restore(
            report.step, time.time() - begin_s, source=report.source, lost_steps=report.lost_steps
        )


def group_from_env(protection: Protection | None = None, **options: Any) -> Any:
    """The group for whatever started this process: `ettr elastic`, or torchrun.

    Args:
        options: of either group.

    Raises:
        UsageError: neither did.
    """
    from ettr.elastic.elastic_group import ElasticGroup
    from ettr.elastic.rendezvous import ENV_STORE

    if ENV_STORE not in os.environ and started_by_torchrun():
        return TorchrunGroup(protection, **options)
    return ElasticGroup.from_env(protection, **options)


def _folder_of_run() -> Path:
    run = re.sub(r"[^A-Za-z0-9_.-]", "_", os.environ["TORCHELASTIC_RUN_ID"])
    # The agent is the parent of all ranks over all attempts: two runs of one name stay apart.
    return SHARED_MEMORY / f"ettr-{os.getuid()}-{run}-{os.getppid()}"


def _by_step(item: tuple[tuple[str, int], Any]) -> int:
    return item[0][1]


def _listen_for_sigterm(cut: Callable[[], None]) -> None:
    """SIGTERM cuts the group's sockets instead of ending the process.

    The interpreter runs no handler while the main thread waits in a collective; the wake-up
    descriptor is written to at once, and a thread reads it.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        while True:
            numbers = reader.recv(64)
            if signal.SIGTERM in numbers:
                writer.fileno()  # kept open as long as this thread lives
                cut()

    threading.Thread(target=wait, name="ettr-sigterm", daemon=True).start()
