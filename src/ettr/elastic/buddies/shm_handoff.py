"""Shards handed from one attempt of a job to the next through shared memory: whole, or not at all.

One file a rank, below a folder in /dev/shm: a line of JSON, then the images it names. A checksum
covers all of it; a file that fails it counts as missing. Nothing is pickled.

A file stays until its slot has made a step: attempts that are killed before that, while they import
or form the group, destroy nothing. A second file records from which step the attempts since went on
(`record_agreed_step`): newer images than that are of steps that may have been done differently.
"""

from __future__ import annotations

import json
import os
import struct
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ettr.checkpoint import CheckpointError
from ettr.checkpoint.slots import checksums
from ettr.files import new_file

MAGIC = b"ETTRSHM2"
_MAGIC_START = b"ETTR"
_HEAD = struct.Struct("<8sQQ")  # magic, bytes of the JSON, checksum of what follows

ImageKind = Literal["own", "neighbour"]


@dataclass(frozen=True, slots=True)
class Handoff:
    """What a rank of an attempt left.

    Attributes:
        images: (kind, step) -> bytes; the shard itself, or the previous slot's.
    """

    attempt: int
    slot: int
    world: int
    images: dict[tuple[ImageKind, int], Tensor]
    failed_s: float | None = None


def save_to_shm(folder: Path, handoff: Handoff) -> int:
    """Write a rank's images; returns the bytes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = list(handoff.images)
    checksum_name = checksums.default_name()
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
    checksum = checksums.streaming_digest(checksum_name)
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
            _warn_of_version(path, magic)
            return None
        body = memoryview(raw)[_HEAD.size :]
        described = json.loads(bytes(body[:length]))
        intact = checksums.digest_function(described["checksum"])(body) == digest
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


def holds_handoff(folder: Path) -> bool:
    """Whether any rank has left its images in a folder, which need not exist."""
    return any(folder.glob("slot-*"))


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


def _warn_of_version(path: Path, magic: bytes) -> None:
    if magic.startswith(_MAGIC_START):
        warnings.warn(
            f"{path} was written by another version of ettr and is not used; "
            f"run all attempts of a job with the same ettr",
            stacklevel=2,
        )


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
