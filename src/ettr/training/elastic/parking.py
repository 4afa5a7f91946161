"""Shards parked in shared memory between two attempts of a job: written whole or not at all.

One file a rank, below a folder in /dev/shm: a line of JSON, then the images it names. A checksum
covers all of it; what fails it is not there. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ettr.training import checksums

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
    """Write a rank's images; returns the bytes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kinds = list(parked.images)
    described = {
        "attempt": parked.attempt,
        "slot": parked.slot,
        "world": parked.world,
        "checksum": checksums.default_name(),
        "images": [[kind, step, parked.images[kind, step].numel()] for kind, step in kinds],
    }
    text = json.dumps(described).encode()
    body = b"".join([text, *(parked.images[key].numpy().tobytes() for key in kinds)])
    digest = checksums.function(described["checksum"])(body)  # type: ignore[arg-type]
    path = folder / f"slot-{parked.slot}"
    partial = folder / f".slot-{parked.slot}.{os.getpid()}"
    partial.write_bytes(_HEAD.pack(MAGIC, len(text), digest) + body)
    partial.rename(path)
    return len(body)


def parked(folder: Path, slot: int, *, attempt: int, world: int) -> Parked | None:
    """What the rank of a slot left in an attempt; None: nothing whole, or of another attempt.

    Args:
        attempt: the attempt before this one: what an earlier one left is out of date.
        world: ranks of this attempt; shards of another number of ranks do not fit.
    """
    try:
        raw = (folder / f"slot-{slot}").read_bytes()
        magic, length, digest = _HEAD.unpack_from(raw)
        body = memoryview(raw)[_HEAD.size :]
        described = json.loads(bytes(body[:length]))
        whole = magic == MAGIC and checksums.function(described["checksum"])(body) == digest
    except (OSError, struct.error, ValueError, KeyError):
        return None
    if not whole or (described["attempt"], described["world"]) != (attempt, world):
        return None
    images, at = {}, length
    for kind, step, n_bytes in described["images"]:
        images[kind, step] = torch.frombuffer(bytearray(body[at : at + n_bytes]), dtype=torch.uint8)
        at += n_bytes
    return Parked(attempt, slot, world, images)
