"""One checkpoint out of a running one: for safetensors, or for torch.distributed.checkpoint.

A running checkpoint mixes steps. By default only a step of which every block is whole is exported;
with `allow_composite` the newest of each block is, and the file says so in its own metadata.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ettr.checkpoint.dcp import write_whole
from ettr.checkpoint.durable_io import sync_folder
from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.layout import RESERVED, TensorSpec
from ettr.checkpoint.record_selection import (
    OpenCheckpoint,
    candidates,
    good_payloads,
    newest_common,
    open_source,
)
from ettr.checkpoint.slot_reader import PayloadReader, Record
from ettr.checkpoint.tensor_slices import tensor_of

_SAFE_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
LABEL = "ettr-consistency.json"


@dataclass(frozen=True, slots=True)
class Export:
    """What was exported: `label` is `consistent` or `composite`, and the span of steps."""

    path: Path
    label: str
    oldest_step: int
    newest_step: int
    tensors: int
    n_bytes: int


def assemble(
    root: str | os.PathLike[str], *, allow_composite: bool = False, moments: bool = False
) -> tuple[dict[str, Tensor], str, int, int]:
    """Whole tensors by name, label, oldest and newest step, from all slots.

    Every payload is checked. Moments are named `optimizer.<parameter>.<moment>`.

    Raises:
        CheckpointError: no step is whole and composites are not allowed; or a tensor has a hole, or
            a moment (some of its blocks were saved before the optimizer made it).
    """
    reader = PayloadReader()
    with ExitStack() as stack:
        source = open_source(stack, root, None)
        found = candidates(source)
        try:
            found = newest_common(found, reader)[1]
        except CheckpointError:
            if not allow_composite:
                raise
        tensors: dict[str, Tensor] = {}
        # A tensor of which no record at all is left is a hole too, not one fewer tensor.
        covered = {name: torch.zeros(shape, dtype=torch.bool) for name, shape in _expected(source)}
        steps: set[int] = set()
        for _, record, payload in good_payloads(found, reader, source):
            if record is None or payload is None:
                continue
            steps.add(record.header.step)
            _place(tensors, covered, record, payload, moments=moments)
    holes = sorted(name for name, seen in covered.items() if not bool(seen.all()))
    if holes or not tensors:
        raise CheckpointError(
            f"{root}: {len(holes)} tensors have blocks that no slot holds whole "
            f"({', '.join(holes[:5])}); all slots of the job are needed below one root, and "
            f"moments only where every block was saved with them"
        )
    label = "consistent" if len(steps) == 1 else "composite"
    return dict(sorted(tensors.items())), label, min(steps), max(steps)


def _expected(source: OpenCheckpoint) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the tensors that the latest file of each slot speaks of."""
    for slot in source.slots:
        for file in slot.files[:1]:
            for spec in file.superblock.layout.tensors:
                if spec.fqn not in RESERVED and "#" not in spec.fqn:
                    yield spec.fqn, spec.shape


def _place(
    tensors: dict[str, Tensor],
    covered: dict[str, Tensor],
    record: Record,
    payload: memoryview,
    *,
    moments: bool,
) -> None:
    layout = record.file.superblock.layout
    block = layout.blocks[record.block]
    spec: TensorSpec = layout.tensors[block.tensor]
    box = tuple(slice(o, o + s) for o, s in zip(block.offsets, block.sizes, strict=True))
    for component, at, n_bytes in layout.parts(record.block):
        # Factors of another shape than their parameter are tensors of their own: `name#factor`.
        parameter, _, factor = spec.fqn.partition("#")
        moment = factor or (component.name if component.name != "param" else "")
        if moment and not moments:
            continue
        name = f"optimizer.{parameter}.{moment}" if moment else parameter
        shape = {"sliced": block.sizes, "whole": component.shape, "number": ()}[component.kind]
        part = tensor_of(payload[at : at + n_bytes], component.dtype, shape)
        if component.kind != "sliced":
            tensors[name] = part.clone()
            continue
        if name not in tensors:
            tensors[name] = torch.empty(spec.shape, dtype=part.dtype)
        tensors[name][box] = part
        seen = covered.setdefault(name, torch.zeros(spec.shape, dtype=torch.bool))
        seen[box] = True


def export_safetensors(
    root: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    allow_composite: bool = False,
    moments: bool = False,
) -> Export:
    """Write one safetensors file; its metadata holds the label and the steps. Durable, atomic.

    Raises:
        CheckpointError: see `assemble`.
    """
    tensors, label, oldest, newest = assemble(
        root, allow_composite=allow_composite, moments=moments
    )
    header: dict[str, object] = {
        "__metadata__": {
            "format": "pt",
            "ettr.consistency": label,
            "ettr.oldest_step": str(oldest),
            "ettr.newest_step": str(newest),
        }
    }
    offset = 0
    for name, tensor in tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in _SAFE_TYPES:
            raise CheckpointError(f"{name}: safetensors has no type for {dtype}; export to DCP")
        length = math.prod(tensor.shape) * tensor.element_size()
        header[name] = {
            "dtype": _SAFE_TYPES[dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + length],
        }
        offset += length
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    with aside.open("wb", buffering=0) as file:
        write_whole(file.fileno(), memoryview(len(raw).to_bytes(8, "little") + raw))
        for tensor in tensors.values():
            if tensor.numel():
                flat = tensor.contiguous().reshape(-1).view(torch.uint8)
                write_whole(file.fileno(), flat.numpy().data)
        os.fsync(file.fileno())
    aside.replace(target)
    sync_folder(target.parent)
    return Export(target, label, oldest, newest, len(tensors), offset)


def export_dcp(
    root: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    allow_composite: bool = False,
    moments: bool = False,
) -> Export:
    """Write a checkpoint that `dcp.load` reads, with the label in a file beside it.

    Raises:
        CheckpointError: see `assemble`.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    tensors, label, oldest, newest = assemble(
        root, allow_composite=allow_composite, moments=moments
    )
    target = Path(path)
    with warnings.catch_warnings():
        # DCP warns that there is no process group; an export is the work of one process.
        warnings.simplefilter("ignore")
        save(dict(tensors), storage_writer=FileSystemWriter(target), no_dist=True)
    facts = {"consistency": label, "oldest_step": oldest, "newest_step": newest}
    (target / LABEL).write_text(json.dumps(facts) + "\n")
    n_bytes = sum(t.numel() * t.element_size() for t in tensors.values())
    return Export(target, label, oldest, newest, len(tensors), n_bytes)
