"""How often the window errs, and which symptoms come together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from ettr.attribution.selected import causes_of
from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.facts import Facts

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
        expected_by_chance: how many of those are expected to be false; None where no rate of
            faults was measured (`ettr.attribution.background`).
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
        pairs: every ordered pair that was seen together, in order of symptom and share.
    """

    n_failures: int
    n_several: int
    several: Interval
    pairs: tuple[CoOccurrence, ...]


def false_attribution(facts: Facts, confidence: float = CONFIDENCE) -> FalseAttribution:
    """The share of completed attempts with a critical check in the window, and what it implies."""
    total = sum(row["n"] for row in facts.rows("completed_sizes") if _ran(row))
    touched = [row for row in facts.rows("completed_faults") if _ran(row)]
    symptoms = Counter(row["symptom"] for row in touched)
    hit = len({row["attempt_id"] for row in touched})
    return FalseAttribution(
        n_completed=total,
        n_touched=hit,
        share=share_interval(hit, total, confidence),
        by_symptom=tuple(
            SymptomShare(symptom, n, share_interval(n, total, confidence))
            for symptom, n in sorted(symptoms.items(), key=lambda item: (-item[1], item[0]))
        ),
        n_on_evidence=sum(row["n"] for row in facts.rows("blamed_by_checks") if row["explained"]),
    )


def _ran(row: Mapping[str, Any]) -> bool:
    """Whether completed attempts started, on a node as far as the log says."""
    return row["began"] and (row["n_nodes"] is None or row["n_nodes"] > 0)


def co_occurrence(
    facts: Facts, *, by: str = "symptom", confidence: float = CONFIDENCE
) -> CoOccurrences:
    """Which symptoms (or, finer, which checks and codes) are seen together in one failure.

    Args:
        by: `symptom`, or `observation` for check and code, such as `xid 79`.
    """
    failed = facts.columns("failures")["attempt_id"].tolist()
    seen = [sorted({_label(row, by) for row in rows}) for rows in causes_of(facts, failed).values()]
    alone = Counter(label for labels in seen for label in labels)
    both = Counter(pair for labels in seen for pair in permutations(labels, 2))
    n_several = sum(len(labels) > 1 for labels in seen)
    pairs = [
        CoOccurrence(
            symptom=label,
            other=other,
            n_both=n,
            n_symptom=alone[label],
            share=share_interval(n, alone[label], confidence),
        )
        for (label, other), n in both.items()
    ]
    return CoOccurrences(
        n_failures=len(seen),
        n_several=n_several,
        several=share_interval(n_several, len(seen), confidence),
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.symptom, -pair.n_both, pair.other))),
    )


def _label(row: Mapping[str, Any], by: str) -> str:
    return str(row["symptom"] if by == "symptom" else f"{row['check']} {row['code_key']}".strip())
