"""Faults that end nothing: how often they fall into a window by chance, and what that makes false.

A critical episode that has nothing to do with a job's end may still lie in its window, on one of
its nodes. How often follows from the rate of such episodes while jobs run: the more nodes and the
longer the window, the likelier. A 64-node job meets 64 times as many as a one-node job, so a share
over all completed jobs, which are mostly small, says little about the large ones.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from ettr.attribution.job_history import causes_of
from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import rate_interval, share_interval
from ettr.facts import Facts
from ettr.units import SECONDS_PER_HOUR

NodeKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BackgroundRate:
    """Critical episodes of one symptom that ended nothing.

    Attributes:
        episodes: Episodes that began on a running node, outside every window that could blame
            them.
    """

    symptom: str
    episodes: int
    per_node_hour: Interval


@dataclass(frozen=True, slots=True)
class Background:
    """The rate of critical episodes that ended nothing, per running node-hour.

    Attributes:
        index: How many times the episodes vary as much between nodes as independent ones.
    """

    node_hours: float
    episodes: int
    per_node_hour: Interval
    index: float
    mean_length_s: float
    by_symptom: tuple[BackgroundRate, ...]


@dataclass(frozen=True, slots=True)
class FalseFailures:
    """Failures that rest on a check alone, and how many of them chance would give.

    Attributes:
        expected_false: Of `on_evidence`, how many are expected to be false; the interval is of the
            number itself, not of its mean.
    """

    on_evidence: int
    unexplained: int
    expected_false: Interval


@dataclass(frozen=True, slots=True)
class FalseFailuresBySize:
    """False failures of all jobs and of large ones, and the background that they follow from."""

    background: Background
    all_jobs: FalseFailures
    large_jobs: FalseFailures


def false_failures_by_size(
    facts: Facts, span_s: Mapping[NodeKey, float] | None = None, confidence: float = CONFIDENCE
) -> FalseFailuresBySize:
    """How many selected failures chance explains, of all jobs and of large ones.

    The rate of chance is measured on all of the logs.

    Args:
        span_s: by cluster and node, the whole seconds from the start to the end of all that ran
            and ended there, where they are at hand.
    """
    rate = background(facts, span_s, confidence)
    sizes = facts.rows("blamed_by_checks")
    every = false_failures(sizes, rate, confidence)
    large = false_failures([row for row in sizes if row["large"]], rate, confidence)
    return FalseFailuresBySize(rate, every, large)


def background(
    facts: Facts, span_s: Mapping[NodeKey, float] | None = None, confidence: float = CONFIDENCE
) -> Background:
    """Rate of critical episodes while jobs run, apart from those that may have ended one.

    Args:
        span_s: as for `false_failures_by_size`.
    """
    if span_s is None:
        span_s = {_node(row): row["span_s"] for row in facts.rows("node_spans")}
    quiet_s = _quiet_s_by_node(span_s, facts.rows("loud_spans"))
    node_s = float(sum(quiet_s.values()))
    hours = node_s / SECONDS_PER_HOUR
    rows = facts.rows("background")
    by_symptom: dict[str, int] = defaultdict(int)
    for row in rows:
        by_symptom[row["symptom"]] += row["n"]
    total = sum(by_symptom.values())
    return Background(
        node_hours=hours,
        episodes=total,
        per_node_hour=rate_interval(total, hours, confidence),
        index=_index_over_nodes(rows, quiet_s, total, node_s),
        mean_length_s=sum(row["length_s"] or 0.0 for row in rows) / total if total else 0.0,
        by_symptom=tuple(
            BackgroundRate(name, n, rate_interval(n, hours, confidence))
            for name, n in sorted(by_symptom.items(), key=lambda item: (-item[1], item[0]))
        ),
    )


def _node(row: Mapping[str, Any]) -> NodeKey:
    return row["cluster"], row["node"]


def _quiet_s_by_node(
    span_s: Mapping[NodeKey, float], loud: Iterable[Mapping[str, Any]]
) -> dict[NodeKey, float]:
    """Seconds of the quiet parts, by cluster and node; nodes without any are left out."""
    quiet_s = dict(span_s)
    for row in loud:
        quiet_s[_node(row)] -= row["loud_s"]
    # in order: an engine gives groups in any, and the last digit of a sum over them would vary
    return {node: quiet_s[node] for node in sorted(quiet_s, key=str) if quiet_s[node] > 0}


def _index_over_nodes(
    rows: Iterable[Mapping[str, Any]], quiet_s: Mapping[NodeKey, float], total: int, node_s: float
) -> float:
    """Variance of the total over that of independent episodes, from the spread between nodes."""
    if total < 2 or not node_s:
        return 1.0
    counts: dict[NodeKey, int] = defaultdict(int)
    for row in rows:
        counts[_node(row)] += row["n"]
    found = np.array([counts[node] for node in quiet_s], dtype=np.float64)
    expected = np.array(list(quiet_s.values())) * total / node_s
    if expected.size < 2:
        return 1.0
    spread = float(np.sum((found - expected) ** 2)) / total
    return max(1.0, spread * expected.size / (expected.size - 1))


def false_failures(
    sizes: Iterable[Mapping[str, Any]], rate: Background, confidence: float = CONFIDENCE
) -> FalseFailures:
    """How many failures that rest on a check alone chance would give.

    Of an attempt that failed for its own reasons, chance shows a critical episode with probability
    p = 1 - exp(-rate * nodes * seconds that could blame it). Each such attempt without one
    represents p / (1 - p) of its kind that were blamed falsely (Horvitz and Thompson), so the sum
    over the unexplained failures is the expected number, size by size and without knowing which
    they are.

    Source:
        Horvitz and Thompson (1952), JASA 47.
    """
    rows = list(sizes)
    explained = sum(row["n"] for row in rows if row["explained"])
    left = [row for row in rows if not row["explained"] and (row["n_nodes"] or 0) > 0]
    left.sort(key=lambda row: (row["n_nodes"], row["reach_s"]))
    return FalseFailures(
        on_evidence=explained,
        unexplained=sum(row["n"] for row in left),
        expected_false=_expected(left, explained, rate, confidence),
    )


def _expected(
    sizes: Iterable[Mapping[str, Any]], on_evidence: int, rate: Background, confidence: float
) -> Interval:
    """Expected number of false ones and the interval of that number, at most `on_evidence`."""
    if not rate.node_hours:
        return Interval(None, 0.0, float(on_evidence))
    per_node_s = rate.episodes / rate.node_hours / SECONDS_PER_HOUR
    mean = variance = slope = 0.0
    for row in sizes:
        exposed_node_s = row["n_nodes"] * (row["reach_s"] + rate.mean_length_s)
        spared = math.exp(-per_node_s * exposed_node_s)
        mean += row["n"] * (1.0 - spared) / spared
        variance += row["n"] * (1.0 - spared) / spared**2
        slope += row["n"] * exposed_node_s / spared
    # a background of n episodes is known to 1 / sqrt(n) of itself; of none, to about one episode
    known = (rate.index * max(rate.episodes, 1)) ** 0.5 / rate.node_hours / SECONDS_PER_HOUR
    variance += (slope * known) ** 2
    low, high = _count_interval(mean, variance, confidence)
    # The ends are whole counts: of a mean far below 1 both may be 0, and the mean lies between.
    low, high = min(low, mean), max(high, mean)
    return Interval(min(mean, float(on_evidence)), min(low, on_evidence), min(high, on_evidence))


def _count_interval(mean: float, variance: float, confidence: float) -> tuple[float, float]:
    """Ends between which a count of that mean and variance lies (negative binomial)."""
    from ettr.estimates.exact import negative_binomial_quantile, poisson_least

    tail = (1.0 - confidence) / 2.0
    if variance <= 0.0:
        return 0.0, 0.0
    if mean <= 0.0 or variance <= mean * 1.0001:
        low, high = (poisson_least(q, max(mean, variance**0.5)) for q in (tail, 1.0 - tail))
    else:
        size, p = mean**2 / (variance - mean), mean / variance
        low, high = (negative_binomial_quantile(q, size, p) for q in (tail, 1.0 - tail))
    return low, high


# -- How often the window errs, and which symptoms come together ----------------------------------

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


def co_occurrence(facts: Facts, confidence: float = CONFIDENCE) -> CoOccurrences:
    """Which symptoms are seen together in one failure."""
    failed = facts.columns("failures")["attempt_id"].tolist()
    seen = [sorted({row["symptom"] for row in rows}) for rows in causes_of(facts, failed).values()]
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
