"""The standard library's `dataclass`, whose methods are compiled when they are first used.

A command reads hundreds of classes and makes objects of a few; for each the standard library
compiles six methods, 1 ms, which was a quarter of what a short command takes. Here one is
compiled, `__init__`, by the first call; the others are written once, for every class. Type
checkers and editors see the standard library's.
"""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

if not TYPE_CHECKING:

    def dataclass(cls=None, /, **options):
        """Make a dataclass with the options of the standard library, but for those of order."""
        return partial(_made, **options) if cls is None else _made(cls, **options)


def _made(
    given: type,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002
    init: bool = True,
    kw_only: bool = False,
) -> type:
    own = set(given.__dict__)
    if given.__doc__ is None:
        given.__doc__ = ""  # or the standard library would make one of the signature
    # who inherits from a frozen one must be frozen in the eyes of the standard library
    bases = (getattr(base, "__dataclass_params__", None) for base in given.__mro__[1:])
    inherits = frozen and any(base is not None and base.frozen for base in bases)
    cls: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, kw_only=kw_only, frozen=inherits
    )(given)
    shown = cls.__dataclass_params__
    shown.init, shown.repr, shown.eq, shown.frozen = init, repr, eq, frozen
    methods: dict[str, Any] = {}
    if init and "__init__" not in own:
        methods["__init__"] = _first_init(cls, frozen=frozen)
        methods["__signature__"] = _LaterSignature()
    if repr:
        methods["__repr__"] = _repr
    if frozen:
        methods |= {"__setattr__": _setter(cls), "__delattr__": _deleter(cls)}
        if slots:
            methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    if eq:
        methods |= _comparing(cls)
        if not frozen:
            methods["__hash__"] = None
    # `__eq__` alone sets `__hash__` to None
    kept = own - ({"__hash__"} if given.__dict__.get("__hash__", own) is None else set())
    for name, method in methods.items():
        if name not in kept:
            setattr(cls, name, method)
    made: type = cls
    return made


def _first_init(cls: Any, *, frozen: bool) -> Any:
    """An `__init__` that the first call replaces by one compiled for the class."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        _compile(cls, frozen=frozen)
        cls.__init__(self, *args, **kwargs)

    __init__.compile = lambda: _compile(cls, frozen=frozen)  # type: ignore[attr-defined]
    return __init__


def _compile(cls: Any, *, frozen: bool) -> None:
    """Give the class its `__init__`."""
    held: dict[str, Any] = {"_absent": _MADE_LATER, "_set": object.__setattr__}
    plain: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for one in dataclasses.fields(cls):
        name, has, value = one.name, one.default is not dataclasses.MISSING, one.name
        made = one.default_factory is not dataclasses.MISSING
        if has:
            held[f"_default_{name}"] = one.default
        if made:
            held[f"_make_{name}"] = one.default_factory
            value = f"_make_{name}() if {name} is _absent else {name}"
        if not one.init:
            if not has and not made:
                continue
            value = f"_default_{name}" if has else f"_make_{name}()"
        else:
            default = f"=_default_{name}" if has else "=_absent" if made else ""
            (by_name if one.kw_only else plain).append(name + default)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    taken = ", ".join(["self", *plain, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({taken}):\n " + "\n ".join(body or ["pass"]), held)  # noqa: S102
    found = held["__init__"]
    found.__qualname__ = f"{cls.__qualname__}.__init__"
    found.__module__ = cls.__module__
    types = {one.name: one.type for one in dataclasses.fields(cls) if one.init}
    found.__annotations__ = {**types, "return": None}
    cls.__init__ = found


class _MadeLater:
    """Stands in a signature for a default that is made for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE_LATER = _MadeLater()


class _LaterSignature:
    """The signature of a class, which only help and documentation ask for."""

    def __get__(self, _: object, cls: Any) -> Any:
        import inspect

        compile_it = getattr(cls.__init__, "compile", None)
        if compile_it is not None:
            compile_it()
        found = inspect.signature(cls.__init__)
        _self, *rest = found.parameters.values()
        return found.replace(parameters=rest)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (one.name for one in dataclasses.fields(self) if one.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _comparing(cls: Any) -> dict[str, Any]:
    """Equality and hash by the fields that compare."""
    compared = [one for one in dataclasses.fields(cls) if one.compare]
    hashed = [one for one in compared if one.hash is not False]
    values, key = _values(compared), _values(hashed)

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(key(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _values(chosen: list[dataclasses.Field[Any]]) -> Any:
    """Read the values of these fields, as a tuple."""
    names = [one.name for one in chosen]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _setter(cls: Any) -> Any:
    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    return __setattr__


def _deleter(cls: Any) -> Any:
    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __delattr__


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
