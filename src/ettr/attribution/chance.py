"""How often the window errs, and which symptoms come together."""

from __future__ import annotations

from dataclasses import dataclass

from ibis.expr.types import Table

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.tables.materialize import materialize

PUBLISHED_FALSE_SHARE = 0.01
PUBLISHED = "under 1 % of successfully completed jobs observe a failed check (Kokolis et al. 2025)"


@dataclass(frozen=True, slots=True)
class SymptomShare:
    """Attempts in whose window one symptom was seen, and their share with its interval."""

    symptom: str
    n_attempts: int
    share: Interval


@dataclass(frozen=True, slots=True)
class FalseAttribution:
    """How often the window finds a critical check around the end of an attempt that completed.

    Args:
        n_completed: completed attempts that ran on known nodes.
        n_touched: those with a critical check in the window.
        share: their share, with its exact interval.
        by_symptom: the same for each symptom, the most frequent first.
        n_on_evidence: failures counted because of a check alone, without the scheduler's word.
        expected_by_chance: how many of those are expected to be false; None where no rate of
            faults was measured (`ettr.attribution.background`).
        published_below: the published share is below this.
        published: whose it is, in words.
    """

    n_completed: int
    n_touched: int
    share: Interval
    by_symptom: tuple[SymptomShare, ...]
    n_on_evidence: int
    expected_by_chance: float | None = None
    published_below: float = PUBLISHED_FALSE_SHARE
    published: str = PUBLISHED


@dataclass(frozen=True, slots=True)
class CoOccurrence:
    """Of the failures with `symptom`, how many also showed `other`."""

    symptom: str
    other: str
    n_both: int
    n_symptom: int
    share: Interval


@dataclass(frozen=True, slots=True)
class CoOccurrences:
    """Which observations come together in the window of one failure.

    Args:
        n_failures: failures with at least one cause.
        n_several: those with several.
        several: their share, with its exact interval.
        pairs: every ordered pair that was seen together, in order of symptom and share.
    """

    n_failures: int
    n_several: int
    several: Interval
    pairs: tuple[CoOccurrence, ...]


def false_attribution(
    attempts: Table, ends: Table, seen: Table, confidence: float = CONFIDENCE
) -> FalseAttribution:
    """The share of completed attempts with a critical check in the window, and what it implies.

    Args:
        attempts: the table `attempts`.
        ends: rows of `ettr.attribution.endings.endings`.
        seen: rows of `ettr.attribution.window.observed`.
        confidence: level of the intervals.
    """
    done = attempts.filter(
        (attempts.state == "COMPLETED")
        & attempts.start.notnull()
        & attempts.end.notnull()
        & (attempts.n_nodes.fill_null(1) > 0)
    ).select("attempt_id", "n_nodes")
    faults = seen.filter(seen.fault).select("attempt_id", "symptom").distinct()
    touched = materialize(done.join(faults, "attempt_id"))
    symptoms = touched.group_by("symptom").agg(n=touched.count()).to_pyarrow().to_pylist()
    uncertain = ends.filter((ends.kind == "hardware-candidate") & ~ends.node_failed)
    total = int(done.count().to_pyarrow().as_py())
    hit = int(touched["attempt_id"].nunique().to_pyarrow().as_py())
    explained = uncertain.semi_join(faults, "attempt_id")
    return FalseAttribution(
        n_completed=total,
        n_touched=hit,
        share=share_interval(hit, total, confidence),
        by_symptom=tuple(
            SymptomShare(row["symptom"], row["n"], share_interval(row["n"], total, confidence))
            for row in sorted(symptoms, key=lambda row: (-row["n"], row["symptom"]))
        ),
        n_on_evidence=int(explained.count().to_pyarrow().as_py()),
    )


def co_occurrence(
    failed: Table, seen: Table, *, by: str = "symptom", confidence: float = CONFIDENCE
) -> CoOccurrences:
    """Which symptoms (or, finer, which checks and codes) are seen together in one failure.

    Args:
        failed: rows of the table `failures`.
        seen: rows of `ettr.attribution.window.observed`.
        by: `symptom`, or `observation` for check and code, such as `xid 79`.
        confidence: level of the intervals.
    """
    faults = seen.filter(seen.fault).semi_join(failed, "attempt_id")
    label = faults.symptom if by == "symptom" else (faults.check + " " + faults.code_key).strip()
    labelled = faults.select("attempt_id", label=label).distinct()
    other = labelled.view().rename(other="label")
    both = labelled.join(other, "attempt_id")
    counted = both.group_by("label", "other").agg(n=both.count()).to_pyarrow().to_pylist()
    alone = {row["label"]: row["n"] for row in counted if row["label"] == row["other"]}
    each = labelled.group_by("attempt_id").agg(n=labelled.count())
    n_failures = int(each.count().to_pyarrow().as_py())
    n_several = int(each.filter(each.n > 1).count().to_pyarrow().as_py())
    pairs = [
        CoOccurrence(
            symptom=row["label"],
            other=row["other"],
            n_both=row["n"],
            n_symptom=alone[row["label"]],
            share=share_interval(row["n"], alone[row["label"]], confidence),
        )
        for row in counted
        if row["label"] != row["other"]
    ]
    return CoOccurrences(
        n_failures=n_failures,
        n_several=n_several,
        several=share_interval(n_several, n_failures, confidence),
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.symptom, -pair.n_both, pair.other))),
    )
