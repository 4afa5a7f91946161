"""A rank's shard as one flat run of bytes: parameters, moments, step counts, and random state.

Every rank that holds the same slot lays it out alike, so that an image taken on one process can be
put into the model of its replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.state import Shard, TrainingState

_ALIGN = 16
_NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor (or number, where `shape` is None) of a shard, and where it lies in the image."""

    shard: Shard
    name: str
    shape: tuple[int, ...] | None
    offset: int
    n_bytes: int


def pieces_of(state: TrainingState) -> list[Piece]:
    """The pieces of a rank's state in the order of its image."""
    found: list[Piece] = []
    offset = 0
    for shard in state.shards():
        for component in shard.spec.components:
            value = shard.value(component.name)
            shape, n_bytes = None, _NUMBER_BYTES
            if isinstance(value, Tensor):
                shape, n_bytes = tuple(value.shape), value.numel() * value.element_size()
            found.append(Piece(shard, component.name, shape, offset, n_bytes))
            offset += -(-n_bytes // _ALIGN) * _ALIGN
    return found


def image_bytes(pieces: list[Piece]) -> int:
    """Bytes of the image: all pieces, and the random state of the CPU behind them."""
    end = pieces[-1].offset + -(-pieces[-1].n_bytes // _ALIGN) * _ALIGN if pieces else 0
    return end + torch.get_rng_state().numel()


def take(pieces: list[Piece], image: Tensor) -> None:
    """Copy the live shard and the random state into an image (uint8, of `image_bytes`)."""
    with torch.no_grad():
        for piece in pieces:
            _slot(image, piece).copy_(_value(piece))
        random_state = torch.get_rng_state()
        image[-random_state.numel() :].copy_(random_state)


def put(pieces: list[Piece], image: Tensor) -> None:
    """Copy an image into the live shard and set the random state.

    Raises:
        CheckpointError: the image is of another layout.
    """
    if image.numel() != image_bytes(pieces):
        raise CheckpointError(
            f"a shard's image has {image.numel()} bytes and this model's shard takes "
            f"{image_bytes(pieces)}; build the same model and optimizer in every generation"
        )
    with torch.no_grad():
        for piece in pieces:
            stored = _slot(image, piece)
            if piece.shape is None:
                _put_number(piece, float(stored))
            else:
                _value(piece).copy_(stored)
    torch.set_rng_state(image[-torch.get_rng_state().numel() :].clone())


def live_parts(pieces: list[Piece]) -> dict[tuple[str, str], Any]:
    """The live local tensors and numbers by (parameter, part): references, nothing is copied.

    They hold on to no module and no process group.
    """
    return {(p.shard.spec.fqn, p.name): p.shard.value(p.name) for p in pieces}


def put_parts(pieces: list[Piece], parts: dict[tuple[str, str], Any]) -> None:
    """Copy what `live_parts` kept into a rebuilt model.

    Raises:
        CheckpointError: the rebuilt model has other parameters or another sharding.
    """
    with torch.no_grad():
        for piece in pieces:
            value = parts.get((piece.shard.spec.fqn, piece.name))
            shape = tuple(value.shape) if isinstance(value, Tensor) else None
            if value is None or shape != piece.shape:
                raise CheckpointError(
                    f"{piece.shard.spec.fqn}: its {piece.name} had shape {shape} before the "
                    f"failure and has {piece.shape} now; build the same model in every generation"
                )
            if shape is None:
                _put_number(piece, float(value))
            else:
                _value(piece).copy_(value)


def fingerprint(pieces: list[Piece]) -> str:
    """A hash of the live shard, parameters and moments, to tell whether anything changed."""
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        value = _value(piece)
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def reset_step_counts(pieces: list[Piece]) -> None:
    """Set the optimizer's step counts to 0: moments that were made and never used."""
    for piece in pieces:
        if piece.name == "step":
            if piece.shape is None:
                _put_number(piece, 0.0)
            else:
                _value(piece).zero_()


def _put_number(piece: Piece, value: float) -> None:
    is_int = isinstance(piece.shard.value(piece.name), int)
    piece.shard.set_number(piece.name, int(value) if is_int else value)


def _value(piece: Piece) -> Tensor:
    value = piece.shard.value(piece.name)
    if isinstance(value, Tensor):
        return value.detach()
    return torch.tensor(float(value), dtype=torch.float64)


def _slot(image: Tensor, piece: Piece) -> Tensor:
    raw = image[piece.offset : piece.offset + piece.n_bytes]
    if piece.shape is None:
        return raw.view(torch.float64).view(())
    dtype = piece.shard.tensor_value(piece.name).dtype
    return raw.view(dtype).view(piece.shape)
