"""Failures per 1,000 node-days, by symptom, over all jobs and over large ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import ibis

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate, rate_interval
from ettr.metrics.instants import fetch, first_row
from ettr.units import SECONDS_PER_DAY

ABOVE_GPUS = 128
PER_NODE_DAYS = 1000.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Failures in an exposure of node-days of runtime."""

    failures: int
    node_days: float
    per_1000_node_days: Interval

    def model(self) -> FailureRate:
        """The same evidence as the rate that projections take."""
        return FailureRate(self.failures, self.node_days)


@dataclass(frozen=True, slots=True)
class SymptomRate:
    """One symptom over all jobs and over large ones; `domain` is that of most of its failures."""

    symptom: str
    domain: str
    all_jobs: Rate
    large_jobs: Rate


@dataclass(frozen=True, slots=True)
class FailureRates:
    """The failure rate r_f over all jobs, and over jobs of more than `above_gpus` GPUs.

    A node that two jobs share is exposed twice, once in each: the denominator is runtime of jobs,
    as in the paper, where large jobs share nothing.
    """

    above_gpus: int
    confidence: float
    all_jobs: Rate
    large_jobs: Rate
    by_symptom: tuple[SymptomRate, ...]

    @property
    def best(self) -> Rate:
        """The rate to project with: large jobs where they ran at all, else all jobs."""
        return self.large_jobs if self.large_jobs.node_days > 0 else self.all_jobs


def rate(failures: int, node_days: float, confidence: float = CONFIDENCE) -> Rate:
    """A rate with its exact interval, in failures per 1,000 node-days."""
    return Rate(failures, node_days, rate_interval(failures, node_days, confidence, PER_NODE_DAYS))


def failure_rates(
    attempts: ibis.Table,
    failures: ibis.Table,
    *,
    above_gpus: int = ABOVE_GPUS,
    confidence: float = CONFIDENCE,
) -> FailureRates:
    """Failure rates by symptom with exact intervals.

    Args:
        attempts: all attempts; their nodes times their runtime is the exposure.
        failures: failures of the infrastructure, as attribution made them.
        above_gpus: large jobs hold more GPUs than this.
        confidence: of the intervals, between 0 and 1.

    Source:
        Kokolis et al. (2025): r_f over jobs of more than 128 GPUs.
    """
    node_s = attempts["elapsed_s"] * attempts["n_nodes"]
    exposed = first_row(
        attempts.aggregate(
            all_s=node_s.sum(), large_s=node_s.sum(where=attempts["n_gpus"] > above_gpus)
        )
    )
    all_days = (exposed["all_s"] or 0.0) / SECONDS_PER_DAY
    large_days = (exposed["large_s"] or 0.0) / SECONDS_PER_DAY
    rows = fetch(failures, "symptom", "domain", "n_gpus").to_pylist()
    everywhere = Counter(row["symptom"] for row in rows)
    large = Counter(row["symptom"] for row in rows if (row["n_gpus"] or 0) > above_gpus)
    domains: dict[str, Counter[str]] = {}
    for row in rows:
        domains.setdefault(row["symptom"], Counter())[row["domain"]] += 1
    return FailureRates(
        above_gpus=above_gpus,
        confidence=confidence,
        all_jobs=rate(len(rows), all_days, confidence),
        large_jobs=rate(large.total(), large_days, confidence),
        by_symptom=tuple(
            SymptomRate(
                symptom=symptom,
                domain=min(domains[symptom].items(), key=lambda item: (-item[1], item[0]))[0],
                all_jobs=rate(count, all_days, confidence),
                large_jobs=rate(large[symptom], large_days, confidence),
            )
            for symptom, count in sorted(everywhere.items(), key=lambda item: (-item[1], item[0]))
        ),
    )
