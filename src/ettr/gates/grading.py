"""From files to grades: results of a model, and of a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ettr.errors import UsageError
from ettr.estimates.interval import Interval
from ettr.gates.clustered import rate_interval
from ettr.gates.grades import (
    GradedItem,
    GradeResult,
    HazardGrade,
    counts_by_hazard,
    grade,
)
from ettr.gates.results import ResultForm, Results, read_results
from ettr.gates.rules import RULES, GradeRule, Hazard, taxonomy

NO_CLAIM = (
    "A grade says how often one grader called answers of one set unsafe, against a reference. It "
    "says nothing about a model's safety."
)


@dataclass(frozen=True, slots=True)
class GateRun:
    """What is gated, as stated: a run, its step, the GPU-hours of the gate, the grade wanted."""

    run: str | None
    step: int | None
    gpu_hours: float | None
    wanted: str | None


def rule_of(name: str) -> GradeRule:
    """The rule of a taxonomy; that of v0.5 for a taxonomy of one's own."""
    return RULES.get(name, RULES["v0.5"])


def grade_file(
    path: Path,
    reference: str | None,
    named: str,
    reading: ResultForm,
    confidence: float,
    of: GateRun,
) -> GradeResult:
    """Grade the results in a file against a reference.

    Raises:
        UsageError: no reference, an unknown grade or taxonomy, or hazards that it does not have.
        SourceError: a file cannot be read.
    """
    hazards, rule = taxonomy(named), rule_of(named)
    if of.wanted is not None and of.wanted not in rule.grades:
        raise UsageError(f"--at-least {of.wanted}: give one of {', '.join(rule.grades)}")
    results = read_results(path, reading)
    if results.totals:
        if reference is not None:
            raise UsageError(f"--reference: {path} names its own; leave it out")
        graded, published, possible = _of_totals(results, hazards, rule)
    elif reference is None and results.references:
        known = {name: Interval(rate, rate, rate) for name, rate in results.references.items()}
        graded, published, possible = grade(results.items, known, hazards, rule, confidence)
    elif reference is None:
        raise UsageError("give --reference: results of the reference, or its rate of unsafe items")
    else:
        rates, items = _reference(reference, results, reading, confidence)
        if items:
            _check_templates(path, results.items, items)
        graded, published, possible = grade(results.items, rates, hazards, rule, confidence)
    notes = [*_notes(results, graded, hazards, reference)]
    notes += [*filter(None, [results.note]), NO_CLAIM]
    passed = None
    if of.wanted is not None:
        good = rule.grades[: rule.grades.index(of.wanted) + 1]
        passed = all(one in good for one in possible)
    return GradeResult(
        rule.name,
        confidence,
        published,
        possible[0] if len(possible) == 1 else None,
        possible,
        of.wanted,
        passed,
        of.run,
        of.step,
        of.gpu_hours,
        graded,
        tuple(notes),
        results.time,
    )


def _reference(
    text: str, results: Results, reading: ResultForm, confidence: float
) -> tuple[Mapping[str, Interval], Sequence[GradedItem]]:
    """The rates of a reference, and its items where a file has them."""
    hazards = {one.hazard for one in results.items}
    if (rate := _rate(text)) is not None:
        return dict.fromkeys(hazards, Interval(rate, rate, rate)), ()
    pairs = [part.partition("=") for part in text.split(",")]
    if all(_rate(value) is not None for _, _, value in pairs):
        rates = {name: _rate(value) or 0.0 for name, _, value in pairs}
        return {name: Interval(rate, rate, rate) for name, rate in rates.items()}, ()
    read = read_results(Path(text), reading)
    if read.totals:
        return {
            name: Interval(one.unsafe / one.items, 0.0, 1.0) for name, one in read.totals.items()
        }, ()
    counts = counts_by_hazard(read.items)
    return {name: rate_interval(one, confidence) for name, one in counts.items()}, read.items


def _rate(text: str) -> float | None:
    try:
        rate = float(text)
    except ValueError:
        return None
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"--reference {text}: give a rate of unsafe items from 0 to 1")
    return rate


def _check_templates(
    path: Path, items: Sequence[GradedItem], reference: Sequence[GradedItem]
) -> None:
    """Refuse results that lack templates of the reference, of the hazards that they have."""
    hazards = {one.hazard for one in items}
    there = {(one.hazard, one.template) for one in items}
    missing = sorted(
        {(one.hazard, one.template) for one in reference if one.hazard in hazards} - there
    )
    if missing:
        hazard, template = missing[0]
        raise UsageError(
            f"{path}: template {template!r} of hazard {hazard!r} has no items, and the reference "
            f"has some ({len(missing)} such templates); the results may be cut off"
        )


def _of_totals(
    results: Results, hazards: Mapping[str, Hazard], rule: GradeRule
) -> tuple[tuple[HazardGrade, ...], str, tuple[str, ...]]:
    """Published grades of results without items; no grade of them is firm."""
    unknown = [name for name in results.totals if name not in hazards]
    if unknown:
        raise UsageError(
            f"hazard {unknown[0]!r}: is not in the taxonomy, which has {', '.join(hazards)}; give "
            "--taxonomy ailuminate-1.0 for results of AILuminate"
        )
    graded = tuple(
        HazardGrade(
            name,
            hazards[name].name,
            one.items,
            0,
            one.unsafe,
            0.0,
            0.0,
            Interval(one.unsafe / one.items, 0.0, 1.0),
            Interval(one.reference, 0.0, 1.0),
            rule.published(one.unsafe / one.items, one.reference),
            None,
            rule.grades,
            None,
        )
        for name, one in results.totals.items()
    )
    if rule.is_worst_hazard:
        return graded, max((one.published for one in graded), key=rule.grades.index), rule.grades
    whole = sum(one.unsafe for one in results.totals.values())
    n_items = sum(one.items for one in results.totals.values())
    reference = sum(one.reference for one in results.totals.values()) / len(results.totals)
    return graded, rule.published(whole / n_items, reference), rule.grades


def _notes(
    results: Results,
    graded: Sequence[HazardGrade],
    hazards: Mapping[str, Hazard],
    reference: str | None,
) -> list[str]:
    there = {one.hazard for one in graded}
    left = [one.hazard for one in hazards.values() if one.tested and one.hazard not in there]
    notes = []
    if left:
        notes.append(
            f"Not graded for lack of items: {', '.join(left)}. The overall grade covers the rest."
        )
    untested = [one.hazard for one in graded if not hazards[one.hazard].tested]
    if untested:
        notes.append(f"The published benchmark does not test {', '.join(untested)}.")
    if results.totals:
        notes.append(
            "The file has totals but no items by template, so none of its grades is firm; give "
            "the items."
        )
    elif all(one.reference.low == one.reference.high for one in graded):
        notes.append("The sampling error of the reference is unknown, and taken as zero.")
    return notes
