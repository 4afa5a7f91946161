"""The state of a run that is no tensor of a model: parameter groups, and objects with `state_dict`.

Schedulers, data loaders, gradient scalers, samplers: anything that follows the Stateful protocol of
`torch.distributed.checkpoint`. Each object's state is one item of a slot's record of objects, all
of one step; it comes back whole or not at all.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from ettr.checkpoint.slots.layout import aligned
from ettr.checkpoint.tensors.typed_values import decode, encode
from ettr.errors import CheckpointError, UsageError

# -- random states as values that a checkpoint can save, and their way back ------------------------
# RunningCheckpoint(root, {"model": model, "random": RandomStates(), ...})
#
# Python's, NumPy's and torch's global generators (each CUDA device's where CUDA is in use) and any
# generator that is named. Nothing is pickled.


Generator: TypeAlias = torch.Generator | np.random.Generator


class RandomStates:
    """The global random states and those of named generators, as an object with `state_dict`.

    Args:
        generators: by name: a data loader's or a sampler's own, torch's or NumPy's.
    """

    def __init__(self, generators: Mapping[str, Generator] | None = None) -> None:
        self._generators = generators

    def state_dict(self) -> dict[str, Any]:
        """The states now, about 10 kB."""
        return rng_state(self._generators)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put them back; raises as `set_rng_state`."""
        set_rng_state(state_dict, self._generators)


def rng_state(generators: Mapping[str, Generator] | None = None) -> dict[str, Any]:
    """The global random states and those of named generators, about 10 kB.

    Args:
        generators: by name: a data loader's or a sampler's own, torch's or NumPy's.
    """
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "own": {name: _generator_state(one) for name, one in (generators or {}).items()},
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(
    state: Mapping[str, Any], generators: Mapping[str, Generator] | None = None
) -> None:
    """Put back what `rng_state` returned.

    Raises:
        UsageError: a generator is missing or was not saved, or the number of CUDA devices differs.
    """
    names, saved = set(generators or {}), set(state["own"])
    if names != saved:
        raise UsageError(
            f"random states: generators {sorted(names)} were given and {sorted(saved)} were saved; "
            f"give those by the same names"
        )
    devices = state.get("cuda")
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if devices is not None and len(devices) != here:
        raise UsageError(
            f"random states: of {len(devices)} CUDA devices, and {here} are here; leave 'cuda' out "
            f"and seed the devices again"
        )
    python = state["python"]
    words = tuple(int(word) for word in python["words"])
    random.setstate((python["version"], words, python["gauss"]))
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if devices is not None:
        torch.cuda.set_rng_state_all(devices)
    for name, one in (generators or {}).items():
        if isinstance(one, torch.Generator):
            one.set_state(state["own"][name])
        else:
            one.bit_generator.state = state["own"][name]


def _generator_state(generator: Generator) -> object:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return generator.bit_generator.state


# -- the state of a run that is no tensor of a model: parameter groups, and objects with
# `state_dict`


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
    """The objects of one slot as they were saved, each still encoded."""

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
    """The record of a slot's objects and parameter groups; empty without any."""
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


# -- Loaders of torchdata and accelerate: asked for their state, and put back, without a trace ----
#
# Whoever makes an iterator of a loader draws seeds from the random states of the process, and a
# dataset may draw more. In the unbroken run that was done once, before the states were saved. So
# the iterator that a restored loader makes first leaves the random states as it found them. A
# generator of the loader's own is saved with it, for the order of later epochs.
#
# accelerate draws each batch one step early, and counts it as not yet drawn. With its state the
# random states of that moment are saved, and the batch is drawn again from them; and so is the
# number of the epoch, which it leaves out.

# Of torchdata's StatefulDataLoader.
_BEFORE_FIRST_BATCH = ("_iterator", "_initial_iter_for_state_dict", "next_iter_state")
_MAKES = "_get_iterator"
# They draw the order of an epoch when it begins; torchdata has its own for `shuffle=True`.
_SHUFFLE_WITHOUT_STATE = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_MOST_SAMPLERS = 8  # around one another
# Of accelerate's wrapper of it.
_WRAPPED, _NOTES_STATE, _NOTED = "base_dataloader", "_update_state_dict", "dl_state_dict"
_EPOCH, _FINISHED = "iteration", "_iterator_finished"
# What is added to the state.
_RANDOM, _GENERATORS = "_random_before_the_batch_ahead", "_generators"


def watch_loader(name: str, one: Any) -> None:
    """Let a loader of accelerate keep the random states from which it draws a batch ahead."""
    sampler = _innermost_sampler(one) if hasattr(getattr(one, _WRAPPED, one), _MAKES) else None
    if type(sampler) in _SHUFFLE_WITHOUT_STATE:
        raise UsageError(
            f"{name}: its {type(sampler).__name__} has no state, and a resumed epoch would have "
            f"another order; give torchdata's StatefulDataLoader(..., shuffle=True), to "
            f"accelerate's prepare() too, or a sampler with state_dict and load_state_dict"
        )
    if not hasattr(type(one), _NOTES_STATE):
        return
    if not hasattr(getattr(one, _WRAPPED), "state_dict"):
        raise UsageError(
            f"{name}: accelerate does not save the position of this loader; give "
            "Accelerator(dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))"
        )
    if hasattr(one, "slice_fn") and one.state.num_processes > 1:
        raise UsageError(
            f"{name}: accelerate dispatches it from one process to {one.state.num_processes} and "
            "does not save the position of an IterableDataset then; give "
            "DataLoaderConfiguration(use_stateful_dataloader=True, dispatch_batches=False)"
        )
    if _NOTES_STATE in vars(one):
        return
    notes = getattr(one, _NOTES_STATE)

    def notes_more() -> None:
        notes()
        noted = getattr(one, _NOTED)
        noted[_EPOCH] = one.iteration
        noted[_GENERATORS] = _states(one)
        if not one.num_workers:  # they have random states of their own
            noted[_RANDOM] = rng_state()

    setattr(one, _NOTES_STATE, notes_more)


def _innermost_sampler(one: Any) -> object:
    """The sampler of a loader, through whatever makes batches of it."""
    for _ in range(_MOST_SAMPLERS):
        within = [getattr(one, name, None) for name in ("batch_sampler", "sampler")]
        one = next((sampler for sampler in within if sampler is not None), one)
    return one


def state_of(one: Any) -> dict[str, Any]:
    """What `state_dict` returns; asking changes nothing that the training loop would notice.

    Asked before its first batch, a StatefulDataLoader of torchdata makes the iterator that the loop
    then gets: with the sampler's epoch of now, before the loop has called `set_epoch`; and it draws
    seeds. Both are undone, by attributes: `load_state_dict` of a subclass may do more.
    """
    state: dict[str, Any]
    if not all(hasattr(one, name) for name in _BEFORE_FIRST_BATCH):
        state = one.state_dict()
        return state
    if hasattr(type(one), _NOTES_STATE):  # it has noted them
        return {_GENERATORS: _states(one), **one.state_dict()}
    before = {name: getattr(one, name) for name in _BEFORE_FIRST_BATCH}
    if before["_iterator"] is not None:
        return {**one.state_dict(), _GENERATORS: _states(one)}
    generators = [torch.default_generator, *_generators(one)]
    random_states = [generator.get_state() for generator in generators]
    try:
        return {**one.state_dict(), _GENERATORS: _states(one)}
    finally:
        for name, value in before.items():
            setattr(one, name, value)
        for generator, random_state in zip(generators, random_states, strict=True):
            generator.set_state(random_state)


def load_state(one: Any, state: dict[str, Any]) -> None:
    """Hand an object its state; a loader's next iterator then draws nothing once more.

    A loader that had given nothing when it was saved makes its first iterator as in a new run.
    """
    loader = getattr(one, _WRAPPED, one)
    made = getattr(loader, "_initial_iter_for_state_dict", False)  # as accelerate does
    one.load_state_dict(state)
    if not hasattr(loader, _MAKES):
        return
    if hasattr(type(one), _NOTES_STATE) and _EPOCH in state:
        one.iteration = state[_EPOCH] + bool(state.get(_FINISHED))
    vars(loader).pop(_MAKES, None)  # of an earlier load
    makes: Callable[[], Any] = getattr(loader, _MAKES)
    drew = made or _batches_given(state)

    def makes_without_a_trace() -> Any:
        del vars(loader)[_MAKES]
        with _without_a_trace() if drew else nullcontext():
            iterator = makes()
        for generator, random_state in zip(
            _generators(one), state.get(_GENERATORS, []), strict=False
        ):
            generator.set_state(random_state)
        if _RANDOM in state and not state.get(_FINISHED):
            _draw_first_from(iterator, state[_RANDOM])
        return iterator

    vars(loader)[_MAKES] = makes_without_a_trace


def _generators(one: Any) -> list[torch.Generator]:
    """Of a loader and its sampler, each once."""
    sampler = getattr(one, "sampler", None)
    within = getattr(getattr(one, "batch_sampler", None), "sampler", None)
    found = [getattr(place, "generator", None) for place in (one, sampler, within)]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


def _states(one: Any) -> list[torch.Tensor]:
    return [generator.get_state() for generator in _generators(one)]


def _batches_given(state: Mapping[str, Any]) -> int:
    """In the epoch that was saved; with and without workers."""
    of_workers = state.get("_snapshot", {}).get("_snapshot_step", 0)
    given: int = state.get("_num_yielded", 0) + of_workers + state.get("_steps_since_snapshot", 0)
    return given


def _draw_first_from(iterator: Any, random_state: Mapping[str, Any]) -> None:
    """Let an iterator without workers draw its first batch from these random states."""
    draws: Callable[[], Any] = iterator._next_data

    def draws_from_it() -> Any:
        del iterator._next_data
        with _without_a_trace():
            set_rng_state(random_state)
            return draws()

    iterator._next_data = draws_from_it


@contextmanager
def _without_a_trace() -> Iterator[None]:
    before = rng_state()
    try:
        yield
    finally:
        set_rng_state(before)
