"""The state of a training run as a checkpoint saves it: tensors in shards, and objects whole.

Moments are looked up in the optimizer each time, never held: an optimizer may replace them.
Containers and wrappers hold others in an attribute (torchtitan's `optimizers`, accelerate's
`optimizer`, SAM's `base_optimizer`) and may keep moments of their own next to theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Self, TypeAlias, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ettr.checkpoint.restore_report import first_names
from ettr.checkpoint.tensors.objects import LiveGroup, Stateful, check_stateful
from ettr.checkpoint.tensors.shards import (
    Shard,
    ShardOwner,
    TensorPlace,
    counts_versions,
    extra_states,
    local_tensor,
    model_tensors,
    shards_of,
    tensor_signature,
)
from ettr.errors import CheckpointError, UsageError

_ZERO = "ZeroRedundancyOptimizer"


def is_optimizer(one: object) -> TypeGuard[torch.optim.Optimizer]:
    """Whether it is one, or steps one and is in its form without being of the class."""
    form = all(hasattr(one, name) for name in ("step", "state", "param_groups"))
    return isinstance(one, torch.optim.Optimizer) or (form and next(_inner(one), None) is not None)


def is_partitioned(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is a `ZeroRedundancyOptimizer`, which steps the partition of this rank."""
    return any(base.__name__ == _ZERO for base in type(optimizer).__mro__)


def parts_of(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """The optimizers that hold the moments: those it steps, innermost first, then itself.

    One that only hands on the state of another is no part.
    """
    if is_partitioned(optimizer):
        return [optimizer.optim]  # type: ignore[attr-defined]
    parts: list[torch.optim.Optimizer] = []
    for inner in _inner(optimizer):
        parts += [one for one in parts_of(inner) if one not in parts]
    if all(optimizer.state is not one.state for one in parts):
        parts.append(optimizer)
    return parts


def steps_others(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its step is that of optimizers within it."""
    return next(_inner(optimizer), None) is not None


def _inner(optimizer: object) -> Iterator[torch.optim.Optimizer]:
    for name, value in getattr(optimizer, "__dict__", {}).items():
        if name in ("state", "param_groups", "defaults"):
            continue
        held: Iterable[object] = (value,)
        if isinstance(value, Mapping):
            held = value.values()
        elif isinstance(value, list | tuple):
            held = value
        for one in held:
            if isinstance(one, torch.optim.Optimizer) and one is not optimizer:
                yield one


def counted_numbers(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """What it keeps in numbers of its own: steps counted, whether it trains or evaluates.

    Those of `ZeroRedundancyOptimizer` are its rank and the size of the world, known at each start.
    """
    if is_partitioned(optimizer):
        return {}
    return {
        name: value
        for name, value in vars(optimizer).items()
        if isinstance(value, int | float) and not name.startswith("_")
    }


class GroupOptions(MutableMapping[str, Any]):
    """The options of a parameter group, and the numbers of optimizers as `.<class>.<attribute>`."""

    def __init__(self, group: dict[str, Any], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._group = group
        self._numbers = {
            f".{type(one).__name__}.{name}": (one, name)
            for one in optimizers
            for name in counted_numbers(one)
        }

    def __getitem__(self, key: str) -> Any:
        if key in self._numbers:
            return getattr(*self._numbers[key])
        return self._group[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key in self._numbers:
            setattr(*self._numbers[key], value)
        else:
            self._group[key] = value

    def __delitem__(self, key: str) -> None:
        del self._group[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._group
        yield from self._numbers

    def __len__(self) -> int:
        return len(self._group) + len(self._numbers)


def hides_state(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its state dictionary is not that of its class's `state` alone."""
    return type(optimizer).state_dict is not torch.optim.Optimizer.state_dict


def saved_whole(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its state dictionary is saved as an object: its state is not that of parameters."""
    return isinstance(optimizer, torch.optim.LBFGS) or bool(unsaved_state(optimizer))


def unsaved_state(optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of what its state dictionary holds and is no moment or option of a parameter.

    Looked for where the class has a `state_dict` of its own, or steps other optimizers; a
    `ZeroRedundancyOptimizer` has one on one rank only, and is known.
    """
    if is_partitioned(optimizer):
        return []
    parts = parts_of(optimizer)
    foreign = [
        f"state of {key!r}" for one in parts for key in one.state if not isinstance(key, Tensor)
    ]
    if not hides_state(optimizer):
        return foreign
    try:
        held = optimizer.state_dict()
    except Exception as error:  # of another project
        return [*foreign, f"its state_dict ({error!r})"]
    known, names = _known(parts)
    for path, value in _leaves(held, ()):
        if isinstance(value, Tensor) and value.numel() > 1:
            if _address(value) not in known:
                foreign.append(".".join(map(str, path)))
        elif isinstance(value, Tensor | int | float) and not names & {
            part for key in path for part in (key, *str(key).split("."))
        }:
            foreign.append(".".join(map(str, path)))
    return foreign


def _known(parts: Iterable[torch.optim.Optimizer]) -> tuple[set[object], set[object]]:
    """Addresses of the tensors that are saved, and names of what is."""
    addresses: set[object] = set()
    names: set[object] = {"params"}
    for one in parts:
        for group in one.param_groups:
            names |= group.keys()
            addresses |= {_address(value) for _, value in _leaves(group, ())}
        for moments in one.state.values():
            if isinstance(moments, Mapping):
                names |= moments.keys()
                addresses |= {_address(value) for _, value in _leaves(moments, ())}
    return addresses, names


def _leaves(value: object, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], object]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, (*path, key))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _leaves(one, (*path, number))
    else:
        yield path, value


def _address(value: object) -> object:
    if not isinstance(value, Tensor):
        return None
    local = value._local_tensor if isinstance(value, DTensor) else value
    try:
        return local.data_ptr() or id(value)
    except RuntimeError:  # a subclass without memory of its own
        return id(value)


# -- The moments of an optimizer: when they have changed, and creating them before a restore ------

_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_GLOBAL_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")


def moments_signature(optimizer: torch.optim.Optimizer) -> int:
    """Changes when a moment appears, goes, or changes its type or size.

    An optimizer may add one to what it holds of a parameter already, or fill an entry that was
    made empty. Computed at every round.
    """
    signature: list[object] = []
    for entry in optimizer.state.values():
        if not isinstance(entry, Mapping):
            continue  # of no parameter
        signature.append(len(entry))
        for key, value in entry.items():
            tensor = isinstance(value, Tensor)
            signature += (key, value.dtype, value.numel()) if tensor else (key, type(value))
    return hash(tuple(signature))


def create_moments(optimizer: torch.optim.Optimizer) -> None:
    """Create the moments of the parameters that have none, by a step at learning rate 0.

    Parameters, gradients, learning rates and existing moments stay as they are, and no hook of the
    optimizer runs. Parameters that are not trained get none.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    without = [p for p in parameters if p.requires_grad and not optimizer.state.get(p)]
    if not without:
        return
    stateful = {id(p) for p in without}
    gradients = {id(p): p.grad for p in parameters}
    try:
        with _learning_rates_at_zero(optimizer), _without_hooks(optimizer):
            for parameter in parameters:
                fresh = id(parameter) in stateful
                parameter.grad = torch.zeros_like(parameter) if fresh else None
            type(optimizer).step(optimizer)
    except Exception as error:
        raise CheckpointError(
            f"{type(optimizer).__name__} could not create its moments by a step without gradients "
            f"({error!r}); take one step of training before the restore"
        ) from error
    finally:
        for parameter in parameters:
            parameter.grad = gradients[id(parameter)]


@contextmanager
def _learning_rates_at_zero(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Put back rates, other options, and what the optimizer counts in attributes."""
    before = [dict(group) for group in optimizer.param_groups]
    values = [{k: v.clone() for k, v in g.items() if isinstance(v, Tensor)} for g in before]
    counts = {k: v for k, v in vars(optimizer).items() if isinstance(v, int | float)}
    try:
        for group in optimizer.param_groups:
            if (rate := group.get("lr")) is not None:
                group["lr"] = torch.zeros_like(rate) if isinstance(rate, Tensor) else 0.0
        yield
    finally:
        for group, options, tensors in zip(optimizer.param_groups, before, values, strict=True):
            group.update(options)
            for key, value in tensors.items():
                with torch.no_grad():
                    group[key].copy_(value)
        vars(optimizer).update(counts)


@contextmanager
def _without_hooks(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    holders: list[tuple[object, str]] = [(optimizer, name) for name in _HOOKS]
    module = import_module("torch.optim.optimizer")  # torch.optim hides its name
    holders += [(module, name) for name in _GLOBAL_HOOKS]
    hooks = [(holder, name, getattr(holder, name)) for holder, name in holders]
    try:
        for holder, name, _ in hooks:
            setattr(holder, name, OrderedDict())
        yield
    finally:
        for holder, name, registered in hooks:
            setattr(holder, name, registered)


# -- the state -----------------------------------------------------------------------------------

_T = TypeVar("_T")
_HELD = ("model", "optimizer")
_Model: TypeAlias = nn.Module | Sequence[nn.Module]


class _Parts(Mapping[str, _T]):
    """Some entries of a dictionary, as they are when they are looked up."""

    def __init__(self, parts: Mapping[str, object], names: Sequence[str]) -> None:
        self._parts, self._names = parts, names

    def __getitem__(self, name: str) -> _T:
        if name not in self._names:
            raise KeyError(name)
        return self._parts[name]  # type: ignore[return-value]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class State(ABC):
    """The state that a running checkpoint saves; a subclass has shards, and what else it needs."""

    whole_run: bool = False
    """Whether this is all that a run needs to go on, so that nothing saved may be left out."""

    @abstractmethod
    def shards(self) -> list[Shard]:
        """The local shards now; moments are there once the optimizer has made them.

        Raises:
            CheckpointError: a tensor cannot be saved; it is named.
        """

    @abstractmethod
    def fingerprint(self) -> int:
        """A number that changes when tensors or moments have appeared, gone or changed their type.

        The slot is planned again then.
        """

    def materialise(self) -> None:  # noqa: B027 - nothing to do without an optimizer
        """Make the optimizer create its moments, so that they can be restored into."""

    def set_step_of_empty_shards(self, step_count: float) -> None:  # noqa: B027 - as above
        """Set the step count of parameters of which this rank holds no element."""

    def objects(self) -> Mapping[str, Stateful]:
        """The objects with a `state_dict`, by name."""
        return {}

    def groups(self) -> list[LiveGroup]:
        """The parameter groups of the optimizers, as they are now."""
        return []


class TensorState(State):
    """A dictionary of tensors or DTensors without an optimizer.

    Args:
        tensors: by name; the values may be replaced as long as type and shape stay.
        replica: (index, count) of identical copies; see `TrainingState`.
    """

    def __init__(self, tensors: Mapping[str, Tensor], *, replica: tuple[int, int] = (0, 1)) -> None:
        self._tensors, self._replica = tensors, replica

    def shards(self) -> list[Shard]:
        """One shard per tensor; empty local shards are left out."""
        owner = ShardOwner(replica=self._replica)
        return [
            shard
            for name in self._tensors
            for shard in shards_of(name, TensorPlace(self._tensors, name), owner)
        ]

    def fingerprint(self) -> int:
        """By names, types and shapes."""
        return hash(tuple((name, t.dtype, t.shape) for name, t in self._tensors.items()))


class TrainingState(State):
    """Models, their optimizers, and whatever else a run needs to go on.

    Models may be plain, DDP, FSDP2 (DTensor) or ZeRO-1. `TrainingState.of` takes them in one
    dictionary, as `RunningCheckpoint` and `restore` do.

    Args:
        model: its persistent buffers are included, without moments. Several by name: their tensors
            are saved as `<name>.<parameter>`, those of a single one without a prefix. A list: the
            parts of one model that this rank has in a pipeline, whose names differ.
        optimizers: one or several; under `ZeroRedundancyOptimizer` only the partition that this
            rank owns is part of its slot.
        replica: (index, count) of identical copies among which plain tensors are split, so that
            each is saved once; under DDP (rank, world size). DTensors know their own.
        tensors: plain tensors or DTensors by name; the values may be replaced.
        objects: by name, with `state_dict` and `load_state_dict`.
        groups: with the options of parameter groups, such as learning rates.

    Raises:
        CheckpointError: an optimizer holds a parameter that the model does not have, a tensor
            cannot be saved, or two have one name; it is named.
        UsageError: an object has no `state_dict` and `load_state_dict`.
    """

    def __init__(
        self,
        model: _Model | Mapping[str, _Model],
        optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = (),
        *,
        replica: tuple[int, int] = (0, 1),
        tensors: Mapping[str, Tensor] | None = None,
        objects: Mapping[str, Stateful] | None = None,
        groups: bool = True,
    ) -> None:
        if isinstance(optimizers, torch.optim.Optimizer):
            optimizers = [optimizers]
        models = dict(model) if isinstance(model, Mapping) else {"": model}
        self.models = [
            (name, part)
            for name, one in models.items()
            for part in ([one] if isinstance(one, nn.Module) else one)
        ]
        self.optimizers = list(optimizers)
        self.tensors = tensors or {}
        self._tensor_state = TensorState(self.tensors, replica=replica)
        self._objects = objects or {}
        for name, one in self._objects.items():
            check_stateful(name, one)
        self._given: tuple[Mapping[str, object], dict[str, object]] = {}, {}
        self._looked_up: tuple[tuple[object, ...], dict[str, TensorPlace]] | None = None
        self._replica = replica
        # with an optimizer it is to be trained, not only looked at
        self.whole_run = groups and bool(self.optimizers)
        self.parts = [parts_of(optimizer) for optimizer in self.optimizers]
        for inner in self._all_parts():
            if isinstance(inner, torch.optim.LBFGS):
                raise CheckpointError(
                    "LBFGS keeps lists of tensors for all parameters together and cannot be saved "
                    "in blocks; give model and optimizer in one dictionary, where it is saved as "
                    "an object"
                )
        self._partitioned = any(is_partitioned(optimizer) for optimizer in self.optimizers)
        self.shards()  # a tensor that cannot be saved is an error now, not at the first save

    @classmethod
    def of(cls, parts: Mapping[str, object], *, replica: tuple[int, int] = (0, 1)) -> Self:
        """The state of a dictionary of modules, optimizers, tensors and objects with `state_dict`.

        An optimizer whose state does not belong to single parameters (LBFGS, and those whose own
        `state_dict` holds more) is saved as an object.

        Raises:
            UsageError: a value is of another kind; it is named.
            CheckpointError: as for the class.
        """
        kind_of = {name: _kind(name, one) for name, one in parts.items()}
        models: dict[str, Any] = {k: parts[k] for k, kind in kind_of.items() if kind == "model"}
        optimizers: list[Any] = [parts[k] for k, kind in kind_of.items() if kind == "optimizer"]
        state = cls(
            next(iter(models.values())) if len(models) == 1 else models,
            optimizers,
            replica=replica,
            tensors=_Parts(parts, [k for k, kind in kind_of.items() if kind == "tensor"]),
            objects=_Parts(parts, [k for k, kind in kind_of.items() if kind == "object"]),
        )
        held = {name: one for name, one in parts.items() if kind_of[name] in _HELD}
        state._given = parts, held
        return state

    def shards(self) -> list[Shard]:
        """The local shards, each parameter with its moments; empty local shards are left out."""
        self._check_optimizers()
        places, owners = self._places(), self._owners()
        foreign = owners.keys() - {id(place.tensor) for place in places.values()}
        if foreign:
            names = sorted({type(one).__name__ for one in self._all_parts()})
            raise CheckpointError(
                f"{len(foreign)} parameters of the optimizer ({', '.join(names)}) are not in the "
                f"model; build it from model.parameters() after wrapping (fully_shard, DDP). If "
                f"it steps copies of its own, such as float32 masters, give them as one more "
                f'module: {{..., "masters": nn.ParameterList(the copies)}}'
            )
        shards: list[Shard] = []
        for name, place in places.items():
            owner = owners.get(id(place.tensor))
            if self._partitioned and owner is None and isinstance(place.tensor, nn.Parameter):
                continue  # another rank owns this partition
            shards += shards_of(name, place, owner or ShardOwner(replica=self._replica))
        return shards + self._named_once(places)

    def _places(self) -> Mapping[str, TensorPlace]:
        """Name -> place of every tensor of the models; one that several share is there once."""
        signature = self._signature()
        if self._looked_up is None or self._looked_up[0] != signature:
            self._looked_up = signature, self._look_up()
        return self._looked_up[1]

    def _look_up(self) -> dict[str, TensorPlace]:
        places: dict[str, TensorPlace] = {}
        taken: set[int] = set()
        for prefix, model in self.models:
            for name, place in model_tensors(model).items():
                if id(place.tensor) not in taken:
                    taken.add(id(place.tensor))
                    _add(places, f"{prefix}.{name}" if prefix else name, place)
        return places

    def tensor_names(self) -> frozenset[str]:
        """Names of all tensors, those of which this rank holds no element too."""
        return frozenset({*self._places(), *self.tensors})

    def tied_names(self) -> dict[str, str]:
        """Other names of parameters that have several -> the name they are saved under."""
        names = {id(place.tensor): name for name, place in self._places().items()}
        return {
            full: names[id(parameter)]
            for prefix, model in self.models
            for name, parameter in model.named_parameters(remove_duplicate=False)
            if (full := f"{prefix}.{name}" if prefix else name) != names.get(id(parameter), full)
        }

    def _named_once(self, places: Mapping[str, TensorPlace]) -> list[Shard]:
        """The shards of the plain tensors, if no tensor of a model has their name."""
        shards = self._tensor_state.shards()
        for shard in shards:
            if shard.spec.fqn in places:
                raise CheckpointError(
                    f"{shard.spec.fqn}: a tensor and a parameter of the model have this name; give "
                    f"the tensor another"
                )
        return shards

    def _owners(self) -> dict[int, ShardOwner]:
        """The optimizer of each parameter, by the identity of the parameter."""
        replica = (0, 1) if self._partitioned else self._replica
        owners: dict[int, ShardOwner] = {}
        for parts in self.parts:
            of_parts: dict[int, ShardOwner] = {}
            for part in parts:
                for group in part.param_groups:
                    for parameter in group["params"]:
                        known = of_parts.get(id(parameter), ShardOwner(replica=replica))
                        counted = known.counted and counts_versions(part, group, parameter)
                        holders = (*known.optimizers, part)
                        of_parts[id(parameter)] = ShardOwner(holders, replica, counted)
            if twice := owners.keys() & of_parts.keys():
                raise CheckpointError(
                    f"two optimizers train {len(twice)} parameters: the moments of one of them "
                    f"can be saved. Give the other under a name of its own, as an object whose "
                    f"state_dict is that of the optimizer"
                )
            owners |= of_parts
        return owners

    def _all_parts(self) -> list[torch.optim.Optimizer]:
        return [part for parts in self.parts for part in parts]

    def _check_optimizers(self) -> None:
        """Pass if all that the optimizers hold can be saved as moments and options."""
        for optimizer in self.optimizers:
            if unsaved := unsaved_state(optimizer):
                raise CheckpointError(
                    f"{type(optimizer).__name__} holds more than moments and options of its "
                    f"parameters: {first_names(unsaved)}. Give it as an object: of a class with "
                    f"state_dict and load_state_dict that hand on to it"
                )

    def fingerprint(self) -> int:
        """By the identities, types and sizes of the tensors, and the moments of each parameter.

        Raises:
            CheckpointError: a model or an optimizer was replaced in the dictionary.
        """
        parts, held = self._given
        if replaced := [name for name, one in held.items() if parts.get(name) is not one]:
            raise CheckpointError(
                f"{', '.join(replaced)}: replaced in the dictionary that the checkpoint was made "
                f"with; make a new RunningCheckpoint"
            )
        moments: list[object] = []
        for optimizer, within in zip(self.optimizers, self.parts, strict=True):
            moments += (moments_signature(part) for part in within)
            if not any(part.state for part in within) and hides_state(optimizer):
                moments.append(len(unsaved_state(optimizer)))
        groups = tuple(len(g["params"]) for part in self._all_parts() for g in part.param_groups)
        signature = self._signature(), tuple(moments), groups, self._tensor_state.fingerprint()
        return hash(signature)

    def _signature(self) -> tuple[object, ...]:
        return tuple(tensor_signature(model) for _, model in self.models)

    def materialise(self) -> None:
        """Create the moments of parameters that have none; see `create_moments`."""
        for part in self._all_parts():
            if not steps_others(part):
                create_moments(part)

    def set_step_of_empty_shards(self, step_count: float) -> None:
        """Set the step count of parameters whose local shard is empty.

        It updates no element, but a state dictionary may take it for that of all ranks.
        """
        for inner in self._all_parts():
            for tensor, moments in inner.state.items():
                if local_tensor(tensor).numel() == 0 and isinstance(moments.get("step"), Tensor):
                    moments["step"].fill_(step_count)

    def objects(self) -> Mapping[str, Stateful]:
        """The objects by name, with what modules keep besides tensors (`get_extra_state`)."""
        objects = dict(self._objects)
        for prefix, model in self.models:
            for name, one in extra_states(model).items():
                _add(objects, f"{prefix}.{name}" if prefix else name, one)
        return objects

    def groups(self) -> list[LiveGroup]:
        """The parameter groups with the names of their parameters; those without any are left out.

        Of `ZeroRedundancyOptimizer` its own: its partitions take their options from there.
        """
        if not self.whole_run:
            return []
        name_of = {id(place.tensor): name for name, place in self._places().items()}
        return [
            group
            for optimizer, parts in zip(self.optimizers, self.parts, strict=True)
            for group in _groups_of(
                [optimizer] if is_partitioned(optimizer) else parts,
                name_of,
                [one for one in (optimizer, *parts) if steps_others(one)],
            )
        ]


def _kind(name: str, one: object) -> str:
    parts = one if isinstance(one, list) else [one]
    if parts and all(isinstance(part, nn.Module) for part in parts):
        return "model"
    if is_optimizer(one) and not saved_whole(one):
        return "optimizer"
    if isinstance(one, Tensor):
        return "tensor"
    check_stateful(name, one)
    return "object"


def _add(named: dict[str, _T], name: str, one: _T) -> None:
    if name in named:
        raise CheckpointError(
            f"{name}: two parts of the state have this name; rename one key of the dictionary"
        )
    named[name] = one


def _groups_of(
    parts: Iterable[torch.optim.Optimizer],
    name_of: Mapping[int, str],
    containers: Sequence[torch.optim.Optimizer],
) -> Iterator[LiveGroup]:
    """The groups of an optimizer's parts, with the numbers that it and its containers count."""
    taken: set[str] = set()
    for part in parts:
        for group in part.param_groups:
            names = [name_of[id(p)] for p in group["params"] if id(p) in name_of]
            if names := [name for name in names if name not in taken]:
                taken |= set(names)
                counting = [one for one in (part, *containers) if counted_numbers(one)]
                yield LiveGroup(tuple(names), GroupOptions(group, counting) if counting else group)


def as_state(state: State | nn.Module | Mapping[str, object]) -> State:
    """A module or a dictionary as a `State`; a `State` as it is."""
    if isinstance(state, nn.Module):
        return TrainingState(state)
    if not isinstance(state, Mapping):
        if not hasattr(state, "shards"):
            raise UsageError(
                f"state: of type {type(state).__name__}; give a dictionary, such as "
                f'{{"model": model, "optimizer": optimizer}}'
            )
        return state
    tensors = {name: one for name, one in state.items() if isinstance(one, Tensor)}
    if len(tensors) < len(state):
        return TrainingState.of(state)
    # The dictionary itself: its values may be replaced.
    return TensorState(state)  # type: ignore[arg-type]
