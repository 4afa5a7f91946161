"""What an analysis takes for granted, and the sentences that say so in the report."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ettr.attribution import FoldingRules, LogMatching, Window
from ettr.defaults import CONFIDENCE, LARGE_JOB_GPUS
from ettr.facts import Facts
from ettr.metrics.objectives import Objective
from ettr.metrics.run_rules import (
    LOST_CAP_MIN,
    CheckpointAssumptions,
    PreemptionRule,
    RunRule,
)
from ettr.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the analysis cannot read from the logs, each with the paper's value where it has one.

    `n_nodes` is the size of the fleet where the logs do not name all of its nodes; `site_file`
    names a file of defaults, and each that it gave; `now` is when objectives are judged, the end of
    the logs where None.

    Source:
        Kokolis et al. (2025) for the window, the size of large jobs and the cap of 30 minutes.
    """

    taxonomy_file: Path | None = None
    believe: str | None = None
    window: Window = field(default_factory=Window)
    folding: FoldingRules = field(default_factory=FoldingRules)
    matching: LogMatching = field(default_factory=LogMatching)
    preemption: PreemptionRule = field(default_factory=PreemptionRule)
    above_gpus: int = LARGE_JOB_GPUS
    gpus_per_node: float | None = None
    n_nodes: int | None = None
    confidence: float = CONFIDENCE
    lost_cap_min: float = LOST_CAP_MIN
    checkpoints: CheckpointAssumptions = field(default_factory=CheckpointAssumptions)
    run_rule: RunRule = field(default_factory=RunRule)
    site_file: tuple[str, ...] = ()
    objectives: tuple[Objective, ...] = ()
    now: datetime | None = None


def assumed(
    given: Assumptions,
    taxonomy: Taxonomy,
    foreign_clusters: Sequence[str],
) -> tuple[str, ...]:
    """The assumptions of an analysis in words."""
    window = given.window
    words = [
        f"An event can explain the end of an attempt from {window.before_s:.0f} s before "
        f"that end to {window.after_s:.0f} s after it.",
        f"XID codes are judged by the verdicts of {taxonomy.believe} (option --believe).",
        f"Large jobs have more than {given.above_gpus} GPUs.",
    ]
    if given.site_file:
        words.append(f"From {given.site_file[0]}: {', '.join(given.site_file[1:])}.")
    if given.gpus_per_node is not None:
        words.append(
            f"Where no log names the GPUs of a job or a node, {given.gpus_per_node:g} in each "
            "node are taken (--gpus-per-node)."
        )
    if given.n_nodes is not None:
        words.append(f"The fleet has {given.n_nodes:,} nodes, named or not (--fleet-nodes).")
    if foreign_clusters:
        words.append(
            f"No job ran on {', '.join(foreign_clusters)}, so their events and node states explain "
            "no failure: if the name is wrong, ingest them again with --cluster."
        )
    return (*words, *(f"Changed by the site: {line}." for line in taxonomy.changed))


# -- a question of a store: a function of its facts and of what it names, and of nothing else ------
# class Takes(Protocol):
#         assumptions: Assumptions
#         clustering: FailureClustering
#
#     def rates(facts: Facts, given: Takes) -> RatesBySymptom: ...
#
# The fields of `Takes` name stages of the analysis, or single values of its assumptions. Each is
# computed when the question reads it; a field that `Takes` does not name cannot be read.


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


def asked(place: str) -> cached_property[Any]:
    """A stage of an analysis: what a question, `MODULE.NAME` below `ettr`, finds when asked."""

    def found(analysis: Any) -> Any:
        module, _, name = place.rpartition(".")
        return analysis.ask(getattr(import_module(f"ettr.{module}"), name))

    return cached_property(found)
