"""What moves with a training run and is no parameter: loader position, schedules, random states.

Values become one checked record: JSON, and beside it the raw bytes of tensors, arrays and byte
strings. Numbers, strings, lists, tuples, dictionaries (of any such keys), byte strings, tensors and
NumPy arrays come back as what they were. Nothing is pickled; what is none of these is refused, by
its name. The record begins with the step that it belongs to.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ettr.checkpoint.durable_io import sync_folder
from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.layout import DTYPE_BYTES, aligned
from ettr.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

_HEAD = struct.Struct("<IIq")  # bytes of JSON, bytes beside it, step
_OLD_HEAD = struct.Struct("<I")  # format 1: bytes of JSON; of the round's step
_FILE_HEAD = struct.Struct("<8sIQ")
_FILE_MAGIC, _FILE_VERSION = b"ETTREXTR", 1
_FILE_LIMIT_BYTES = 1 << 31
_ALIGN = 16
_DEPTH = 64
_TAG = "$"
_ARRAY_KINDS = "biufc"


@dataclass(frozen=True, slots=True)
class Extra:
    """What a slot was last given as `extra`, and the step that it belongs to."""

    step: int
    values: dict[str, Any]


def encode(values: Mapping[str, Any], step: int, *, room_bytes: int) -> bytes:
    """The record's bytes.

    Args:
        values: by name; see the module for what may stand in it.
        room_bytes: what the record may take.

    Raises:
        UsageError: a value cannot be kept, or all of it takes more than the room.
    """
    beside = bytearray()
    document = {str(k): _to_json(v, str(k), beside, 0) for k, v in values.items()}
    text = json.dumps(document, separators=(",", ":")).encode()
    begin = aligned(_HEAD.size + len(text), _ALIGN)
    if begin + len(beside) > room_bytes:
        raise UsageError(
            f"extra: {begin + len(beside)} bytes were given ({len(text)} of JSON, {len(beside)} of "
            f"tensors and bytes) and {room_bytes} fit; raise extra_bytes of RunningCheckpoint"
        )
    head = _HEAD.pack(len(text), len(beside), step) + text
    return head.ljust(begin, b"\0") + bytes(beside)


def decode(payload: memoryview | bytes, *, version: int = 2, step: int = 0) -> Extra:
    """What `encode` was given.

    Args:
        payload: a record whose checksum holds; longer is fine.
        version: of the slot file; in format 1 the record was JSON alone.
        step: of the record's header, for format 1.

    Raises:
        CheckpointError: the record is not of that form.
    """
    raw = memoryview(payload)
    try:
        if version == 1:
            (n_text,) = _OLD_HEAD.unpack_from(raw)
            text, beside = bytes(raw[_OLD_HEAD.size :][:n_text]), raw[:0]
        else:
            n_text, n_beside, step = _HEAD.unpack_from(raw)
            text = bytes(raw[_HEAD.size :][:n_text])
            beside = raw[aligned(_HEAD.size + n_text, _ALIGN) :][:n_beside]
        document = json.loads(text or b"{}")
        return Extra(step, {key: _from_json(value, beside) for key, value in document.items()})
    except (struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"extra: the record is not of format {version}: {error}") from error


def write_extra(path: str | os.PathLike[str], values: Mapping[str, Any], step: int) -> None:
    """Put values into a file of their own, beside a full checkpoint: durable, whole or not at all.

    One file a rank; the file of the step before stays where it is, so keep one a step.

    Raises:
        UsageError: a value cannot be kept.
    """
    record = encode(values, step, room_bytes=_FILE_LIMIT_BYTES)
    raw = _FILE_HEAD.pack(_FILE_MAGIC, _FILE_VERSION, len(record)) + record
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            file.write(raw + zlib.crc32(raw).to_bytes(4, "little"))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(target.parent)


def read_extra(path: str | os.PathLike[str]) -> Extra:
    """What `write_extra` was given.

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
    whole = (
        len(raw) > _FILE_HEAD.size + 4 and zlib.crc32(raw[:-4]).to_bytes(4, "little") == raw[-4:]
    )
    if not whole or _FILE_HEAD.unpack(head) != (_FILE_MAGIC, _FILE_VERSION, len(body)):
        raise CheckpointError(f"{path}: damaged; take the file of an earlier checkpoint")
    return decode(body)


def _to_json(value: Any, where: str, beside: bytearray, depth: int) -> Any:
    if depth > _DEPTH:
        raise UsageError(f"extra: {where[:80]}... is nested deeper than {_DEPTH}; flatten it")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return value if type(value) in (int, float) else _number(value)

    def inner(item: Any, name: object) -> Any:
        return _to_json(item, f"{where}.{name}", beside, depth + 1)

    if isinstance(value, list):
        return [inner(item, i) for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {_TAG: "tuple", "of": [inner(item, i) for i, item in enumerate(value)]}
    if isinstance(value, Mapping):
        return _mapping(value, inner)
    return _bulk(value, where, beside)


def _number(value: float) -> float:
    # NumPy's float64 and enumerations are numbers too; JSON has two kinds.
    return int(value) if isinstance(value, int) else float(value)


def _mapping(value: Mapping[Any, Any], inner: Callable[[Any, object], Any]) -> Any:
    plain = all(type(key) is str for key in value) and _TAG not in value
    if plain and not isinstance(value, Counter):
        return {key: inner(item, key) for key, item in value.items()}
    kind = "counter" if isinstance(value, Counter) else "dict"
    return {_TAG: kind, "of": [[inner(k, "key"), inner(v, k)] for k, v in value.items()]}


def _bulk(value: Any, where: str, beside: bytearray) -> dict[str, Any]:
    """A place beside the JSON for what is long."""
    if isinstance(value, bytes | bytearray):
        return {_TAG: "bytes", "at": _put(bytes(value), beside), "n": len(value)}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _ARRAY_KINDS:
        array = np.asarray(value)
        at = _put(array.tobytes(), beside)
        return {_TAG: "array", "dtype": array.dtype.str, "shape": list(array.shape), "at": at}
    if type(value).__module__.partition(".")[0] == "torch":
        from torch import Tensor

        if isinstance(value, Tensor):
            return _tensor(value, where, beside)
    raise UsageError(
        f"extra: {where} is a {type(value).__qualname__}; give numbers, strings, bytes, lists, "
        f"dictionaries, tensors or arrays (of an object, its state_dict())"
    )


def _tensor(value: Tensor, where: str, beside: bytearray) -> dict[str, Any]:
    import torch
    from torch.distributed.tensor import DTensor

    dtype = str(value.dtype).removeprefix("torch.")
    if isinstance(value, DTensor) or dtype not in DTYPE_BYTES or value.layout != torch.strided:
        raise UsageError(
            f"extra: {where} is a tensor of {dtype} that is sharded, sparse or of a type without "
            f"bytes of its own; give a plain tensor"
        )
    flat = value.detach().cpu().contiguous().reshape(-1)
    raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return {_TAG: "tensor", "dtype": dtype, "shape": list(value.shape), "at": _put(raw, beside)}


def _put(raw: bytes, beside: bytearray) -> int:
    beside.extend(bytes(-len(beside) % _ALIGN))
    at = len(beside)
    beside.extend(raw)
    return at


def _from_json(value: Any, beside: memoryview) -> Any:
    if isinstance(value, list):
        return [_from_json(item, beside) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_TAG)
    if kind is None:
        return {key: _from_json(item, beside) for key, item in value.items()}
    if kind == "tuple":
        return tuple(_from_json(item, beside) for item in value["of"])
    if kind in {"dict", "counter"}:
        pairs = {_from_json(k, beside): _from_json(v, beside) for k, v in value["of"]}
        return Counter(pairs) if kind == "counter" else pairs
    if kind == "bytes":
        return bytes(_slice(beside, value["at"], value["n"]))
    if kind == "array":
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in _ARRAY_KINDS:
            raise ValueError(f"an array of {dtype}")
        n_bytes = math.prod(value["shape"]) * dtype.itemsize
        array = np.frombuffer(_slice(beside, value["at"], n_bytes), dtype)
        found: Any = array.reshape(value["shape"]).copy()
        return found if value["shape"] else found[()]
    if kind == "tensor":
        return _tensor_of(value, beside)
    raise ValueError(f"a value of kind {kind!r}")


def _tensor_of(value: dict[str, Any], beside: memoryview) -> Tensor:
    import torch

    dtype, shape = value["dtype"], tuple(value["shape"])
    raw = bytearray(_slice(beside, value["at"], math.prod(shape) * DTYPE_BYTES[dtype]))
    kind: torch.dtype = getattr(torch, dtype)
    return torch.frombuffer(raw, dtype=kind).reshape(shape) if raw else torch.empty(shape).to(kind)


def _slice(beside: memoryview, at: int, n_bytes: int) -> memoryview:
    if at < 0 or at + n_bytes > len(beside):
        raise ValueError("a value that lies outside the record")
    return beside[at : at + n_bytes]
