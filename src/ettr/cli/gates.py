"""`ettr gate query`, `ettr gate grade`, `ettr gate items`: whether a run should go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli.groups import OptionGroup
from ettr.cli.output import Answering, Printing, complain, progress_bar, say
from ettr.cli.quantities import LONGEST_PATTERN, shortened
from ettr.errors import UsageError
from ettr.units import SECONDS_PER_HOUR
from ettr.words import counted, spell

if TYPE_CHECKING:
    from ettr.language.models import LanguageModel, ModelScores
    from ettr.language.search import Query, QueryAnswer, Sampled


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


# -- `ettr gate query`: how likely a model writes what a regular expression matches ----------------


_MOST_CALLS = 10_000_000
_LONG_S = 60.0


@dataclass(frozen=True, slots=True)
class WhatCounts(OptionGroup):
    """Which texts count, after what."""

    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Text before the match.")
    ] = ""
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Require the text to end after the match."),
    ] = False
    canonical: Annotated[
        bool,
        typer.Option("--canonical", help="Count only the tokenizer's own encoding of a text."),
    ] = False
    edits: Annotated[
        int,
        typer.Option(
            "--edits",
            metavar="N",
            min=0,
            max=2,
            help="Also match texts with up to N characters inserted, deleted or replaced.",
        ),
    ] = 0


@dataclass(frozen=True, slots=True)
class SearchBudget(OptionGroup):
    """How far the search goes."""

    calls: Annotated[
        int,
        typer.Option(
            "--calls",
            metavar="N",
            min=1,
            max=_MOST_CALLS,
            help="Maximum number of prefixes that the model scores.",
        ),
    ] = 1000
    matches: Annotated[
        int, typer.Option("--matches", metavar="N", min=0, max=100_000, help="Matches to list.")
    ] = 10
    batch: Annotated[
        int,
        typer.Option("--batch", metavar="N", min=1, max=4096, help="Prefixes scored at once."),
    ] = 16
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            metavar="N",
            min=0,
            max=_MOST_CALLS,
            help="Draw N random walks instead of searching, for a set too large to search.",
        ),
    ] = 0
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=2**31, help="Random seed of the walks.")
    ] = 1


def gate_query(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Local folder with safetensors (its code never runs), or py:FILE:NAME, an "
            "object in your own Python file (which runs).",
        ),
    ],
    regex: Annotated[
        str,
        typer.Argument(
            metavar="REGEX",
            help="Regular expression for the whole text that the model writes; no anchors, no "
            "lookaround.",
        ),
    ],
    counts: WhatCounts,
    budget: SearchBudget,
    most: Annotated[
        float | None,
        typer.Option(
            "--most",
            metavar="P",
            help="Exit with 1 if the probability may exceed P.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="NAME", help="Name of the training run, for the JSON."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step", metavar="N", min=0, help="Training step of the model, for the JSON."
        ),
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--show", help="Print the matches, which may be secrets and are masked by default."
        ),
    ] = False,
    *,
    printing: Printing,
) -> None:
    """Bound the probability that a language model writes text that REGEX matches.

    Best-first search lists the likeliest matches in exact order. What it has not reached counts
    towards the upper bound, so the bounds also hold where --calls or Ctrl-C end the search.
    """
    from ettr.language.models import ModelScores, loaded_model
    from ettr.language.search import Query

    if most is not None and not 0 <= most <= 1:
        raise UsageError(f"--most {most:g}: give a probability from 0 to 1")
    if len(regex) > LONGEST_PATTERN:
        raise UsageError(
            f"REGEX {shortened(regex)}: has {len(regex):,} characters; give "
            f"{LONGEST_PATTERN:,} at most"
        )
    loaded = loaded_model(model)
    query = Query(
        regex,
        counts.prefix,
        counts.whole,
        counts.canonical,
        counts.edits,
        most_calls=budget.calls,
        matches=budget.matches,
        batch=budget.batch,
        allowed=most,
    )
    scores = ModelScores.after(loaded, query.prefix)
    gpus = int(getattr(loaded, "gpus", 0))
    _estimate(scores, query, gpus)
    answer = _asked(loaded, query, scores, budget)
    document = {"run": run, "step": step, **_document(model, query, answer, gpus, show=show)}
    if not printing.summary(document):
        for line in _lines(document, answer):
            say(line)
    if answer.ended == "interrupted":
        raise typer.Exit(130)
    if most is not None and not document["passed"]:
        raise typer.Exit(1)


def _estimate(scores: ModelScores, query: Query, gpus: int) -> None:
    """Say what the budget may take, by the time of the first call, where it is long or on GPUs."""
    scores.of([()])
    call_s = scores.model_s
    most_s = call_s * query.most_calls
    if most_s >= _LONG_S or gpus:
        cost = f", {most_s * gpus / SECONDS_PER_HOUR:.2g} GPU-hours" if gpus else ""
        complain(
            f"one call of the model takes {spell(call_s)}: {query.most_calls:,} calls in sequence "
            f"take {spell(most_s)}{cost}; --calls limits them, Ctrl-C ends with the bounds so far"
        )


def _asked(
    loaded: LanguageModel, query: Query, scores: ModelScores, budget: SearchBudget
) -> QueryAnswer | Sampled:
    """Search, or draw walks, with a bar over the calls."""
    import numpy as np

    from ettr.language.search import sampled, search

    with progress_bar(query.most_calls, "calls of the model") as advance:
        if not budget.samples:
            return search(
                loaded,
                query,
                scores=scores,
                on_step=lambda low, high, calls: advance(f"{low:.3g} to {high:.3g}", calls),
            )
        rng = np.random.default_rng(budget.seed)
        return sampled(
            *(loaded, query, budget.samples, rng),
            scores=scores,
            on_step=lambda calls: advance("walks", calls),
        )


def _document(
    model: str, query: Query, answer: QueryAnswer | Sampled, gpus: int, *, show: bool
) -> dict[str, Any]:
    """What --json prints."""
    from ettr.language.search import QueryAnswer

    head: dict[str, Any] = {
        "gate": "query",
        "model": model,
        "regex": query.regex,
        "prefix": query.prefix,
        "whole": query.whole,
        "canonical": query.canonical,
        "edits": query.edits,
        "mass": {"low": answer.low, "high": answer.high},
        "allowed": query.allowed,
        "passed": _passed(query.allowed, answer.low, answer.high),
        "ended": answer.ended,
        "model_calls": answer.model_calls,
        "batches": answer.batches,
        "model_s": answer.model_s,
        "gpus": gpus,
        "gpu_hours": answer.model_s * gpus / SECONDS_PER_HOUR,
    }
    if not isinstance(answer, QueryAnswer):
        error = answer.standard_error
        return head | {
            "estimate": answer.estimate,
            "standard_error": error if error < float("inf") else None,
            "confidence": answer.confidence,
            "walks": answer.walks,
            "matched": answer.matched,
            "cut": answer.cut,
        }
    return head | {
        "pruned": answer.pruned,
        "order_exact_above": answer.exact_above,
        "matches": [
            {
                "text": one.text if show else None,
                "tokens": list(one.tokens) if show else None,
                "characters": len(one.text),
                "probability": one.probability,
                "encodings": one.encodings,
                "model_calls": one.model_calls,
            }
            for one in answer.matches
        ],
    }


def _passed(allowed: float | None, low: float, high: float) -> bool | None:
    """The verdict; None where there is no limit, or the bounds do not decide it."""
    if allowed is None or low <= allowed < high:
        return None
    return high <= allowed


_ENDED = {
    "complete": "everything was searched",
    "precise": "the bounds are close enough",
    "decided": "the bounds decide the gate",
    "budget": "the budget of calls is used up; raise --calls for closer bounds",
    "interrupted": "interrupted; the bounds hold",
}


def _lines(document: dict[str, Any], answer: QueryAnswer | Sampled) -> Iterator[str]:
    low, high = answer.low, answer.high
    ended = _ENDED.get(answer.ended, answer.ended)
    yield f"Probability of a match: {low:.4g} to {high:.4g} ({ended})"
    if "estimate" in document:
        yield (
            f"{counted(document['walks'], 'walk')}, {document['matched']:,} matched, "
            f"{document['cut']:,} cut short: estimate {document['estimate']:.4g}, standard error "
            f"{document['standard_error'] or float('nan'):.2g}; interval of "
            f"{document['confidence']:.0%} confidence"
        )
    if document["allowed"] is not None:
        verdict = {
            True: "passed, within",
            False: "not passed, above",
            None: "not decided, may be above",
        }[document["passed"]]
        yield f"Gate: {verdict} {document['allowed']:.4g}"
    for rank, one in enumerate(document.get("matches", ()), 1):
        text = counted(one["characters"], "character") + ", masked"
        shown = text if one["text"] is None else repr(one["text"])
        yield f"{rank:>4}  {one['probability']:<10.4g} {shown}"
    if document.get("order_exact_above"):
        yield f"The order is exact above a probability of {document['order_exact_above']:.2g}."
    cost = f", {document['gpu_hours']:.3g} GPU-hours" if document["gpus"] else ""
    yield f"{counted(answer.model_calls, 'call')} of the model in {spell(answer.model_s)}{cost}"
    if any(one["text"] is None for one in document.get("matches", ())):
        yield "Matches may be secrets: --show prints them."
