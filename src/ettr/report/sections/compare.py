"""Fleets compared: which fails more often, by how much, of what."""

from __future__ import annotations

import math
from dataclasses import replace

from ettr.analysis.comparing import (
    AgainstPublished,
    FleetComparison,
    FleetPair,
    PublishedComparison,
)
from ettr.estimates import Interval
from ettr.models.compare import Funnel, RateRatio
from ettr.report.charts import rates_chart
from ettr.report.numbers import (
    DASH,
    PER_NODE_DAYS,
    and_confidence,
    between,
    by_confidence,
    number,
    p_value,
    percent,
)
from ettr.report.section import Figure, Section, TextTable
from ettr.report.sections.below_ettr import checks_table, stopped_of_fleets
from ettr.report.sections.models import funnel_figure


def compare_section(comparison: FleetComparison) -> Section:
    """The verdicts first, then rates, ratios and symptoms."""
    lead = " ".join(pair.ratio.meaning for pair in comparison.pairs)
    tables = [_rates_table(comparison), ratios_table(comparison.pairs)]
    if len(comparison.pairs) == 1 and comparison.pairs[0].by_symptom:
        tables.append(_symptoms_table(comparison.pairs[0]))
    if comparison.checks:
        tables[0] = replace(tables[0], in_brief=True)
        tables += [checks_table(comparison.checks), stopped_of_fleets(comparison.checks)]
    figures: tuple[Figure, ...] = (
        rates_chart(
            "compare-rates",
            "Failure rates",
            "Of each fleet, with the interval of the table.",
            {
                fleet.name: Interval(fleet.per_1000_node_days, fleet.low, fleet.high)
                for fleet in comparison.fleets
            },
        ),
    )
    if comparison.funnel is not None:
        tables.append(_funnel_table(comparison.funnel))
        figures += (
            funnel_figure(
                comparison.funnel,
                "funnel",
                "Funnel of fleets",
                "Rates against exposure, with the limits that chance alone would respect.",
                what="fleets",
                named=frozenset(point.name for point in comparison.funnel.points),
            ),
        )
    notes = (
        f"Intervals are at {percent(comparison.confidence, 2)} and exact for independent failures; "
        "those for clustered failures allow for the spread seen over time or between nodes.",
        *comparison.notes,
    )
    jobs = {fleet.jobs for fleet in comparison.fleets} - {"all jobs"}
    careful = f"Only {', '.join(sorted(jobs))} count; --all-jobs compares all." if jobs else ""
    return Section(
        "compare",
        "Which fails more often",
        lead,
        figures,
        tuple(tables),
        notes,
        careful=careful,
    )


def _rates_table(comparison: FleetComparison) -> TextTable:
    return TextTable(
        "Failure rates",
        (
            "fleet",
            "jobs",
            "failures",
            "node-days",
            "failures per 1,000 node-days",
            "clustered",
            "by confidence",
        ),
        tuple(
            (
                fleet.name,
                fleet.jobs,
                number(fleet.failures),
                number(fleet.node_days, 6),
                between(Interval(fleet.per_1000_node_days, fleet.low, fleet.high)),
                {"poisson": "no", "over-dispersed": "yes"}.get(fleet.clustered, "unknown"),
                by_confidence(fleet.by_confidence) or DASH,
            )
            for fleet in comparison.fleets
        ),
        frozenset({2, 3, 4}),
    )


def _ratio(ratio: RateRatio) -> str:
    if ratio.ratio is None:
        return f"≥ {number(ratio.low)}" if ratio.low else "unknown"
    low = "0" if ratio.low < 1e-3 else number(ratio.low)
    high = "∞" if math.isinf(ratio.high) else number(ratio.high)
    return f"{number(ratio.ratio)} [{low}, {high}]"


def _ends(ratio: RateRatio) -> tuple[float, float]:
    return ratio.low, ratio.high


def ratios_table(pairs: tuple[FleetPair, ...]) -> TextTable:
    """The ratio of each pair, by what is assumed of the clustering of failures."""
    rows = []
    for pair in pairs:
        assumed = [("independent", "independent", pair.independent)]
        if _ends(pair.over_dispersed) != _ends(pair.independent):
            assumed.append(("over_dispersed", "clustered (over-dispersed)", pair.over_dispersed))
        if pair.paired is not None:
            assumed.append(("paired", "clustered in time, on the same nodes", pair.paired))
        for name, label, ratio in assumed:
            rows.append(
                (
                    f"{pair.a} over {pair.b}",
                    label,
                    _ratio(ratio),
                    p_value(ratio.p_value),
                    number(ratio.dispersion),
                    "yes" if pair.believe == name else "",
                )
            )
    return TextTable(
        "Rate ratios",
        (
            "rates of",
            "if failures are",
            "ratio",
            "p of equal rates",
            "variance / mean",
            "recommended",
        ),
        tuple(rows),
        frozenset({2, 3, 4}),
    )


def _symptoms_table(pair: FleetPair) -> TextTable:
    return TextTable(
        f"By symptom: {pair.a} over {pair.b}",
        ("symptom", f"failures, {pair.a}", f"failures, {pair.b}", "ratio", "p (Holm)", "meaning"),
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


def _funnel_table(funnel: Funnel) -> TextTable:
    return TextTable(
        f"Funnel around {number(_scaled(funnel.target_per_node_day))} per 1,000 node-days",
        ("fleet", "rate", "95 % limits", "99.8 % limits", "position"),
        tuple(
            (
                point.name,
                number(_scaled(point.rate.per_node_day or 0.0)),
                " to ".join(number(_scaled(end)) for end in point.limits_95),
                " to ".join(number(_scaled(end)) for end in point.limits_998),
                point.place,
            )
            for point in funnel.points
        ),
        frozenset({1, 2, 3}),
    )


# -- A fleet next to published ones ---------------------------------------------------------------


def published_section(found: PublishedComparison) -> Section:
    """The fleet's rate first, then each published one with the ratio and what it counts."""
    rows = [_row(one) for one in found.published]
    return Section(
        "published",
        "Next to published fleets",
        f"{found.name} has {between(found.per_1000_node_days)} failures per 1,000 node-days "
        f"({found.failures:,} in {number(found.node_days, 5)} node-days; {found.jobs}"
        f"{and_confidence(found.by_confidence)}).",
        figures=(
            rates_chart(
                "published",
                "Failure rates",
                "This fleet first. A published rate without its count has no interval.",
                {
                    found.name: found.per_1000_node_days,
                    **{one.name: _drawn(one) for one in found.published if _has_rate(one)},
                },
            ),
        ),
        tables=(
            TextTable(
                "Published rates per 1,000 node-days",
                ("fleet", "failures", "node-days", "rate", f"{found.name} over it", "p"),
                tuple(rows),
                frozenset({1, 2, 3, 4, 5}),
            ),
            TextTable(
                "What they count",
                ("fleet", "counted", "source"),
                tuple((one.name, one.counted, one.source) for one in found.published),
            ),
        ),
        notes=(
            f"Intervals are at {percent(found.confidence, 2)}. A published rate without its count "
            "has none, and the ratio to it has that of this fleet alone and no test.",
            *found.notes,
        ),
    )


def _has_rate(one: AgainstPublished) -> bool:
    return one.per_1000_node_days.estimate is not None


def _drawn(one: AgainstPublished) -> Interval:
    """Its rate, as a point alone where it has no interval."""
    rate = one.per_1000_node_days
    if one.failures is None and rate.estimate is not None:
        return Interval(rate.estimate, rate.estimate, rate.estimate)
    return rate


def _row(one: AgainstPublished) -> tuple[str, ...]:
    bare = one.failures is None
    rate = one.per_1000_node_days
    return (
        one.name,
        DASH if one.failures is None else f"{one.failures:,}",
        DASH if one.node_days is None else number(one.node_days, 6),
        number(rate.estimate) if bare or rate.estimate is None else between(rate),
        DASH
        if one.ratio.estimate is None and one.node_days is None and not bare
        else between(one.ratio),
        DASH if one.p_value is None else p_value(one.p_value),
    )
