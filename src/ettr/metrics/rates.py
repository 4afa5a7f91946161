"""Failures per 1,000 node-days, by symptom, over all jobs and over large ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from ettr.defaults import CONFIDENCE, LARGE_JOB_GPUS
from ettr.estimates.exact import FailureRate, rate_interval
from ettr.estimates.interval import Interval
from ettr.estimates.spread import FleetSpread, Spread
from ettr.facts import Facts
from ettr.facts.stored import NO_GPUS, in_life
from ettr.units import SECONDS_PER_DAY

PER_NODE_DAYS = 1000.0


@dataclass(frozen=True, slots=True)
class EstimatedRate(FailureRate):
    """A failure rate at the confidence of the analysis."""

    per_1000_node_days: Interval
    exact_per_1000_node_days: Interval


@dataclass(frozen=True, slots=True)
class SymptomRates:
    """One symptom over all jobs and over large ones; `domain` is that of most of its failures."""

    symptom: str
    domain: str
    all_jobs: EstimatedRate
    large_jobs: EstimatedRate


@dataclass(frozen=True, slots=True)
class RatesBySymptom:
    """The failure rate r_f over all jobs, and over jobs of more than `above_gpus` GPUs.

    A node that two jobs share is exposed twice, once in each: the denominator is runtime of jobs,
    as in the paper, where large jobs share nothing.
    """

    above_gpus: int
    confidence: float
    all_jobs: EstimatedRate
    large_jobs: EstimatedRate
    by_symptom: tuple[SymptomRates, ...]
    clustering_all_jobs: FleetSpread | None = None
    clustering_large_jobs: FleetSpread | None = None
    by_confidence: FailuresByConfidence | None = None
    large_by_confidence: FailuresByConfidence | None = None

    @property
    def best(self) -> EstimatedRate:
        """The rate to project with: large jobs where they ran at all, else all jobs."""
        return self.large_jobs if self.large_jobs.node_days > 0 else self.all_jobs


def estimated_rate(
    failures: int, node_days: float, confidence: float = CONFIDENCE, spread: Spread | None = None
) -> EstimatedRate:
    """A rate with its intervals, in failures per 1,000 node-days."""
    exact = rate_interval(failures, node_days, confidence, PER_NODE_DAYS)
    if spread is None:
        return EstimatedRate(failures, node_days, exact, exact)
    wide = spread.interval(FailureRate(failures, node_days), confidence).scaled(PER_NODE_DAYS)
    return EstimatedRate(failures, node_days, wide, exact)


def part_rate(
    failures: int,
    node_days: float,
    total: int,
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
) -> EstimatedRate:
    """The rate of some of `total` failures whose spread is known as a whole."""
    thinned = None if spread is None else spread.thinned(failures / total if total else 1.0)
    return estimated_rate(failures, node_days, confidence, thinned)


def window_rate(
    failures: int,
    node_days: float,
    total: int,
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
) -> EstimatedRate:
    """The rate in a window of time, of `total` failures whose spread is known as a whole.

    A window holds bursts as they came and not a share of each, so that a spread over time stands as
    it is. One between nodes is thinned: each node has a part of its failures in the window.
    """
    if spread is None or spread.over == "time":
        return estimated_rate(failures, node_days, confidence, spread)
    return part_rate(failures, node_days, total, confidence, spread)


def symptom_rate(
    failures: int,
    node_days: float,
    total: int,
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
    own: Spread | None = None,
) -> EstimatedRate:
    """`part_rate`, or the rate with the spread of these failures alone where that is wider.

    Failures of one kind may come in bursts that hardly show among all the others.
    """
    part = part_rate(failures, node_days, total, confidence, spread)
    if own is None:
        return part
    alone = estimated_rate(failures, node_days, confidence, own)
    return max(part, alone, key=lambda rate: rate.per_1000_node_days.high)


def failure_rates(
    facts: Facts,
    *,
    above_gpus: int = LARGE_JOB_GPUS,
    confidence: float = CONFIDENCE,
    all_jobs: FleetSpread | None = None,
    large_jobs: FleetSpread | None = None,
    symptoms: Mapping[str, FleetSpread] | None = None,
    large_jobs_symptoms: Mapping[str, FleetSpread] | None = None,
    probable_gpus: Sequence[int | None] = (),
) -> RatesBySymptom:
    """Failure rates by symptom, with intervals that admit the clustering of failures.

    Args:
        probable_gpus: GPUs of each job that probably failed too, though no log says so: the high
            ends of the rates over all symptoms hold them all.

    Source:
        Kokolis et al. (2025): r_f over jobs of more than 128 GPUs.
    """
    shapes = facts.columns("exposure_shapes")
    node_s = np.asarray(shapes["node_s"], dtype=np.float64)
    is_large = np.nan_to_num(np.asarray(shapes["n_gpus"], dtype=np.float64)) > above_gpus
    failed = facts.columns("failures")
    names = ("symptom", "domain", "n_gpus", "confidence")
    rows = [
        dict(zip(names, row, strict=True))
        for row in zip(*(failed[name].tolist() for name in names), strict=True)
    ]
    # NaN is above nothing
    large_rows = [row for row in rows if (row["n_gpus"] or 0) > above_gpus]
    every = _Jobs.of(rows, np.nansum(node_s), all_jobs, symptoms, confidence)
    large = _Jobs.of(
        large_rows, np.nansum(node_s[is_large]), large_jobs, large_jobs_symptoms, confidence
    )
    domains = Counter((row["symptom"], row["domain"]) for row in rows)
    return RatesBySymptom(
        above_gpus=above_gpus,
        confidence=confidence,
        all_jobs=every.rate(len(probable_gpus)),
        large_jobs=large.rate(sum((n or 0) > above_gpus for n in probable_gpus)),
        by_symptom=tuple(
            SymptomRates(
                symptom=symptom,
                domain=_domain_of(symptom, domains),
                all_jobs=every.rate_of(symptom),
                large_jobs=large.rate_of(symptom),
            )
            for symptom, _ in _most_frequent_first(every.failures)
        ),
        clustering_all_jobs=all_jobs,
        clustering_large_jobs=large_jobs,
        by_confidence=counted_confidences(row["confidence"] for row in rows),
        large_by_confidence=counted_confidences(row["confidence"] for row in large_rows),
    )


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Failures of some jobs by symptom, their exposure, and how the failures cluster."""

    failures: Counter[str]
    node_days: float
    spread: Spread | None
    own_spreads: Mapping[str, FleetSpread]
    confidence: float

    @staticmethod
    def of(
        rows: Iterable[Mapping[str, Any]],
        node_s: float,
        clustering: FleetSpread | None,
        symptoms: Mapping[str, FleetSpread] | None,
        confidence: float,
    ) -> _Jobs:
        """Those of rows of failures and node-seconds; none without exposure."""
        return _Jobs(
            Counter(row["symptom"] for row in rows),
            float(node_s) / SECONDS_PER_DAY,
            None if clustering is None else clustering.believed,
            symptoms or {},
            confidence,
        )

    def rate(self, probable: int) -> EstimatedRate:
        """Of all symptoms together; its high end is that with so many more failures."""
        failures = self.failures.total()
        found = estimated_rate(failures, self.node_days, self.confidence, self.spread)
        if not probable:
            return found
        more = estimated_rate(failures + probable, self.node_days, self.confidence, self.spread)
        wide = replace(found.per_1000_node_days, high=more.per_1000_node_days.high)
        return replace(found, per_1000_node_days=wide)

    def rate_of(self, symptom: str) -> EstimatedRate:
        """Of one symptom."""
        own = self.own_spreads.get(symptom)
        return symptom_rate(
            self.failures[symptom],
            self.node_days,
            self.failures.total(),
            self.confidence,
            self.spread,
            None if own is None else own.believed,
        )


def _most_frequent_first(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _domain_of(symptom: str, counts: Counter[tuple[str, str]]) -> str:
    """The domain of most of its failures."""
    own = Counter({domain: n for (name, domain), n in counts.items() if name == symptom})
    return _most_frequent_first(own)[0][0]


# -- Failure rates without the failures that chance explains --------------------------------------


@dataclass(frozen=True, slots=True)
class RateWithoutFalse:
    """A failure rate with the failures that are expected to be false, and without them.

    Attributes:
        expected_false: How many of those are false, with the interval of that number; no estimate
            where no rate of faults was measured.
    """

    failures: int
    node_days: float
    on_evidence: int
    expected_false: Interval
    per_1000_node_days: Interval
    without_false_per_1000_node_days: Interval


@dataclass(frozen=True, slots=True)
class RatesWithoutFalse:
    """The rates of all jobs, and of jobs of more than `above_gpus` GPUs."""

    above_gpus: int
    all_jobs: RateWithoutFalse
    large_jobs: RateWithoutFalse

    @property
    def best(self) -> RateWithoutFalse:
        """Of the jobs whose rate projects best, as `RatesBySymptom.best` chooses them."""
        return self.large_jobs if self.large_jobs.node_days > 0 else self.all_jobs


def rate_without_false(
    rate: EstimatedRate,
    on_evidence: int,
    expected_false: Interval,
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
) -> RateWithoutFalse:
    """A rate next to what is left of it without the false failures.

    The interval joins the scatter of the failures that are left with what is not known of the
    number of false ones: the squares of both distances to an end add up.

    Source:
        Zou and Donner (2008), Statistics in Medicine 27: the interval of a difference from the
        intervals of its parts.
    """
    return RateWithoutFalse(
        failures=rate.failures,
        node_days=rate.node_days,
        on_evidence=on_evidence,
        expected_false=expected_false,
        per_1000_node_days=rate.per_1000_node_days,
        without_false_per_1000_node_days=_left(rate, expected_false, confidence, spread),
    )


def _left(
    rate: EstimatedRate, false: Interval, confidence: float, spread: Spread | None
) -> Interval:
    if rate.node_days <= 0:
        return Interval(None, 0.0, math.inf)
    if false.estimate is None:
        # nothing says how many are false: all that rest on a check may be, or none
        fewest = part_rate(
            rate.failures - int(false.high), rate.node_days, rate.failures, confidence, spread
        )
        return Interval(None, fewest.per_1000_node_days.low, rate.per_1000_node_days.high)
    per = PER_NODE_DAYS / rate.node_days
    left = max(0.0, rate.failures - false.estimate)
    # counts are whole: the distances are those of the nearest one
    near = part_rate(round(left), rate.node_days, rate.failures, confidence, spread)
    own = near.per_1000_node_days
    middle = own.estimate or 0.0
    below = math.hypot(middle - own.low, per * (false.high - false.estimate))
    above = math.hypot(own.high - middle, per * (false.estimate - false.low))
    return Interval(per * left, max(0.0, per * left - below), per * left + above)


# -- How sure the failures behind a count are -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailuresByConfidence:
    """Failures by how sure their cause is; docs/explanation/attribution.md has the rules.

    Attributes:
        scheduler_only: The scheduler says that a node failed, and no error was found.
        medium: An error was found in the window, and nothing contradicts it.
        low: The error was seen elsewhere or only after the end.
    """

    scheduler_only: int
    high: int
    medium: int
    low: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.scheduler_only + self.high + self.medium + self.low


def failures_by_confidence(facts: Facts) -> FailuresByConfidence:
    """Counts of the selected failures."""
    return counted_confidences(facts.columns("failures")["confidence"].tolist())


def counted_confidences(confidences: Iterable[str]) -> FailuresByConfidence:
    """Counts of the values of the column `confidence`."""
    values = list(confidences)
    return FailuresByConfidence(
        scheduler_only=values.count("none"),
        high=values.count("high"),
        medium=values.count("medium"),
        low=values.count("low"),
    )


# -- failure rates by class of node: nodes without GPUs, and each type of GPU ----------------------
# A rate of nodes of several kinds is that of none: old nodes without GPUs that fail ten times as
# often say nothing of a run on GPUs. Where both ran, rates, MTTF and plans are of nodes with GPUs.


GPU, WITH_GPUS = "gpu", "nodes with GPUs"
ALIKE = 0.05
"""Chance of so different rates, below which types of GPU are not taken together."""


@dataclass(frozen=True, slots=True)
class ClassRate:
    """One class of nodes.

    Attributes:
        name: `cpu`, a type of GPU, or `gpu` where the type is not known.
        per_1000_node_days: The rate, with the exact interval of independent failures, or of such as
            cluster like all failures do.
    """

    name: str
    has_gpus: bool
    failures: int
    node_days: float
    per_1000_node_days: Interval


def class_rates(facts: Facts, confidence: float = CONFIDENCE) -> tuple[ClassRate, ...]:
    """Rates of each class, that of most node-days first; empty where there is but one."""
    sources = ("nodes", "attempts", "partition_models")
    types = {kind for table in sources for (kind,) in facts.distinct(table, "gpu_type")} - {None}
    if not (_may_be_mixed(facts) or len(types) > 1):
        return ()
    rows = [row for row in facts.rows("class_rates") if row["node_s"] or row["failures"]]
    if len(rows) < 2:
        return ()
    made = []
    for row in rows:
        node_days, failures = (row["node_s"] or 0.0) / SECONDS_PER_DAY, row["failures"]
        interval = rate_interval(failures, node_days, confidence, PER_NODE_DAYS)
        name = (row["gpu_type"] or GPU) if row["has_gpus"] else NO_GPUS
        made.append(ClassRate(name, row["has_gpus"], failures, node_days, interval))
    return tuple(sorted(made, key=lambda one: (-one.node_days, one.name)))


def _may_be_mixed(facts: Facts) -> bool:
    """Whether jobs ran with GPUs and others without: those may be of nodes that have none."""
    shapes = facts.columns("exposure_shapes")
    gpus = np.asarray(shapes["n_gpus"], dtype=np.float64)
    ran = np.nan_to_num(np.asarray(shapes["node_s"], dtype=np.float64)) > 0
    return bool((ran & (gpus == 0)).any() and (ran & (gpus > 0)).any())


def with_spread(
    classes: Sequence[ClassRate],
    spread: Spread | None,
    probable: Sequence[str],
    confidence: float = CONFIDENCE,
) -> tuple[ClassRate, ...]:
    """The classes with intervals that admit the clustering of all failures.

    Args:
        classes: with exact intervals.
        spread: of all failures.
        probable: the class of each job that probably failed too: high ends hold them.
        confidence: of the intervals.
    """
    total = sum(one.failures for one in classes)
    made = []
    for one in classes:
        more = probable.count(one.name)
        low, high = (
            part_rate(n, one.node_days, max(total, n), confidence, spread).per_1000_node_days
            for n in (one.failures, one.failures + more)
        )
        made.append(replace(one, per_1000_node_days=replace(low, high=high.high)))
    return tuple(made)


def main_class(classes: Sequence[ClassRate]) -> str:
    """The class that rates are of: `gpu`, a type of GPU, or nothing where all nodes are alike.

    Nodes without GPUs are never taken together with others. Types of GPU are where no two of them
    differ; else the rates are of the type on which most ran.
    """
    with_gpus = [one for one in classes if one.has_gpus and one.node_days > 0]
    if not with_gpus:
        return ""
    main, pairs = with_gpus[0], [*combinations(with_gpus, 2)]
    if main.name != GPU and any(
        _chance_of_difference(one, other) * len(pairs) < ALIKE for one, other in pairs
    ):
        return main.name
    return GPU if any(not one.has_gpus and one.node_days > 0 for one in classes) else ""


def _chance_of_difference(one: ClassRate, other: ClassRate) -> float:
    """Two-sided chance of so different counts if both rates were the same.

    Source:
        Przyborowski and Wilenski (1940), Biometrika 31: given their sum, one is binomial.
    """
    from ettr.estimates.special import betainc

    total = one.failures + other.failures
    share = one.node_days / (one.node_days + other.node_days)
    tails = (
        float(betainc(few, total - few + 1.0, part)) if few else 1.0
        for few, part in ((one.failures, share), (other.failures, 1.0 - share))
    )
    return min(1.0, 2.0 * min(tails))


def facts_of_class(facts: Facts, name: str) -> Facts:
    """The facts where what ran and what failed is of nodes of one class alone.

    An attempt on nodes of several counts by those of the class, and a failure by the node that is
    blamed, else by the nodes that it held.

    Args:
        facts: of a selection.
        name: `gpu` for all nodes with GPUs, or a type.
    """
    wanted = "c.has_gpus" if name == GPU else "c.has_gpus AND c.gpu_type = $gpu_type"
    bound = {} if name == GPU else {"gpu_type": name}
    held, classes, ran = (facts.table(one) for one in ("held", "node_classes", "gpu_attempts"))
    unplaced = (
        f"UNION ALL SELECT g.attempt_id, 1, 1 FROM {ran} g WHERE g.attempt_id NOT IN "  # noqa: S608
        f"(SELECT attempt_id FROM {held})"
    )
    ids = facts.keep(
        "class_attempts",
        f"SELECT h.attempt_id, count(*) AS n_held, "  # noqa: S608
        f"CAST(sum(CASE WHEN {wanted} THEN 1 ELSE 0 END) AS BIGINT) AS n_wanted FROM {held} h "
        f"LEFT JOIN {classes} c ON h.cluster = c.cluster AND h.node = c.node "
        f"AND {in_life('c', 'h')} GROUP BY h.attempt_id "
        f"HAVING sum(CASE WHEN {wanted} THEN 1 ELSE 0 END) > 0 {unplaced if name == GPU else ''}",
        view=False,
        bound=bound,
    )
    nodes = facts.keep(
        "class_nodes",
        f"SELECT c.cluster, c.node, c.from_us, c.to_us FROM {classes} c WHERE {wanted}",  # noqa: S608
        view=False,
        bound=bound,
    )
    part = "CASE WHEN i.n_wanted = i.n_held THEN t.{0} ELSE {1} END AS {0}"
    share = "CAST(i.n_wanted AS DOUBLE) / CAST(i.n_held AS DOUBLE)"
    exposure = ", ".join(
        (
            *("t.attempt_id", "t.start_us", "t.end_us", "t.elapsed_s", "t.n_gpus", "t.belongs"),
            "t.named",
            part.format("n_nodes", "i.n_wanted"),
            part.format("n_held", "i.n_wanted"),
            part.format("node_s", f"t.node_s * {share}"),
        )
    )
    of_nodes = (
        f"(t.node IS NULL OR EXISTS (SELECT 1 FROM {nodes} n "  # noqa: S608
        f"WHERE n.cluster = t.cluster AND n.node = t.node AND {in_life('n', 't')}))"
    )
    columns = {
        "chosen": ("t.*", ""),
        "exposure": (exposure, ""),
        "exposure_nodes": ("t.*", f" WHERE {of_nodes}"),
        "failures": ("t.*", f" WHERE {of_nodes}"),
    }
    parts = {
        table: facts.keep(
            f"class_{table}",
            f"SELECT {what} FROM {facts.table(table)} t "  # noqa: S608
            f"JOIN {ids} i ON t.attempt_id = i.attempt_id{where}",
            view=True,
        )
        for table, (what, where) in columns.items()
    }
    return facts.over(**parts)
