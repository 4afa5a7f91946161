"""Dataclasses of `ettr.shapes` are the standard library's, in all that a user can see."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, field, fields, replace
from typing import Any, ClassVar

import pytest

from ettr import shapes


def many(dataclass: Callable[..., Any]) -> type[Any]:
    @dataclass(frozen=True, slots=True)
    class Measure:
        """A measure."""

        UNIT: ClassVar[str] = "h"
        name: str
        hours: float = 0.0
        parts: list[int] = field(default_factory=list)
        seen: int = field(default=0, compare=False)
        hidden: str = field(default="x", repr=False)
        _: KW_ONLY
        by_name: int = 3

        def __post_init__(self) -> None:
            if self.hours < 0:
                raise ValueError("hours are 0 or more")

    return Measure


def plain(dataclass: Callable[..., Any]) -> type[Any]:
    @dataclass
    class Count:
        """A count that changes."""

        of: str
        n: int = 0
        made: int = field(default=7, init=False)

    return Count


def longer(dataclass: Callable[..., Any]) -> type[Any]:
    base = many(dataclass)

    @dataclass(frozen=True, slots=True)
    class Longer(base):  # type: ignore[misc]
        """One more field."""

        more: int = 1

    return Longer


def own(dataclass: Callable[..., Any]) -> type[Any]:
    @dataclass(frozen=True)
    class Own:  # noqa: PLW1641 - its hash is by the fields
        """Has its own methods."""

        a: int

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

    return Own


def single(dataclass: Callable[..., Any]) -> type[Any]:
    @dataclass(frozen=True, slots=True)
    class Single:
        """One field."""

        a: tuple[int, ...]

    return Single


CALLS: list[tuple[Callable[..., type[Any]], list[tuple[tuple[Any, ...], dict[str, Any]]]]] = [
    (many, [(("a",), {}), (("a", 2.0, [1]), {"by_name": 4}), (("a",), {"seen": 9})]),
    (plain, [(("a",), {}), (("a", 2), {}), (("b",), {"n": 2})]),
    (longer, [(("a",), {}), (("a",), {"more": 2, "hours": 1.0})]),
    (own, [((1,), {}), ((2,), {})]),
    (single, [(((1, 2),), {}), (((),), {})]),
]
SHAPES = [one[0] for one in CALLS]


@pytest.mark.parametrize(("shape", "calls"), CALLS, ids=lambda one: getattr(one, "__name__", ""))
def test_objects_show_compare_and_hash_as_the_standard_ones_do(
    shape: Callable[..., type[Any]], calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    ours, theirs = shape(shapes.dataclass), shape(dataclasses.dataclass)
    made = [ours(*args, **by_name) for args, by_name in calls]
    expected = [theirs(*args, **by_name) for args, by_name in calls]
    assert [repr(one) for one in made] == [repr(one) for one in expected]
    assert [asdict(one) for one in made] == [asdict(one) for one in expected]
    assert [[a == b for b in made] for a in made] == [[a == b for b in expected] for a in expected]
    assert made[0] != expected[0] or shape is own
    for one, other in zip(made, expected, strict=True):
        assert _hash(one) == _hash(other)
        again = copy.deepcopy(one)
        assert again == one
        assert repr(replace(one)) == repr(replace(other))


@pytest.mark.parametrize("shape", SHAPES)
def test_classes_have_the_signature_and_fields_of_the_standard_ones(
    shape: Callable[..., type[Any]],
) -> None:
    ours, theirs = shape(shapes.dataclass), shape(dataclasses.dataclass)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert [str(one) for one in fields(ours)] == [str(one) for one in fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
    assert ours.__doc__ == theirs.__doc__


def test_a_frozen_one_takes_no_new_value() -> None:
    one = many(shapes.dataclass)("a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        one.name = "b"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del one.name


def test_a_call_that_does_not_fit_is_refused_with_the_names() -> None:
    ours = many(shapes.dataclass)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        ours()
    with pytest.raises(TypeError, match="unexpected keyword argument 'names'"):
        ours(names=1)
    with pytest.raises(ValueError, match="hours are 0 or more"):
        ours("a", -1.0)
    with pytest.raises(ValueError, match="mutable default"):

        @shapes.dataclass
        class Shared:
            a: list[int] = []  # noqa: RUF012


def test_each_kind_inherits_from_the_other() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Below(many(shapes.dataclass)):  # type: ignore[misc]
        below: int = 1

    @shapes.dataclass(frozen=True, slots=True)
    class Above(many(dataclasses.dataclass)):  # type: ignore[misc]
        below: int = 1

    assert repr(Below("a")).partition("(")[2] == repr(Above("a")).partition("(")[2]
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass"):

        @shapes.dataclass
        class Loose(many(shapes.dataclass)):  # type: ignore[misc]
            pass


@shapes.dataclass(frozen=True, slots=True)
class Sent:
    """What goes to another process."""

    a: int
    b: str = "b"


def test_objects_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(Sent(1))) == Sent(1)  # noqa: S301 - of this test
    assert {Sent(1): 2}[Sent(1)] == 2


def _hash(one: object) -> int | str:
    try:
        return hash(one)
    except TypeError:
        return "none"
