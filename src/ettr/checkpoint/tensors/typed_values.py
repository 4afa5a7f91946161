"""Values of Python as one checked record, without pickle: what objects keep as their state.

Values become JSON, followed by the raw bytes of tensors, arrays and byte strings. A value comes
back as what it was, with its type: numbers, strings, byte strings, the containers of Python and of
`collections`, tensors, NumPy arrays. A value of another type is refused by its name. The record
begins with the step that it belongs to.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ettr.checkpoint.slots.durable_io import replacing
from ettr.checkpoint.slots.layout import DTYPE_BYTES, aligned
from ettr.errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_HEAD = struct.Struct("<IIq")  # bytes of JSON, bytes that follow it, step
_FILE_HEAD = struct.Struct("<8sIQ")
_FILE_MAGIC, _FILE_VERSION = b"ETTREXTR", 1
_ALIGN = 16
_DEPTH = 64
_TAG = "$"
_ARRAY_KINDS = "biufc"
_ITEM_TYPES: dict[str, Callable[[Iterable[Any]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_FACTORIES: dict[str, type] = {t.__name__: t for t in (int, float, str, list, dict, set)}


@dataclass(frozen=True, slots=True)
class SavedValues:
    """Values that were saved, and the step that they belong to."""

    step: int
    values: dict[str, Any]


def encode(values: Mapping[str, object], step: int, *, where: str = "") -> bytes:
    """The record's bytes."""
    encoder = _Encoder(where)
    document = {str(name): encoder.encode(value, str(name)) for name, value in values.items()}
    try:
        text = json.dumps(document, separators=(",", ":")).encode()
    except ValueError as error:  # Python limits the digits of an integer
        raise UsageError(f"{where}a number cannot be saved: {error}") from error
    bulk = encoder.bulk
    head = _HEAD.pack(len(text), len(bulk), step) + text
    return head.ljust(aligned(len(head), _ALIGN), b"\0") + bytes(bulk)


def decode(payload: memoryview | bytes) -> SavedValues:
    """The values that were given to `encode`."""
    raw = memoryview(payload)
    try:
        text_bytes, bulk_bytes, step = _HEAD.unpack_from(raw)
        text = bytes(raw[_HEAD.size :][:text_bytes])
        bulk = raw[aligned(_HEAD.size + text_bytes, _ALIGN) :][:bulk_bytes]
        document = json.loads(text or b"{}")
        values = {key: _decoded(value, bulk) for key, value in document.items()}
        return SavedValues(step, values)
    except (struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"values: the record is damaged: {error}") from error


def write_values(path: str | os.PathLike[str], values: Mapping[str, object], step: int) -> None:
    """Put values into a file: durable, complete or not there.

    One file per rank; the file of the step before stays where it is, so keep one per step.
    """
    record = encode(values, step)
    raw = _FILE_HEAD.pack(_FILE_MAGIC, _FILE_VERSION, len(record)) + record
    with replacing(Path(path)) as file:
        file.write(raw + zlib.crc32(raw).to_bytes(4, "little"))


def read_values(path: str | os.PathLike[str]) -> SavedValues:
    """The values that were given to `write_values`.

    Raises:
        CheckpointError: there is no such file, or it is damaged.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot read it: {error.strerror}; take the file of an earlier checkpoint"
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
    """Turns values into JSON; long values go to `bulk`, their offsets into the JSON.

    By the exact type: a subclass could come back as less than it was.
    """

    def __init__(self, where: str) -> None:
        self.bulk = bytearray()
        self._where = where

    def encode(self, value: object, name: str, depth: int = 0) -> Json:
        """The value as JSON."""
        kind = type(value)
        if depth > _DEPTH:
            raise UsageError(
                f"{self._where}{name[:80]}... is nested deeper than {_DEPTH}; flatten it"
            )
        if value is None or isinstance(value, bool | int | float | str):
            if value is None or kind in (bool, int, float, str):
                return value
        elif kind is list:
            return self._items(value, name, depth)
        elif kind.__name__ in _ITEM_TYPES and kind is _ITEM_TYPES[kind.__name__]:
            return {_TAG: kind.__name__, "of": self._items(value, name, depth)}
        elif isinstance(value, deque) and kind is deque:
            items = self._items(value, name, depth)
            return {_TAG: "deque", "of": items, "most": value.maxlen}
        elif isinstance(value, dict):
            return self._mapping(value, name, depth)
        return self._bulk(value, name)

    def _items(self, items: Any, name: str, depth: int) -> list[Json]:
        return [self.encode(item, f"{name}.{i}", depth + 1) for i, item in enumerate(items)]

    def _mapping(self, value: dict[Any, Any], name: str, depth: int) -> Json:
        kind = type(value)
        if kind is dict and _TAG not in value and all(type(key) is str for key in value):
            return {
                key: self.encode(item, f"{name}.{key}", depth + 1) for key, item in value.items()
            }
        tagged: dict[str, Json] = {}
        if isinstance(value, defaultdict) and kind is defaultdict:
            factory = value.default_factory
            if factory is not None and _FACTORIES.get(getattr(factory, "__name__", "")) != factory:
                raise self._refused(value, name)
            tagged = {
                _TAG: "defaultdict",
                "makes": None if factory is None else str(getattr(factory, "__name__", "")),
            }
        elif kind in (dict, Counter, OrderedDict):
            tagged = {_TAG: kind.__name__.lower()}
        else:
            raise self._refused(value, name)
        tagged["of"] = [
            [
                self.encode(key, f"{name}.key", depth + 1),
                self.encode(item, f"{name}.{key}", depth + 1),
            ]
            for key, item in value.items()
        ]
        return tagged

    def _bulk(self, value: object, name: str) -> Json:
        if isinstance(value, bytes | bytearray) and type(value) in (bytes, bytearray):
            tag = "bytes" if type(value) is bytes else "bytearray"
            return {_TAG: tag, "at": self._put(bytes(value)), "n": len(value)}
        if type(value) is io.BytesIO:
            raw = value.getvalue()
            return {_TAG: "bytesio", "at": self._put(raw), "n": len(raw)}
        if type(value) is complex:
            return {_TAG: "complex", "of": [value.real, value.imag]}
        if type(value) is np.ndarray or isinstance(value, np.generic):
            array = np.asarray(value)
            if array.dtype.kind in _ARRAY_KINDS:
                at, shape = self._put(array.tobytes()), list(array.shape)
                tag = "scalar" if isinstance(value, np.generic) else "ndarray"
                return {_TAG: tag, "dtype": array.dtype.str, "shape": shape, "at": at}
        if type(value).__module__.partition(".")[0] == "torch":
            return self._of_torch(value, name)
        raise self._refused(value, name)

    def _of_torch(self, value: Any, name: str) -> Json:
        import torch

        if type(value) is torch.Size:
            return {_TAG: "size", "of": list(value)}
        if type(value) in (torch.dtype, torch.device):
            return {_TAG: type(value).__name__, "of": str(value).removeprefix("torch.")}
        if isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(value, name)
        raise self._refused(value, name)

    def _tensor(self, value: Tensor, name: str) -> Json:
        import torch

        dtype = str(value.dtype).removeprefix("torch.")
        plain = value.layout == torch.strided and not value.is_quantized and not value.is_meta
        if dtype not in DTYPE_BYTES or not plain:
            raise UsageError(
                f"{self._where}{name} is a tensor of {dtype} that is sparse, quantised, without "
                f"values or of a type without bytes of its own; give a plain tensor"
            )
        resolved = value.detach().resolve_conj().resolve_neg()
        flat = resolved.cpu().contiguous().reshape(-1)
        raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        tagged: dict[str, Json] = {
            _TAG: "tensor",
            "dtype": dtype,
            "shape": list(value.shape),
            "at": self._put(raw),
        }
        if type(value) is torch.nn.Parameter:
            tagged["parameter"] = value.requires_grad
        return tagged

    def _refused(self, value: object, name: str) -> UsageError:
        return UsageError(
            f"{self._where}{name} is a {type(value).__qualname__}; state_dict() may hold numbers, "
            f"strings, bytes, lists, dictionaries, plain tensors and arrays (of an object, its "
            f"state_dict(); a sharded tensor belongs to a model)"
        )

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
    if kind in _ITEM_TYPES:
        return _ITEM_TYPES[kind](_decoded(item, bulk) for item in value["of"])
    if kind == "deque":
        return deque((_decoded(item, bulk) for item in value["of"]), value["most"])
    if kind in {"dict", "counter", "ordereddict", "defaultdict"}:
        pairs = ((_decoded(key, bulk), _decoded(item, bulk)) for key, item in value["of"])
        return _mapping_of(kind, value, dict(pairs))
    if kind in {"bytes", "bytearray", "bytesio"}:
        raw = bytes(_slice(bulk, value["at"], value["n"]))
        return {"bytes": bytes, "bytearray": bytearray, "bytesio": io.BytesIO}[kind](raw)
    if kind in {"ndarray", "scalar"}:
        array = _array(value["dtype"], value["shape"], bulk, value["at"])
        return array[()] if kind == "scalar" else array
    if kind == "complex":
        return complex(*value["of"])
    return _of_torch(kind, value, bulk)


def _mapping_of(kind: str, value: dict[str, Any], pairs: dict[Any, Any]) -> object:
    if kind == "defaultdict":
        made = value["makes"]
        return defaultdict(None if made is None else _FACTORIES[made], pairs)
    return {"dict": dict, "counter": Counter, "ordereddict": OrderedDict}[kind](pairs)


def _array(name: str, shape: list[int], bulk: memoryview, at: int) -> Any:
    dtype = np.dtype(name)
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"an array of {dtype}")
    raw = _slice(bulk, at, math.prod(shape) * dtype.itemsize)
    return np.frombuffer(raw, dtype).reshape(shape).copy()


def _of_torch(kind: str, value: dict[str, Any], bulk: memoryview) -> object:
    import torch

    if kind == "size":
        return torch.Size(value["of"])
    if kind == "device":
        return torch.device(value["of"])
    if kind == "dtype":
        dtype = getattr(torch, value["of"])
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"a type {value['of']!r}")
        return dtype
    if kind != "tensor":
        raise ValueError(f"a value of kind {kind!r}")
    tensor = _tensor(value["dtype"], tuple(value["shape"]), bulk, value["at"])
    if "parameter" in value:
        return torch.nn.Parameter(tensor, requires_grad=bool(value["parameter"]))
    return tensor


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
