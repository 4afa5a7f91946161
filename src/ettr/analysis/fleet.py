"""Failure models of one fleet: fitted to failures and exposure of each node.

A stage of the analysis; the exposure is summed in the engine, so that the models see one row a
node however many jobs ran.
"""

from __future__ import annotations

from dataclasses import dataclass

import ibis
import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates.exact import FailureRate
from ettr.models.base import Fit
from ettr.models.compare import Funnel, funnel
from ettr.models.data import Counts
from ettr.models.dispersion import Burstiness, Dispersion, burstiness, dispersion
from ettr.models.select import compare_models
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

WORST_NODES = 10
LEAST_NODES = 3
BAND_SEED = 20_241_029
"""Seed of the draws behind the band of independent gaps: the same data give the same report."""


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Failures of one node beside what its exposure would give at the fleet's rate."""

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


def fleet_models(
    allocations: ibis.Table, failures: ibis.Table, confidence: float = CONFIDENCE
) -> FleetModels:
    """Dispersion over nodes, bursts over time, and the models that fit.

    Args:
        allocations: which nodes ran what for how long.
        failures: failures of the infrastructure; those that blame no node count in the rate of the
            fleet, not of any node.
        confidence: of the intervals, between 0 and 1.
    """
    counts = node_counts(allocations, failures)
    if counts is None:
        return FleetModels(None, None, (), None, (), ())
    times = failures.select("end").to_pyarrow()["end"].cast("int64").to_numpy()
    times_days = times / (MICROSECONDS_PER_SECOND * SECONDS_PER_DAY)
    chosen = compare_models(counts, confidence=confidence)
    notes: tuple[str, ...] = (chosen.meaning,)
    if counts.unplaced:
        notes += (
            f"{counts.unplaced:,} failures blame no node that was in use; they count in the rate "
            "of the fleet, not of any node.",
        )
    return FleetModels(
        dispersion=dispersion(counts, confidence),
        bursts=burstiness(times_days, np.random.default_rng(BAND_SEED), confidence),
        fits=chosen.fits,
        preferred=chosen.best.model,
        worst_nodes=_worst(counts),
        notes=notes,
        funnel=_funnel(counts),
    )


def node_counts(allocations: ibis.Table, failures: ibis.Table) -> Counts | None:
    """Failures and node-days of each node; None where nothing was ever allocated."""
    used = (
        allocations.group_by("cluster", "node")
        .aggregate(exposure_s=allocations["elapsed_s"].sum())
        .filter(lambda t: t["exposure_s"] > 0)
        .order_by("cluster", "node")
        .to_pyarrow()
        .to_pylist()
    )
    if not used:
        return None
    blamed = (
        failures.group_by("cluster", "node").aggregate(n=failures.count()).to_pyarrow().to_pylist()
    )
    found = {(row["cluster"], row["node"]): int(row["n"]) for row in blamed}
    names = [(row["cluster"], row["node"]) for row in used]
    several = len({cluster for cluster, _ in names}) > 1
    placed = [found.get(name, 0) for name in names]
    return Counts(
        np.array(placed),
        np.array([row["exposure_s"] for row in used]) / SECONDS_PER_DAY,
        np.array([f"{cluster}/{node}" if several else node for cluster, node in names]),
        "node",
        sum(found.values()) - sum(placed),
    )


def _funnel(counts: Counts) -> Funnel | None:
    nodes = [
        (str(name), FailureRate(int(failures), float(days)))
        for name, failures, days in zip(
            counts.group if counts.group is not None else range(counts.failures.size),
            counts.failures,
            counts.exposure_node_days,
            strict=True,
        )
    ]
    if len(nodes) < LEAST_NODES or not counts.failures.any():
        return None
    return funnel(nodes)


def _worst(counts: Counts) -> tuple[NodeCount, ...]:
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
