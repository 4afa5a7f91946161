"""Failure rates that others have published, and a fleet against each of them.

No two of them count the same: what each counts stands next to its number. Where only a rate was
published it has no interval, since nobody outside knows how many failures are behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ettr.analysis.fleet_evidence import FleetEvidence
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.metrics.rates import FailuresByConfidence
from ettr.models.compare import compare_spread

PER_NODE_DAYS = 1000.0
_KOKOLIS = "Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters (HPCA 2025)"


@dataclass(frozen=True, slots=True)
class PublishedFleet:
    """One fleet as published; None is what the publication does not say.

    Attributes:
        per_1000_node_days: Their rate, where only that is published.
    """

    name: str
    failures: int | None
    node_days: float | None
    per_1000_node_days: float | None
    counted: str
    source: str

    @property
    def rate(self) -> FailureRate | None:
        """Failures over node-days; None where one of them is not published."""
        if self.failures is None or self.node_days is None:
            return None
        return FailureRate(self.failures, self.node_days)


PUBLISHED = (
    PublishedFleet(
        "RSC-1",
        None,
        None,
        6.50,
        "failures of jobs of more than 128 GPUs, by runtime; some 2,000 nodes of 8 A100, 11 months",
        _KOKOLIS,
    ),
    PublishedFleet(
        "RSC-2",
        None,
        None,
        2.34,
        "failures of jobs of more than 128 GPUs, by runtime; some 1,000 nodes of 8 A100, 11 months",
        _KOKOLIS,
    ),
    PublishedFleet(
        "Llama 3 405B",
        419,
        2048 * 54.0,
        None,
        "unexpected interruptions of one run, software included, by calendar time; 2,048 nodes of "
        "8 H100, 54 days",
        "Llama team, The Llama 3 Herd of Models (arXiv:2407.21783), table 5",
    ),
    PublishedFleet(
        "InfiniteHBD",
        584,
        400 * 348.98,
        None,
        "faults of nodes, whether or not a job ran, by calendar time; 400 sampled nodes, 349 days",
        "InfiniteHBD (SIGCOMM 2025, arXiv:2502.03885) and its trace",
    ),
    PublishedFleet(
        "LANL 1996-2005",
        23_739,
        None,
        None,
        "records of node outages of 22 CPU systems; nodes came and went, so that the records alone "
        "give no exposure",
        "LANL, LA-UR-05-7318; Schroeder and Gibson (DSN 2006)",
    ),
)
"""What `ettr compare --published` sets a fleet against."""


@dataclass(frozen=True, slots=True)
class AgainstPublished:
    """A published fleet, and the ratio of a fleet's rate to its.

    Attributes:
        per_1000_node_days: With its exact interval where the count is published; ends of None mean
            unknown.
        ratio: Rate of the fleet over the published one; where only a rate is published, the
            interval is that of the fleet's rate alone.
    """

    name: str
    failures: int | None
    node_days: float | None
    per_1000_node_days: Interval
    ratio: Interval
    p_value: float | None
    counted: str
    source: str


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """A fleet next to published ones; rates per 1,000 node-days.

    `by_confidence` says how sure its failures are; None where they were typed in.
    """

    name: str
    jobs: str
    failures: int
    node_days: float
    per_1000_node_days: Interval
    published: tuple[AgainstPublished, ...]
    confidence: float
    notes: tuple[str, ...]
    by_confidence: FailuresByConfidence | None = None


def compare_with_published(fleet: FleetEvidence, confidence: float) -> PublishedComparison:
    """A fleet against each published one."""
    spread = None if fleet.spread is None else fleet.spread.believed
    rate = fleet.rate
    own = rate.interval(confidence) if spread is None else spread.interval(rate, confidence)
    return PublishedComparison(
        name=fleet.name,
        jobs=fleet.jobs,
        failures=rate.failures,
        node_days=rate.node_days,
        per_1000_node_days=own.scaled(PER_NODE_DAYS),
        published=tuple(_against(fleet, own, one, confidence) for one in PUBLISHED),
        confidence=confidence,
        notes=(
            "No two of these fleets count the same things; a ratio compares a fleet with "
            "the published rate, not with what its own count would be there.",
            "Whether failures of the published fleets cluster is unknown: their "
            "intervals hold only if they are independent.",
        ),
        by_confidence=fleet.by_confidence,
    )


def _against(
    fleet: FleetEvidence, own: Interval, other: PublishedFleet, confidence: float
) -> AgainstPublished:
    per_1000, ratio, p_value = Interval.unknown(), Interval.unknown(), None
    if other.rate is not None:
        per_1000 = other.rate.interval(confidence).scaled(PER_NODE_DAYS)
        names = (fleet.name, other.name)
        found = compare_spread(fleet.rate, other.rate, fleet.spreads, [], confidence, names)
        ratio, p_value = Interval(found.ratio, found.low, found.high), found.p_value
    elif other.per_1000_node_days is not None:
        per_1000 = Interval(other.per_1000_node_days, *_UNBOUNDED)
        ratio = own.scaled(PER_NODE_DAYS / other.per_1000_node_days)
    return AgainstPublished(
        other.name,
        other.failures,
        other.node_days,
        per_1000,
        ratio,
        p_value,
        other.counted,
        other.source,
    )


_UNBOUNDED = (Interval.unknown().low, Interval.unknown().high)
