"""The tensors of a slot and the blocks they are cut into, by global coordinates.

A block is a rectangular region of one parameter (its name, offsets and sizes in the *global*
tensor, whatever the sharding) together with the same region of each optimizer moment and the
optimizer's step count: all captured at one training step, all restored together. Standard library
only, so that a checkpoint can be verified where torch is not installed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypeAlias, TypedDict

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
COMPONENT_ALIGN = 16
OBJECTS = "__objects__"
MOVEMENT = "__movement__"
RESERVED = frozenset({OBJECTS, MOVEMENT})  # blocks that hold no tensor of the training

Key: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]  # name, offsets, sizes


class LayoutJson(TypedDict):
    """A layout as it stands in a slot file."""

    # name, shape, components (name, dtype, kind, shape)
    tensors: list[tuple[str, list[int], list[tuple[str, str, str, list[int]]]]]
    blocks: list[tuple[int, list[int], list[int]]]  # tensor, offsets, sizes
    holders: NotRequired[dict[str, list[tuple[str, str]]]]  # not in files of earlier versions


@dataclass(frozen=True, slots=True)
class Component:
    """One value saved with a parameter: the parameter itself, a moment, a step count.

    kind: `sliced` has the parameter's shape and is cut with it; `whole` goes with every block as it
    is (`shape`); `number` is a Python number, kept as float64 or int64.
    """

    name: str
    dtype: str
    kind: str = "sliced"
    shape: tuple[int, ...] = ()

    def n_bytes(self, sizes: tuple[int, ...]) -> int:
        """Bytes of this component within a block of these sizes."""
        shape = sizes if self.kind == "sliced" else self.shape
        return math.prod(shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One parameter: its canonical name, global shape and components; the parameter is first."""

    fqn: str
    shape: tuple[int, ...]
    components: tuple[Component, ...]


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """One region of one parameter, in coordinates of the global tensor."""

    tensor: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """The tensors and blocks of one slot.

    holders: moment -> (class of the optimizer that keeps it, its key there) of each that does;
    without those of subclasses' inner tensors. Empty in files of earlier versions.
    """

    tensors: tuple[TensorSpec, ...]
    blocks: tuple[BlockSpec, ...]
    holders: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict, compare=False)

    def key(self, block: int) -> Key:
        """The block's global coordinates: (name, offsets, sizes)."""
        spec = self.blocks[block]
        return (self.tensors[spec.tensor].fqn, spec.offsets, spec.sizes)

    def components(self, block: int) -> Iterator[tuple[Component, int, int]]:
        """Each component of a block with its offset in the payload and its length, in bytes."""
        spec = self.blocks[block]
        offset = 0
        for component in self.tensors[spec.tensor].components:
            length = component.n_bytes(spec.sizes)
            yield component, offset, length
            offset += aligned(length, COMPONENT_ALIGN)

    def payload_bytes(self, block: int) -> int:
        """Length of the block's payload."""
        spec = self.blocks[block]
        return sum(
            aligned(component.n_bytes(spec.sizes), COMPONENT_ALIGN)
            for component in self.tensors[spec.tensor].components
        )

    def to_json(self) -> str:
        """The layout as compact JSON."""
        tensors = [
            [t.fqn, t.shape, [[c.name, c.dtype, c.kind, c.shape] for c in t.components]]
            for t in self.tensors
        ]
        blocks = [[b.tensor, b.offsets, b.sizes] for b in self.blocks]
        layout = {"tensors": tensors, "blocks": blocks, "holders": self.holders}
        return json.dumps(layout, separators=(",", ":"))

    @classmethod
    def from_json(cls, raw: LayoutJson) -> SlotLayout:
        """The layout of parsed JSON."""
        return cls(
            tuple(
                TensorSpec(
                    fqn,
                    tuple(shape),
                    tuple(Component(n, d, k, tuple(s)) for n, d, k, s in components),
                )
                for fqn, shape, components in raw["tensors"]
            ),
            tuple(BlockSpec(t, tuple(o), tuple(s)) for t, o, s in raw["blocks"]),
            {n: [(c, key) for c, key in held] for n, held in raw.get("holders", {}).items()},
        )


def aligned(n_bytes: int, to: int) -> int:
    """The smallest multiple of `to` that is at least `n_bytes`."""
    return -(-n_bytes // to) * to


def objects_tensor(capacity_bytes: int) -> TensorSpec:
    """The tensor that holds objects and parameter groups, with room to grow."""
    return TensorSpec(OBJECTS, (capacity_bytes,), (Component("param", "uint8"),))


def movement_tensor(blocks: int) -> TensorSpec:
    """The tensor with the movement of each block: distance, over how many steps, how long ago."""
    return TensorSpec(MOVEMENT, (blocks, 3), (Component("param", "float32"),))


# -- Rectangular regions of a global tensor: (begin, end) in each dimension. Standard library only

Region: TypeAlias = tuple[tuple[int, int], ...]


def region_of(offsets: Sequence[int], sizes: Sequence[int]) -> Region:
    """The region that begins at these offsets and has these sizes."""
    return tuple((o, o + s) for o, s in zip(offsets, sizes, strict=True))


def intersection(a: Region, b: Region) -> Region | None:
    """The common part of two regions; None: no element, or other dimensions."""
    if len(a) != len(b):
        return None
    common = tuple(
        (max(begin, other_begin), min(end, other_end))
        for (begin, end), (other_begin, other_end) in zip(a, b, strict=True)
    )
    return None if any(begin >= end for begin, end in common) else common


def difference(a: Region, b: Region) -> list[Region]:
    """The part of `a` that lies outside `b`, as regions that do not overlap."""
    common = intersection(a, b)
    if common is None:
        return [a]
    rest: list[Region] = []
    left = list(a)
    for dim, ((begin, end), (common_begin, common_end)) in enumerate(zip(a, common, strict=True)):
        for outside in ((begin, common_begin), (common_end, end)):
            if outside[0] < outside[1]:
                rest.append((*left[:dim], outside, *left[dim + 1 :]))
        left[dim] = (common_begin, common_end)
    return rest


def n_elements(region: Region) -> int:
    """Number of elements in a region; 1 for a scalar."""
    return math.prod(end - begin for begin, end in region)


def split_dim(sizes: Sequence[int]) -> int:
    """The dimension along which a shard is cut into blocks: the first with more than one row."""
    return next((dim for dim, size in enumerate(sizes) if size > 1), 0)
