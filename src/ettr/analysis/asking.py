"""A question of a store: a function of its facts and of what it names, and of nothing else.

    class Takes(Protocol):
        assumptions: Assumptions
        clustering: FailureClustering

    def rates(facts: Facts, given: Takes) -> RatesBySymptom: ...

The fields of `Takes` name stages of the analysis, or single values of its assumptions. Each is
computed when the question reads it; a field that `Takes` does not name cannot be read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeVar

from ettr.analysis.assumptions import Assumptions
from ettr.facts import Facts

MOST_TAKEN = 12
"""Fields that a question may take at most."""
AnswerT = TypeVar("AnswerT")
Question = Callable[..., AnswerT]


_OF_COVERED_TIME: set[Question[Any]] = set()
WHOLE = "analysis"
"""The one parameter of a question that compares selections: it takes the whole analysis."""


def of_covered_time(question: Question[AnswerT]) -> Question[AnswerT]:
    """Decorate a question of the time alone in which errors of nodes were recorded."""
    _OF_COVERED_TIME.add(question)
    return question


def is_of_covered_time(question: Question[Any]) -> bool:
    """Whether a question is of that time alone."""
    return question in _OF_COVERED_TIME


class HasAnswers(Protocol):
    """What has an answer to a question: it also has the stages that questions name."""

    facts: Facts
    assumptions: Assumptions


class Given:
    """What a question takes, by name."""

    __slots__ = ("_analysis", "_names")

    def __init__(self, analysis: HasAnswers, names: frozenset[str]) -> None:
        self._analysis = analysis
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(f"{name}: the question takes {', '.join(sorted(self._names))}")
        has = hasattr(type(self._analysis), name) or name in self._analysis.__dict__
        return getattr(self._analysis if has else self._analysis.assumptions, name)


@cache
def taken_by(question: Question[Any]) -> frozenset[str]:
    """Names of what a question takes in addition to the facts.

    Raises:
        TypeError: more than a question may take.
    """
    parameters = [name for name in question.__annotations__ if name != "return"]
    if len(parameters) < 2:
        return frozenset()
    hint = question.__annotations__[parameters[1]]
    takes = question.__globals__[hint] if isinstance(hint, str) else hint
    names = frozenset(
        name
        for kind in takes.__mro__
        for name in (*inspect.get_annotations(kind), *vars(kind))
        if not name.startswith("_")
    )
    if len(names) > MOST_TAKEN:
        raise TypeError(f"{question.__name__} takes {len(names)} things; {MOST_TAKEN} at most")
    return names


def answer(question: Question[AnswerT], analysis: HasAnswers) -> AnswerT:
    """What a question finds in the store of an analysis."""
    if WHOLE in question.__annotations__:
        return question(analysis)
    if len(question.__annotations__) < 3:
        return question(analysis.facts)
    return question(analysis.facts, Given(analysis, taken_by(question)))
