"""Fleets side by side: who fails more often, by how much, of what."""

from __future__ import annotations

import math

from ettr.analysis.comparing import FleetComparison, FleetPair
from ettr.estimates import Interval
from ettr.models.compare import Funnel, RateRatio
from ettr.report.numbers import between, number, percent
from ettr.report.section import Figure, Section, Table
from ettr.report.sections.funnel import PER_NODE_DAYS, funnel_figure


def compare_section(found: FleetComparison) -> Section:
    """The verdicts first, then rates, ratios and symptoms."""
    lead = " ".join(pair.ratio.meaning for pair in found.pairs)
    tables = [_rates_table(found), _ratios_table(found.pairs)]
    if len(found.pairs) == 1 and found.pairs[0].by_symptom:
        tables.append(_symptoms_table(found.pairs[0]))
    figures: tuple[Figure, ...] = ()
    if found.funnel is not None:
        tables.append(_funnel_table(found.funnel))
        figures = (
            funnel_figure(
                found.funnel,
                "funnel",
                "Funnel of fleets",
                "Rates against exposure, with the limits that chance alone would respect.",
                what="fleets",
                named=frozenset(point.name for point in found.funnel.points),
            ),
        )
    notes = (
        f"Intervals are at {percent(found.confidence, 2)} and exact for independent failures; the "
        "over-dispersed ratio admits the spread seen between nodes.",
        *found.notes,
    )
    return Section("compare", "Which fails more often", lead, figures, tuple(tables), notes)


def _rates_table(found: FleetComparison) -> Table:
    return Table(
        "Failures per 1,000 node-days",
        ("fleet", "jobs", "failures", "node-days", "rate", "failures cluster"),
        tuple(
            (
                fleet.name,
                fleet.jobs,
                number(fleet.failures),
                number(fleet.node_days, 6),
                between(Interval(fleet.per_1000_node_days, fleet.low, fleet.high)),
                {"poisson": "no", "over-dispersed": "yes"}.get(fleet.clustered, "cannot be known"),
            )
            for fleet in found.fleets
        ),
        frozenset({2, 3, 4}),
    )


def _ratio(ratio: RateRatio) -> str:
    if ratio.ratio is None:
        return f"{number(ratio.low)} or more" if ratio.low else "not known"
    low = "0" if ratio.low < 1e-3 else number(ratio.low)
    high = "∞" if math.isinf(ratio.high) else number(ratio.high)
    return f"{number(ratio.ratio)} [{low}, {high}]"


def p_value(value: float) -> str:
    """A p-value to two digits; below a millionth only that it is."""
    return "< 1e-6" if value < 1e-6 else f"{value:.2g}"


def _ratios_table(pairs: tuple[FleetPair, ...]) -> Table:
    rows = []
    for pair in pairs:
        for name, ratio in (
            ("independent", pair.independent),
            ("over-dispersed", pair.over_dispersed),
        ):
            rows.append(
                (
                    f"{pair.a} over {pair.b}",
                    name,
                    _ratio(ratio),
                    p_value(ratio.p_value),
                    number(ratio.dispersion),
                    "yes" if pair.believe == name else "",
                )
            )
    return Table(
        "Rate ratios",
        ("ratio of", "if failures are", "ratio", "p of equal rates", "variance/mean", "believe"),
        tuple(rows),
        frozenset({2, 3, 4}),
    )


def _symptoms_table(pair: FleetPair) -> Table:
    return Table(
        f"By symptom: {pair.a} over {pair.b}",
        ("symptom", pair.a, pair.b, "ratio", "p (Holm)", "meaning"),
        tuple(
            (
                symptom,
                number(ratio.a.failures),
                number(ratio.b.failures),
                _ratio(ratio),
                p_value(ratio.p_value),
                ratio.meaning,
            )
            for symptom, ratio in pair.by_symptom.items()
        ),
        frozenset({1, 2, 3, 4}),
    )


def _scaled(value: float) -> float:
    return value * PER_NODE_DAYS


def _funnel_table(found: Funnel) -> Table:
    return Table(
        f"Funnel around {number(_scaled(found.target_per_node_day))} per 1,000 node-days",
        ("fleet", "rate", "95 % of fleets lie in", "99.8 % lie in", "place"),
        tuple(
            (
                point.name,
                number(_scaled(point.rate.per_node_day or 0.0)),
                " to ".join(number(_scaled(end)) for end in point.limits_95),
                " to ".join(number(_scaled(end)) for end in point.limits_998),
                point.place,
            )
            for point in found.points
        ),
        frozenset({1, 2, 3}),
    )
