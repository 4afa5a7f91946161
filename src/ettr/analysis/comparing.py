"""Which of several fleets, partitions or periods fails more often, and of what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ettr.analysis.clustering import FLEET
from ettr.analysis.fleet_evidence import FleetEvidence, same_nodes
from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate, Spread
from ettr.metrics.gate_checks import FleetChecks
from ettr.metrics.rates import FailuresByConfidence
from ettr.models.compare import (
    LEAST_COMMON_SHARE,
    Funnel,
    RateRatio,
    compare_rates,
    compare_same_nodes,
    compare_spread,
    compare_symptoms,
    funnel,
    holm_corrected,
    pooled_spread,
)
from ettr.models.data import Counts


@dataclass(frozen=True, slots=True)
class FleetRate:
    """One fleet: its failures and exposure, with the interval to believe, per 1,000 node-days."""

    name: str
    jobs: str
    failures: int
    node_days: float
    per_1000_node_days: float
    low: float
    high: float
    clustered: str
    by_confidence: FailuresByConfidence | None = None


@dataclass(frozen=True, slots=True)
class FleetPair:
    """One fleet against another, or against all others.

    Attributes:
        believe: Name of the field to believe: `independent`, `over_dispersed` or `paired`.
        paired: The same nodes in two periods, what each is prone to cancelled; None where fleets
            are compared, or where too few nodes ran in both periods.
    """

    a: str
    b: str
    independent: RateRatio
    over_dispersed: RateRatio
    believe: str
    by_symptom: dict[str, RateRatio]
    paired: RateRatio | None = None

    @property
    def ratio(self) -> RateRatio:
        """The ratio to believe."""
        if self.paired is not None:
            return self.paired
        return self.independent if self.believe == "independent" else self.over_dispersed


@dataclass(frozen=True, slots=True)
class FleetComparison:
    """Fleets side by side; `funnel` is None for two fleets, or where nothing failed.

    `checks`: of fleets whose training runs were checked, which check stopped which run.
    """

    fleets: tuple[FleetRate, ...]
    pairs: tuple[FleetPair, ...]
    funnel: Funnel | None
    confidence: float
    notes: tuple[str, ...]
    checks: tuple[FleetChecks, ...] = ()


def compare_fleets(
    fleets: Sequence[FleetEvidence], confidence: float, *, paired: bool = False
) -> FleetComparison:
    """Two fleets against each other; more of them each against all others, with a funnel.

    Args:
        paired: the two are one fleet in two periods, so that its nodes are compared with
            themselves.

    Raises:
        UsageError: fewer than two fleets, two of one name, or one without exposure.
    """
    _check_names([fleet.name for fleet in fleets])
    if len(fleets) == 2:
        pairs: tuple[FleetPair, ...] = (_pair(fleets[0], [fleets[1]], confidence, paired),)
    else:
        pairs = _corrected(
            tuple(
                _pair(one, [fleet for fleet in fleets if fleet is not one], confidence)
                for one in fleets
            )
        )
    rates = tuple(_rate(fleet, confidence) for fleet in fleets)
    return FleetComparison(
        fleets=rates,
        pairs=pairs,
        funnel=_funnel(fleets, pairs),
        confidence=confidence,
        notes=tuple(_notes(rates)),
        checks=tuple(fleet.checks for fleet in fleets if fleet.checks is not None),
    )


def _check_names(names: Sequence[str]) -> None:
    if len(names) < 2:
        raise UsageError(f"{len(names)} fleet cannot be compared with itself; give two or more")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"{', '.join(twice)}: two fleets have the same name; name them, such as "
            "old=30/5000 new=12/6000, or compare other stores"
        )


def _notes(fleets: Sequence[FleetRate]) -> Iterator[str]:
    """What a reader of the comparison must know, one sentence each."""
    if len({fleet.jobs for fleet in fleets}) > 1:
        kinds = "; ".join(f"{fleet.name}: {fleet.jobs}" for fleet in fleets)
        yield (
            f"The fleets count different kinds of jobs: {kinds}. Larger jobs meet other failures."
        )
    if len(fleets) > 2:
        yield (
            f"Each of the {len(fleets)} fleets is compared with all others together; p-values are "
            "corrected for their number (Holm)."
        )
    unknown = [fleet.name for fleet in fleets if fleet.clustered == "unknown"]
    if unknown:
        yield (
            f"Whether failures cluster is unknown for {', '.join(unknown)}: the verdicts "
            "on them hold only if their failures are independent."
        )


def _rate(evidence: FleetEvidence, confidence: float) -> FleetRate:
    found = evidence.spread
    spread = None if found is None else found.believed
    interval = (
        evidence.rate.interval(confidence)
        if spread is None
        else spread.interval(evidence.rate, confidence)
    )
    return FleetRate(
        name=evidence.name,
        jobs=evidence.jobs,
        failures=evidence.rate.failures,
        node_days=evidence.rate.node_days,
        per_1000_node_days=1000.0 * (evidence.rate.per_node_day or 0.0),
        low=1000.0 * interval.low,
        high=1000.0 * interval.high,
        clustered="unknown"
        if spread is None or not spread.is_known
        else ("over-dispersed" if spread.is_clustered else "poisson"),
        by_confidence=evidence.by_confidence,
    )


def _pair(
    a: FleetEvidence, others: Sequence[FleetEvidence], confidence: float, paired: bool = False
) -> FleetPair:
    b = others[0] if len(others) == 1 else _merged(others)
    names = (a.name, b.name)
    spreads = [spread for one in others for spread in one.spreads]
    wide = compare_spread(a.rate, b.rate, a.spreads, spreads, confidence, names)
    matched = _matched(a, b, confidence) if paired else None
    symptoms = (
        compare_symptoms(
            a.by_symptom,
            a.rate.node_days,
            b.by_symptom,
            b.rate.node_days,
            confidence,
            names,
            pooled_spread(a.spreads, spreads, confidence),
            _spread_of_symptoms(a, others, confidence),
        )
        if a.by_symptom or b.by_symptom
        else {}
    )
    if matched is not None:
        believe = "paired"
    else:
        believe = "over_dispersed" if wide.dispersion > 1.0 else "independent"
    independent = compare_rates(a.rate, b.rate, confidence, names)
    return FleetPair(a.name, b.name, independent, wide, believe, symptoms, matched)


def _matched(a: FleetEvidence, b: FleetEvidence, confidence: float) -> RateRatio | None:
    """The same nodes in two periods; None where too few ran in both."""
    pairs = same_nodes(a, b)
    if pairs is None or pairs.common_share < LEAST_COMMON_SHARE:
        return None
    over_time = [one for one in (*a.spreads, *b.spreads) if one.over == "time"]
    return compare_same_nodes(pairs, over_time, confidence, (a.name, b.name))


def _spread_of_symptoms(
    a: FleetEvidence, others: Sequence[FleetEvidence], confidence: float
) -> dict[str, Spread | None]:
    """How the failures of each symptom cluster, in a fleet and others taken together."""
    names = {*a.by_symptom, *(name for one in others for name in one.by_symptom)}
    return {
        name: pooled_spread(
            a.spreads_of(name), [s for one in others for s in one.spreads_of(name)], confidence
        )
        for name in sorted(names)
    }


def _merged(fleets: Sequence[FleetEvidence]) -> FleetEvidence:
    symptoms: dict[str, int] = {}
    for fleet in fleets:
        for symptom, count in fleet.by_symptom.items():
            symptoms[symptom] = symptoms.get(symptom, 0) + count
    if any(fleet.counts.unit != "node" for fleet in fleets):
        # the spread between a few fleets is not the spread between nodes
        total = sum(fleet.rate.failures for fleet in fleets)
        node_days = sum(fleet.rate.node_days for fleet in fleets)
        counts = Counts([total], [node_days], unit=FLEET)
    else:
        counts = Counts(
            np.concatenate([fleet.counts.failures for fleet in fleets]),
            np.concatenate([fleet.counts.exposure_node_days for fleet in fleets]),
            unplaced=sum(fleet.counts.unplaced for fleet in fleets),
            unplaced_node_days=sum(fleet.counts.unplaced_node_days for fleet in fleets),
        )
    return FleetEvidence("all others", counts, symptoms, "all others")


def _corrected(pairs: tuple[FleetPair, ...]) -> tuple[FleetPair, ...]:
    """The pairs with p-values and verdicts corrected for the number of fleets."""
    names = [(pair.a, pair.b) for pair in pairs]
    independent = holm_corrected([pair.independent for pair in pairs], names, "fleets")
    dispersed = holm_corrected([pair.over_dispersed for pair in pairs], names, "fleets")
    return tuple(
        replace(pair, independent=one, over_dispersed=other)
        for pair, one, other in zip(pairs, independent, dispersed, strict=True)
    )


def _funnel(fleets: Sequence[FleetEvidence], pairs: Sequence[FleetPair]) -> Funnel | None:
    rates: list[tuple[str, FailureRate]] = [(fleet.name, fleet.rate) for fleet in fleets]
    if len(rates) < 3 or not sum(rate.failures for _, rate in rates):
        return None
    return funnel(rates, over_dispersed=any(pair.believe != "independent" for pair in pairs))
