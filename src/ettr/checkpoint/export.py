"""Export a running checkpoint to safetensors, or for torch.distributed.checkpoint.

A running checkpoint mixes steps. By default a step of which every block is intact is exported; with
`allow_composite` the newest of each block is, and the file says so in its metadata.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ettr.checkpoint.slots.durable_io import replacing
from ettr.checkpoint.slots.layout import RESERVED, Component
from ettr.checkpoint.slots.reader import PayloadReader, Record
from ettr.checkpoint.slots.record_selection import (
    OpenCheckpoint,
    candidates,
    good_payloads,
    newest_consistent,
    open_checkpoint,
)
from ettr.checkpoint.tensors.shards import PARAM, as_tensor, flat_bytes
from ettr.errors import CheckpointError
from ettr.files import write_text

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
    """The result of an export: `label` is `consistent` or `composite`, and the span of steps."""

    path: Path
    label: str
    oldest_step: int
    newest_step: int
    tensors: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Assembled:
    """The tensors of a checkpoint by name, and the steps they are of."""

    tensors: Mapping[str, Tensor]
    oldest_step: int
    newest_step: int

    @property
    def label(self) -> str:
        """`consistent`: all of one step; or `composite`."""
        return "consistent" if self.oldest_step == self.newest_step else "composite"

    def exported(self, path: Path) -> Export:
        """The result once these tensors are at `path`."""
        n_bytes = sum(t.numel() * t.element_size() for t in self.tensors.values())
        return Export(
            path, self.label, self.oldest_step, self.newest_step, len(self.tensors), n_bytes
        )


def assemble(
    root: str | os.PathLike[str], *, allow_composite: bool = False, moments: bool = False
) -> Assembled:
    """The complete tensors of a checkpoint, from all slots.

    Every payload is checked. Moments are named `optimizer.<parameter>.<moment>`.
    """
    reader = PayloadReader()
    with ExitStack() as stack:
        checkpoint = open_checkpoint(stack, root, None)
        records_of = candidates(checkpoint)
        try:
            records_of = newest_consistent(records_of, reader)[1]
        except CheckpointError:
            if not allow_composite:
                raise
        # A tensor of which no record at all is left is a hole too, not one fewer tensor.
        canvas = _Canvas(_expected(checkpoint), moments=moments)
        steps: set[int] = set()
        for _, record, payload in good_payloads(records_of, reader, checkpoint):
            if record is not None and payload is not None:
                steps.add(record.header.step)
                canvas.place(record, payload)
    holes = canvas.holes()
    if holes or not canvas.tensors:
        raise CheckpointError(
            f"{root}: {len(holes)} tensors have blocks of which no slot has an intact copy "
            f"({', '.join(holes[:5])}); all slots of the job are needed below one root, and "
            f"moments only where every block was saved with them"
        )
    return Assembled(dict(sorted(canvas.tensors.items())), min(steps), max(steps))


class _Canvas:
    """Tensors that are filled block by block, with a mask of the elements filled."""

    def __init__(self, expected: Mapping[str, tuple[int, ...]], *, moments: bool) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._moments = moments
        self._filled = {
            name: torch.zeros(shape, dtype=torch.bool) for name, shape in expected.items()
        }

    def place(self, record: Record, payload: memoryview) -> None:
        """Copy the components of a block to where they belong."""
        layout = record.file.superblock.layout
        block = layout.blocks[record.block]
        spec = layout.tensors[block.tensor]
        region = tuple(slice(o, o + s) for o, s in zip(block.offsets, block.sizes, strict=True))
        for component, at, n_bytes in layout.components(record.block):
            name = self._name(spec.fqn, component)
            if name is None:
                continue
            shape = {"sliced": block.sizes, "whole": component.shape, "number": ()}[component.kind]
            value = as_tensor(payload[at : at + n_bytes], component.dtype, shape)
            if component.kind != "sliced":
                self.tensors[name] = value.clone()
                continue
            if name not in self.tensors:
                self.tensors[name] = torch.empty(spec.shape, dtype=value.dtype)
            self.tensors[name][region] = value
            if name not in self._filled:
                self._filled[name] = torch.zeros(spec.shape, dtype=torch.bool)
            self._filled[name][region] = True

    def _name(self, fqn: str, component: Component) -> str | None:
        """The name of a component's tensor; None: a moment that is left out."""
        # Moments of another shape than their parameter are tensors of their own: `name#factor`.
        parameter, _, factor = fqn.partition("#")
        if not factor and component.name == PARAM:
            return parameter
        if not factor and component.name.startswith(f"{PARAM}."):
            return parameter + component.name.removeprefix(PARAM)  # of a tensor subclass
        moment = factor or component.name
        return f"optimizer.{parameter}.{moment}" if self._moments else None

    def holes(self) -> list[str]:
        """Names of tensors of which some element was not filled."""
        return sorted(name for name, filled in self._filled.items() if not bool(filled.all()))


def _expected(checkpoint: OpenCheckpoint) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors in the latest file of each slot."""
    return {
        spec.fqn: spec.shape
        for slot in checkpoint.slots
        for file in slot.files[:1]
        for spec in file.superblock.layout.tensors
        if spec.fqn not in RESERVED and "#" not in spec.fqn
    }


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
    assembled = assemble(root, allow_composite=allow_composite, moments=moments)
    header = _safetensors_header(assembled)
    with replacing(Path(path)) as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for tensor in assembled.tensors.values():
            if tensor.numel():
                flat = flat_bytes(tensor.contiguous())
                file.write(flat.numpy().data)
    return assembled.exported(Path(path))


def _safetensors_header(assembled: Assembled) -> bytes:
    header: dict[str, object] = {
        "__metadata__": {
            "format": "pt",
            "ettr.consistency": assembled.label,
            "ettr.oldest_step": str(assembled.oldest_step),
            "ettr.newest_step": str(assembled.newest_step),
        }
    }
    offset = 0
    for name, tensor in assembled.tensors.items():
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
    return raw + b" " * (-len(raw) % 8)


def export_dcp(
    root: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    allow_composite: bool = False,
    moments: bool = False,
) -> Export:
    """Write a checkpoint that `dcp.load` reads, with a file that holds the label.

    Raises:
        CheckpointError: see `assemble`.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    assembled = assemble(root, allow_composite=allow_composite, moments=moments)
    with warnings.catch_warnings():
        # DCP warns that there is no process group; an export is the work of one process.
        warnings.simplefilter("ignore")
        save(dict(assembled.tensors), storage_writer=FileSystemWriter(Path(path)), no_dist=True)
    label = {
        "consistency": assembled.label,
        "oldest_step": assembled.oldest_step,
        "newest_step": assembled.newest_step,
    }
    write_text(Path(path) / LABEL, json.dumps(label) + "\n")
    return assembled.exported(Path(path))
