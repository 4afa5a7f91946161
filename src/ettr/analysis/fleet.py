"""Failure models of one fleet: fitted to failures and exposure of each node.

A stage of the analysis; the exposure is summed in the engine, so that the models see one row a
node however many jobs ran.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ettr.analysis.assumptions import Assumptions
from ettr.analysis.clustering import BAND_SEED, FLEET
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import FleetSpread
from ettr.facts import Facts
from ettr.models.base import Fit
from ettr.models.data import Counts
from ettr.models.dispersion import Burstiness, Dispersion, burstiness, dispersion
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

# counts by node serve every metric: what only models need is loaded with them
if TYPE_CHECKING:
    from ettr.analysis.clustering import FailureClustering
    from ettr.models.compare import Funnel

WORST_NODES = 10
LEAST_NODES = 3


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Failures of one node compared with what its exposure would give at the fleet's rate."""

    node: str
    failures: int
    node_days: float
    expected: float


@dataclass(frozen=True, slots=True)
class FleetModels:
    """What kind of failures a fleet has; `dispersion` is None without any exposure.

    `funnel` holds each node against the limits that chance alone would respect; None where there
    are too few nodes, or nothing failed.
    """

    dispersion: Dispersion | None
    bursts: Burstiness | None
    fits: tuple[Fit, ...]
    preferred: str | None
    worst_nodes: tuple[NodeCount, ...]
    notes: tuple[str, ...]
    funnel: Funnel | None = None
    clustering: FleetSpread | None = None


class OfModels(Protocol):
    """What `fleet_models` takes."""

    assumptions: Assumptions
    clustering: FailureClustering
    rate_facts: Facts


def fleet_models(_: Facts, given: OfModels) -> FleetModels:
    """Whether failures cluster, and which model fits.

    Failures that blame no node count in the rate of the fleet, not of any node.
    """
    from ettr.models.registry import compare_models

    counts, confidence = given.clustering.every.counts, given.assumptions.confidence

    if counts is None:
        return FleetModels(None, None, (), None, (), ())
    times_us = given.rate_facts.columns("failures")["end_us"]
    times_days = times_us / (MICROSECONDS_PER_SECOND * SECONDS_PER_DAY)
    chosen = compare_models(counts, confidence=confidence)
    return FleetModels(
        dispersion=dispersion(counts, confidence),
        bursts=burstiness(times_days, np.random.default_rng(BAND_SEED), confidence),
        fits=chosen.fits,
        preferred=chosen.best.model,
        worst_nodes=_worst(counts),
        notes=(chosen.meaning, *_unplaced(counts)),
        funnel=_funnel(counts),
        clustering=given.clustering.all_jobs,
    )


def _unplaced(counts: Counts) -> tuple[str, ...]:
    """What counts in the rate of the fleet alone, a sentence each."""
    if counts.unit == FLEET:
        return ("No job names its nodes, so the failures and node-days are those of the fleet.",)
    words = []
    if counts.unplaced:
        words.append(
            f"{counts.unplaced:,} failures blame no node in use; they count in the rate "
            "of the fleet, but not in that of any node."
        )
    if counts.unplaced_node_days:
        words.append(
            f"{counts.unplaced_node_days:,.0f} node-days ran on nodes that the logs do "
            "not name; they count in the rate of the fleet, but not in that of any node."
        )
    return tuple(words)


def _funnel(counts: Counts) -> Funnel | None:
    from ettr.models.compare import funnel

    nodes = [
        (str(name), FailureRate(int(failures), float(days)))
        for name, failures, days in zip(
            counts.group if counts.group is not None else range(counts.failures.size),
            counts.failures,
            counts.exposure_node_days,
            strict=True,
        )
    ]
    if counts.unit == FLEET or len(nodes) < LEAST_NODES or not counts.failures.any():
        return None
    return funnel(nodes)


def _worst(counts: Counts) -> tuple[NodeCount, ...]:
    if counts.unit == FLEET:
        return ()
    rate = counts.failures.sum() / counts.exposure_node_days.sum()
    order = np.argsort(-counts.failures, kind="stable")[:WORST_NODES]
    names = counts.group
    return tuple(
        NodeCount(
            node=str(names[i]) if names is not None else str(i),
            failures=int(counts.failures[i]),
            node_days=float(counts.exposure_node_days[i]),
            expected=float(rate * counts.exposure_node_days[i]),
        )
        for i in order
        if counts.failures[i]
    )
