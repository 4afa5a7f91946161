"""The state of a training run besides its tensors: loader position, schedules, random states.

Values become one checked record: JSON, followed by the raw bytes of tensors, arrays and byte
strings. Numbers, strings, lists, tuples, dictionaries (of any such keys), byte strings, tensors and
NumPy arrays come back as what they were. Nothing is pickled; a value of another type is refused by
its name. The record begins with the step that it belongs to.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.slots.durable_io import replacing, write_all
from ettr.checkpoint.slots.layout import DTYPE_BYTES, aligned
from ettr.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_HEAD = struct.Struct("<IIq")  # bytes of JSON, bytes that follow it, step
_HEAD_OF_FORMAT_1 = struct.Struct("<I")  # bytes of JSON; of the round's step
_FILE_HEAD = struct.Struct("<8sIQ")
_FILE_MAGIC, _FILE_VERSION = b"ETTREXTR", 1
_FILE_LIMIT_BYTES = 1 << 31
_ALIGN = 16
_DEPTH = 64
_TAG = "$"
_ARRAY_KINDS = "biufc"


@dataclass(frozen=True, slots=True)
class Extra:
    """The last `extra` of a slot, and the step that it belongs to."""

    step: int
    values: dict[str, Any]


def encode(values: Mapping[str, object], step: int, *, room_bytes: int) -> bytes:
    """The record's bytes.

    Args:
        values: by name; see the module for their types.
        room_bytes: largest size of the record.

    Raises:
        UsageError: a value cannot be saved, or the record is larger than the room.
    """
    encoder = _Encoder()
    document = {str(name): encoder.encode(value, str(name)) for name, value in values.items()}
    text, bulk = json.dumps(document, separators=(",", ":")).encode(), encoder.bulk
    begin = aligned(_HEAD.size + len(text), _ALIGN)
    if begin + len(bulk) > room_bytes:
        raise UsageError(
            f"extra: {begin + len(bulk)} bytes were given ({len(text)} of JSON, {len(bulk)} of "
            f"tensors and bytes) and {room_bytes} fit; raise extra_bytes of RunningCheckpoint"
        )
    head = _HEAD.pack(len(text), len(bulk), step) + text
    return head.ljust(begin, b"\0") + bytes(bulk)


def decode(payload: memoryview | bytes, *, version: int = 2, step: int = 0) -> Extra:
    """The values that were given to `encode`.

    Args:
        payload: a record whose checksum holds; bytes may follow it.
        version: of the slot file; in format 1 the record was JSON alone.
        step: of the record's header, for format 1.

    Raises:
        CheckpointError: the record is not of that form.
    """
    raw = memoryview(payload)
    try:
        if version == 1:
            (text_bytes,) = _HEAD_OF_FORMAT_1.unpack_from(raw)
            text, bulk = bytes(raw[_HEAD_OF_FORMAT_1.size :][:text_bytes]), raw[:0]
        else:
            text_bytes, bulk_bytes, step = _HEAD.unpack_from(raw)
            text = bytes(raw[_HEAD.size :][:text_bytes])
            bulk = raw[aligned(_HEAD.size + text_bytes, _ALIGN) :][:bulk_bytes]
        document = json.loads(text or b"{}")
        return Extra(step, {key: _decoded(value, bulk) for key, value in document.items()})
    except (struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"extra: the record is not of format {version}: {error}") from error


def write_extra(path: str | os.PathLike[str], values: Mapping[str, object], step: int) -> None:
    """Put values into a file next to a full checkpoint: durable, complete or not there.

    One file per rank; the file of the step before stays where it is, so keep one per step.

    Raises:
        UsageError: a value cannot be saved.
    """
    record = encode(values, step, room_bytes=_FILE_LIMIT_BYTES)
    raw = _FILE_HEAD.pack(_FILE_MAGIC, _FILE_VERSION, len(record)) + record
    with replacing(Path(path)) as file:
        write_all(file.fileno(), raw + zlib.crc32(raw).to_bytes(4, "little"))


def read_extra(path: str | os.PathLike[str]) -> Extra:
    """The values that were given to `write_extra`.

    Raises:
        CheckpointError: there is no such file, or it is damaged.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read: {error.strerror}; take the file of an earlier checkpoint"
        ) from error
    head, body = raw[: _FILE_HEAD.size], raw[_FILE_HEAD.size : -4]
    intact = (
        len(raw) > _FILE_HEAD.size + 4
        and zlib.crc32(raw[:-4]).to_bytes(4, "little") == raw[-4:]
        and _FILE_HEAD.unpack(head) == (_FILE_MAGIC, _FILE_VERSION, len(body))
    )
    if not intact:
        raise CheckpointError(f"{path}: damaged; take the file of an earlier checkpoint")
    return decode(body)


class _Encoder:
    """Turns values into JSON; long values go to `bulk`, their offsets into the JSON."""

    def __init__(self) -> None:
        self.bulk = bytearray()

    def encode(self, value: object, name: str, depth: int = 0) -> Json:
        """The value as JSON.

        Raises:
            UsageError: it cannot be saved, or is nested too deep.
        """
        if depth > _DEPTH:
            raise UsageError(f"extra: {name[:80]}... is nested deeper than {_DEPTH}; flatten it")
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int):
            return int(value)  # enumerations are numbers too
        if isinstance(value, float):
            return float(value)  # and so is NumPy's float64
        if isinstance(value, list):
            return self._items(value, name, depth)
        if isinstance(value, tuple):
            return {_TAG: "tuple", "of": self._items(value, name, depth)}
        if isinstance(value, Mapping):
            return self._mapping(value, name, depth)
        return self._bulk(value, name)

    def _items(self, items: Sequence[object], name: str, depth: int) -> list[Json]:
        return [self.encode(item, f"{name}.{i}", depth + 1) for i, item in enumerate(items)]

    def _mapping(self, value: Mapping[object, object], name: str, depth: int) -> Json:
        plain = all(type(key) is str for key in value) and _TAG not in value
        if plain and not isinstance(value, Counter):
            return {
                str(key): self.encode(item, f"{name}.{key}", depth + 1)
                for key, item in value.items()
            }
        kind = "counter" if isinstance(value, Counter) else "dict"
        pairs: list[Json] = [
            [
                self.encode(key, f"{name}.key", depth + 1),
                self.encode(item, f"{name}.{key}", depth + 1),
            ]
            for key, item in value.items()
        ]
        return {_TAG: kind, "of": pairs}

    def _bulk(self, value: object, name: str) -> Json:
        if isinstance(value, bytes | bytearray):
            return {_TAG: "bytes", "at": self._put(bytes(value)), "n": len(value)}
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _ARRAY_KINDS:
            array = np.asarray(value)
            at = self._put(array.tobytes())
            return {_TAG: "array", "dtype": array.dtype.str, "shape": list(array.shape), "at": at}
        if type(value).__module__.partition(".")[0] == "torch":
            from torch import Tensor

            if isinstance(value, Tensor):
                return self._tensor(value, name)
        raise UsageError(
            f"extra: {name} is a {type(value).__qualname__}; give numbers, strings, bytes, lists, "
            f"dictionaries, tensors or arrays (of an object, its state_dict())"
        )

    def _tensor(self, value: Tensor, name: str) -> Json:
        import torch
        from torch.distributed.tensor import DTensor

        dtype = str(value.dtype).removeprefix("torch.")
        if isinstance(value, DTensor) or dtype not in DTYPE_BYTES or value.layout != torch.strided:
            raise UsageError(
                f"extra: {name} is a tensor of {dtype} that is sharded, sparse or of a type "
                f"without bytes of its own; give a plain tensor"
            )
        flat = value.detach().cpu().contiguous().reshape(-1)
        raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return {_TAG: "tensor", "dtype": dtype, "shape": list(value.shape), "at": self._put(raw)}

    def _put(self, raw: bytes) -> int:
        self.bulk.extend(bytes(-len(self.bulk) % _ALIGN))
        at = len(self.bulk)
        self.bulk.extend(raw)
        return at


def _decoded(value: Any, bulk: memoryview) -> Any:
    """The value that `_Encoder.encode` was given; errors say that it is not of that form."""
    if isinstance(value, list):
        return [_decoded(item, bulk) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_TAG)
    if kind is None:
        return {key: _decoded(item, bulk) for key, item in value.items()}
    if kind == "tuple":
        return tuple(_decoded(item, bulk) for item in value["of"])
    if kind in {"dict", "counter"}:
        pairs = {_decoded(key, bulk): _decoded(item, bulk) for key, item in value["of"]}
        return Counter(pairs) if kind == "counter" else pairs
    if kind == "bytes":
        return bytes(_slice(bulk, value["at"], value["n"]))
    if kind == "array":
        return _array(value["dtype"], value["shape"], bulk, value["at"])
    if kind == "tensor":
        return _tensor(value["dtype"], tuple(value["shape"]), bulk, value["at"])
    raise ValueError(f"a value of kind {kind!r}")


def _array(name: str, shape: list[int], bulk: memoryview, at: int) -> object:
    dtype = np.dtype(name)
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"an array of {dtype}")
    raw = _slice(bulk, at, math.prod(shape) * dtype.itemsize)
    array = np.frombuffer(raw, dtype).reshape(shape).copy()
    return array if shape else array[()]


def _tensor(name: str, shape: tuple[int, ...], bulk: memoryview, at: int) -> Tensor:
    import torch

    raw = bytearray(_slice(bulk, at, math.prod(shape) * DTYPE_BYTES[name]))
    dtype: torch.dtype = getattr(torch, name)
    return (
        torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else torch.empty(shape).to(dtype)
    )


def _slice(bulk: memoryview, at: int, n_bytes: int) -> memoryview:
    if at < 0 or at + n_bytes > len(bulk):
        raise ValueError("a value that lies outside the record")
    return bulk[at : at + n_bytes]
