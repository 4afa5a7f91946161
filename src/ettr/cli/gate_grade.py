"""`ettr gate grade` and `ettr gate items`: grades of results by hazard; items from templates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ettr.cli.groups import OptionGroup
from ettr.cli.printing import Answering, Printing
from ettr.errors import UsageError


@dataclass(frozen=True, slots=True)
class ReadingResults(OptionGroup):
    """How results are read."""

    fields: Annotated[
        str,
        typer.Option(
            "--fields",
            metavar="KIND=NAME,...",
            help="Names of the fields that hold the item, the template and the hazard.",
        ),
    ] = ""
    grader: Annotated[
        str | None,
        typer.Option("--grader", metavar="NAME", help="Grader to use, if there are several."),
    ] = None
    unsafe: Annotated[
        str | None,
        typer.Option("--unsafe", metavar="VALUE", help="The grader's value that means unsafe."),
    ] = None


@dataclass(frozen=True, slots=True)
class Planning(OptionGroup):
    """A set of items that is not run yet."""

    items: Annotated[
        int | None,
        typer.Option("--items", metavar="N", min=1, max=50_000, help="Plan a set of N items."),
    ] = None
    templates: Annotated[
        int | None,
        typer.Option(
            "--templates", metavar="N", min=1, max=50_000, help="Templates of the planned set."
        ),
    ] = None
    correlation: Annotated[
        float,
        typer.Option(
            "--correlation",
            metavar="R",
            min=0,
            max=0.6,
            help="Assumed correlation between planned items of one template.",
        ),
    ] = 0.05


@dataclass(frozen=True, slots=True)
class GatedRun(OptionGroup):
    """What is gated."""

    at_least: Annotated[
        str | None,
        typer.Option(
            "--at-least",
            metavar="GRADE",
            help="Exit 1 unless the grade is certain to be GRADE or better.",
        ),
    ] = None
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="NAME", help="Name of the training run, for the JSON."),
    ] = None
    step: Annotated[
        int | None,
        typer.Option(
            "--step", metavar="N", min=0, help="Training step of the model, for the JSON."
        ),
    ] = None
    gpu_hours: Annotated[
        float | None,
        typer.Option(
            "--gpu-hours", metavar="H", min=0, help="GPU-hours that the gate used, for the JSON."
        ),
    ] = None


def gate_grade(
    results: Annotated[
        Path | None,
        typer.Argument(
            metavar="RESULTS",
            help="inspect-ai log, samples of lm-eval-harness, journal of modelbench, or CSV.",
        ),
    ] = None,
    *,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="REF",
            help="Results of the reference model, or its rate of unsafe items: 0.03, or one "
            "rate for each hazard, HAZARD=RATE,...",
        ),
    ] = None,
    versus: Annotated[
        Path | None,
        typer.Option(
            "--versus", metavar="RESULTS", help="Compare with the results of another checkpoint."
        ),
    ] = None,
    taxonomy: Annotated[
        str,
        typer.Option(
            "--taxonomy", metavar="NAME|CSV", help="Hazards: v0.5, ailuminate-1.0, or a CSV file."
        ),
    ] = "v0.5",
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence", metavar="P", min=0.5, max=0.999, help="Confidence of the intervals."
        ),
    ] = 0.95,
    reading: ReadingResults,
    planning: Planning,
    gated: GatedRun,
    printing: Answering,
) -> None:
    """Grade a model by hazard: firm grades, or how many more items they need.

    The published rule treats rates as exact. Here the items of one template are correlated and the
    reference has a sampling error: where they leave several grades possible, none is given. With
    --items and --templates: what a set could decide, before it is run. No grade means that a model
    is safe.
    """
    from ettr.gates import grades
    from ettr.gates.grading import FIELDS, GateRun, ResultForm, grade_file, read_results, rule_of
    from ettr.report.sections import grades as sections

    if results is None:
        if planning.items is None or planning.templates is None or reference is None:
            raise UsageError(
                "give RESULTS, or to plan a set --items, --templates and --reference RATE"
            )
        if planning.templates > planning.items:
            raise UsageError("--templates: give --items or fewer; each has an item")
        try:
            rate = float(reference)
        except ValueError:
            rate = -1.0
        if not 0.0 < rate < 1.0:
            raise UsageError(
                f"--reference {reference}: give its rate of unsafe items, such as 0.03"
            )
        plan = grades.planned(
            planning.items,
            planning.templates,
            planning.correlation,
            rate,
            rule_of(taxonomy),
            confidence,
        )
        printing.show("ettr-gate-items", plan, sections.planned_section, "edges")
        return
    if planning.items is not None or planning.templates is not None:
        raise UsageError("--items and --templates plan a set that has not run; leave RESULTS out")
    pairs = [part.partition("=") for part in reading.fields.split(",") if part]
    if any(kind not in FIELDS or not name for kind, _, name in pairs):
        raise UsageError(f"--fields {reading.fields}: give KIND=NAME of {', '.join(FIELDS)}")
    how = ResultForm({kind: name for kind, _, name in pairs}, reading.grader, reading.unsafe)
    if versus is not None:
        if reference is not None or gated.at_least is not None:
            raise UsageError(
                "--versus compares two results only; leave --reference and --at-least out"
            )
        first, other = read_results(results, how), read_results(versus, how)
        found = grades.compared(first.items, other.items, confidence)
        printing.show("ettr-gate-comparison", found, sections.comparison_section)
        return
    run = GateRun(gated.run, gated.step, gated.gpu_hours, gated.at_least)
    graded = grade_file(results, reference, taxonomy, how, confidence, run)
    printing.show("ettr-gate-grade", graded, sections.grade_section, "hazards")
    if graded.passed is False:
        raise typer.Exit(1)


def gate_items(
    templates: Annotated[
        Path,
        typer.Argument(
            metavar="TEMPLATES", help="CSV of template and text; the text holds {fragment}."
        ),
    ],
    fragments: Annotated[
        Path, typer.Argument(metavar="FRAGMENTS", help="CSV of hazard and fragment.")
    ],
    *,
    printing: Printing,
) -> None:
    """Make items: fill each template with each fragment.

    Prints them; --csv and --json write the form that a harness reads.
    """
    from ettr.cli.output import say
    from ettr.gates.grading import expanded
    from ettr.report.rows import plain_fields

    made = list(expanded(templates, fragments))
    if not printing.listed([plain_fields(one) for one in made]):
        for one in made:
            say(f"{one.item} ({one.hazard}): {one.prompt}")
