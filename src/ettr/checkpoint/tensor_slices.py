"""Bytes of a record as tensors, and the boxes of them that a local shard covers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ettr.checkpoint.coverage import Box
from ettr.checkpoint.layout import Key
from ettr.checkpoint.slot_reader import Record
from ettr.checkpoint.staging import copy_plainly
from ettr.checkpoint.state import Shard


def copy_box(
    target: Tensor,
    stored: Tensor,
    key: Key,
    shard: Shard,
    box: Box,
) -> None:
    """Copy what a stored block holds of a global box into a shard's local tensor."""
    copy_plainly(narrow_to(target, shard, box), cut(stored, key[1], box))


def narrow_to(part: Tensor, shard: Shard, box: Box) -> Tensor:
    """The view of a local tensor that a global box covers."""
    return cut(part, shard.offsets, box)


def cut(part: Tensor, offsets: tuple[int, ...], box: Box) -> Tensor:
    """The view that a global box covers of a tensor that begins at these global offsets."""
    for dim, (begin, end) in enumerate(box):
        if end - begin != part.shape[dim]:
            part = part.narrow(dim, begin - offsets[dim], end - begin)
    return part


def tensor_of(data: memoryview, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Bytes as a tensor that shares their memory."""
    kind: torch.dtype = getattr(torch, dtype)
    if not math.prod(shape):
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(data, dtype=kind, count=math.prod(shape)).view(shape)


def stored_parameter(record: Record, payload: memoryview, box: Box) -> Tensor:
    """The parameter in a record, cut to a global box."""
    layout = record.file.superblock.layout
    component, at, n_bytes = next(iter(layout.parts(record.block)))
    _, offsets, sizes = layout.key(record.block)
    return cut(tensor_of(payload[at : at + n_bytes], component.dtype, sizes), offsets, box)
