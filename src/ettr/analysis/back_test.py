"""The back-test of a store's lemons: its windows, scores, and what jobs would have been spared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.lemon_nodes import fault_fleet_of, fleet_of
from ettr.errors import UsageError
from ettr.facts import Facts, made
from ettr.lemons.back_test import (
    Claim,
    FalseAccusations,
    FitWindow,
    Scores,
    SizeUplift,
    back_test,
    edges_of,
    false_accusations,
    size_uplift,
    sliding_windows,
)
from ettr.lemons.fleet import Stratum
from ettr.metrics.instants import to_seconds
from ettr.metrics.sizes import SizeUnit, size_class, size_end_of
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

USUAL_DAYS = 28.0
"""Days of the fit and of the score where the logs have room for both: the paper's snapshot."""
MAX_WINDOWS = 120
ALL_SIZES = (None, None)
JOBS, FAULTS = "jobs", "faults"


@dataclass(frozen=True, slots=True)
class LemonBackTest:
    """The answer of `ettr lemons --back-test`.

    Attributes:
        all_sizes: Failures of jobs of any size with and without the claimed nodes; None in logs
            without jobs.
        price: What it costs to be wrong; None in logs without jobs.
    """

    basis: str
    fit_days: float
    score_days: float
    false_discovery: float
    confidence: float
    scores: Scores
    size_unit: str
    all_sizes: SizeUplift | None
    sizes: tuple[SizeUplift, ...]
    price: FalseAccusations | None
    notes: tuple[str, ...]


def lemon_back_test(
    analysis: Analysis,
    false_discovery: float,
    fit_days: float | None,
    score_days: float | None,
    drain_days: float,
) -> LemonBackTest:
    """Fits on one period and scores on the next, by sliding windows.

    Args:
        fit_days: of each fit; None for 28, or half of the logs where they are shorter.
        score_days: of each score; None for 28, or what is left.

    Raises:
        UsageError: the windows do not fit into the logs, or are too many.
    """
    fit_days, score_days, windows = _windows(analysis, fit_days, score_days)
    edges_s = edges_of(windows)
    of_jobs = analysis.logs_read.jobs
    fleet = (
        fleet_of(analysis.given, edges_s)[0]
        if of_jobs
        else fault_fleet_of(analysis.facts, analysis.given, edges_s)
    )
    confidence = analysis.assumptions.confidence
    scores, claims = back_test(fleet, windows, false_discovery, confidence)
    every, price = None, None
    sizes: list[SizeUplift] = []
    if of_jobs:
        every, *sizes = _uplift(analysis, fleet, windows, claims, scores)
        price = false_accusations(
            drain_days, scores.claims, scores.lemon_share, every.failures, every.fall
        )
    notes = _notes(scores, of_jobs, false_discovery)
    if of_jobs:
        notes += _workload_notes(analysis)
    return LemonBackTest(
        JOBS if of_jobs else FAULTS,
        fit_days,
        score_days,
        false_discovery,
        confidence,
        scores,
        analysis.size_unit.value,
        every,
        tuple(sizes),
        price,
        tuple(notes),
    )


def _windows(
    analysis: Analysis, fit_days: float | None, score_days: float | None
) -> tuple[float, float, tuple[FitWindow, ...]]:
    period = analysis.period
    if fit_days is None:
        left = period.days - (score_days or 0.0)
        fit_days = min(_usual(period.days), left) if left > 0 else _usual(period.days)
    if score_days is None:
        score_days = min(_usual(period.days), max(period.days - fit_days, SECONDS_PER_DAY**-1))
    start_s, end_s = to_seconds(period.start), to_seconds(period.end)
    if not (fit_days > 0 and score_days > 0 and fit_days + score_days <= period.days + 1e-6):
        raise UsageError(
            f"the logs span {period.days:.4g} days: too few for a fit of {fit_days:.4g} days and a "
            f"score of {score_days:.4g} days; give shorter --fit-days and --score-days"
        )
    if (period.days - fit_days) / score_days > MAX_WINDOWS:
        raise UsageError(
            f"--score-days {score_days:.4g} makes more than {MAX_WINDOWS} windows of "
            f"{period.days:.4g} days; give a longer one, or select a period"
        )
    return fit_days, score_days, sliding_windows(start_s, end_s, fit_days, score_days)


def _usual(days: float) -> float:
    return min(USUAL_DAYS, days / 2)


def _uplift(
    analysis: Analysis,
    fleet: Sequence[Stratum],
    windows: Sequence[FitWindow],
    claims: Sequence[Claim],
    scores: Scores,
) -> list[SizeUplift]:
    """Failures with and without the claimed nodes: of all jobs first, then by size."""
    unit, scored = analysis.size_unit, _ScoredPeriods(windows, claims)
    attempts = _attempts(analysis, scored, unit)
    sizes = _sizes_of_failures(analysis, unit)
    failures: defaultdict[int, float] = defaultdict(float)
    of_claimed: defaultdict[int, float] = defaultdict(float)
    for end_s, size in sizes.values():
        failures[size] += scored.window_at(end_s) is not None
    for attempt_id, name, end_s, weight in _blamed(fleet):
        if attempt_id in sizes and scored.rate(name, end_s) is not None:
            of_claimed[sizes[attempt_id][1]] += weight
    ordinary = _ordinary(analysis, scored, unit)
    clustered = max(1.0, _dispersion(scores))
    confidence, rng = analysis.assumptions.confidence, np.random.default_rng(0)
    known = sorted({*attempts, *failures, *ordinary}, key=lambda end: (end < 0, end))

    def uplift(size: tuple[int | None, int | None], ends: Iterable[int]) -> SizeUplift:
        ended, failed, own, others = (
            float(sum(column.get(end, 0) for end in ends))
            for column in (attempts, failures, of_claimed, ordinary)
        )
        return size_uplift(size, int(ended), failed, own, others, clustered, rng, confidence)

    every = uplift(ALL_SIZES, known)
    by_size = [uplift((size_class(end).size_from, size_class(end).size_to), [end]) for end in known]
    return [every, *by_size]


def _dispersion(scores: Scores) -> float:
    seen = np.array([one.later_failures for one in scores.nodes])
    expected = np.array([one.later_expected for one in scores.nodes])
    if len(seen) < 2 or not seen.sum() or not (expected > 0).all():
        return 1.0
    mean = expected * seen.sum() / expected.sum()
    return float(((seen - mean) ** 2 / mean).sum() / (len(seen) - 1))


class _ScoredPeriods:
    """The scored periods, and which nodes were claimed for each."""

    def __init__(self, windows: Sequence[FitWindow], claims: Sequence[Claim]) -> None:
        self.starts_s = [one.fit_to_s for one in windows]
        self.end_s = windows[-1].score_to_s
        self.claims = {(one.window, one.cluster, one.node): one for one in claims}

    def window_at(self, time_s: float) -> int | None:
        """The window in whose scored period a moment lies; None before and after all of them."""
        at = int(np.searchsorted(self.starts_s, time_s)) - 1
        return at if at >= 0 and time_s <= self.end_s else None

    def rate(self, node: tuple[str, str], time_s: float) -> float | None:
        """The others' rate where the node was claimed for that moment, else None."""
        one = self.claims.get((self.window_at(time_s), *node))  # type: ignore[arg-type]
        return None if one is None else one.others_per_node_day


def _attempts(analysis: Analysis, scored: _ScoredPeriods, unit: SizeUnit) -> dict[int, int]:
    ended = analysis.facts.under(
        scored_from_s=float(scored.starts_s[0]), scored_to_s=float(scored.end_s)
    )
    counts: defaultdict[int, int] = defaultdict(int)
    for row in ended.rows("ended_by_size"):
        counts[size_end_of(row[unit.column])] += row["n_ended"]
    return counts


def _sizes_of_failures(analysis: Analysis, unit: SizeUnit) -> dict[str, tuple[float, int]]:
    return {
        row["attempt_id"]: (row["end_us"] / MICROSECONDS_PER_SECOND, size_end_of(row[unit.column]))
        for row in analysis.facts.rows("failures")
    }


def _blamed(fleet: Sequence[Stratum]) -> Iterable[tuple[str, tuple[str, str], float, float]]:
    """Attempt, node, end and weight of each failure that a node had, or shares in equal parts."""
    for group in fleet:
        for name, some in zip(group.nodes, group.named, strict=True):
            for one in some:
                yield one.attempt_id, (group.cluster, name), one.end_s, one.weight
        for (attempt_id, end_s), shared in zip(group.shared, group.counts.shared, strict=True):
            for at in shared.nodes:
                yield attempt_id, (group.cluster, group.nodes[at]), end_s, 1 / len(shared.nodes)


@made("claimed_nodes", (("cluster", "VARCHAR"), ("node", "VARCHAR")), takes=("claimed",))
def _claimed_nodes(facts: Facts) -> list[tuple[object, ...]]:
    return sorted(facts.given("claimed"))


def _ordinary(analysis: Analysis, scored: _ScoredPeriods, unit: SizeUnit) -> dict[int, float]:
    """Failures of ordinary nodes with the exposure of the claimed ones, by size of the job."""
    claimed = frozenset((cluster, node) for _, cluster, node in scored.claims)
    found: defaultdict[int, float] = defaultdict(float)
    if not claimed:
        return found
    bounds = [*scored.starts_s, scored.end_s]
    for row in analysis.facts.under(claimed=claimed).rows("held_on_claimed"):
        start_s = row["start_us"] / MICROSECONDS_PER_SECOND
        end_s = start_s + (row["elapsed_s"] or 0.0)
        for number, (from_s, to_s) in enumerate(pairwise(bounds)):
            one = scored.claims.get((number, row["cluster"], row["node"]))
            days = (min(end_s, to_s) - max(start_s, from_s)) / SECONDS_PER_DAY
            if one is not None and days > 0:
                found[size_end_of(row[unit.column])] += days * one.others_per_node_day
    return found


def _workload_notes(analysis: Analysis) -> list[str]:
    if all(part == 1.0 for part in analysis.workload_weights.values()):
        return []
    return [
        "Some failures without a culprit are attributed to their users' programs. All of the logs "
        "show which users those are, so each fit knows something of the period after it.",
    ]


def _notes(scores: Scores, of_jobs: bool, false_discovery: float) -> list[str]:
    what = "failures of jobs" if of_jobs else "faults, by node-days in service"
    notes = [
        f"The back-test counts {what} in the period after each fit; one without a culprit "
        "counts in equal parts for the nodes of its job. No log says which nodes are "
        "lemons: a claim is scored by what the node did afterwards. A node repaired "
        "meanwhile looks like a wrong claim.",
        "The intervals allow for nodes that differ; those of the share that failed again take "
        "claims on one node in several windows as independent, and are too narrow there.",
    ]
    if scores.lemon_share.high < 1 - false_discovery:
        notes.insert(
            0,
            f"The claims do not hold here: at most {scores.lemon_share.high:.0%} of the claimed "
            f"nodes went on failing as lemons do, where {1 - false_discovery:.0%} are stated to be "
            "lemons. Nodes may fail in spells, or were repaired. Judge them by longer periods.",
        )
    if scores.claims > scores.scored:
        notes.append(
            f"{scores.claims - scores.scored} of {scores.claims} claims are not scored: "
            "their nodes ran nothing afterwards."
        )
    return notes
