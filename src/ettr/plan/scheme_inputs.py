"""Inputs of single schemes under the names that a user types: `hot-swap.swap`, a time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from ettr.errors import UsageError
from ettr.plan.schemes import SCHEMES, Scheme

ASSUME = "--assume"
InputValue = bool | int | float


class InputKind(StrEnum):
    """What the value of an input is; worded for a message."""

    TIME = "a time, such as 40s"
    YES_OR_NO = "yes or no"
    WHOLE = "a whole number"
    NUMBER = "a number"


@dataclass(frozen=True, slots=True)
class SchemeInput:
    """A field of a scheme.

    Attributes:
        scheme: Name of the scheme.
        field: Its field.
    """

    scheme: str
    field: str

    @property
    def name(self) -> str:
        """As it is typed: `hot-swap.swap`."""
        return f"{self.scheme}.{self.field.removesuffix('_s')}".replace(" ", "-").replace("_", "-")


@dataclass(frozen=True, slots=True)
class ChosenSchemes:
    """The schemes to rank, and those of their inputs that the user gave.

    An input that was given is taken as it is: no assumption is made of it.
    """

    schemes: tuple[Scheme, ...] = SCHEMES
    given: frozenset[SchemeInput] = frozenset()


def inputs_of(schemes: Sequence[Scheme] = SCHEMES) -> dict[str, SchemeInput]:
    """All inputs of schemes by the names that are typed."""
    found = [SchemeInput(scheme.name, field) for scheme in schemes for field in values_of(scheme)]
    return {one.name: one for one in found}


def values_of(scheme: Scheme) -> dict[str, InputValue]:
    """The inputs of a scheme, by field."""
    typed: Any = scheme
    return {field.name: getattr(scheme, field.name) for field in fields(typed)}


def kind_of(one: SchemeInput) -> InputKind:
    """What its value is."""
    (value,) = (values_of(s)[one.field] for s in SCHEMES if s.name == one.scheme)
    if isinstance(value, bool):
        return InputKind.YES_OR_NO
    if isinstance(value, int):
        return InputKind.WHOLE
    return InputKind.TIME if one.field.endswith("_s") else InputKind.NUMBER


def with_inputs(values: Mapping[SchemeInput, InputValue]) -> ChosenSchemes:
    """The schemes with some inputs at other values.

    Raises:
        UsageError: a value that an input cannot have.
    """
    schemes = list(SCHEMES)
    for one, value in values.items():
        _check(one, value)
        place = next(i for i, scheme in enumerate(schemes) if scheme.name == one.scheme)
        typed: Any = schemes[place]
        schemes[place] = replace(typed, **{one.field: value})
    return ChosenSchemes(tuple(schemes), frozenset(values))


def _check(one: SchemeInput, value: InputValue) -> None:
    # a parity over one node is a copy
    least = {"group_nodes": 2, "n_copies": 1, "most_under_way": 1}.get(one.field, 0)
    most = 1.0 if one.field.endswith("_share") else math.inf
    if not least <= value <= most or math.isinf(value):
        wanted = f"from {least} to 1" if most == 1.0 else f"{least} or more"
        raise UsageError(f"{ASSUME} {one.name}={value:g}: give {wanted}")
