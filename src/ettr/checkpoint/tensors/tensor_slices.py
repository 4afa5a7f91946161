"""Regions of tensors: of a shard's local tensors, and of the bytes of a record."""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

from ettr.checkpoint.slots.layout import Component, Region, split_dim
from ettr.checkpoint.slots.reader import Record
from ettr.checkpoint.tensors.shards import Shard

_SMALL_ELEMENTS = 64  # below, the detour costs more than the copy


def copy_in_this_thread(target: Tensor, source: Tensor) -> None:
    """Copy without torch's pool of threads where that is possible.

    Blocks are of a size at which torch would use its pool for each of them; on a machine whose
    cores are busy that wait costs several times the copy.
    """
    alike = target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous()
    if not alike or target.is_cuda or source.is_cuda or target.numel() <= _SMALL_ELEMENTS:
        target.copy_(source)
        return
    flat_bytes(target).numpy()[:] = flat_bytes(source).numpy()


def flat_bytes(tensor: Tensor) -> Tensor:
    """View a contiguous tensor as its bytes; one of a single element may have any stride."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def block_view(
    tensor: Tensor, shard: Shard, offsets: tuple[int, ...], sizes: tuple[int, ...]
) -> Tensor:
    """A block's region of a shard's local tensor, as a view."""
    if sizes == shard.sizes:
        return tensor
    dim = split_dim(shard.sizes)
    return tensor.narrow(dim, offsets[dim] - shard.offsets[dim], sizes[dim])


def local_view(tensor: Tensor, shard: Shard, region: Region) -> Tensor:
    """A global region of a shard's local tensor, as a view."""
    return region_view(tensor, shard.offsets, region)


def region_view(tensor: Tensor, offsets: tuple[int, ...], region: Region) -> Tensor:
    """A global region of a tensor that begins at these global offsets, as a view."""
    for dim, (begin, end) in enumerate(region):
        if end - begin != tensor.shape[dim]:
            tensor = tensor.narrow(dim, begin - offsets[dim], end - begin)
    return tensor


def as_tensor(data: memoryview, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Bytes as a tensor that shares their memory."""
    torch_dtype: torch.dtype = getattr(torch, dtype)
    if not math.prod(shape):
        return torch.empty(shape, dtype=torch_dtype)
    return torch.frombuffer(data, dtype=torch_dtype, count=math.prod(shape)).view(shape)


def pack_number(component: Component, into: memoryview, offset: int, value: float) -> None:
    """Write the bytes of a component that is a Python number."""
    struct.pack_into(_number_code(component), into, offset, value)


def unpack_number(component: Component, data: memoryview) -> float:
    """A component that is a Python number, from its bytes."""
    value: float = struct.unpack(_number_code(component), data)[0]
    return value


def _number_code(component: Component) -> str:
    return "<d" if component.dtype == "float64" else "<q"


def stored_parameter(record: Record, payload: memoryview, region: Region) -> Tensor:
    """A global region of the parameter in a record."""
    layout = record.file.superblock.layout
    component, at, n_bytes = next(iter(layout.components(record.block)))
    _, offsets, sizes = layout.key(record.block)
    stored = as_tensor(payload[at : at + n_bytes], component.dtype, sizes)
    return region_view(stored, offsets, region)
