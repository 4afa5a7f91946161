"""Shards parked in shared memory between two attempts of a job: written whole or not at all.

One file a rank, below a folder in /dev/shm: a line of JSON, then the images it names. A checksum
covers all of it; what fails it is not there. Nothing is pickled.

What was parked stays until its slot has made a step: attempts that are killed before that, in
importing or in forming the group, take nothing along. Beside it lies from which step the attempts
since went on (`agree`): newer images than that are of steps that may have been done otherwise.
"""

from __future__ import annotations

import json
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ettr.checkpoint import checksums
from ettr.checkpoint.errors import CheckpointError

MAGIC = b"ETTRPARK"
_HEAD = struct.Struct("<8sQQ")  # magic, bytes of the JSON, checksum of what follows


@dataclass(frozen=True, slots=True)
class Parked:
    """What a rank of an attempt left: images by kind and step.

    images: (`own` or `mirror`, step) -> bytes. attempt: the one that was left.
    """

    attempt: int
    slot: int
    world: int
    images: dict[tuple[str, int], Tensor]


def park(folder: Path, parked: Parked) -> int:
    """Write a rank's images; returns the bytes.

    Raises:
        OSError: there is no room for them; what was parked before still lies there.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kinds = list(parked.images)
    name = checksums.default_name()
    described = {
        "attempt": parked.attempt,
        "slot": parked.slot,
        "world": parked.world,
        "checksum": name,
        "images": [[kind, step, parked.images[kind, step].numel()] for kind, step in kinds],
    }
    text = json.dumps(described).encode()
    parts: list[bytes | memoryview] = [text, *(parked.images[key].numpy().data for key in kinds)]
    checksum = checksums.streaming_digest(name)
    for part in parts:
        checksum.update(part)
    _write(
        folder / f"slot-{parked.slot}", _HEAD.pack(MAGIC, len(text), checksum.intdigest()), *parts
    )
    return sum(len(part) for part in parts)


def parked(folder: Path, slot: int, *, before: int, world: int) -> Parked | None:
    """What the rank of a slot left in the latest attempt that it left anything in, or None.

    Args:
        before: this attempt; what it left itself does not count.
        world: ranks of this attempt; shards of another number of ranks do not fit.
    """
    try:
        raw = bytearray((folder / f"slot-{slot}").read_bytes())
        magic, length, digest = _HEAD.unpack_from(raw)
        body = memoryview(raw)[_HEAD.size :]
        described = json.loads(bytes(body[:length]))
        whole = magic == MAGIC and checksums.digest_function(described["checksum"])(body) == digest
        agreed = _agreed(folder, slot)
    except (OSError, struct.error, ValueError, KeyError, TypeError, CheckpointError):
        return None
    attempt = described["attempt"]
    if not whole or attempt >= before or described["world"] != world:
        return None
    newest = min((step for since, step in agreed if since > attempt), default=None)
    images, at = {}, _HEAD.size + length
    for kind, step, n_bytes in described["images"]:
        if newest is None or step <= newest:
            images[kind, step] = torch.frombuffer(raw, dtype=torch.uint8, count=n_bytes, offset=at)
        at += n_bytes
    return Parked(attempt, slot, world, images)


def agree(folder: Path, slot: int, *, attempt: int, step: int) -> None:
    """From this attempt on all ranks go on from a step; told before any of them goes further."""
    if (folder / f"slot-{slot}").exists():
        told = [*_agreed(folder, slot), (attempt, step)]
        _write(folder / f"agreed-{slot}", json.dumps(told).encode())


def clear(folder: Path, slot: int) -> None:
    """Nothing lies parked of a slot any more: it has moved on, or the job begins."""
    for name in (f"slot-{slot}", f"agreed-{slot}"):
        (folder / name).unlink(missing_ok=True)
    clear_torn(folder, slot)


def clear_torn(folder: Path, slot: int) -> None:
    """Take away what a process that was killed while it parked has left."""
    for torn in folder.glob(f".*-{slot}.*"):
        torn.unlink(missing_ok=True)


def _agreed(folder: Path, slot: int) -> list[tuple[int, int]]:
    """(attempt, the step from which it went on) of the attempts since the slot was parked."""
    path = folder / f"agreed-{slot}"
    return [(since, step) for since, step in json.loads(path.read_bytes())] if path.exists() else []


def _write(path: Path, *parts: Any) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as out:
            for part in parts:
                out.write(part)
        partial.rename(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
