"""A fleet next to published ones."""

from __future__ import annotations

from ettr.analysis.published import AgainstPublished, PublishedComparison
from ettr.estimates import Interval
from ettr.report.charts import rates_chart
from ettr.report.numbers import DASH, and_confidence, between, number, p_value, percent
from ettr.report.section import Section, TextTable


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
