"""Under stock torchrun: every rank saves its shard on exit, and the next attempt loads it.

torchrun ends all ranks when one dies. Survivors notice (their collective fails, or SIGTERM comes),
save their images to /dev/shm and exit; the restarted ranks find them there, and only the killed
one's shard must come from elsewhere: its buddy's copy, the running checkpoint, or a full one. The
same script and the same `train` as under `ettr elastic`.

    torchrun --nproc-per-node 4 --max-restarts 10 train.py

One node: shared memory does not outlive the machine, nor reach another. Two traps are handled:
torchrun uses the store of the rendezvous again, with the keys of the attempt before (all keys go
below the attempt's number), and its SIGTERM would end a rank that is saving. The files stay until
their slot has made a step, so that ranks killed while they start destroy nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import struct
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ettr.checkpoint import CheckpointError
from ettr.checkpoint.slots.format import default_checksum, digest_function, streaming_digest
from ettr.elastic import process_group
from ettr.elastic.elastic_group import ElasticGroup, Generation, RankFailedError, RunRecord
from ettr.elastic.process_group import Timeouts
from ettr.elastic.protection import Protection
from ettr.elastic.rank_inventory import RecoveryReport
from ettr.elastic.rendezvous import (
    ENV_STORE,
    Cause,
    Membership,
    open_sockets,
    prefixed,
    shut_down_connections,
    torchrun_pid,
)
from ettr.elastic.ring import Ring
from ettr.elastic.shard_image import ShardStore
from ettr.errors import UsageError
from ettr.files import new_file
from ettr.progress.recorder import ProgressRecorder
from ettr.recovery.restore_costs import Measuring

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - memory that outlives the process is the point
_SHUT_DOWN_AGAIN_S = 0.05

ResultT = TypeVar("ResultT")


def started_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


class TorchrunGroup:
    """The ranks of one attempt of torchrun; used as `ElasticGroup`.

    Args:
        folder: where shards are saved on exit; None: below /dev/shm, by user and run.

    Raises:
        UsageError: torchrun did not start this process, or a parity was asked for.
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
        if not started_by_torchrun():
            raise UsageError("TORCHELASTIC_RUN_ID is not set: start the script with torchrun")
        if protection is not None and protection.parity:
            raise UsageError(
                "parity needs survivors, and torchrun restarts every rank: start the script with "
                "`ettr elastic`, or give buddy=True"
            )
        self.protection, self.fingerprints = protection or Protection(), fingerprints
        self.shards, self.timings = ShardStore(), Measuring()
        self.reports: list[RecoveryReport] = []
        self.last_failed_s: float | None = None
        self.attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.slot, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._timeouts = timeouts or Timeouts()
        self._record = RunRecord(recorder, self.timings)
        self._folder = folder or _folder_of_run()
        self._handed_over_s: float | None = None
        self._made_no_step = True
        self._sockets_before: frozenset[str] = frozenset()
        self._over, self._left = threading.Event(), threading.Event()

    @property
    def stop_reason(self) -> str | None:
        """None: torchrun's SIGTERM may mean no more than a restart."""
        return None

    def run(self, train: Callable[[Generation], ResultT]) -> ResultT:
        """Call `train` once; save the shard and raise if it is broken off.

        Raises:
            RankFailedError: this attempt is over; torchrun starts the next.
        """
        process_group.warm_up()
        self._load_handoff()
        self._sockets_before = frozenset(open_sockets())
        _on_sigterm(self._end_waits)
        generation: Generation | None = None
        failure: str | None = None
        try:
            generation = self._form()
            result = train(generation)
            dist.barrier()
        except RuntimeError as error:
            self.last_failed_s = time.time()
            failure = "".join(traceback.format_exception(error))
        self._left.set()
        if failure is not None:
            failure += self._save_on_exit(generation)
        if generation is not None:
            generation.end()
        if failure is not None:
            raise RankFailedError(f"attempt {self.attempt} was broken off:\n{failure}")
        if self.slot == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
        process_group.destroy()
        return result

    def open_ring(self, membership: Membership, slot: int, following: int) -> Ring:
        """Open a rank's connections to its neighbours in this attempt."""
        one_node = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
        return Ring(
            slot,
            following,
            idle_s=self._timeouts.collective_s,
            over=self._over.is_set,
            reachable_host=None if one_node else os.environ.get("MASTER_ADDR"),
        )

    def updated(self, membership: Membership, step: int, step_s: float, save_s: float) -> None:
        """Record that an update was made and copied."""
        if self._made_no_step:
            remove_handoff(self._folder, self.slot)
            self._made_no_step = False
        self._record.updated(
            step, step_s, save_s, scheme=self.protection.scheme, attempt=self.attempt
        )

    def recovered(self, membership: Membership, report: RecoveryReport, begin_s: float) -> None:
        """Record that the attempt has its state."""
        record_agreed_step(self._folder, self.slot, attempt=self.attempt, step=report.step)
        self.reports.append(report)
        self._record.recovered(
            membership, report, begin_s=begin_s, failed_s=self._handed_over_s, attempt=self.attempt
        )

    def _form(self) -> Generation:
        from torch.distributed import rendezvous

        wait = timedelta(seconds=self._timeouts.rendezvous_s)
        store, slot, world = next(iter(rendezvous("env://", timeout=wait)))
        # torchrun's own store lives on over restarts, with the keys of the attempts before.
        store = prefixed(f"attempt{self.attempt}", store)
        number = self.attempt + 1
        process_group.form(number, store, slot, world, self._timeouts, over=self._over.is_set)
        workers = tuple(f"rank{other}" for other in range(world))
        membership = Membership(number, workers, cause=Cause.DIED if self.attempt else Cause.START)
        return Generation(self, membership, slot, prefixed("ettr", store))

    def _load_handoff(self) -> None:
        """Take into memory what this slot's rank of an attempt before has left."""
        if self.attempt == 0:
            remove_handoff(self._folder, self.slot)  # of a job that was given up
        remove_partial_files(self._folder, self.slot)
        left = load_from_shm(self._folder, self.slot, before=self.attempt, world=self.world)
        if left is None:
            self._warn_of_nothing_left()
            return
        self._handed_over_s = left.failed_s
        for (kind, step), image in sorted(left.images.items(), key=lambda item: item[0][1]):
            history = self.shards.own if kind == "own" else self.shards.neighbour
            buffer = history.buffer(image.numel())
            buffer.copy_(image)
            history.commit(buffer, step)

    def _warn_of_nothing_left(self) -> None:
        """Once on each node, where no rank of it has left its shard."""
        if self.attempt == 0 or os.environ.get("LOCAL_RANK", "0") != "0":
            return
        if not any(self._folder.glob("slot-*")):
            warnings.warn(
                f"attempt {self.attempt} finds no shard of an attempt before in {self._folder}. "
                f"Either every rank of this node failed before its first step, or died without a "
                f"word; or what starts the ranks, between torchrun and them, changes RANK or "
                f"TORCHELASTIC_RUN_ID or clears its environment: then give "
                f"TorchrunGroup(folder=...) a folder of the job's own, the same in every attempt",
                stacklevel=2,
            )

    def _save_on_exit(self, generation: Generation | None) -> str:
        """Save what this rank holds for the next attempt; returns what went wrong, in words."""
        if generation is not None:
            generation.disconnect()  # its neighbours need not wait until this process has saved
            generation.copy_live()
        images: dict[tuple[ImageKind, int], Tensor] = {}
        for step in self.shards.own.steps:
            images["own", step] = self.shards.own.image_of(step)
        for step in self.shards.neighbour.steps:
            images["neighbour", step] = self.shards.neighbour.image_of(step)
        handoff = Handoff(self.attempt, self.slot, self.world, images, self.last_failed_s)
        try:
            if images:
                save_to_shm(self._folder, handoff)
        except OSError as error:
            return f"the shard could not be saved to {self._folder}: {error}\n"
        return ""

    def _end_waits(self) -> None:
        """End every wait of the loop, until it has left: it may be forming its group just now."""
        self._over.set()
        while not self._left.is_set():
            shut_down_connections(except_for=self._sockets_before)
            self._left.wait(_SHUT_DOWN_AGAIN_S)


def group_from_env(
    protection: Protection | None = None,
    *,
    timeouts: Timeouts | None = None,
    recorder: ProgressRecorder | None = None,
    fingerprints: bool = False,
) -> ElasticGroup | TorchrunGroup:
    """The group for whatever started this process: `ettr elastic`, or torchrun.

    Raises:
        UsageError: neither did.
    """
    if ENV_STORE not in os.environ and started_by_torchrun():
        return TorchrunGroup(
            protection, timeouts=timeouts, recorder=recorder, fingerprints=fingerprints
        )
    return ElasticGroup.from_env(
        protection, timeouts=timeouts, recorder=recorder, fingerprints=fingerprints
    )


def _folder_of_run() -> Path:
    run = re.sub(r"[^A-Za-z0-9_.-]", "_", os.environ["TORCHELASTIC_RUN_ID"])
    # by the agent's process too: two runs of one name stay apart
    return SHARED_MEMORY / f"ettr-{os.getuid()}-{run}-{torchrun_pid()}"


def _on_sigterm(act: Callable[[], None]) -> None:
    """Call something on SIGTERM instead of ending the process."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        while True:
            numbers = reader.recv(64)
            if signal.SIGTERM in numbers:
                writer.fileno()  # kept open as long as this thread lives
                act()

    threading.Thread(target=wait, name="ettr-sigterm", daemon=True).start()


# -- Shards handed from one attempt of a job to the next through shared memory: whole, or not at
#    all
#
# One file a rank, below a folder in /dev/shm: a line of JSON, then the images it names. A
# checksum covers all of it; a file that fails it counts as missing. Nothing is pickled.
#
# A file stays until its slot has made a step: attempts that are killed before that, while they
# import or form the group, destroy nothing. A second file records from which step the attempts
# since went on (`record_agreed_step`): newer images than that are of steps that may have been
# done differently.

MAGIC = b"ETTRSHM2"
_HEAD = struct.Struct("<8sQQ")  # magic, bytes of the JSON, checksum of what follows

ImageKind = Literal["own", "neighbour"]


@dataclass(frozen=True, slots=True)
class Handoff:
    """What a rank of an attempt left."""

    attempt: int
    slot: int
    world: int
    images: dict[tuple[ImageKind, int], Tensor]
    failed_s: float | None = None


def save_to_shm(folder: Path, handoff: Handoff) -> int:
    """Write a rank's images; returns the bytes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = list(handoff.images)
    checksum_name = default_checksum()
    described = {
        "attempt": handoff.attempt,
        "slot": handoff.slot,
        "world": handoff.world,
        "failed_s": handoff.failed_s,
        "checksum": checksum_name,
        "images": [[kind, step, handoff.images[kind, step].numel()] for kind, step in keys],
    }
    text = json.dumps(described).encode()
    chunks: list[bytes | memoryview] = [text]
    chunks += [handoff.images[key].numpy().data for key in keys]
    checksum = streaming_digest(checksum_name)
    for chunk in chunks:
        checksum.update(chunk)
    head = _HEAD.pack(MAGIC, len(text), checksum.intdigest())
    _write(_file_of(folder, handoff.slot), [head, *chunks])
    return sum(len(chunk) for chunk in chunks)


def load_from_shm(folder: Path, slot: int, *, before: int, world: int) -> Handoff | None:
    """What the rank of a slot left in the latest attempt in which it left anything, or None.

    Args:
        before: this attempt; what it has left itself does not count.
    """
    path = _file_of(folder, slot)
    try:
        raw = bytearray(path.read_bytes())
        magic, length, digest = _HEAD.unpack_from(raw)
        if magic != MAGIC:
            return None
        body = memoryview(raw)[_HEAD.size :]
        described = json.loads(bytes(body[:length]))
        intact = digest_function(described["checksum"])(body) == digest
        agreed = _agreed_steps(folder, slot)
    except (OSError, struct.error, ValueError, KeyError, TypeError, CheckpointError):
        return None
    attempt = described["attempt"]
    if not intact or attempt >= before or described["world"] != world:
        return None
    newest = min((step for since, step in agreed if since > attempt), default=None)
    images, at = {}, _HEAD.size + length
    for kind, step, n_bytes in described["images"]:
        if newest is None or step <= newest:
            images[kind, step] = torch.frombuffer(raw, dtype=torch.uint8, count=n_bytes, offset=at)
        at += n_bytes
    return Handoff(attempt, slot, world, images, described["failed_s"])


def record_agreed_step(folder: Path, slot: int, *, attempt: int, step: int) -> None:
    """Record from which step an attempt goes on, before any rank goes further."""
    if _file_of(folder, slot).exists():
        agreed = [*_agreed_steps(folder, slot), (attempt, step)]
        _write(folder / f"agreed-{slot}", [json.dumps(agreed).encode()])


def remove_handoff(folder: Path, slot: int) -> None:
    """Remove what a slot left: it has made a step, or the job begins."""
    for path in (_file_of(folder, slot), folder / f"agreed-{slot}"):
        path.unlink(missing_ok=True)
    remove_partial_files(folder, slot)


def remove_partial_files(folder: Path, slot: int) -> None:
    """Remove files of a process that was killed while it wrote them."""
    for partial in folder.glob(f".*-{slot}.*"):
        partial.unlink(missing_ok=True)


def _file_of(folder: Path, slot: int) -> Path:
    return folder / f"slot-{slot}"


def _agreed_steps(folder: Path, slot: int) -> list[tuple[int, int]]:
    """(attempt, the step from which it went on) of the attempts since the slot's file."""
    path = folder / f"agreed-{slot}"
    return [(since, step) for since, step in json.loads(path.read_bytes())] if path.exists() else []


def _write(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with os.fdopen(new_file(partial), "wb") as out:
            for chunk in chunks:
                out.write(chunk)
        partial.rename(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
