"""The state of a run that is no tensor of a model: parameter groups, and objects with `state_dict`.

Schedulers, data loaders, gradient scalers, samplers: anything that follows the Stateful protocol of
`torch.distributed.checkpoint`. Each object's state is one item of a slot's record of objects, all
of one step; it comes back whole or not at all.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.slots.layout import aligned
from ettr.checkpoint.tensors.loaders import load_state, state_of, watch_loader
from ettr.checkpoint.tensors.typed_values import decode, encode
from ettr.errors import UsageError

_HEAD = struct.Struct("<IIq")  # bytes of the index, of what follows it, step
_ALIGN = 16
_STATE = "state"
GROUPS = "groups"
OBJECT = "object"
# What people choose, and change between two runs; `lr` is that before a scheduler's steps.
_CHOSEN = ("lr", "weight_decay", "betas", "momentum", "eps")
_FIRST_RATE = "initial_lr"
# How an optimizer computes, not what: the live optimizer was built for the devices it has now.
_NOT_RESTORED = frozenset({"params", "foreach", "fused", "capturable", "differentiable"})


@runtime_checkable
class Stateful(Protocol):
    """Anything with `state_dict` and `load_state_dict`."""

    def state_dict(self) -> dict[str, Any]:
        """What is to be saved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take over what `state_dict` returned."""


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """One parameter group of a live optimizer, and the names of its parameters."""

    names: tuple[str, ...]
    options: MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """The objects of one slot as they were saved, each still encoded.

    Attributes:
        items: (`object` or `groups`, name) -> its bytes.
    """

    step: int
    items: Mapping[tuple[str, str], bytes]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the objects, without the parameter groups."""
        return tuple(name for kind, name in self.items if kind == OBJECT)

    def state(self, name: str) -> Any:
        """The state of an object, as its `state_dict` returned it."""
        return decode(self.items[OBJECT, name]).values[_STATE]

    def group_options(self) -> dict[str, dict[str, Any]] | None:
        """Parameter -> the options of its group; None: no groups were saved."""
        raw = [item for (kind, _), item in self.items.items() if kind == GROUPS]
        if not raw:
            return None
        return {
            name: group["options"]
            for item in raw
            for group in decode(item).values[_STATE]
            for name in json.loads(group["params"])
        }


def encode_objects(
    objects: Mapping[str, Stateful],
    groups: Sequence[LiveGroup],
    step: int,
    restored: Mapping[str, ObjectRecord] | None = None,
) -> bytes:
    """The record of a slot's objects and parameter groups; empty without any.

    Args:
        restored: object -> the record from which it has just been restored; it is not asked then.
    """
    items: dict[tuple[str, str], bytes] = {}
    restored = restored or {}
    for name, one in objects.items():
        state = restored[name].state(name) if name in restored else state_of(one)
        items[OBJECT, name] = encode({_STATE: state}, step, where=f"object {name!r}: ")
    if groups:
        described = [
            {
                "params": json.dumps(group.names),
                "options": {k: v for k, v in group.options.items() if k not in _NOT_RESTORED},
            }
            for group in groups
        ]
        items[GROUPS, GROUPS] = encode({_STATE: described}, step, where="parameter groups: ")
    return pack_objects(ObjectRecord(step, items))


def pack_objects(record: ObjectRecord) -> bytes:
    """The bytes of a record; none where it has no item."""
    if not record.items:
        return b""
    index, chunks, at = [], [], 0
    for (kind, name), item in record.items.items():
        index.append([kind, name, at, len(item)])
        padded = item.ljust(aligned(len(item), _ALIGN), b"\0")
        chunks.append(padded)
        at += len(padded)
    text = json.dumps(index, separators=(",", ":")).encode()
    head = _HEAD.pack(len(text), at, record.step) + text
    return b"".join([head.ljust(aligned(len(head), _ALIGN), b"\0"), *chunks])


def unpack_objects(payload: memoryview | bytes) -> ObjectRecord:
    """The record that `pack_objects` made; bytes may follow it."""
    raw = memoryview(payload)
    try:
        text_bytes, bulk_bytes, step = _HEAD.unpack_from(raw)
        index = json.loads(bytes(raw[_HEAD.size :][:text_bytes]))
        bulk = raw[aligned(_HEAD.size + text_bytes, _ALIGN) :][:bulk_bytes]
        items = {}
        for kind, name, at, n_bytes in index:
            item = bytes(bulk[at : at + n_bytes])
            if len(item) != n_bytes or kind not in (OBJECT, GROUPS):
                raise ValueError(f"item {name!r} lies outside the record")
            items[kind, name] = item
        return ObjectRecord(step, items)
    except (struct.error, ValueError, TypeError) as error:
        raise CheckpointError(f"objects: the record is not of this format: {error}") from error


def from_extra(payload: memoryview | bytes, *, version: int, step: int) -> ObjectRecord:
    """What a file before format 3 kept as `extra`, as objects of the same names."""
    extra = decode(payload, version=version, step=step)
    items = {(OBJECT, k): encode({_STATE: v}, extra.step) for k, v in extra.values.items()}
    return ObjectRecord(extra.step, items)


def load_object(name: str, one: Stateful, record: ObjectRecord) -> None:
    """Hand an object the state that was saved of it."""
    state = record.state(name)
    if isinstance(one, Optimizer) and any(
        isinstance(tensor, DTensor) for group in one.param_groups for tensor in group["params"]
    ):
        raise CheckpointError(
            f"object {name!r} ({type(one).__name__}) is saved whole, and its parameters are "
            f"sharded now; train it as it was saved"
        )
    try:
        load_state(one, state)
    except Exception as error:
        raise CheckpointError(
            f"object {name!r} ({type(one).__name__}) did not take its state of step "
            f"{record.step}: {error!r}; build the same object as the saved run's"
        ) from error


def unmatched_groups(
    groups: Iterable[LiveGroup], saved: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Parameters whose options were not saved, or differ within what is one group now."""
    names = []
    for group in groups:
        names += [name for name in group.names if name not in saved]
        options = [saved[name] for name in group.names if name in saved]
        names += [
            name for name in group.names if name in saved and not _same(saved[name], options[0])
        ]
    return names


def replaced_options(
    groups: Iterable[LiveGroup], saved: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """What `load_groups` will change of what somebody has chosen for the optimizer, in words.

    Of a rate that a scheduler has changed its first value counts.
    """
    replaced: dict[str, None] = {}
    for group in groups:
        now = group.options
        before = next((saved[name] for name in group.names if name in saved), now)
        numbers = [key for key in before if key.startswith(".") and now.get(key)]
        for key in (*_CHOSEN, *numbers):
            first = [
                options.get(_FIRST_RATE, options.get(key)) if key == "lr" else options.get(key)
                for options in (before, now)
            ]
            if None not in first and not _equal(*first):
                replaced[f"{key.lstrip('.')} {_short(first[0])} for {_short(first[1])}"] = None
    return list(replaced)


def _equal(one: object, other: object) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return bool(torch.equal(torch.as_tensor(one).cpu(), torch.as_tensor(other).cpu()))
    return one == other or (isinstance(one, list | tuple) and list(one) == list(other))  # type: ignore[call-overload]


def _short(value: object) -> str:
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    return f"{number:.4g}" if isinstance(number, float) else str(number)


def load_groups(groups: Iterable[LiveGroup], saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Set the options of live parameter groups: learning rate, weight decay, ... in place.

    Tensors (a learning rate that a graph has captured) keep their identity.
    """
    for group in groups:
        names = [name for name in group.names if name in saved]
        for key, value in saved[names[0]].items() if names else ():
            if key.startswith(".") and key not in group.options:
                continue  # a number that the optimizer has no more
            live = group.options.get(key)
            if isinstance(live, Tensor):
                with torch.no_grad():
                    live.copy_(torch.as_tensor(value))
            else:
                group.options[key] = value


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one is other or encode(one, 0) == encode(other, 0)


def check_stateful(name: str, one: object) -> Stateful:
    """The object, if it follows the protocol."""
    if isinstance(one, type) or not isinstance(one, Stateful):
        raise UsageError(
            f"{name}: of type {type(one).__name__}; a checkpoint takes modules, "
            f"optimizers, tensors, and objects with state_dict() and load_state_dict(). Put "
            f"numbers and the like into an object of your own with these two methods"
        )
    watch_loader(name, one)
    return one
