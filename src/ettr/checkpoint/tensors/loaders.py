"""Loaders of torchdata and accelerate: asked for their state, and put back, without a trace.

Whoever makes an iterator of a loader draws seeds from the random states of the process, and a
dataset may draw more. In the unbroken run that was done once, before the states were saved. So the
iterator that a restored loader makes first leaves the random states as it found them. A generator
of the loader's own is saved with it, for the order of later epochs.

accelerate draws each batch one step early, and counts it as not yet drawn. With its state the
random states of that moment are saved, and the batch is drawn again from them; and so is the number
of the epoch, which it leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from ettr.checkpoint.tensors.rng import rng_state, set_rng_state
from ettr.errors import UsageError

# Of torchdata's StatefulDataLoader.
_BEFORE_FIRST_BATCH = ("_iterator", "_initial_iter_for_state_dict", "next_iter_state")
_MAKES = "_get_iterator"
# Of accelerate's wrapper of it.
_WRAPPED, _NOTES_STATE, _NOTED = "base_dataloader", "_update_state_dict", "dl_state_dict"
_EPOCH, _FINISHED = "iteration", "_iterator_finished"
# What is added to the state.
_RANDOM, _GENERATORS = "_random_before_the_batch_ahead", "_generators"


def watch_loader(name: str, one: Any) -> None:
    """Let a loader of accelerate keep the random states from which it draws a batch ahead."""
    if not hasattr(type(one), _NOTES_STATE):
        return
    if not hasattr(getattr(one, _WRAPPED), "state_dict"):
        raise UsageError(
            f"{name}: accelerate does not keep the place of this loader; give Accelerator("
            f"dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))"
        )
    if hasattr(one, "slice_fn") and one.state.num_processes > 1:
        raise UsageError(
            f"{name}: accelerate dispatches it from one process to {one.state.num_processes}, and "
            f"does not keep the place of an IterableDataset then; give "
            f"DataLoaderConfiguration(use_stateful_dataloader=True, dispatch_batches=False)"
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
