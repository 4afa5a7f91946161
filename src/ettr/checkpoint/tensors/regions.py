"""Rectangular regions of a global tensor: (begin, end) in each dimension. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

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
    n = 1
    for begin, end in region:
        n *= end - begin
    return n


def split_dim(sizes: Sequence[int]) -> int:
    """The dimension along which a shard is cut into blocks: the first with more than one row."""
    return next((dim for dim, size in enumerate(sizes) if size > 1), 0)
