"""Whether failures are independent, and which model describes them."""

from __future__ import annotations

import math

from ettr.analysis.fleet import FleetModels, fleet_models
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate, FleetSpread, Spread, clustered_interval
from ettr.models.base import Fit
from ettr.models.compare import Funnel, FunnelPoint
from ettr.report.charts import limit_line, line, log_axis, points
from ettr.report.numbers import DASH, PER_NODE_DAYS, between, number, p_value
from ettr.report.registry import Part
from ettr.report.section import Figure, Section, TextTable
from ettr.words import counted, significant

_TITLE = "Do failures cluster"
_ABOVE_OUTER_LIMIT = "above 99.8 %"
NAMED_NODES = 5


def models_section(models: FleetModels) -> Section:
    """The dispersion test, the models and what each means."""
    spread = models.dispersion
    if spread is None:
        return Section("models", _TITLE, "No exposure, so no model can be fitted.")
    found = models.clustering
    lead = spread.meaning if found is None else found.meaning
    if models.bursts is not None:
        lead += f" {models.bursts.meaning}"
    notes = [
        f"{counted(spread.rate.failures, 'failure')} over {number(spread.rate.node_days, 5)} "
        "node-days.",
        *models.notes,
    ]
    if models.worst_nodes:
        notes.append(
            "A high count alone does not make a node a lemon: compare it with the count expected "
            "at the fleet's rate."
        )
    return Section(
        "models",
        _TITLE,
        lead,
        () if models.funnel is None else (node_funnel(models.funnel),),
        (
            intervals_table(spread.rate, found, spread.confidence),
            _fits_table(models.fits),
            _nodes_table(models),
        ),
        tuple(notes),
    )


def _fits_table(fits: tuple[Fit, ...]) -> TextTable:
    return TextTable(
        "Models of failures by node",
        ("model", "AIC", "p of fit", "parameters", "meaning"),
        tuple(
            (
                fit.model,
                number(fit.aic, 6),
                DASH if fit.goodness is None else p_value(fit.goodness.p_value),
                "; ".join(
                    f"{p.name} {number(p.estimate)} [{number(p.low)}, {number(p.high)}] {p.unit}"
                    for p in fit.parameters
                ),
                fit.meaning,
            )
            for fit in fits
        ),
        frozenset({1, 2}),
    )


def _nodes_table(models: FleetModels) -> TextTable:
    return TextTable(
        "Nodes with the most failures",
        ("node", "failures", "node-days", "expected at the fleet's rate"),
        tuple(
            (node.node, number(node.failures), number(node.node_days), number(node.expected))
            for node in models.worst_nodes
        ),
        frozenset({1, 2, 3}),
    )


def node_funnel(funnel: Funnel) -> Figure:
    """The nodes against chance; those furthest above it by name."""
    high = [point for point in funnel.points if point.place.startswith("above")]
    far = sum(point.place == _ABOVE_OUTER_LIMIT for point in high)
    high.sort(key=lambda point: -_excess(point, funnel.target_per_node_day))
    n_nodes = len(funnel.points)
    caption = (
        f"Each node's rate against its exposure. {far:,} of {counted(n_nodes, 'node')} lie above "
        "the 99.8 % control limit; if all nodes failed alike and independently, "
        f"{number(0.001 * n_nodes, 2)} or fewer would be expected there."
    )
    return funnel_figure(
        funnel,
        "node-funnel",
        "Funnel of nodes",
        caption,
        what="nodes",
        named=frozenset(point.name for point in high[:NAMED_NODES]),
    )


def _excess(point: FunnelPoint, per_node_day: float) -> float:
    """Standard deviations above the fleet's rate."""
    expected = per_node_day * point.rate.node_days
    return (point.rate.failures - expected) / math.sqrt(expected)


def intervals_table(
    rate: FailureRate,
    found: FleetSpread | None,
    confidence: float,
    what: str = "failure",
    *,
    at_most: bool = False,
) -> TextTable:
    """The exact interval, and those of the spread over nodes and over time where it is known.

    `at_most`: only nodes with trouble are known, so that the upper end is all that is.
    """
    rows: list[tuple[str, Interval, Spread | None]] = [
        ("independent (Poisson)", rate.interval(confidence), None)
    ]
    if found is not None:
        for one in (found.over_nodes, found.over_time):
            if one is not None and one.is_known:
                units = (
                    "nodes"
                    if one.window_days is None
                    else f"windows of {significant(one.window_days)} d"
                )
                label = f"clustered, as between {units}"
                rows.append((label, clustered_interval(rate, one, confidence), one))
    believed = None if found is None or not found.believed.is_clustered else found.believed
    return TextTable(
        f"The {what} rate under each assumption, per 1,000 node-days",
        (f"if {what}s are", "rate", "recommended"),
        tuple(
            (label, between(_known(interval, at_most)), "yes" if one == believed else "")
            for label, interval, one in rows
        ),
        frozenset({1}),
    )


def _known(interval: Interval, at_most: bool) -> Interval:
    shown = interval.scaled(PER_NODE_DAYS)
    return Interval(None, 0.0, shown.high) if at_most else shown


def funnel_figure(
    funnel: Funnel, slug: str, title: str, caption: str, *, what: str, named: frozenset[str]
) -> Figure:
    """The points of a funnel and its limits."""
    days = list(funnel.curve_node_days)
    highest = _highest(funnel)
    fleet_rate = PER_NODE_DAYS * funnel.target_per_node_day
    traces = [
        points(
            what,
            [point.rate.node_days for point in funnel.points],
            [PER_NODE_DAYS * _rate(point) for point in funnel.points],
            [_hover(point) for point in funnel.points],
            labels=[point.name if point.name in named else "" for point in funnel.points],
        ),
        line("rate of all", [days[0], days[-1]], [fleet_rate, fleet_rate]) | {"hoverinfo": "skip"},
    ]
    for share, curve, dash in (
        ("95 %", funnel.curve_95, "dash"),
        ("99.8 %", funnel.curve_998, "dot"),
    ):
        for end in (1, 0):
            limits = [PER_NODE_DAYS * ends[end] for ends in curve]
            traces.append(limit_line(f"limits of {share}", days, limits, dash, in_legend=end == 1))
    layout: dict[str, object] = {
        "xaxis": log_axis("node-days", days),
        "yaxis": {
            "range": [-0.04 * highest, highest],
            "zeroline": False,
            "title": {"text": "failures per 1,000 node-days"},
        },
    }
    return Figure(slug, title, caption, tuple(traces), layout)


def _hover(point: FunnelPoint) -> str:
    return (
        f"{point.name}: {counted(point.rate.failures, 'failure')} in "
        f"{number(point.rate.node_days, 4)} node-days\n{point.place}"
    )


def _highest(funnel: Funnel) -> float:
    """Where the axis ends: limits at hardly any exposure are no matter of interest."""
    limits = sorted(point.limits_998[1] for point in funnel.points)
    rates = [_rate(point) for point in funnel.points]
    return 1.15 * PER_NODE_DAYS * max(limits[len(limits) // 2], *rates)


def _rate(point: FunnelPoint) -> float:
    return point.rate.per_node_day or 0.0


MODELS = Part(
    "models",
    place=110,
    question=fleet_models,
    section=models_section,
    main="worst_nodes",
    title=_TITLE,
)
